"""Pools over sliding windows, any number of spatial axes, any layout, padding never copied.

Loops: for row of outputs in items: for output (or vector of outputs) in row: for tap in window. Vectors lie along the
result's innermost axis. Where that is no spatial axis (channels last) all lanes share one window, whose taps are
clipped to the input once, and inner windows are unrolled; else see `pool_images`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from ....ir.graph import Node
from ....ir.ops.pool import Pool
from ....ir.types import prod
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import Lane, decode
from ..reduction.line_tail import LineOperands, accumulator
from ..reduction.lines import shifted
from ..reduction.reduce import root_context
from .channels import channel_blocks
from .images import ImageRow
from .taps import (
    UNROLLED_TAPS,
    PoolPlan,
    State,
    Taps,
    clip_taps,
    combine,
    finish,
    fold_taps,
    initial,
    is_written_out,
    load_vector,
    position_along,
    window_count,
)

VECTORS = 4  # vectors of channels at once


@lowers(Pool, windows="any")
def lower_pool(ctx: LowerContext, node: Node) -> KernelCall:
    """MaxPool (also with Indices, or in training), AveragePool, LpPool."""
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


def _item(k: Builder, plan: PoolPlan, work: KValue) -> None:
    result = plan.result
    index = dict(zip(plan.item_axes, decode(k, work, [result.dims[a] for a in plan.item_axes])))
    bases = [k.index(0)] * len(plan.rows)
    for axis, i in index.items():
        bases = list(shifted(k, bases, [row[axis] for row in plan.rows], i))
    if plan.shares_window:
        _shared_row(k, plan, index, bases)
    else:
        ImageRow(k, plan, index, bases).emit()


def _shared_row(k: Builder, plan: PoolPlan, index: dict[int, KValue], bases: list[KValue]) -> None:
    """Outputs along the second innermost axis; vectors along the innermost one, which no window moves along."""
    row_axis, axis, result = plan.order[-2], plan.vector_axis, plan.result
    spatial = range(plan.geometry.rank)
    outer = {i: clip_taps(k, plan, i, index[i + 2]) for i in spatial if i + 2 in index}
    channels, most = result.dims[axis], VECTORS
    vectors = min(most, -(-channels // plan.lanes)) if isinstance(channels, int) else most
    total = math.prod(plan.geometry.kernel)

    def output(position: KValue, _: State) -> None:
        here = {**index, row_axis: position}
        taps = [outer.get(i) or clip_taps(k, plan, i, here.get(i + 2, k.index(0))) for i in spatial]
        at = shifted(k, bases, [row[row_axis] for row in plan.rows], position)

        def blocks(ranges: list[tuple[KValue, KValue]], unroll: bool) -> None:
            def block(first: KValue, masks: list[KValue | None]) -> None:
                window = _Window(k, plan, taps, ranges, unroll)
                window.block({**here, axis: first}, shifted(k, at, [row[axis] for row in plan.rows], first), masks)

            channel_blocks(k, channels, vectors, plan.lanes, block)

        whole = [(k.index(0), k.index(n)) for n in plan.geometry.kernel]
        if plan.never_clipped:
            blocks(whole, total <= UNROLLED_TAPS)
            return
        inside = reduce(lambda a, b: a & b, [t.inside for t in taps])
        k.if_(inside, lambda: blocks(whole, total <= UNROLLED_TAPS),
              lambda: blocks([(t.low, t.high) for t in taps], False))

    k.for_(0, k.index(result.dims[row_axis]), 1, [], output)


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
            offset, position = origin, k.const(0, plan.position_type)
            for i, t in enumerate(taps):
                offset = offset + t * k.index(x.strides[i + 2] * g.dilations[i])
                position = position + position_along(k, plan, i, self.taps[i].start, t)
            out: State = []
            for v, lane in enumerate(vectors):
                element = load_vector(k, k["x"], lane.offsets[0] + offset, lane.steps[0], lanes, lane.mask)
                out += combine(k, plan, state[v * m : v * m + m], element, k.splat(position, lanes))
            return out

        init = initial(k, plan, is_written_out(self.ranges, self.unroll))
        m = len(init)
        state = fold_taps(k, self.ranges, init * len(vectors), self.unroll, visit)
        count = window_count(k, plan, self.taps, self.ranges)
        for v, lane in enumerate(vectors):
            finish(k, plan, lane, index, state[v * m : v * m + m], count)
