"""GridSample and Col2Im: sums of input elements at computed positions.

GridSample: loops of `nest` over the result; positions come from the grid, once a row channels-last, else once a vector.
Follows ONNX Runtime's grid_sample.cc: out-of-range positions are clamped or mirrored first, then single elements.
Col2Im: for each element of the image the sum over those windows that cover it, one element at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from ....ir.graph import Node
from ....ir.ops.sampling import Col2Im, GridSample
from ....ir.types import F32, F64, I64, Dim, DType
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import register_dtype
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import (
    Lane,
    Row,
    decode,
    emit_nest,
    emit_row,
    emit_rows,
    iteration_axes,
    store_lane,
    strided_index,
    unit_strides,
)
from .resize import cubic_weights

MOST_WRITTEN_OUT = 64  # elements of a Col2Im's block


@dataclass(frozen=True)
class _Pick:
    """One input position on an axis: clamped into it, its weight (None = 1), whether it lies inside."""

    position: KValue
    weight: KValue | None
    inside: KValue | None


def _reflect(k: Builder, x: KValue, low: KValue, high: KValue) -> KValue:
    """x mirrored at the ends of [low, high] until it lies inside."""
    span = k.max(high - low, 1e-30)
    away = k.max(k.max(low - x, x - high), 0)
    turns = k.trunc(away / span)  # type: ignore[attr-defined]
    rest = away - turns * span
    odd = turns - k.floor(turns / 2) * 2 > 0.5  # type: ignore[attr-defined]
    from_low, from_high = k.select(odd, high - rest, low + rest), k.select(odd, low + rest, high - rest)
    return k.select(x < low, from_low, k.select(x > high, from_high, x))


def _picks(k: Builder, op: GridSample, size: Dim, g: KValue) -> list[_Pick]:
    """The positions on an axis of x that grid coordinate g (f32 or f64) reads."""
    n = k.cast(k.index(size), g.dtype)
    last = k.index(size) - 1
    top = n - 1
    low, high = (k.const(0, g.dtype), top) if op.align_corners else (k.const(-0.5, g.dtype), n - 0.5)
    x = (g + 1) * top / 2 if op.align_corners else ((g + 1) * n - 1) / 2
    if op.mode == "nearest":
        x = k.round_even(x)  # type: ignore[attr-defined]
    if op.padding_mode == "border" and op.mode != "cubic":
        x = k.clip(x, 0, top)
    elif op.padding_mode == "reflection":
        x = _reflect(k, x, low, high)

    def pick(position: KValue, weight: KValue | None) -> _Pick:
        inside = (position >= 0) & (position <= top) if op.padding_mode == "zeros" else None
        if op.padding_mode == "reflection":
            position = _reflect(k, position, low, high)
        return _Pick(k.clip(k.cast(position, I64), 0, last), weight, inside)

    if op.mode == "nearest":
        return [pick(x, None)]
    start = k.floor(x)  # type: ignore[attr-defined]
    s = x - start
    if op.mode == "linear":
        return [pick(start, 1 - s), pick(start + 1, s)]
    return [pick(start + (j - 1), w) for j, w in enumerate(cubic_weights(-0.75, s))]


@lowers(GridSample)
def lower_grid_sample(ctx: LowerContext, node: Node) -> KernelCall:
    """One kernel for all modes."""
    assert isinstance(node.op, GridSample)
    x, grid, y = node.operands[0].tensor, node.operands[1].tensor, node.output.tensor
    space = x.rank - 2
    x_strides = (x.strides[0], x.strides[1], *[0] * space)
    grid_strides = (grid.strides[0], 0, *grid.strides[1:-1])
    axes = iteration_axes(y, [y.strides, x_strides, grid_strides])
    by_row = axes.strides[2][-1] == 0
    lanes = ctx.lanes if x.dtype.nbytes >= 4 or by_row else 1
    site = _Site(node.op, x.dims[2:], x.strides[2:], grid.strides[-1], x.dtype, F64 if x.dtype == F64 else F32)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [("x", PtrType(x.dtype)), ("grid", PtrType(grid.dtype)), ("y", PtrType(y.dtype))])

        def row(r: Row) -> None:
            def read(component: int) -> KValue:
                return k.load(k["grid"], r.bases[2] + k.index(site.step) * component)

            def body() -> None:
                fixed = site.positions(k, read)
                emit_row(k, axes, lanes, lambda lane: site.element(k, lane, fixed), r, 1)

            if by_row:
                k.if_(r.begin < r.end, body)
            else:
                emit_row(k, axes, lanes, lambda lane: site.element(k, lane, site.of_lane(k, lane)), r, 1)

        emit_rows(k, axes, row)
        return k.func

    func = ctx.function("grid_sample", node, build)
    return KernelCall(func, (*node.operands, node.output), axes.work, node.name, nbytes=x.nbytes + y.nbytes)


@dataclass(frozen=True)
class _Site:
    """What one GridSample computes; lane operands are y, x, grid. `step`: between the coordinates of a position."""

    op: GridSample
    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    step: Dim
    dtype: DType
    real: DType

    def positions(self, k: Builder, read: Callable[[int], KValue]) -> list[list[_Pick]]:
        """Per axis of x what a position reads; `read` gives a coordinate."""
        space = len(self.sizes)
        return [_picks(k, self.op, size, k.cast(read(space - 1 - a), self.real)) for a, size in enumerate(self.sizes)]

    def of_lane(self, k: Builder, lane: Lane) -> list[list[_Pick]]:
        """`positions` for every lane."""

        def read(component: int) -> KValue:
            at = lane.offsets[2] + k.index(self.step) * component
            if lane.lanes == 1:
                return k.load(k["grid"], at)
            return k.gather(k["grid"], strided_index(k, at, lane.steps[2], lane.lanes), lane.mask)

        return self.positions(k, read)

    def element(self, k: Builder, lane: Lane, per_axis: list[list[_Pick]]) -> None:
        """Sum the products and store."""
        wide = register_dtype(self.dtype)
        wide = wide if wide.is_float else F32
        total: KValue | None = None
        for combination in product(*per_axis):
            offset, weight, inside = k.index(0), None, None
            for pick, stride in zip(combination, self.strides):
                offset = pick.position * k.index(stride) + offset
                if pick.weight is not None:
                    weight = pick.weight if weight is None else k.binary("mul", weight, pick.weight)
                if pick.inside is not None:
                    inside = pick.inside if inside is None else inside & pick.inside
            value = self._load(k, lane, offset)
            if weight is not None:
                value = k.cast(value, wide)
            if inside is not None:
                value = k.select(k.splat(inside, lane.lanes), value, 0) if value.dtype == wide else self._zero(
                    k, inside, value)
            if weight is not None:
                weight = k.splat(k.cast(weight, wide), lane.lanes)
                total = weight * value if total is None else k.fma(weight, value, total)
            else:
                total = value
        assert total is not None
        store_lane(k, k["y"], lane, 0, k.cast(total, self.dtype))

    def _zero(self, k: Builder, inside: KValue, value: KValue) -> KValue:
        wide = register_dtype(value.dtype)
        return k.cast(k.select(k.splat(inside, value.lanes), k.cast(value, wide), 0), value.dtype)

    def _load(self, k: Builder, lane: Lane, offset: KValue) -> KValue:
        at, step = lane.offsets[1], lane.steps[1]
        if offset.lanes > 1:  # of one channel and one position an image, lanes are images
            return k.gather(k["x"], offset + strided_index(k, at, step, lane.lanes), lane.mask)
        if lane.lanes == 1 or step == 0:
            return k.splat(k.load(k["x"], at + offset), lane.lanes)
        if step == 1:
            return k.load(k["x"], at + offset, lane.lanes, lane.mask)
        return k.gather(k["x"], strided_index(k, at + offset, step, lane.lanes), lane.mask)


@lowers(Col2Im)
def lower_col2im(ctx: LowerContext, node: Node) -> KernelCall:
    """One work item per row of the image."""
    assert isinstance(node.op, Col2Im)
    x, y = node.operands[0].tensor, node.output.tensor
    windows = node.op.windows(node.context())
    rank = y.rank
    strides = [y.strides, *(unit_strides(rank, a) for a in range(rank))]
    axes = iteration_axes(y, strides)
    wide = register_dtype(y.dtype)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [("x", PtrType(x.dtype)), ("y", PtrType(y.dtype))])

        sizes = [w[1] for w in windows]
        n_taps = math.prod(sizes)

        def body(lane: Lane) -> None:
            n, c, *at = lane.offsets[1:]

            def element(tap: KValue | int, block: Sequence[KValue | int]) -> KValue:
                """What one element of the block lays over this place of the image."""
                window = k.index(0)
                inside: KValue | None = None
                for (_, _, dilation, pad, stride, number), i, b in zip(windows, at, block):
                    start = i + pad - b * dilation
                    place = k.binary("div", k.max(start, 0), stride)
                    good = (start >= 0) & (place * stride == start) & (place < k.index(number))
                    window = window * k.index(number) + k.min(place, k.index(number) - 1)
                    inside = good if inside is None else inside & good
                offset = n * k.index(x.strides[0]) + (c * n_taps + tap) * k.index(x.strides[1])
                return k.cast(k.load(k["x"], offset + window * k.index(x.strides[2]), 1, inside), wide)

            total = k.const(0, wide)
            if n_taps <= MOST_WRITTEN_OUT:
                for tap, block in enumerate(product(*map(range, sizes))):
                    total = total + element(tap, block)
            else:
                total = k.for_(0, n_taps, 1, [total], lambda t, s: [s[0] + element(t, decode(k, t, sizes))])[0]
            k.store(k["y"], lane.offsets[0], k.cast(total, y.dtype))

        emit_nest(k, axes, 1, body, 1)
        return k.func

    func = ctx.function("col2im", node, build, tuple(windows))
    return KernelCall(func, (node.operands[0], node.output), axes.work, node.name, nbytes=x.nbytes + y.nbytes)
