"""Statistics over a batch and the sums of their gradient: one pass over the tensor, two sums a part and channel.

A line is a channel of a part of the batch, in any layout: see `lines`. Both sums run side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ....ir.graph import Node, Value
from ....ir.ops.batch_statistics import BatchGradientSums, BatchStatistics, parts_of
from ....ir.types import Dim, DType, TensorType
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import Lane, load_lane
from .folds import Fold, Schedule
from .line_tail import LineOperands, accumulator, lanes_for
from .lines import Lines, State, split_lines
from .reduce import count_of


@dataclass(frozen=True)
class _Parts:
    """[N, C, …] seen as [parts, rows, C, …]: parts and C are kept, the rest is the line."""

    operands: LineOperands
    lines: Lines
    lanes: int
    dtype: DType

    @staticmethod
    def of(ctx: LowerContext, node: Node, full: list[str], per_channel: list[str]) -> _Parts:
        """`full`, `per_channel`: names of the operands, in order, of x's shape and of [C]."""
        x = node.operands[0].tensor
        parts, rows = parts_of(x.dims)
        reads: list[tuple[str, Value, tuple[Dim, ...]]] = []
        for i, name in enumerate((*full, *per_channel)):
            v = node.operands[i]
            reads.append((name, v, _strides(v.tensor, rows) if name in full else _along_channels(v.tensor, x.rank)))
        axes = (0, None, 1, *[None] * (x.rank - 2))
        operands = LineOperands(Fusion.of(node), tuple(reads), axes)
        kept = [0 if a == 0 else 2 for a in x.axis_order if a < 2]
        line = [1 if a == 0 else a + 1 for a in x.axis_order if a != 1]
        dtype = accumulator(x.dtype)
        lanes = lanes_for(ctx, dtype)
        dims = (parts, rows, *x.dims[1:])
        lines = split_lines(kept, line, dims, operands.rows(), lanes, ctx.target.n_registers)
        return _Parts(operands, lines, lanes, dtype)

    def call(self, ctx: LowerContext, node: Node, kind: str, fold: Callable[[Builder], Fold]) -> KernelCall:
        """The kernel that makes `fold` of each line."""
        schedule = Schedule.of(self.lines, self.lanes, self.operands.x.dtype.nbytes, ctx.n_cores)

        def build(name: str) -> KFunc:
            k = ctx.kernel(name, self.operands.params())
            schedule.emit(k, fold(k))
            return k.func

        return self.operands.call(ctx, ctx.function(kind, node, build), schedule.work)

    def load(self, k: Builder, name: str, lane: Lane, operand: int) -> KValue:
        """The operand's elements, in the type of the sums."""
        return k.cast(load_lane(k, k[name], lane, operand), self.dtype)

    def store(self, k: Builder, lane: Lane, *numbers: KValue) -> None:
        """The results of a line."""
        self.operands.finish(k, lane, numbers[0])
        self.operands.store_statistics(k, lane, numbers[1:])


def _strides(t: TensorType, rows: Dim) -> tuple[Dim, ...]:
    first, *others = t.strides
    return (first * rows, first, *others)


def _along_channels(t: TensorType, rank: int) -> tuple[Dim, ...]:
    return (0, 0, t.strides[0], *[0] * (rank - 2))


def _added(a: State, b: State) -> State:
    return [x + y for x, y in zip(a, b)]


@lowers(BatchStatistics)
def lower_batch_statistics(ctx: LowerContext, node: Node) -> KernelCall:
    """Shifted sums: with d = x - K, K a line's first element: mean - K = Σd / n, variance = (Σd² - (Σd)² / n) / n.

    The variance's relative error is at most about (2 b + n / b) u (1 + (mean - K)² / variance), u the rounding unit, n
    elements in a line, b = 256 the length of a block (`line_blocks`). However large the mean, the last factor is about
    2 where K is an ordinary element, and never beyond n, as no element is further than sqrt(n - 1) standard deviations
    from the mean (Samuelson 1968). Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983.
    """
    parts = _Parts.of(ctx, node, ["x"], [])

    def fold(k: Builder) -> Fold:
        def prepare(lane: Lane) -> State:
            return [_finite(k, parts.load(k, "x", lane, 0))]

        def step(lane: Lane, known: State, state: State) -> State:
            d = parts.load(k, "x", lane, 0) - known[0]
            return [state[0] + d, state[1] + d * d]

        def finish(lane: Lane, known: State, totals: State) -> None:
            total, squares = totals
            n = count_of(k, parts.lines.length, total)
            distance = total / n
            variance = (squares - total * distance) / n
            parts.store(k, lane, known[0], distance, k.select(variance < 0, k.const(0, variance), variance))

        return Fold(parts.dtype, [k.const(0, parts.dtype)] * 2, prepare, step, _added, finish)

    return parts.call(ctx, node, "batch_statistics", fold)


def _finite(k: Builder, x: KValue) -> KValue:
    """x, or 0 where it is infinite or no number, so that the mean of infinities is one."""
    return k.select(k.math("abs", x) < math.inf, x, k.const(0, x))


@lowers(BatchGradientSums)
def lower_batch_gradient_sums(ctx: LowerContext, node: Node) -> KernelCall:
    """Σ dy and Σ dy (x - mean), the second times inv_std at the end."""
    parts = _Parts.of(ctx, node, ["x", "dy"], ["shift", "distance", "inv_std"])

    def fold(k: Builder) -> Fold:
        def prepare(lane: Lane) -> State:
            return [load_lane(k, k[name], lane, i) for i, name in enumerate(("shift", "distance"), 2)]

        def step(lane: Lane, known: State, state: State) -> State:
            x, dy = (parts.load(k, name, lane, i) for i, name in enumerate(("x", "dy")))
            return [state[0] + dy, state[1] + dy * (x - known[0] - known[1])]

        def finish(lane: Lane, known: State, totals: State) -> None:
            parts.store(k, lane, totals[0], totals[1] * load_lane(k, k["inv_std"], lane, 4))

        return Fold(parts.dtype, [k.const(0, parts.dtype)] * 2, prepare, step, _added, finish)

    return parts.call(ctx, node, "batch_gradient_sums", fold)
