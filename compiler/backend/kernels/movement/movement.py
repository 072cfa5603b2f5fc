"""Data movement as strided copies: Transpose, Relayout, Concat, Slice, Split, Expand, Tile, the depth-space pair.

Movements without a copy of their own go by their index maps.

Loops: see `strided` and `nest`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.graph import Node, Value
from ....ir.ops.base import Movement, Relayout
from ....ir.ops.bit_cast import BitCast
from ....ir.ops.filling import Expand, Tile
from ....ir.ops.rearrange import DepthToSpace, SpaceToDepth
from ....ir.ops.shape import Concat, Transpose
from ....ir.ops.slicing import Slice, Split
from ....ir.types import Dim, TensorType
from ....ir.views import concat_offsets, is_window
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...lowering import KernelCall, LowerContext, OffsetOperand, lowers
from ..nest import broadcast_strides, emit_nest, iteration_axes
from .strided import Copy, bits_of


def copy_call(ctx: LowerContext, node: Node, copy: Copy, x: Value, y: Value) -> KernelCall:
    """The call that carries out `copy` from `x` to `y`; static bases are pointer shifts, so kernels are shared."""
    x_base = copy.x_base if isinstance(copy.x_base, int) else 0
    y_base = copy.y_base if isinstance(copy.y_base, int) else 0
    size = copy.dtype.nbytes
    inner = Copy(copy.shape, copy.x_strides, copy.y_strides, bits_of(copy.dtype),
                 0 if isinstance(copy.x_base, int) else copy.x_base, 0 if isinstance(copy.y_base, int) else copy.y_base)
    key = ("copy", inner)
    if key not in ctx.functions:
        ctx.functions[key] = inner.build(ctx, f"copy_{len(ctx.functions)}")
    operands = (OffsetOperand(x, x_base * size) if x_base else x, OffsetOperand(y, y_base * size) if y_base else y)
    alike = all(a == b or d == 1 for d, a, b in zip(copy.shape, copy.x_strides, copy.y_strides, strict=True))
    alike = alike and (copy.x_base, copy.y_base) == (0, 0)
    return KernelCall(ctx.functions[key], operands, inner.work, node.name, nbytes=2 * y.tensor.nbytes,
                      moves_alike=alike)  # fmt: skip


@lowers(Transpose)
def lower_transpose(ctx: LowerContext, node: Node) -> KernelCall:
    """A transpose that is no view."""
    x, y = node.operands[0], node.output
    assert isinstance(node.op, Transpose)
    xs = x.tensor.strides
    strides = tuple(xs[a] for a in node.op.order(x.tensor.rank))
    return copy_call(ctx, node, Copy(y.tensor.dims, strides, y.tensor.strides, x.tensor.dtype), x, y)


@lowers(Relayout, BitCast, windows="any")
def lower_relayout(ctx: LowerContext, node: Node) -> KernelCall:
    """Another physical order of the same tensor, or the same bits under another name."""
    x, y = node.operands[0], node.output
    return copy_call(ctx, node, Copy(y.tensor.dims, x.tensor.strides, y.tensor.strides, x.tensor.dtype), x, y)


@lowers(Concat, windows="any")
def lower_concat(ctx: LowerContext, node: Node) -> list[KernelCall]:
    """One strided copy per input that does not lie in its place already."""
    y = node.output
    calls = []
    for x, at in zip(node.operands, concat_offsets(node), strict=True):
        if not is_window(x):
            copy = Copy(x.tensor.dims, x.tensor.strides, y.tensor.strides, x.tensor.dtype, 0, at)
            calls.append(copy_call(ctx, node, copy, x, y))
    return calls


@lowers(Slice, windows="any")
def lower_slice(ctx: LowerContext, node: Node) -> KernelCall:
    """A strided copy that starts inside x."""
    x, y = node.operands[0], node.output
    assert isinstance(node.op, Slice)
    ranges = node.op.ranges(node.context())
    own = x.tensor.strides
    base: Dim = 0
    for r, stride in zip(ranges, own, strict=True):
        base = base + r.start * stride
    strides = tuple(stride * r.step for r, stride in zip(ranges, own, strict=True))
    return copy_call(ctx, node, Copy(y.tensor.dims, strides, y.tensor.strides, x.tensor.dtype, base), x, y)


@lowers(Split, windows="any")
def lower_split(ctx: LowerContext, node: Node) -> list[KernelCall]:
    """One strided copy for each part that is used."""
    x = node.operands[0]
    assert isinstance(node.op, Split)
    axis, sizes = node.op.sizes(node.context())
    calls: list[KernelCall] = []
    at: Dim = 0
    for y, size in zip(node.outputs, sizes, strict=True):
        if y.is_used:
            base = at * x.tensor.strides[axis]
            copy = Copy(y.tensor.dims, x.tensor.strides, y.tensor.strides, x.tensor.dtype, base)
            calls.append(copy_call(ctx, node, copy, x, y))
        at = at + size
    return calls


@lowers(Expand, windows="any")
def lower_expand(ctx: LowerContext, node: Node) -> KernelCall:
    """A strided copy with strides of 0 where x repeats."""
    x, y = node.operands[0], node.output
    strides = broadcast_strides(x.tensor, y.tensor)
    return copy_call(ctx, node, Copy(y.tensor.dims, strides, y.tensor.strides, x.tensor.dtype), x, y)


@lowers(Tile)
def lower_tile(ctx: LowerContext, node: Node) -> KernelCall:
    """A strided copy over (repeat, index) of every axis."""
    x, y = node.operands[0], node.output
    assert isinstance(node.op, Tile)
    shape: list[Dim] = []
    x_strides: list[Dim] = []
    y_strides: list[Dim] = []
    counts = node.op.counts(node.context())
    for count, size, xs, ys in zip(counts, x.tensor.dims, x.tensor.strides, y.tensor.strides, strict=True):
        shape += [count, size]
        x_strides += [0, xs]
        y_strides += [size * ys, ys]
    return copy_call(ctx, node, Copy(tuple(shape), tuple(x_strides), tuple(y_strides), x.tensor.dtype), x, y)


@lowers(DepthToSpace, SpaceToDepth)
def lower_blocks(ctx: LowerContext, node: Node) -> KernelCall:
    """A strided copy over six axes: the blocked ones are split in two."""
    x, y = node.operands[0], node.output
    sizes, x_strides, y_strides = node.op.strided(x.tensor, y.tensor)  # type: ignore[attr-defined]
    return copy_call(ctx, node, Copy(sizes, x_strides, y_strides, x.tensor.dtype), x, y)


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
