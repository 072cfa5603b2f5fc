"""Results made from coordinates and few numbers: ConstantOfShape, Range, EyeLike, OneHot, Trilu, ReverseSequence.

Loops: those of `nest` over the result, with coordinates as operands (see `unit_strides`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....ir.graph import Node, Value
from ....ir.ops.filling import ConstantOfShape, EyeLike, OneHot, Range, Trilu
from ....ir.ops.gathering import ReverseSequence
from ....ir.types import I64, Dim, DType, TensorType
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import register_dtype
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import Lane, emit_nest, iteration_axes, lane_values, load_lane, store_lane, strided_index, unit_strides
from .strided import bits_of

Operands = Sequence[tuple[str, Value, DType]]
Body = Callable[[Builder, Lane], KValue]


def _nest_call(ctx: LowerContext, node: Node, operands: Operands, strides: Sequence[Sequence[Dim]], body: Body,
               *extra: object) -> KernelCall:
    """A kernel that stores `body(k, lane)` for each vector of the output.

    Args:
        operands: parameter name, value and element type of what the kernel reads.
        strides: rows 1, 2, … of the lane's offsets (row 0 is the output).
    """
    y = node.output.tensor
    dtype = node.output.tensor.dtype if isinstance(node.op, Range) else bits_of(y.dtype)
    axes = iteration_axes(y, [y.strides, *strides])
    lanes = ctx.lanes * 4 // max(4, dtype.nbytes)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [("y", PtrType(dtype)), *((n, PtrType(d)) for n, _, d in operands)])
        emit_nest(k, axes, lanes, lambda lane: store_lane(k, k["y"], lane, 0, body(k, lane)))
        return k.func

    func = ctx.function(node.op.name.lower(), node, build, lanes, *extra)
    return KernelCall(func, (node.output, *(v for _, v, _ in operands)), axes.work, node.name, nbytes=y.nbytes)


def _bits(array: np.ndarray) -> int:
    """The bits of an array's one element."""
    return int.from_bytes(array.reshape(-1)[:1].tobytes(), "little")


@lowers(ConstantOfShape)
def lower_constant(ctx: LowerContext, node: Node) -> KernelCall:
    """Stores of one vector."""
    assert isinstance(node.op, ConstantOfShape)
    number = _bits(node.op.element())
    bits = bits_of(node.output.tensor.dtype)
    return _nest_call(ctx, node, [], [], lambda k, lane: k.const(number, bits))


@lowers(Range)
def lower_range(ctx: LowerContext, node: Node) -> KernelCall:
    """y[i] = start + i * delta."""
    dtype = node.output.tensor.dtype
    wide = register_dtype(dtype)

    def body(k: Builder, lane: Lane) -> KValue:
        start, delta = (k.cast(k.load(k[p], 0), wide) for p in ("start", "delta"))
        position = k.cast(lane_values(k, lane, 1), wide)
        return k.cast(position * delta + start, dtype)

    operands = [("start", node.operands[0], dtype), ("delta", node.operands[2], dtype)]
    return _nest_call(ctx, node, operands, [unit_strides(1, 0)], body)


@lowers(EyeLike)
def lower_eye(ctx: LowerContext, node: Node) -> KernelCall:
    """One where column - row = k."""
    assert isinstance(node.op, EyeLike)
    y, diagonal = node.output.tensor, node.op.k
    assert y.dtype.numpy is not None
    one, bits = _bits(np.ones(1, y.dtype.numpy)), bits_of(y.dtype)

    def body(k: Builder, lane: Lane) -> KValue:
        on = lane_values(k, lane, 2) - lane_values(k, lane, 1) == diagonal
        return k.select(on, k.const(one, bits), k.const(0, bits))

    return _nest_call(ctx, node, [], [unit_strides(2, 0), unit_strides(2, 1)], body)


@lowers(Trilu)
def lower_trilu(ctx: LowerContext, node: Node) -> KernelCall:
    """x where column - row >= k (upper) or <= k (lower), else 0."""
    assert isinstance(node.op, Trilu)
    x, y, upper = node.operands[0], node.output.tensor, node.op.upper
    bits, r = bits_of(y.dtype), y.rank
    operands = [("x", x, bits), *([("k", node.operands[1], I64)] if len(node.operands) > 1 else [])]

    def body(k: Builder, lane: Lane) -> KValue:
        diagonal = k.load(k["k"], 0) if len(operands) > 1 else k.index(0)
        distance = lane_values(k, lane, 3) - lane_values(k, lane, 2)
        kept = distance >= diagonal if upper else distance <= diagonal
        return k.select(kept, k.splat(load_lane(k, k["x"], lane, 1), lane.lanes), 0)

    return _nest_call(ctx, node, operands, [x.tensor.strides, unit_strides(r, r - 2), unit_strides(r, r - 1)], body)


@lowers(OneHot)
def lower_one_hot(ctx: LowerContext, node: Node) -> KernelCall:
    """values[coordinate on the new axis == index]."""
    assert isinstance(node.op, OneHot)
    index, _, values = node.operands
    y = node.output.tensor
    axis, bits = node.op.axis % y.rank, bits_of(y.dtype)
    depth = y.dims[axis]
    own = index.tensor.strides
    strides: list[tuple[Dim, ...]] = [(*own[:axis], 0, *own[axis:]), unit_strides(y.rank, axis)]

    def body(k: Builder, lane: Lane) -> KValue:
        i = k.cast(load_lane(k, k["index"], lane, 1), I64)
        if index.tensor.dtype.is_signed:
            i = k.select(i < 0, i + k.index(depth), i)
        off, on = k.load(k["values"], 0), k.load(k["values"], 1)
        hit = lane_values(k, lane, 2) == k.splat(i, lane.lanes)
        return k.select(hit, on, off)

    operands = [("index", index, index.tensor.dtype), ("values", values, bits)]
    return _nest_call(ctx, node, operands, strides, body)


@lowers(ReverseSequence)
def lower_reverse(ctx: LowerContext, node: Node) -> KernelCall:
    """y[t] = x[length - 1 - t] for t < length, else x[t]."""
    assert isinstance(node.op, ReverseSequence)
    x, lengths = node.operands
    t: TensorType = x.tensor
    time, batch = node.op.time_axis % t.rank, node.op.batch_axis % t.rank
    site = ctx.error_site(node, "a sequence length is out of range")
    strides: list[tuple[Dim, ...]] = [tuple(0 if a == time else s for a, s in enumerate(t.strides)),
                                      unit_strides(t.rank, time), unit_strides(t.rank, batch)]
    bits = bits_of(t.dtype)

    def body(k: Builder, lane: Lane) -> KValue:
        at = lane_values(k, lane, 2)
        if lane.steps[3] == 0:
            length = k.splat(k.load(k["lengths"], lane.offsets[3]), lane.lanes)
        else:
            length = k.load(k["lengths"], lane.offsets[3], lane.lanes, lane.mask)
        bad = (length < 0) | (length > k.index(t.dims[time]))
        bad = bad if lane.mask is None else bad & lane.mask
        k.if_(k.reduce("or", bad), lambda: k.fail(site))
        source = k.select((at < length) & ~bad, length - 1 - at, at) * k.index(t.strides[time])
        if lane.lanes > 1:
            return k.gather(k["x"], strided_index(k, lane.offsets[1], lane.steps[1], lane.lanes) + source, lane.mask)
        return k.load(k["x"], lane.offsets[1] + source)

    operands = [("x", x, bits), ("lengths", lengths, I64)]
    return _nest_call(ctx, node, operands, strides, body, site)
