"""Operands brought into the order in which the register tile reads them: at compile time or inside a kernel.

B is stored panel after panel, each [k][width] with the width of its panel and zeros beyond the last column. Elements
are those of the tile's emitter: f32, or the inputs of several steps of k side by side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ....ir import bands
from ....ir.mapped import forget
from ....ir.types import DType, ceil_div
from ....kernel_ir.builder import F32, Builder, KValue
from ....kernel_ir.loops import INDEX, KFunc, KType, PtrType
from ...fusion import load
from ...lowering import LowerContext, Weight
from ...microkernels.emitter import SINGLE, Emitter
from .blocking import PanelKind, static

ROWS_AHEAD = 12  # of what lies a page or so apart, which no machine fetches by itself


def packed_panels(
    ctx: LowerContext,
    source: np.ndarray,
    kinds: Sequence[PanelKind],
    lanes: int,
    *,
    order: Sequence[int] | None = None,
    emitter: Emitter = SINGLE,
) -> Weight:
    """[group, *K, N] → a weight, [group, K · padded N]: panel after panel of [K][width], K in steps of the tile.

    Args:
        source: better a view of the model's constant than a copy: it is read band after band.
        order: which indices of the second axis are packed, one after the other; None: all, as they are.
        emitter: of the tiles; those that take several inputs in a step have one K, or one at each index of `order`.
    """
    groups, *depth, _ = source.shape
    if order is None:
        depth[0] = ceil_div(depth[0], emitter.k_step)
    else:
        depth = [len(order), ceil_div(depth[1], emitter.k_step)]
    each = lanes * emitter.width
    n_columns = sum(static(kind.count) * kind.vectors * each for kind in kinds)

    def fill(place: np.ndarray) -> None:
        for target, first in panels_of(place, depth, kinds, each):
            columns = source[..., first:]
            if order is None:
                _fill_steps(target, columns, emitter)
            for at, index in enumerate(order or ()):
                _fill_steps(target[:, at], columns[:, index], emitter)

    element = emitter.b_element.numpy
    assert element is not None
    return ctx.weights.make((groups, math.prod(depth) * n_columns), element, fill)


def panels_of(
    place: np.ndarray, depth: Sequence[int], kinds: Sequence[PanelKind], lanes: int
) -> Iterator[tuple[np.ndarray, int]]:
    """For each kind of panel its part of `place`, as [group, *K, panel, width], and the first column in it."""
    at = 0
    for kind in kinds:
        count, width = static(kind.count), kind.vectors * lanes
        size = math.prod(depth) * count * width
        panels = place[:, at : at + size].reshape(len(place), count, *depth, width)
        yield np.moveaxis(panels, 1, -2), static(kind.column)
        at += size


def _fill_steps(target: np.ndarray, source: np.ndarray, emitter: Emitter) -> None:
    """[group, *K, panel, width] from columns [group, *K, N], of several inputs a step band after band as they lie."""
    if emitter.k_step == 1:
        _fill(target, source)
        return
    count, width = target.shape[-2], target.shape[-1] // emitter.width
    source = source[..., : count * width]
    by_column = abs(source.strides[-1]) > abs(source.strides[1])
    unit = source[:, :, :width] if by_column else source[:, : emitter.k_step]
    several = max(1, bands.BAND_NBYTES // max(1, unit.nbytes))  # panels, or steps
    for first in range(0, count if by_column else target.shape[1], several):
        last = first + several
        if by_column:
            band, place = source[..., first * width : last * width], target[..., first:last, :]
        else:
            band, place = source[:, first * emitter.k_step : last * emitter.k_step], target[:, first:last]
        _fill(place, emitter.pack_columns(band), emitter.width if emitter.matrices else 1)
        forget(band)


def _fill(target: np.ndarray, source: np.ndarray, rows: int = 1) -> None:
    """[..., panel, width] from columns that may be too few, or too many; of `rows` each, as rows of columns."""
    count, width = target.shape[-2:]
    whole = min(count, source.shape[-1] // width)
    shape = (*source.shape[:-1], whole, width // rows, rows)
    _turn(target[..., :whole, :], source[..., : whole * width].reshape(shape))
    if whole < count:
        rest = source[..., whole * width :]
        _turn(target[..., whole, :], rest.reshape(*rest.shape[:-1], -1, rows))


def _turn(target: np.ndarray, source: np.ndarray) -> None:
    """[..., rows · width], a view, from [..., columns, rows]; there may be fewer columns."""
    columns, rows = source.shape[-2:]
    place = target.reshape(*target.shape[:-1], rows, target.shape[-1] // rows)  # of a contiguous axis: no copy
    bands.copy(place[..., :columns], source.swapaxes(-1, -2))


def pad_vector(vector: np.ndarray, nelements: int) -> np.ndarray:
    """A vector as f32 with zeros up to `nelements`."""
    out = np.zeros(nelements, np.float32)
    out[: vector.size] = vector.reshape(-1)
    return out


def copy_function(ctx: LowerContext, dtype: DType, mode: str, lanes: int, emitter: Emitter = SINGLE) -> KFunc:
    """A function that writes dst[r · pitch + c] = scale · src[r · row_stride + c · column_stride] as f32.

    For c in [columns, fill) it writes zeros; dst may be written up to the next multiple of `lanes` columns. Of tiles
    that take several inputs in a step, each element of dst holds as many columns, and `pitch` counts elements; those of
    whole numbers take columns as they are, one behind the other.

    Args:
        mode: "rows" (column_stride is 1), "panel" (likewise, few columns of rows that are far apart),
            "transposed" (row_stride is 1, one input in a step), "strided" (any).
    """
    key = ("copy", dtype, mode, lanes, emitter)
    if key not in ctx.functions:
        name = f"copy_{mode}_{dtype}_{len(ctx.functions)}"
        numbers = ["rows", "columns", "row_stride", "column_stride", "pitch", "fill"]
        k = Builder(
            name,
            [("src", PtrType(dtype)), ("dst", PtrType(emitter.element)), *((n, INDEX) for n in numbers),
             ("scale", KType(F32))],
            inline="never",
        )  # fmt: skip
        if mode == "transposed":
            _transposed(k, lanes)
        else:
            _by_rows(k, lanes, mode, emitter)
        ctx.functions[key] = k.func
    return ctx.functions[key]


def _by_rows(k: Builder, lanes: int, mode: str, emitter: Emitter) -> None:
    step, real = lanes * emitter.k_step, emitter.source.is_float
    scale = k.splat(k["scale"], lanes)

    def row(r: KValue, _: list[KValue]) -> None:
        source = k.gep(k["src"], r * k["row_stride"])
        at = r * k["pitch"]
        whole = k.udiv(k["columns"], step) * step

        def get(c: KValue, mask: KValue | None) -> KValue:
            if mode == "panel":
                k.prefetch(source, c + k["row_stride"] * ROWS_AHEAD)
            if mode != "strided":
                return load(k, source, c, lanes, mask)
            stride = k["column_stride"]
            index = k.splat(c * stride, lanes) + k.ramp(lanes) * k.splat(stride, lanes)
            return k.cast(k.gather(source, index, mask), emitter.source)

        def put(c: KValue, is_whole: bool) -> None:
            place = at + k.udiv(c, emitter.k_step) * emitter.width
            parts = []
            for first in (c + part * lanes for part in range(emitter.k_step)):
                mask = None if is_whole else k.tail_mask(k["columns"] - first, lanes)
                parts.append(get(first, mask) * scale if real else get(first, mask))
            k.store(k["dst"], place, emitter.pack(k, parts))

        k.for_(0, whole, step, [], lambda c, _: put(c, True))
        k.for_(whole, k["fill"], step, [], lambda c, _: put(c, False))

    k.for_(0, k["rows"], 1, [], row)


def _transposed(k: Builder, lanes: int) -> None:
    """Blocks of lanes × lanes: load columns, exchange at distances 1, 2, 4, …, store rows."""
    scale = k.splat(k["scale"], lanes)
    zero = k.splat(k.const(0.0, F32), lanes)

    def block(r: KValue, c: KValue) -> None:
        n_rows = k["rows"] - r

        def whole() -> list[KValue]:
            for j in range(lanes):  # the same rows of the next columns
                k.prefetch(k["src"], r + (c + lanes + j) * k["column_stride"])
            return [load(k, k["src"], r + (c + j) * k["column_stride"], lanes) * scale for j in range(lanes)]

        def part() -> list[KValue]:
            mask = k.tail_mask(n_rows, lanes)
            out = []
            for j in range(lanes):

                def get(j: int = j) -> list[KValue]:
                    return [load(k, k["src"], r + (c + j) * k["column_stride"], lanes, mask) * scale]

                out += k.if_(c + j < k["columns"], get, lambda: [zero + 0.0])
            return out

        columns = k.if_((n_rows >= lanes) & (c + lanes <= k["columns"]), whole, part)
        for j, row in enumerate(transpose_square(k, columns)):
            k.if_(k.index(j) < n_rows, lambda j=j, row=row: k.store(k["dst"], (r + j) * k["pitch"] + c, row))  # type: ignore[misc]

    k.for_(0, k["fill"], lanes, [], lambda c, _: k.for_(0, k["rows"], lanes, [], lambda r, _: block(r, c)) and None)


def transpose_square(k: Builder, rows: list[KValue]) -> list[KValue]:
    """Transpose n vectors of n lanes with n·log2(n) shuffles (n a power of two); of more lanes, every n of them."""
    n, lanes = len(rows), range(rows[0].lanes)
    rows = list(rows)
    d = 1
    while d < n:
        low = [lane if lane & d == 0 else len(lanes) + lane - d for lane in lanes]
        high = [lane + d if lane & d == 0 else len(lanes) + lane for lane in lanes]
        for i in range(n):
            if i & d == 0:
                a, b = rows[i], rows[i + d]
                rows[i], rows[i + d] = k.shuffle(a, b, low), k.shuffle(a, b, high)
        d *= 2
    return rows
