"""ScatterElements, ScatterND: a copy of the data, then writes at indices found in memory.

ScatterND: `for each chunk of the slice: for each row of indices in order: for element of the chunk`. ScatterElements:
`for each line along the axis: for each index in order`. No two work items write the same element, so that of equal
indices the last one wins on any number of cores. An index out of range reports an error site and writes nothing.
"""

from __future__ import annotations

from ....ir.axis_orders import is_row_major
from ....ir.graph import Node
from ....ir.ops.gathering import ScatterElements, ScatterND
from ....ir.types import BOOL, DType, ceil_div, prod
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import register_dtype
from ...lowering import KernelCall, LowerContext, lowers, unsupported
from ..nest import decode, emit_span
from .lookup import Component, resolve
from .movement import copy_call
from .strided import Copy, bits_of

CHUNK = 1024  # elements of a slice that one work item writes
_ON_BOOL = {"add": "or", "max": "or", "mul": "and", "min": "and"}


def _combine(k: Builder, reduction: str, old: KValue, new: KValue) -> KValue:
    if old.dtype == BOOL:
        return k.binary(_ON_BOOL[reduction], old, new)
    wide = register_dtype(old.dtype)
    return k.cast(k.binary(reduction, k.cast(old, wide), k.cast(new, wide)), old.dtype)


def _put(k: Builder, reduction: str, y: KValue, at: KValue, new: KValue, mask: KValue | None = None) -> None:
    value = new if reduction == "none" else _combine(k, reduction, k.load(y, at, new.lanes, mask), new)
    k.store(y, at, value, mask)


def _copy(ctx: LowerContext, node: Node) -> KernelCall:
    x, y = node.operands[0], node.output
    if not all(is_row_major(v.tensor) for v in (*node.operands, y)):
        raise unsupported(node, "operands must be in ONNX's order")
    return copy_call(ctx, node, Copy(y.tensor.dims, x.tensor.strides, y.tensor.strides, x.tensor.dtype), x, y)


def _dtype(reduction: str, dtype: DType) -> DType:
    return bits_of(dtype) if reduction == "none" else dtype


@lowers(ScatterND)
def lower_scatter_nd(ctx: LowerContext, node: Node) -> list[KernelCall]:
    """Two calls: the copy, the updates."""
    assert isinstance(node.op, ScatterND)
    _, index, updates = node.operands
    y, reduction = node.output, node.op.reduction
    length = index.tensor.dims[-1]
    assert isinstance(length, int)
    rows, slice_ = prod(index.tensor.dims[:-1]), prod(y.tensor.dims[length:])
    parts = [Component(j, y.tensor.dims[j], y.tensor.strides[j]) for j in range(length)]
    dtype = _dtype(reduction, y.tensor.dtype)
    site = ctx.error_site(node, "an index is out of range")
    lanes = ctx.lanes * 4 // max(4, dtype.nbytes) if slice_ != 1 else 1

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [("index", PtrType(index.tensor.dtype)), ("x", PtrType(dtype)), ("y", PtrType(dtype))])
        begin, end = k["begin"] * CHUNK, k.min(k["end"] * CHUNK, k.index(slice_))

        def row(r: KValue, _: list[KValue]) -> None:
            good, offset = resolve(k, parts, lambda c: k.load(k["index"], r * length + k.index(c.offset)))
            source = r * k.index(slice_)

            def update(i: KValue, n: int, mask: KValue | None) -> None:
                _put(k, reduction, k["y"], offset + i, k.load(k["x"], source + i, n, mask), mask)

            k.if_(good, lambda: emit_span(k, begin, end, lanes, update), lambda: k.fail(site))

        k.for_(0, k.index(rows), 1, [], row)
        return k.func

    func = ctx.function("scatter_nd", node, build, site)
    call = KernelCall(func, (index, updates, y), ceil_div(slice_, CHUNK), node.name, nbytes=2 * updates.tensor.nbytes)
    return [_copy(ctx, node), call]


@lowers(ScatterElements)
def lower_scatter_elements(ctx: LowerContext, node: Node) -> list[KernelCall]:
    """Two calls: the copy, the updates."""
    assert isinstance(node.op, ScatterElements)
    _, index, updates = node.operands
    y, reduction = node.output, node.op.reduction
    axis = node.op.axis % y.tensor.rank
    others = [a for a in range(y.tensor.rank) if a != axis]
    sizes = [index.tensor.dims[a] for a in others]
    part = Component(0, y.tensor.dims[axis], y.tensor.strides[axis])
    dtype = _dtype(reduction, y.tensor.dtype)
    site = ctx.error_site(node, "an index is out of range")

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [("index", PtrType(index.tensor.dtype)), ("x", PtrType(dtype)), ("y", PtrType(dtype))])
        step = k.index(index.tensor.strides[axis])

        def line(work: KValue, _: list[KValue]) -> None:
            at, target = k.index(0), k.index(0)
            for a, i in zip(others, decode(k, work, sizes) if sizes else ()):
                at, target = at + i * k.index(index.tensor.strides[a]), target + i * k.index(y.tensor.strides[a])

            def update(i: KValue, _: list[KValue]) -> None:
                here = at + i * step
                good, offset = resolve(k, [part], lambda c: k.load(k["index"], here))
                k.if_(good, lambda: _put(k, reduction, k["y"], target + offset, k.load(k["x"], here)),
                      lambda: k.fail(site))

            k.for_(0, k.index(index.tensor.dims[axis]), 1, [], update)

        k.for_(k["begin"], k["end"], 1, [], line)
        return k.func

    func = ctx.function("scatter_elements", node, build, site)
    return [_copy(ctx, node), KernelCall(func, (index, updates, y), prod(sizes), node.name,
                                         nbytes=2 * updates.tensor.nbytes)]
