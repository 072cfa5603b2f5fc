"""Pools over sliding windows, any number of spatial axes, any layout, padding never copied.

Loops: for row of outputs in items: for output (or vector of outputs) in row: for tap in window. Vectors lie along the
result's innermost axis. Where that is no spatial axis (channels last) all lanes share one window, whose taps are
clipped to the input once, and inner windows are unrolled; else lanes are neighbouring outputs and each tap has a mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from ...ir.graph import Node
from ...ir.kernel_builder import Builder, KValue
from ...ir.loops import KFunc
from ...ir.ops.geometry import WindowGeometry
from ...ir.ops.pool import AveragePool, MaxPool, Pool
from ...ir.types import I32, I64, Dim, DType, TensorType, ceil_div, prod
from ..fusion import Fusion
from ..lowering import KernelCall, LowerContext, lowers
from .line_tail import LineOperands, accumulator
from .lines import shifted
from .nest import Lane, decode, strided_index
from .reduce import root_context

UNROLLED_TAPS = 49  # largest window that is written out
VECTORS = 4  # vectors of channels at once

State = list[KValue]


@dataclass(frozen=True)
class PoolPlan:
    """What the loops need to know of one pool.

    Attributes:
        order: axes of the result in memory order. rows: strides of x, extra operands and outputs per axis of the
            result; x's are those of the window's first tap. indices: whether positions are asked for.
    """

    op: Pool
    geometry: WindowGeometry
    operands: LineOperands
    order: tuple[int, ...]
    rows: tuple[tuple[Dim, ...], ...]
    dtype: DType
    lanes: int
    indices: bool

    @property
    def x(self) -> TensorType:
        return self.operands.x

    @property
    def result(self) -> TensorType:
        return self.operands.result

    @property
    def vector_axis(self) -> int:
        return self.order[-1]

    @property
    def shares_window(self) -> bool:
        """Whether all lanes of a vector look at the same window."""
        return self.vector_axis < 2

    @property
    def item_axes(self) -> tuple[int, ...]:
        return self.order[:-2] if self.shares_window else self.order[:-1]

    @property
    def never_clipped(self) -> bool:
        """Whether every window lies inside the input."""
        g = self.geometry
        return not self.op.ceil_mode and all(p == 0 for p in (*g.pads_begin, *g.pads_end))


@lowers(Pool)
def lower_pool(ctx: LowerContext, node: Node) -> KernelCall:
    """MaxPool (also with Indices), AveragePool, LpPool."""
    fusion = Fusion.of(node)
    op = fusion.root.op
    assert isinstance(op, Pool) and fusion.root_inputs[0] is not None
    source = fusion.root_inputs[0]
    x, result = source.tensor, fusion.result.tensor
    geometry = op.geometry(root_context(fusion))
    steps = (1, 1, *geometry.strides)
    strides = tuple(s * step for s, step in zip(x.strides, steps))
    operands = LineOperands(fusion, (("x", source, strides),), tuple(range(x.rank)))
    # axes of size 1 have no place in memory: put first, they hide no channels-last result
    order = tuple(sorted(result.axis_order, key=lambda a: result.dims[a] != 1))
    indices = len(fusion.root.outputs) > 1
    dtype = accumulator(x.dtype)
    lanes = ctx.target.vector_bits // (max(32, dtype.bits) if indices else dtype.bits)
    inner = result.dims[order[-1]]
    while isinstance(inner, int) and lanes > 4 and lanes // 2 >= inner:
        lanes //= 2
    plan = PoolPlan(op, geometry, operands, order, tuple(operands.rows()), dtype, lanes, indices)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, operands.params())
        k.for_(k["begin"], k["end"], 1, [], lambda work, _: _item(k, plan, work))
        return k.func

    func = ctx.function("pool", node, build)
    return operands.call(ctx, func, prod(result.dims[a] for a in plan.item_axes))


@dataclass(frozen=True)
class Taps:
    """The taps of one spatial axis that lie inside the input: [low, high), and whether that is all of them."""

    low: KValue
    high: KValue
    inside: KValue
    start: KValue


def _taps(k: Builder, plan: PoolPlan, i: int, output: KValue) -> Taps:
    """Clip the window of spatial axis `i` at position `output`."""
    g = plan.geometry
    start = output * g.strides[i] - k.index(g.pads_begin[i])
    size, kernel, d = k.index(g.input[i]), g.kernel[i], g.dilations[i]
    if plan.never_clipped:
        return Taps(k.index(0), k.index(kernel), start >= start, start)
    low = k.udiv(k.max(k.index(0) - start, 0) + (d - 1), d)
    high = k.min(k.udiv(k.max(size - start, 0) + (d - 1), d), kernel)
    return Taps(low, high, (start >= 0) & (start + g.extent[i] <= size), start)


def _fold_taps(k: Builder, ranges: Sequence[tuple[KValue, KValue]], state: State, unroll: bool,
               visit: Callable[[list[KValue], State], State], taps: Sequence[KValue] = ()) -> State:
    """visit(taps, state) for each combination of taps, the last axis fastest."""
    if not ranges:
        return visit(list(taps), state)
    (low, high), rest = ranges[0], ranges[1:]
    if unroll and low.const is not None and high.const is not None:
        for t in range(int(low.const), int(high.const)):
            state = _fold_taps(k, rest, state, unroll, visit, [*taps, k.index(t)])
        return state
    return k.for_(low, high, 1, state, lambda t, s: _fold_taps(k, rest, list(s), unroll, visit, [*taps, t]))


def _item(k: Builder, plan: PoolPlan, work: KValue) -> None:
    result = plan.result
    index = dict(zip(plan.item_axes, decode(k, work, [result.dims[a] for a in plan.item_axes])))
    bases = [k.index(0)] * len(plan.rows)
    for axis, i in index.items():
        bases = list(shifted(k, bases, [row[axis] for row in plan.rows], i))
    if plan.shares_window:
        _shared_row(k, plan, index, bases)
    else:
        _spatial_row(k, plan, index, bases)


def _shared_row(k: Builder, plan: PoolPlan, index: dict[int, KValue], bases: list[KValue]) -> None:
    """Outputs along the second innermost axis; vectors along the innermost one, which no window moves along."""
    row_axis, axis, result = plan.order[-2], plan.vector_axis, plan.result
    spatial = range(plan.geometry.rank)
    outer = {i: _taps(k, plan, i, index[i + 2]) for i in spatial if i + 2 in index}
    channels, most = result.dims[axis], VECTORS
    vectors = min(most, -(-channels // plan.lanes)) if isinstance(channels, int) else most
    total = math.prod(plan.geometry.kernel)

    def output(position: KValue, _: State) -> None:
        here = {**index, row_axis: position}
        taps = [outer.get(i) or _taps(k, plan, i, here.get(i + 2, k.index(0))) for i in spatial]
        at = shifted(k, bases, [row[row_axis] for row in plan.rows], position)

        def blocks(ranges: list[tuple[KValue, KValue]], unroll: bool) -> None:
            def block(first: KValue, masks: list[KValue | None]) -> None:
                window = _Window(k, plan, taps, ranges, unroll)
                window.block({**here, axis: first}, shifted(k, at, [row[axis] for row in plan.rows], first), masks)

            _channel_blocks(k, channels, vectors, plan.lanes, block)

        whole = [(k.index(0), k.index(n)) for n in plan.geometry.kernel]
        if plan.never_clipped:
            blocks(whole, total <= UNROLLED_TAPS)
            return
        inside = reduce(lambda a, b: a & b, [t.inside for t in taps])
        k.if_(inside, lambda: blocks(whole, total <= UNROLLED_TAPS),
              lambda: blocks([(t.low, t.high) for t in taps], False))

    k.for_(0, k.index(result.dims[row_axis]), 1, [], output)


def _channel_blocks(k: Builder, channels: Dim, vectors: int, lanes: int,
                    block: Callable[[KValue, list[KValue | None]], None]) -> None:
    """Whole blocks of vectors, then a masked one."""
    width, size = vectors * lanes, k.index(channels)
    main = k.udiv(size, width) * width
    k.for_(0, main, width, [], lambda c, _: block(c, [None] * vectors))

    def rest(n: int) -> None:
        left = size - main
        block(main, [None if isinstance(channels, int) and (v + 1) * lanes <= channels % width
                     else k.tail_mask(left - v * lanes, lanes) for v in range(n)])

    if not isinstance(channels, int):
        k.if_(main < size, lambda: rest(vectors))
    elif channels % width:
        rest(ceil_div(channels % width, lanes))


class _Window:
    """One window whose taps are shared by all lanes of some vectors."""

    def __init__(self, k: Builder, plan: PoolPlan, taps: list[Taps], ranges: list[tuple[KValue, KValue]],
                 unroll: bool) -> None:
        self.k, self.plan, self.taps, self.ranges, self.unroll = k, plan, taps, ranges, unroll

    def block(self, index: dict[int, KValue], at: Sequence[KValue], masks: list[KValue | None]) -> None:
        """Reduce the window for the vectors that start at the offsets `at` and store them."""
        k, plan = self.k, self.plan
        x, g, lanes = plan.x, plan.geometry, plan.lanes
        steps = tuple(row[plan.vector_axis] for row in plan.rows)
        vectors = [Lane(shifted(k, at, steps, k.index(v * lanes)), steps, index[plan.vector_axis] + v * lanes, (),
                        lanes, mask) for v, mask in enumerate(masks)]
        origin = k.index(0)
        for i in range(g.rank):
            origin = origin - k.index(g.pads_begin[i]) * k.index(x.strides[i + 2])

        def visit(taps: list[KValue], state: State) -> State:
            offset, position = origin, k.index(0)
            for i, t in enumerate(taps):
                offset = offset + t * k.index(x.strides[i + 2] * g.dilations[i])
                position = position + (self.taps[i].start + t * g.dilations[i]) * k.index(spatial_stride(plan, i))
            out: State = []
            for v, lane in enumerate(vectors):
                element = load_vector(k, k["x"], lane.offsets[0] + offset, lane.steps[0], lanes, lane.mask)
                out += combine(k, plan, state[v * m : v * m + m], element, k.splat(position, lanes))
            return out

        init = initial(k, plan)
        m = len(init)
        state = _fold_taps(k, self.ranges, init * len(vectors), self.unroll, visit)
        count = window_count(k, plan, self.taps, self.ranges)
        for v, lane in enumerate(vectors):
            finish(k, plan, lane, index, state[v * m : v * m + m], count)


def _spatial_row(k: Builder, plan: PoolPlan, index: dict[int, KValue], bases: list[KValue]) -> None:
    """Vectors of neighbouring outputs along the innermost axis, which is spatial: taps inside differ by lane."""
    axis, g, x, lanes = plan.vector_axis, plan.geometry, plan.x, plan.lanes
    last = axis - 2
    others = [i for i in range(g.rank) if i != last]
    outer = {i: _taps(k, plan, i, index[i + 2]) for i in others}
    size = k.index(plan.result.dims[axis])
    ramp = k.ramp(lanes)
    step = g.strides[last] * x.strides[axis]
    whole_taps = [(k.index(0), k.index(g.kernel[last]))]
    ranges = [(outer[i].low, outer[i].high) for i in others] + whole_taps
    unroll = g.kernel[last] <= UNROLLED_TAPS

    def at_tap(lane: Lane, taps: Sequence[KValue], start: KValue) -> tuple[KValue, KValue]:
        """Offset of lane 0's element of a tap, and the positions of all lanes in the image."""
        offset, where = lane.offsets[0], k.splat(k.index(0), lanes)
        for i, t in zip([*others, last], taps):
            offset = offset + (t * g.dilations[i] - k.index(g.pads_begin[i])) * k.index(x.strides[i + 2])
            here = start + ramp * g.strides[last] if i == last else outer[i].start
            stride = k.index(spatial_stride(plan, i))
            where = where + k.splat(here + k.splat(t * g.dilations[i], here.lanes), lanes) * k.splat(stride, lanes)
        return offset, where

    def clipped(lane: Lane, start: KValue) -> None:
        tail = k.tail_mask(size - lane.index, lanes)
        end = k.index(g.input[last])

        def visit(taps: list[KValue], state: State) -> State:
            offset, where = at_tap(lane, taps, start)
            first = start + taps[-1] * g.dilations[last]
            inside = within(k, first, g.strides[last], end, lanes) & tail
            element = load_clipped(k, k["x"], offset, step, g.strides[last], first, end, inside)
            new = combine(k, plan, state[:m], element, where)
            if not plan.never_clipped:
                new = [k.select(inside, a, b) for a, b in zip(new, state)]
            return new + [n + k.cast(inside, I32) for n in state[m:]]

        init = initial(k, plan)
        m, counted = len(init), not plan.never_clipped and not _counts_padding(plan)
        state = _fold_taps(k, ranges, [*init, *[k.splat(k.const(0, I32), lanes)] * counted], unroll, visit)
        if counted:
            count = k.cast(state[-1], plan.dtype)
        elif _counts_padding(plan):
            positions = k.splat(start, lanes) + ramp * g.strides[last]
            count = padded_count(k, plan, {**{i: outer[i].start for i in others}, last: positions})
        else:
            count = k.const(math.prod(g.kernel), plan.dtype)
        finish(k, plan, replace(lane, mask=tail), {**index, axis: lane.index}, state[:m], count)

    def whole(lane: Lane, start: KValue) -> None:
        def visit(taps: list[KValue], state: State) -> State:
            offset, where = at_tap(lane, taps, start)
            return combine(k, plan, state, load_vector(k, k["x"], offset, step, lanes, None), where)

        state = _fold_taps(k, ranges, initial(k, plan), unroll, visit)
        taps = [outer.get(i) or Taps(k.index(0), k.index(g.kernel[i]), start >= 0, start) for i in range(g.rank)]
        finish(k, plan, lane, {**index, axis: lane.index}, state, window_count(k, plan, taps, ranges))

    def vector(first: KValue, _: State) -> None:
        steps = tuple(row[axis] for row in plan.rows)
        lane = Lane(shifted(k, bases, steps, first), steps, first, (), lanes, None)
        start = first * g.strides[last] - k.index(g.pads_begin[last])
        inside = first + lanes <= size
        if not plan.never_clipped:
            end = start + ((lanes - 1) * g.strides[last] + g.extent[last])
            inside = inside & (start >= 0) & (end <= k.index(g.input[last]))
        k.if_(inside, lambda: whole(lane, start), lambda: clipped(lane, start))

    k.for_(0, size, lanes, [], vector)


def within(k: Builder, first: KValue, step: int, end: KValue, lanes: int) -> KValue:
    """Lanes i whose position first + i · step lies in [0, end)."""
    position = k.splat(k.cast(first, I32), lanes) + k.ramp(lanes, I32) * step
    return (position >= 0) & (position < k.splat(k.cast(end, I32), lanes))


def load_vector(k: Builder, ptr: KValue, offset: KValue, step: Dim, lanes: int, mask: KValue | None) -> KValue:
    """Elements offset, offset + step, …; contiguous where the step is 1."""
    if step == 1:
        return k.load(ptr, offset, lanes, mask)
    if step == 2 and mask is None and lanes > 1:
        return _every_other(k, [k.load(ptr, offset + at, lanes) for at in (0, lanes - 1)])
    return k.gather(ptr, strided_index(k, offset, step, lanes), mask)


def _every_other(k: Builder, halves: list[KValue]) -> KValue:
    """Elements 0, 2, 4, … of two vectors, the second of which starts one early: it must not read beyond the end."""
    lanes = halves[0].lanes
    return k.shuffle(halves[0], halves[1], [*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)])


def load_clipped(k: Builder, ptr: KValue, offset: KValue, step: Dim, window_step: int, first: KValue, end: KValue,
                 inside: KValue) -> KValue:
    """The lanes `inside`; lane 0 is at position `first` of a row that ends at `end`, which no load may leave."""
    lanes = inside.lanes
    if step == 2 and window_step == 2 and lanes > 1:
        return _every_other(k, [k.load(ptr, offset + at, lanes, within(k, first + at, 1, end, lanes))
                                for at in (0, lanes - 1)])
    return load_vector(k, ptr, offset, step, lanes, inside)


def initial(k: Builder, plan: PoolPlan) -> State:
    """The neutral element for a vector, and a position if it is asked for."""
    lanes = plan.lanes
    value = k.splat(k.const(plan.op.init(k, plan.dtype), plan.dtype), lanes)
    return [value, k.splat(k.const(-1, I64), lanes)] if plan.indices else [value]


def combine(k: Builder, plan: PoolPlan, state: State, element: KValue, position: KValue) -> State:
    """Take one tap in; the first of equal elements keeps its position."""
    element = plan.op.map(k, k.cast(element, plan.dtype))
    if not plan.indices:
        return [plan.op.combine(k, state[0], element)]
    wins = (element > state[0]) | (state[1] < 0)
    return [k.select(wins, element, state[0]), k.select(wins, position, state[1])]


def spatial_stride(plan: PoolPlan, i: int) -> Dim:
    """Distance of neighbours along spatial axis i in MaxPool's Indices."""
    sizes = plan.geometry.input
    column_major = isinstance(plan.op, MaxPool) and plan.op.storage_order == 1
    return prod(sizes[:i]) if column_major else prod(sizes[i + 1 :])


def _counts_padding(plan: PoolPlan) -> bool:
    return isinstance(plan.op, AveragePool) and bool(plan.op.count_include_pad)


def window_count(k: Builder, plan: PoolPlan, taps: list[Taps], ranges: list[tuple[KValue, KValue]]) -> KValue:
    """Elements that an average divides by, as a scalar of the accumulator's type."""
    if _counts_padding(plan):
        return padded_count(k, plan, {i: t.start for i, t in enumerate(taps)})
    n = k.index(1)
    for low, high in ranges:
        n = n * (high - low)
    return k.const(n.const, plan.dtype) if n.const is not None else k.cast(n, plan.dtype)


def padded_count(k: Builder, plan: PoolPlan, starts: dict[int, KValue]) -> KValue:
    """Taps inside the padded input: all of them, except where ceil_mode lets a window stick out."""
    g, n = plan.geometry, k.const(1, plan.dtype)
    for i, start in starts.items():
        kernel, d = g.kernel[i], g.dilations[i]
        if not plan.op.ceil_mode:
            n = n * k.const(kernel, plan.dtype) if n.const is None else k.const(n.const * kernel, plan.dtype)
            continue
        room = k.splat(k.index(g.input[i]) + k.index(g.pads_end[i]), start.lanes) - start + (d - 1)
        inside = k.min(k.binary("div", room, k.const(d, room)), kernel)
        n = k.binary("mul", n, k.cast(inside, plan.dtype))
    return n


def finish(k: Builder, plan: PoolPlan, lane: Lane, index: dict[int, KValue], state: State, count: KValue) -> None:
    """Store one vector of results, and their positions in the whole tensor."""
    plan.operands.finish(k, lane, plan.op.finish(k, state[0], k.splat(count, plan.lanes)))
    if plan.indices:
        x, axis = plan.x, plan.vector_axis
        image = [k.splat(index.get(a, k.index(0)), plan.lanes) for a in (0, 1)]
        if axis < 2:
            image[axis] = k.splat(lane.index, plan.lanes) + k.ramp(plan.lanes)
        number = image[0] * k.splat(k.index(x.dims[1]), plan.lanes) + image[1]
        whole = state[1] + number * k.splat(k.index(prod(plan.geometry.input)), plan.lanes)
        plan.operands.store_statistics(k, lane, [whole])
