"""Reductions along axes, ArgMax, ArgMin and running results over tensors of any layout.

Loops: see `lines`. Sums run in several vector accumulators joined pairwise, half precisions in f32, integers exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....ir.graph import Node, Value
from ....ir.ops.base import InferContext, Reduce
from ....ir.ops.reduce import ArgReduce, Cumulative
from ....ir.types import I32, I64, Dim, DType, TensorType
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import Lane, load_lane
from .folds import Fold, Schedule
from .line_tail import LineOperands, accumulator, lanes_for
from .lines import Across, Lines, State, Walk, emit_lines, split_lines


def root_context(fusion: Fusion) -> InferContext:
    """What the root operator may ask about its operands, those outside of the fused block."""
    return InferContext(fusion.root.where, fusion.root_inputs, len(fusion.root.outputs))


def kept_and_reduced(x: TensorType, result: TensorType, axes: Sequence[int], keepdims: bool,
                     ) -> tuple[list[int], list[int], tuple[int | None, ...]]:
    """Kept axes in the result's memory order, reduced axes in x's memory order, and x's axes in the result."""
    place = [None if a in axes else a if keepdims else sum(b not in axes for b in range(a)) for a in range(x.rank)]
    from_result = {r: a for a, r in enumerate(place) if r is not None}
    kept = [from_result[r] for r in result.axis_order if r in from_result]
    return kept, [a for a in x.axis_order if a in axes], tuple(place)


@lowers(Reduce)
def lower_reduce(ctx: LowerContext, node: Node) -> KernelCall:
    """Any `Reduce`: its map, combine and finish in the loops of `lines`."""
    fusion = Fusion.of(node)
    op = fusion.root.op
    assert isinstance(op, Reduce) and fusion.root_inputs[0] is not None
    source = fusion.root_inputs[0]
    x, result = source.tensor, fusion.result.tensor
    axes = op.reduced_axes(root_context(fusion))
    kept, reduced, place = kept_and_reduced(x, result, axes, bool(op.keepdims))
    operands = LineOperands(fusion, (("x", source, x.strides),), place)
    dtype = accumulator(x.dtype)
    lanes = lanes_for(ctx, dtype)
    lines = split_lines(kept, reduced, x.dims, operands.rows(), lanes, ctx.target.n_registers)
    schedule = Schedule.of(lines, lanes, x.dtype.nbytes, ctx.n_cores)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, operands.params())

        def combine(a: State, b: State) -> State:
            return [op.combine(k, a[0], b[0])]

        def step(lane: Lane, _: State, state: State) -> State:
            return combine(state, [op.map(k, k.cast(load_lane(k, k["x"], lane, 0), dtype))])

        def finish(lane: Lane, _: State, totals: State) -> None:
            value = op.finish(k, totals[0], count_of(k, lines.length, totals[0]))
            if result.dtype != value.dtype and result.dtype.name == "bool":
                value = k.cast(value, result.dtype)
            operands.finish(k, lane, value)

        schedule.emit(k, Fold(dtype, [k.const(op.init(k, x.dtype), dtype)], lambda _: [], step, combine, finish))
        return k.func

    func = ctx.function("reduce", node, build, axes)
    return operands.call(ctx, func, schedule.work)


def count_of(k: Builder, length: Dim, like: KValue) -> KValue:
    """The number of elements of a line in the type of `like`."""
    if isinstance(length, int):
        return k.const(length, like)
    return k.splat(k.cast(k.index(length), like.dtype), like.lanes)


@lowers(ArgReduce)
def lower_arg_reduce(ctx: LowerContext, node: Node) -> KernelCall:
    """ArgMax and ArgMin: pairs (element, position) where the operator's `better` decides, ties by position."""
    fusion = Fusion.of(node)
    op = fusion.root.op
    assert isinstance(op, ArgReduce) and fusion.root_inputs[0] is not None
    source = fusion.root_inputs[0]
    x, result = source.tensor, fusion.result.tensor
    axis = op.axis % x.rank
    kept, reduced, place = kept_and_reduced(x, result, (axis,), bool(op.keepdims))
    operands = LineOperands(fusion, (("x", source, x.strides),), place)
    dtype = accumulator(x.dtype)
    lanes = lanes_for(ctx, dtype)
    lines = split_lines(kept, reduced, x.dims, operands.rows(), lanes, ctx.target.n_registers)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, operands.params())

        def body(walk: Walk) -> None:
            def element(lane: Lane) -> KValue:
                return k.cast(walk.load("x", lane, 0), dtype)

            best = extreme(k, walk, lines.across, op, dtype, element)
            for lane, (_, where) in zip(walk.results(), best):
                operands.finish(k, lane, k.cast(where, I64))

        emit_lines(k, lines, lanes, body)
        return k.func

    return operands.call(ctx, ctx.function("arg_reduce", node, build), lines.work(lanes, 4))


def extreme(k: Builder, walk: Walk, across: bool, op: ArgReduce, dtype: DType,
            element: Callable[[Lane], KValue]) -> list[State]:
    """The best element of each line and its position (i32), see `ArgReduce.better`."""

    def step(lane: Lane, state: State, v: int) -> State:
        best, where = state
        e = element(lane)
        here = k.splat(k.cast(lane.index, I32), lane.lanes)
        if not across:
            here = here + k.ramp(lane.lanes, I32)
        wins = op.better(k, e, best)
        return [k.select(wins, e, best), k.select(wins, here, where)]

    def ties(a: KValue, b: KValue) -> KValue:
        return (a == b) | ((a != a) & (b != b)) if dtype.is_float else a == b

    def merge(a: State, b: State) -> State:
        tie = (a[1] > b[1]) if op.select_last_index else (a[1] < b[1])
        alike = ties(a[0], b[0])
        wins = (~alike & op.better(k, a[0], b[0])) | (alike & tie)
        return [k.select(wins, a[0], b[0]), k.select(wins, a[1], b[1])]

    return walk.fold([k.const(op.worst(dtype), dtype), k.const(0, I32)], step, merge)


@lowers(Cumulative)
def lower_cumulative(ctx: LowerContext, node: Node) -> KernelCall:
    """Running sums and products: neighbouring lines side by side in a vector, one element of each line after the other.

    An axis that only the run knows costs a branch per axis and gives a single work item.
    """
    fusion = Fusion.of(node)
    op = fusion.root.op
    source, which = fusion.root_inputs[:2]
    assert isinstance(op, Cumulative) and source is not None and which is not None
    x = source.tensor
    known = op.running_axis(root_context(fusion))
    reads: list[tuple[str, Value, tuple[Dim, ...]]] = [("x", source, x.strides)]
    if known is None:
        reads.append(("axis", which, (0,) * x.rank))
    operands = LineOperands(fusion, tuple(reads), tuple(range(x.rank)))
    dtype = accumulator(x.dtype)
    site = ctx.error_site(fusion.root, "axis out of range") if known is None else 0

    def schedule(axis: int) -> tuple[Lines, int]:
        kept = [a for a in x.axis_order if a != axis]
        lines = split_lines(kept, [axis], x.dims, operands.rows(), 1, ctx.target.n_registers, only_across=True)
        return lines, lanes_for(ctx, dtype) if lines.kept.inner != 1 else 1

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, operands.params())

        def step(lane: Lane, state: State) -> State:
            total = state[0]
            after = op.combine(k, total, k.cast(load_lane(k, k["x"], lane, 0), dtype))
            operands.finish(k, lane, total if op.exclusive else after)
            return [after]

        def body(walk: Walk) -> None:
            assert isinstance(walk, Across)
            walk.scan([k.const(op.init(k, dtype), dtype)], step, bool(op.reverse))

        if known is not None:
            emit_lines(k, *schedule(known), body)
            return k.func
        given = k.cast(k.load(k["axis"], 0), I64)
        axis = k.select(given < 0, given + x.rank, given)
        k.if_((axis < 0) | (axis >= x.rank), lambda: k.fail(site))
        for a in range(x.rank):
            lines, lanes = schedule(a)
            items = k.index(0), k.index(lines.work(lanes, 4))
            k.if_((axis == a) & (k["begin"] < k["end"]), lambda lines=lines, lanes=lanes, items=items:  # type: ignore[misc]
                  emit_lines(k, lines, lanes, body, items=items))
        return k.func

    func = ctx.function("cumulative", node, build, known, site)
    if known is None:
        return operands.call(ctx, func, 1)
    lines, lanes = schedule(known)
    return operands.call(ctx, func, lines.work(lanes, 4))
