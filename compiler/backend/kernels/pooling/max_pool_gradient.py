"""The gradient of MaxPool: every element of x gathers from the windows that it lies in and was the greatest of.

Nothing is written twice, so that cores share rows without a word and no zeros are filled in before. Vectors lie along
channels (or images) where those are innermost: all lanes are then in the same windows; else elements are computed one
by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....ir.graph import Node
from ....ir.ops.geometry import WindowGeometry
from ....ir.ops.pool_training import MaxPoolGradient
from ....ir.types import I32, Dim, DType, prod
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc
from ...fusion import Fusion, register_dtype
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import Lane, decode
from ..reduction.line_tail import LineOperands, lanes_for
from ..reduction.lines import shifted
from .channels import channel_blocks
from .taps import State, fold_taps, load_vector

VECTORS = 4  # at once


@dataclass(frozen=True)
class _Plan:
    """What the loops need to know.

    Attributes:
        order: axes of the result in memory order. rows: strides of dy, taps, extra operands and outputs per axis of the
            result, 0 along spatial axes of dy and taps. steps: strides of dy and taps along their spatial axes.
    """

    geometry: WindowGeometry
    operands: LineOperands
    order: tuple[int, ...]
    rows: tuple[tuple[Dim, ...], ...]
    steps: tuple[tuple[Dim, ...], tuple[Dim, ...]]
    dtype: DType
    lanes: int


@lowers(MaxPoolGradient, windows="any")
def lower_max_pool_gradient(ctx: LowerContext, node: Node) -> KernelCall:
    """See the file."""
    fusion = Fusion.of(node)
    op, (dy, taps) = fusion.root.op, fusion.root_inputs[:2]
    assert isinstance(op, MaxPoolGradient) and dy is not None and taps is not None
    result, rank = fusion.result.tensor, dy.tensor.rank
    reads = tuple((name, v, (*v.tensor.strides[:2], *[0] * (rank - 2))) for name, v in (("dy", dy), ("taps", taps)))
    operands = LineOperands(fusion, reads, tuple(range(rank)))
    order = tuple(sorted(result.axis_order, key=lambda a: result.dims[a] != 1))
    dtype = register_dtype(dy.tensor.dtype)
    lanes = lanes_for(ctx, dtype) if order[-1] < 2 else 1
    steps = (tuple(dy.tensor.strides[2:]), tuple(taps.tensor.strides[2:]))
    plan = _Plan(op.geometry(dy.tensor), operands, order, tuple(operands.rows()), steps, dtype, lanes)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, operands.params())
        k.for_(k["begin"], k["end"], 1, [], lambda work, _: _row(k, plan, work))
        return k.func

    func = ctx.function("pool", node, build)
    return operands.call(ctx, func, prod(result.dims[a] for a in order[:-2]))


def _row(k: Builder, plan: _Plan, work: KValue) -> None:
    """The elements along the two innermost axes."""
    outer, (across, axis), dims = plan.order[:-2], plan.order[-2:], plan.operands.result.dims
    index = dict(zip(outer, decode(k, work, [dims[a] for a in outer])))
    bases: Sequence[KValue] = [k.index(0)] * len(plan.rows)
    for a, i in index.items():
        bases = shifted(k, bases, [row[a] for row in plan.rows], i)
    windows = {a - 2: _windows_of(k, plan, a - 2, i) for a, i in index.items() if a >= 2}

    def line(position: KValue, _: State) -> None:
        here = {**windows, across - 2: _windows_of(k, plan, across - 2, position)} if across >= 2 else windows
        at = shifted(k, bases, [row[across] for row in plan.rows], position)

        def block(first: KValue, masks: list[KValue | None]) -> None:
            known = {**here, axis - 2: _windows_of(k, plan, axis - 2, first)} if axis >= 2 else here
            steps = tuple(row[axis] for row in plan.rows)
            lanes = [Lane(shifted(k, at, steps, first + v * plan.lanes), steps, first + v * plan.lanes, (), plan.lanes,
                          mask) for v, mask in enumerate(masks)]  # fmt: skip
            _gather(k, plan, known, lanes)

        size = dims[axis]
        most = -(-size // plan.lanes) if isinstance(size, int) else VECTORS
        channel_blocks(k, size, max(1, min(VECTORS, most)) if axis < 2 else 1, plan.lanes, block)

    k.for_(0, k.index(dims[across]), 1, [], line)


@dataclass(frozen=True)
class _Windows:
    """Along one spatial axis: the windows [low, high) that a position lies in; it counts the padding."""

    low: KValue
    high: KValue
    position: KValue


def _windows_of(k: Builder, plan: _Plan, i: int, position: KValue) -> _Windows:
    g = plan.geometry
    padded = position + k.index(g.pads_begin[i])
    first = k.max(padded - (g.extent[i] - 1), 0)
    low = k.udiv(first + (g.strides[i] - 1), g.strides[i])
    return _Windows(low, k.min(k.udiv(padded, g.strides[i]) + 1, k.index(g.output[i])), padded)


def _gather(k: Builder, plan: _Plan, windows: dict[int, _Windows], lanes: list[Lane]) -> None:
    """Sum up what the windows bring to some vectors of elements, and store it."""
    g = plan.geometry
    axes = [windows[i] for i in range(g.rank)]

    def visit(at: list[KValue], state: State) -> State:
        number = _tap(k, g, axes, at)
        out: State = []
        for lane, total in zip(lanes, state, strict=True):
            dy, tap = (_loaded(k, plan, lane, j, at) for j in (0, 1))
            meets = k.cast(tap, I32) == k.splat(number, plan.lanes)
            out.append(total + k.select(meets, k.cast(dy, plan.dtype), 0))
        return out

    init = [k.splat(k.const(0, plan.dtype), plan.lanes)] * len(lanes)
    state = fold_taps(k, [(w.low, w.high) for w in axes], init, False, visit)
    for lane, total in zip(lanes, state, strict=True):
        plan.operands.finish(k, lane, total)


def _tap(k: Builder, g: WindowGeometry, axes: Sequence[_Windows], at: Sequence[KValue]) -> KValue:
    """Which tap of a window the element is, i32; none of them (-1) where it lies between two."""
    number, beside = k.index(0), k.index(0)
    for i, (w, window) in enumerate(zip(axes, at, strict=True)):
        distance = w.position - window * g.strides[i]
        tap = k.udiv(distance, g.dilations[i])
        number = number + tap * math.prod(g.kernel[i + 1 :])
        beside = beside + (distance - tap * g.dilations[i])
    if all(d == 1 for d in g.dilations):
        return k.cast(number, I32)
    return k.cast(k.select(beside == 0, number, -1), I32)


def _loaded(k: Builder, plan: _Plan, lane: Lane, operand: int, at: Sequence[KValue]) -> KValue:
    """The elements of dy (0) or taps (1) of a window, for all lanes."""
    offset = lane.offsets[operand]
    for window, step in zip(at, plan.steps[operand], strict=True):
        offset = offset + window * k.index(step)
    name = plan.operands.reads[operand][0]
    return load_vector(k, k[name], offset, lane.steps[operand], plan.lanes, lane.mask)
