"""Data movement: Transpose and Relayout as strided copies, Concat as one copy per input, the rest by their index maps.

Loops: see `strided` and `nest`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import Node, Value
from ...ir.kernel_builder import Builder, KValue
from ...ir.loops import KFunc, PtrType
from ...ir.ops.base import Movement, Relayout
from ...ir.ops.shape import Concat, Transpose
from ...ir.types import Dim, TensorType
from ..lowering import KernelCall, LowerContext, Shifted, lowers
from .nest import emit_nest, iteration_axes
from .strided import Copy


def copy_call(ctx: LowerContext, node: Node, copy: Copy, x: Value, y: Value) -> KernelCall:
    """The call that carries out `copy` from `x` to `y`; bases are pointer shifts where static, so kernels are shared."""
    x_base = copy.x_base if isinstance(copy.x_base, int) else 0
    y_base = copy.y_base if isinstance(copy.y_base, int) else 0
    size = copy.dtype.nbytes
    inner = Copy(copy.shape, copy.x_strides, copy.y_strides, copy.dtype,
                 0 if isinstance(copy.x_base, int) else copy.x_base, 0 if isinstance(copy.y_base, int) else copy.y_base)
    key = ("copy", inner)
    if key not in ctx.functions:
        ctx.functions[key] = inner.build(ctx, f"copy_{len(ctx.functions)}")
    operands = (Shifted(x, x_base * size) if x_base else x, Shifted(y, y_base * size) if y_base else y)
    return KernelCall(ctx.functions[key], operands, inner.work, node.name, nbytes=2 * y.tensor.nbytes)


@lowers(Transpose)
def lower_transpose(ctx: LowerContext, node: Node) -> KernelCall:
    """A transpose that is no view."""
    x, y = node.operands[0], node.output
    assert isinstance(node.op, Transpose)
    xs = x.tensor.strides
    strides = tuple(xs[a] for a in node.op.order(x.tensor.rank))
    return copy_call(ctx, node, Copy(y.tensor.dims, strides, y.tensor.strides, x.tensor.dtype), x, y)


@lowers(Relayout)
def lower_relayout(ctx: LowerContext, node: Node) -> KernelCall:
    """Another physical order of the same tensor."""
    x, y = node.operands[0], node.output
    return copy_call(ctx, node, Copy(y.tensor.dims, x.tensor.strides, y.tensor.strides, x.tensor.dtype), x, y)


@lowers(Concat)
def lower_concat(ctx: LowerContext, node: Node) -> list[KernelCall]:
    """One strided copy per input."""
    y = node.output
    axis = node.op.axis % y.tensor.rank  # type: ignore[attr-defined]
    calls, at = [], 0
    for x in node.operands:
        copy = Copy(x.tensor.dims, x.tensor.strides, y.tensor.strides, x.tensor.dtype, 0, at * y.tensor.strides[axis])
        calls.append(copy_call(ctx, node, copy, x, y))
        at = at + x.tensor.dims[axis]
    return calls


@lowers(Movement)
def lower_index_map(ctx: LowerContext, node: Node) -> KernelCall:
    """Any movement by its index map, one element at a time: the plain kernel that others are measured against."""
    x, y = node.operands[0], node.output
    t = y.tensor
    context = node.context()
    axes = iteration_axes(TensorType(t.dtype, t.dims, t.layout), _unmerged(t))

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [("x", PtrType(x.tensor.dtype)), ("y", PtrType(t.dtype))])

        def body(lane):  # type: ignore[no-untyped-def]
            index = _logical_index(k, t, lane.offsets[0])
            source = node.op.index_map(context, index)  # type: ignore[attr-defined]
            k.store(k["y"], lane.offsets[0], k.load(k["x"], _offset(k, source, x.tensor.strides)))

        emit_nest(k, axes, 1, body, unroll=1)
        return k.func

    known = tuple(str(v.known.tolist()) if v is not None and v.known is not None else "" for v in node.inputs[1:])
    func = ctx.function("index_map", node, build, known)
    return KernelCall(func, (x, y), axes.work, node.name, nbytes=2 * t.nbytes)


def _unmerged(t: TensorType) -> list[tuple[Dim, ...]]:
    return [t.strides]


def _logical_index(k: Builder, t: TensorType, offset: KValue) -> list[KValue]:
    """Index per logical axis of the element at a physical offset."""
    index: dict[int, KValue] = {}
    rest = offset
    for axis in reversed(t.axis_order):
        size = k.index(t.dims[axis])
        index[axis], rest = k.urem(rest, size), k.udiv(rest, size)
    return [index[a] for a in range(t.rank)]


def _offset(k: Builder, index: Sequence[KValue | Dim], strides: Sequence[Dim]) -> KValue:
    total = k.index(0)
    for i, s in zip(index, strides):
        total = total + k.index(i) * k.index(s)
    return total
