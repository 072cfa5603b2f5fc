"""Softmax, LogSoftmax and Hardmax of lines in any layout.

Softmax in three passes over a line in cache: greatest element; exponentials, kept, and their sum; scaling. Short lines
of known length stay in registers. The exponentials wait in the output where nothing is fused behind, else in scratch.
"""

from __future__ import annotations

from ....ir.graph import Node
from ....ir.ops.reduce import ArgMax, lowest
from ....ir.ops.softmax import AlongAxis, Hardmax, LogSoftmax, Softmax
from ....ir.types import Dim
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Scratch, lowers
from ..nest import Lane
from .line_tail import LineOperands, accumulator, lanes_for
from .lines import Lines, State, Walk, emit_lines, split_lines
from .reduce import extreme

VECTORS = 2  # of neighbouring lines at once: exp needs registers


def lines_along_axis(ctx: LowerContext, node: Node) -> tuple[LineOperands, Lines, int]:
    """Operands, schedule and vector length of an operator that works along one axis."""
    fusion = Fusion.of(node)
    op = fusion.root.op
    assert isinstance(op, AlongAxis) and fusion.root_inputs[0] is not None
    source = fusion.root_inputs[0]
    x = source.tensor
    axis = op.axis % x.rank
    operands = LineOperands(fusion, (("x", source, x.strides),), tuple(range(x.rank)))
    lanes = lanes_for(ctx, accumulator(x.dtype))
    kept = [a for a in x.axis_order if a != axis]
    return operands, split_lines(kept, [axis], x.dims, operands.rows(), lanes, ctx.target.n_registers), lanes


@lowers(Softmax, LogSoftmax)
def lower_softmax(ctx: LowerContext, node: Node) -> KernelCall:
    """exp(x - max) / sum, or its logarithm."""
    operands, lines, lanes = lines_along_axis(ctx, node)
    dtype = accumulator(operands.x.dtype)
    logarithm = isinstance(operands.fusion.root.op, LogSoftmax)
    in_place = not operands.fusion.tail and operands.result.dtype == dtype
    per_line: Dim = lines.length * (lines.vectors(lanes, VECTORS) * lanes if lines.across else 1)
    scratch = [] if in_place or logarithm else [Scratch(per_line * dtype.nbytes)]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [*operands.params(), *[("kept", PtrType(dtype)) for _ in scratch]])

        def body(walk: Walk) -> None:
            def element(lane: Lane) -> KValue:
                return k.cast(walk.load("x", lane, 0), dtype)

            def greater(a: State, b: State) -> State:
                return [k.select(a[0] > b[0], a[0], b[0])]  # may lose a NaN, which the sum meets anyway

            start = [k.const(lowest(dtype), dtype)]
            greatest = [s[0] for s in walk.fold(start, lambda lane, s, v: greater([element(lane)], s), greater)]
            store = _Kept(k, walk, lines, lanes, "kept" if scratch else "y0", operands)

            def add(lane: Lane, state: State, v: int) -> State:
                e = k.math("exp", element(lane) - greatest[v])
                return [state[0] + (e if logarithm else store.put(lane, v, e))]

            sums = walk.fold([k.const(0, dtype)], add, lambda a, b: [a[0] + b[0]])
            if logarithm:
                logs = [k.math("log", s[0]) for s in sums]
                walk.each(lambda lane, v: operands.finish(k, lane, (element(lane) - greatest[v]) - logs[v]))
            else:
                scale = [k.const(1, s[0]) / s[0] for s in sums]
                walk.each(lambda lane, v: operands.finish(k, lane, store.get(lane, v) * scale[v]))

        emit_lines(k, lines, lanes, body, VECTORS)
        return k.func

    func = ctx.function("softmax", node, build)
    return operands.call(ctx, func, lines.work(lanes, VECTORS), scratch)


class _Kept:
    """The exponentials of a line between two passes: registers, the output, or scratch laid out line by line."""

    def __init__(self, k: Builder, walk: Walk, lines: Lines, lanes: int, name: str, operands: LineOperands) -> None:
        self.k, self.walk, self.lines, self.lanes, self.name, self.operands = k, walk, lines, lanes, name, operands

    def _index(self, lane: Lane, v: int) -> KValue:
        if not self.lines.across:
            return lane.index
        width = self.lines.vectors(self.lanes, VECTORS) * self.lanes
        return lane.index * width + v * self.lanes

    def put(self, lane: Lane, v: int, value: KValue) -> KValue:
        if self.walk.in_registers:
            return self.walk.keep("kept", lane, lambda: value)
        if self.name == "kept":
            self.k.store(self.k["kept"], self._index(lane, v), value, lane.mask)
        else:
            self.operands.finish(self.k, lane, value)
        return value

    def get(self, lane: Lane, v: int) -> KValue:
        if self.walk.in_registers:
            return self.walk.keep("kept", lane, _missing)
        if self.name == "kept":
            return self.k.load(self.k["kept"], self._index(lane, v), lane.lanes, lane.mask)
        return self.walk.load("y0", lane, len(self.operands.rows()) - 1)


def _missing() -> KValue:
    raise AssertionError("an exponential was asked for before it was computed")


@lowers(Hardmax)
def lower_hardmax(ctx: LowerContext, node: Node) -> KernelCall:
    """1 at the first greatest element of each line, 0 elsewhere."""
    operands, lines, lanes = lines_along_axis(ctx, node)
    dtype = accumulator(operands.x.dtype)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, operands.params())

        def body(walk: Walk) -> None:
            def element(lane: Lane) -> KValue:
                return k.cast(walk.load("x", lane, 0), dtype)

            best = [s[1] for s in extreme(k, walk, lines.across, ArgMax(), dtype, element)]

            def mark(lane: Lane, v: int) -> None:
                here = k.splat(k.cast(lane.index, best[v].dtype), lane.lanes)
                here = here if lines.across else here + k.ramp(lane.lanes, best[v].dtype)
                chosen = here == best[v]
                one = k.const(1, dtype)
                operands.finish(k, lane, k.select(chosen, k.splat(one, lane.lanes), k.const(0, dtype)))

            walk.each(mark)

        emit_lines(k, lines, lanes, body)
        return k.func

    return operands.call(ctx, ctx.function("hardmax", node, build), lines.work(lanes, 4))
