"""One window of a pool: which taps lie inside the input, what is done with an element, what an average divides by.

Owns what the two schedules of pools share; it must not know which axis vectors lie along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....ir.ops.geometry import WindowGeometry
from ....ir.ops.pool import AveragePool, LpPool, Maximum, MaxPool, Pool
from ....ir.ops.pool_training import TrainingMaxPool
from ....ir.types import BOOL, I32, I64, Dim, DType, TensorType, prod
from ....kernel_ir.builder import Builder, KValue
from ..nest import Lane, strided_index
from ..reduction.line_tail import LineOperands

MANY_TAPS = 1024  # chosen, not measured
UNROLLED_TAPS = 49  # largest window that is written out

State = list[KValue]


@dataclass(frozen=True)
class PoolPlan:
    """What the loops need to know of one pool.

    Attributes:
        order: axes of the result in memory order. rows: strides of x, extra operands and outputs per axis of the
            result; x's are those of the window's first tap. indices: whether positions are asked for: in the
            tensor, or, of TrainingMaxPool, in the window.
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
    def compensated(self) -> bool:
        """Whether sums carry what their roundings lost: those of many terms err by too much."""
        return isinstance(self.op, (AveragePool, LpPool)) and math.prod(self.geometry.kernel) >= MANY_TAPS

    @property
    def counts_taps(self) -> bool:
        """Whether positions are numbers of taps."""
        return isinstance(self.op, TrainingMaxPool)

    @property
    def position_type(self) -> DType:
        """What positions are counted in."""
        return I32 if self.counts_taps else I64

    @property
    def never_clipped(self) -> bool:
        """Whether every window lies inside the input."""
        g = self.geometry
        return not self.op.ceil_mode and all(p == 0 for p in (*g.pads_begin, *g.pads_end))


@dataclass(frozen=True)
class Taps:
    """The taps of one spatial axis that lie inside the input: [low, high), and whether that is all of them."""

    low: KValue
    high: KValue
    inside: KValue
    start: KValue


def clip_taps(k: Builder, plan: PoolPlan, i: int, output: KValue) -> Taps:
    """Clip the window of spatial axis `i` at position `output`."""
    g = plan.geometry
    start = output * g.strides[i] - k.index(g.pads_begin[i])
    size, kernel, d = k.index(g.input[i]), g.kernel[i], g.dilations[i]
    if plan.never_clipped:
        return Taps(k.index(0), k.index(kernel), start >= start, start)
    low = k.udiv(k.max(k.index(0) - start, 0) + (d - 1), d)
    high = k.min(k.udiv(k.max(size - start, 0) + (d - 1), d), kernel)
    return Taps(low, high, (start >= 0) & (start + g.extent[i] <= size), start)


def fold_taps(k: Builder, ranges: Sequence[tuple[KValue, KValue]], state: State, unroll: bool,
               visit: Callable[[list[KValue], State], State], taps: Sequence[KValue] = ()) -> State:
    """visit(taps, state) for each combination of taps, the last axis fastest."""
    if not ranges:
        return visit(list(taps), state)
    (low, high), rest = ranges[0], ranges[1:]
    if unroll and low.const is not None and high.const is not None:
        for t in range(int(low.const), int(high.const)):
            state = fold_taps(k, rest, state, unroll, visit, [*taps, k.index(t)])
        return state
    return k.for_(low, high, 1, state, lambda t, s: fold_taps(k, rest, list(s), unroll, visit, [*taps, t]))


def load_vector(k: Builder, ptr: KValue, offset: KValue, step: Dim, lanes: int, mask: KValue | None) -> KValue:
    """Elements offset, offset + step, …; contiguous where the step is 1."""
    if step == 1:
        return k.load(ptr, offset, lanes, mask)
    if step == 2 and mask is None and lanes > 1:
        return every_other(k, [k.load(ptr, offset + at, lanes) for at in (0, lanes - 1)])
    return k.gather(ptr, strided_index(k, offset, step, lanes), mask)


def every_other(k: Builder, halves: list[KValue]) -> KValue:
    """Elements 0, 2, 4, … of two vectors, the second of which starts one early: it must not read beyond the end."""
    lanes = halves[0].lanes
    return k.shuffle(halves[0], halves[1], [*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)])


def is_written_out(ranges: Sequence[tuple[KValue, KValue]], unroll: bool) -> bool:
    """Whether `fold_taps` makes no loop of a window."""
    return unroll and all(low.const is not None and high.const is not None for low, high in ranges)


def initial(k: Builder, plan: PoolPlan, written_out: bool = False) -> State:
    """The neutral element for a vector; with it what sums lost, or a position if it is asked for.

    Args:
        written_out: whether the window is. Then a maximum passes over NaN and a mask of the lanes that have met none
            goes with it: LLVM makes one comparison of two taps, where each would take two instructions more. `finish`
            puts NaN in. In a loop such a mask of few lanes is widened and narrowed again at every turn.
    """
    lanes = plan.lanes
    value = k.splat(k.const(plan.op.init(k, plan.dtype), plan.dtype), lanes)
    if plan.compensated:
        return [value, k.splat(k.const(0, plan.dtype), lanes)]
    if plan.indices:
        return [value, k.splat(k.const(-1, plan.position_type), lanes)]
    is_maximum = isinstance(plan.op, Maximum) and plan.dtype.is_float
    return [value, k.splat(k.const(1, BOOL), lanes)] if is_maximum and written_out else [value]


def combine(k: Builder, plan: PoolPlan, state: State, element: KValue, position: KValue) -> State:
    """Take one tap in; the first of equal elements keeps its position, and so does the first NaN."""
    element = plan.op.map(k, k.cast(element, plan.dtype))
    if plan.compensated:  # Kahan, "Further remarks on reducing truncation errors", 1965
        added = element - state[1]
        total = state[0] + added
        lost = (total - state[0]) - added
        return [total, k.select(lost - lost == 0, lost, 0)]  # of infinities nothing is lost
    if len(state) == 1:
        return [plan.op.combine(k, state[0], element)]
    if not plan.indices:
        return [k.select(element > state[0], element, state[0]), state[1] & (element == element)]
    wins = (element > state[0]) | (state[1] < 0)
    if plan.dtype.is_float:
        wins = wins | (k.is_nan(element) & (state[0] == state[0]))
    return [k.select(wins, element, state[0]), k.select(wins, position, state[1])]


def position_along(k: Builder, plan: PoolPlan, i: int, start: KValue, tap: KValue) -> KValue:
    """What a tap of a window that begins at `start`, of one lane or several, adds to its position for axis i."""
    if plan.counts_taps:
        return k.cast(tap * math.prod(plan.geometry.kernel[i + 1 :]), I32)
    place = start + k.splat(tap * plan.geometry.dilations[i], start.lanes)
    return place * k.splat(k.index(_stride(plan, i)), start.lanes)


def _stride(plan: PoolPlan, i: int) -> Dim:
    """Distance of neighbours along spatial axis i in MaxPool's Indices."""
    sizes = plan.geometry.input
    column_major = isinstance(plan.op, MaxPool) and plan.op.storage_order == 1
    return prod(sizes[:i]) if column_major else prod(sizes[i + 1 :])


def counts_padding(plan: PoolPlan) -> bool:
    """Whether an average divides by the taps in the padding too."""
    return isinstance(plan.op, AveragePool) and bool(plan.op.count_include_pad)


def window_count(k: Builder, plan: PoolPlan, taps: list[Taps], ranges: list[tuple[KValue, KValue]]) -> KValue:
    """Elements that an average divides by, as a scalar of the accumulator's type."""
    if counts_padding(plan):
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
    value = state[0]
    if len(state) == 2 and state[1].dtype == BOOL:
        value = k.select(state[1], value, math.nan)
    plan.operands.finish(k, lane, plan.op.finish(k, value, k.splat(count, plan.lanes)))
    if plan.counts_taps:
        plan.operands.store_statistics(k, lane, [state[1]])
    elif plan.indices:
        x, axis = plan.x, plan.vector_axis
        image = [k.splat(index.get(a, k.index(0)), plan.lanes) for a in (0, 1)]
        if axis < 2:
            image[axis] = k.splat(lane.index, plan.lanes) + k.ramp(plan.lanes)
        number = image[0] * k.splat(k.index(x.dims[1]), plan.lanes) + image[1]
        whole = state[1] + number * k.splat(k.index(prod(plan.geometry.input)), plan.lanes)
        plan.operands.store_statistics(k, lane, [whole])
