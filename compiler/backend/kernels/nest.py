"""Loop nests over tensors of any layout: the schedule of element-wise and data-movement kernels.

Owns axis order, merging of axes, vectorisation of the innermost one and the split into work items. It must not know
what is computed: the caller's body receives offsets and a vector length.

Loops: `for item in [begin, end): decode outer indices; for i in inner step lanes: body` with a masked tail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...ir.types import Dim, TensorType, ceil_div, prod
from ...kernel_ir.builder import Builder, KValue

CHUNK = 4096  # elements of one work item of a one-dimensional nest


@dataclass(frozen=True)
class Axes:
    """Iteration space: sizes, outermost first, and each operand's element stride along every axis."""

    sizes: tuple[Dim, ...]
    strides: tuple[tuple[Dim, ...], ...]

    @property
    def inner(self) -> Dim:
        return self.sizes[-1]

    @property
    def outer(self) -> tuple[Dim, ...]:
        return self.sizes[:-1]

    @property
    def work(self) -> Dim:
        """Work items: rows, or chunks of a single row."""
        return prod(self.outer) if len(self.sizes) > 1 else ceil_div(self.inner, CHUNK)


def broadcast_strides(operand: TensorType, result: TensorType) -> tuple[Dim, ...]:
    """Element strides of a broadcast operand per logical axis of the result (0 where it repeats)."""
    lead = result.rank - operand.rank
    own = operand.strides
    return tuple(0 if a < lead or (operand.dims[a - lead] == 1 and result.dims[a] != 1) else own[a - lead]
                 for a in range(result.rank))


def iteration_axes(result: TensorType, operands: Sequence[Sequence[Dim]]) -> Axes:
    """Axes in the result's memory order, without size-1 axes, neighbours merged where every operand allows it.

    Args:
        operands: strides per logical axis of the result, one row per operand (the result's own among them).
    """
    return merge_axes(result.axis_order, result.dims, operands)


def merge_axes(order: Sequence[int], dims: Sequence[Dim], operands: Sequence[Sequence[Dim]]) -> Axes:
    """The axes named in `order`, outermost first, without size-1 axes, neighbours merged where every operand allows it.

    Args:
        dims: size per logical axis. operands: strides per logical axis, one row per operand.
    """
    sizes: list[Dim] = []
    strides: list[list[Dim]] = [[] for _ in operands]
    for a in order:
        size = dims[a]
        if size == 1:
            continue
        if sizes and all(row[-1] == own[a] * size for row, own in zip(strides, operands)):
            sizes[-1] = sizes[-1] * size
            for row, own in zip(strides, operands):
                row[-1] = own[a]
        else:
            sizes.append(size)
            for row, own in zip(strides, operands):
                row.append(own[a])
    if not sizes:
        sizes, strides = [1], [[0] for _ in operands]
    return Axes(tuple(sizes), tuple(tuple(r) for r in strides))


@dataclass(frozen=True)
class Lane:
    """One vector's worth of iterations along the innermost axis.

    Attributes:
        offsets: per operand the element offset of lane 0. steps: per operand the stride between lanes.
        index: position of lane 0 on the innermost axis. outer: indices of the outer axes.
        lanes, mask: vector length; the mask is None where all lanes are on.
    """

    offsets: tuple[KValue, ...]
    steps: tuple[Dim, ...]
    index: KValue
    outer: tuple[KValue, ...]
    lanes: int
    mask: KValue | None


def emit_nest(k: Builder, axes: Axes, lanes: int, body: Callable[[Lane], None], unroll: int = 2) -> None:
    """Write the nest for work items [begin, end) of `axes.work`."""
    emit_rows(k, axes, lambda row: emit_row(k, axes, lanes, body, row, unroll))


@dataclass(frozen=True)
class Row:
    """Positions [begin, end) of the innermost axis; `bases`: each operand's offset of position 0.

    Of a nest of one axis these are a core's share, which may be empty; else the whole axis.
    """

    bases: tuple[KValue, ...]
    outer: tuple[KValue, ...]
    begin: KValue
    end: KValue


def emit_rows(k: Builder, axes: Axes, body: Callable[[Row], None]) -> None:
    """Write the outer loops for work items [begin, end) of `axes.work`; `body` writes one row."""
    if len(axes.sizes) == 1:
        begin = k["begin"] * CHUNK
        end = k.min(k["end"] * CHUNK, k.index(axes.inner))
        body(Row(tuple(k.index(0) for _ in axes.strides), (), begin, end))
        return

    def item(work: KValue, _: list[KValue]) -> None:
        outer = decode(k, work, axes.outer)
        bases = []
        for row in axes.strides:
            base = k.index(0)
            for index, stride in zip(outer, row):
                if stride != 0:
                    base = base + index * k.index(stride)
            bases.append(base)
        body(Row(tuple(bases), outer, k.index(0), k.index(axes.inner)))

    k.for_(k["begin"], k["end"], 1, [], item)


def decode(k: Builder, work: KValue, sizes: Sequence[Dim]) -> tuple[KValue, ...]:
    """Indices of a flat position in a row-major space."""
    out: list[KValue] = []
    rest = work
    for size in reversed(sizes[1:]):
        n = k.index(size)
        out.append(k.urem(rest, n))
        rest = k.udiv(rest, n)
    out.append(rest)
    return tuple(reversed(out))


def emit_row(k: Builder, axes: Axes, lanes: int, body: Callable[[Lane], None], row: Row, unroll: int = 2) -> None:
    """Write the loop over one row, `lanes` positions at a time.

    How many positions there are is for the row to say: an axis of known size, even of one position, may be shared.
    """
    begin, end = row.begin, row.end
    steps = tuple(row[-1] for row in axes.strides)
    whole = int(end.const) - int(begin.const) if begin.const is not None and end.const is not None else None

    def vector(i: KValue, width: int, mask: KValue | None) -> None:
        offsets = tuple(b + i * k.index(s) if s != 0 else b for b, s in zip(row.bases, steps))
        body(Lane(offsets, steps, i, row.outer, width, mask))

    if axes.inner == 1:
        k.if_(begin < end, lambda: vector(begin, 1, None))
        return
    main = begin + k.udiv(k.max(end - begin, 0), lanes) * lanes
    if whole is None or whole >= lanes:
        k.for_(begin, main, lanes, [], lambda i, _: vector(i, lanes, None), unroll)
    rest = end - main
    if whole is not None:
        if whole % lanes:
            vector(main, lanes, k.tail_mask(rest, lanes))
        return
    k.if_(rest > 0, lambda: vector(main, lanes, k.tail_mask(rest, lanes)))


def emit_span(k: Builder, begin: KValue, end: KValue, lanes: int,
              body: Callable[[KValue, int, KValue | None], None]) -> None:
    """`for i in [begin, end) step lanes: body(i, lanes, mask)`; only the last vector has a mask."""
    main = begin + k.udiv(k.max(end - begin, 0), lanes) * lanes
    k.for_(begin, main, lanes, [], lambda i, _: body(i, lanes, None))
    if lanes > 1:
        k.if_(main < end, lambda: body(main, lanes, k.tail_mask(end - main, lanes)))


def unit_strides(rank: int, axis: int) -> tuple[Dim, ...]:
    """As an operand's strides these make its offset the coordinate on `axis`."""
    return tuple(int(a == axis) for a in range(rank))


def lane_values(k: Builder, lane: Lane, operand: int) -> KValue:
    """An operand's offset in each lane: the coordinate, for `unit_strides`."""
    offset, step = lane.offsets[operand], lane.steps[operand]
    return k.splat(offset, lane.lanes) if step == 0 or lane.lanes == 1 else strided_index(k, offset, step, lane.lanes)


def load_lane(k: Builder, ptr: KValue, lane: Lane, operand: int) -> KValue:
    """The operand's elements for one vector: contiguous, repeated or gathered."""
    offset, step = lane.offsets[operand], lane.steps[operand]
    if lane.lanes == 1 or step == 0:
        return k.load(ptr, offset)
    if step == 1:
        return k.load(ptr, offset, lane.lanes, lane.mask)
    return k.gather(ptr, strided_index(k, offset, step, lane.lanes), lane.mask)


def store_lane(k: Builder, ptr: KValue, lane: Lane, operand: int, value: KValue) -> None:
    """Store one vector where the operand's innermost stride is 1, scatter it otherwise."""
    offset, step = lane.offsets[operand], lane.steps[operand]
    if lane.lanes == 1:
        k.store(ptr, offset, value)
    elif step == 1:
        k.store(ptr, offset, k.splat(value, lane.lanes), lane.mask)
    else:
        k.scatter(ptr, strided_index(k, offset, step, lane.lanes), k.splat(value, lane.lanes), lane.mask)


def strided_index(k: Builder, offset: KValue, step: Dim, lanes: int) -> KValue:
    """offset + i·step for each lane i."""
    return k.splat(offset, lanes) + k.ramp(lanes) * k.splat(k.index(step), lanes)
