"""Contractions as plain loops, vectorised over the result's innermost axis: every element type, every layout.

The oracle of the fast kernels' tests and the kernel of element types that have no fast one. Knows offsets, no
operators: an operand's offset is linear in the result's index and in the contracted index. Long sums are of blocks of
`MOST_STEPS` terms, each from zero, as those of the register tile are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ir.types import Dim, DType
from ...kernel_ir.builder import Builder, KValue
from ..fusion import Epilogue, Fusion
from .matmul.blocking import MOST_STEPS
from .reduction.line_blocks import Blocks, fold_axis


@dataclass
class Term:
    """What is added up at one contracted index: x[x_at + lane · x_step] · w[w_at + lane · w_step], if `valid`.

    x_at, w_at: offsets at the first lane. valid: None = always; a scalar or one bit per lane.
    margin: what is multiplied by w in the place of x where a scalar `valid` is false.
    """

    x_at: KValue
    w_at: KValue
    x_step: Dim
    w_step: Dim
    valid: KValue | None = None
    margin: int = 0


def strided_load(k: Builder, ptr: KValue, at: KValue, step: Dim, lanes: int, mask: KValue | None) -> KValue:
    """`lanes` elements `step` apart (0 = one element for all lanes)."""
    if step == 0:
        return k.splat(k.load(ptr, at), lanes)
    if step == 1:
        return k.load(ptr, at, lanes, mask)
    index = k.splat(at, lanes) + k.ramp(lanes) * k.splat(k.index(step), lanes)
    return k.gather(ptr, index, mask)


def emit_plain(
    k: Builder,
    fusion: Fusion,
    dtype: DType,
    lanes: int,
    extents: Sequence[Dim],
    term: Callable[[list[KValue], KValue, list[KValue]], Term],
    start: Callable[[list[KValue], KValue, int, KValue | None], KValue],
    finish: Callable[[KValue, list[KValue], KValue, int, KValue | None], KValue] | None = None,
) -> None:
    """The kernel over rows × columns of the result; work items are rows.

    Args:
        dtype: of the accumulator. extents: sizes of the contracted indices.
        term: (row index per logical axis but the innermost, column, contracted index) → what to add.
        start: (row index, column, lanes, mask) → initial value. finish: (the sum, the same) → the result.
    """
    epilogue = Epilogue(k, fusion)
    columns = k.index(epilogue.columns)
    zero = k.splat(k.const(0, dtype), lanes)
    blocks = blocks_of(extents, [zero]) if dtype.is_float else None

    def row(r: KValue, _: list[KValue]) -> None:
        index = row_index(k, epilogue, r)

        def vector(c: KValue, mask: KValue) -> None:
            def inner(at: list[KValue], acc: KValue) -> KValue:
                if len(at) < len(extents):

                    def part(first: KValue, end: KValue, sums: list[KValue]) -> list[KValue]:
                        return k.for_(first, end, 1, sums, lambda i, a: [inner([*at, i], a[0])])

                    return fold_axis(k, blocks, len(at), k.index(extents[len(at)]), [acc], part)[0]
                t = term(index, c, at)
                m = mask if t.valid is None else mask & k.splat(t.valid, lanes)
                if t.valid is not None and t.valid.lanes == 1:
                    return k.if_(t.valid, lambda: [add(t, acc, mask)], lambda: [outside(t, acc, mask)])[0]
                return add(t, acc, m)

            def add(t: Term, acc: KValue, m: KValue) -> KValue:
                x = k.cast(strided_load(k, k["x"], t.x_at, t.x_step, lanes, m), dtype)
                w = k.cast(strided_load(k, k["w"], t.w_at, t.w_step, lanes, m), dtype)
                return acc + x * w

            def outside(t: Term, acc: KValue, m: KValue) -> KValue:
                if not t.margin:
                    return acc
                w = k.cast(strided_load(k, k["w"], t.w_at, t.w_step, lanes, m), dtype)
                return acc + w * t.margin

            acc = k.splat(start(index, c, lanes, mask), lanes)
            total = inner([], acc)
            epilogue.apply(r, c, total if finish is None else finish(total, index, c, lanes, mask), mask)

        k.for_(0, columns, lanes, [], lambda c, _: vector(c, k.tail_mask(columns - c, lanes)))

    k.for_(k["begin"], k["end"], 1, [], row)


def blocks_of(extents: Sequence[Dim], zero: list[KValue]) -> Blocks | None:
    """How a sum over all contracted indices is cut; None where it is short."""
    inner = 1
    for axis in reversed(range(len(extents))):
        size = extents[axis]
        if not isinstance(size, int) or size * inner > MOST_STEPS:
            return Blocks(axis, max(1, MOST_STEPS // max(inner, 1)), zero, lambda a, b: [a[0] + b[0]])
        inner *= size
    return None


def row_index(k: Builder, epilogue: Epilogue, row: KValue) -> list[KValue]:
    """The index per logical axis of a row (0 for the innermost axis)."""
    return decompose(k, row, epilogue.row_axes, epilogue.type.dims)


def decompose(k: Builder, flat: KValue, axes: Sequence[int], dims: Sequence[Dim]) -> list[KValue]:
    """Index per axis of a flat index over `axes`, outermost first; other axes get 0."""
    out = [k.index(0)] * len(dims)
    for i, a in enumerate(reversed(axes)):
        size = k.index(dims[a])
        if i == len(axes) - 1:
            out[a] = flat
        else:
            rest = k.udiv(flat, size)
            out[a] = flat - rest * size
            flat = rest
    return out
