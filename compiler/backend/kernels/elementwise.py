"""Element-wise operators, alone or fused: one loop nest over the broadcast result, any layout, any mix of types.

Loops: see `nest`. Each output vector evaluates the whole fused expression in registers. Rows that are looked up in
another tensor (RowsAt) are read where they lie, by the number that stands at the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...ir.graph import Node
from ...ir.ops.base import Elementwise, Fused
from ...ir.ops.sparse_rows import RowsAt
from ...ir.types import I64, TensorType
from ...kernel_ir.builder import Builder
from ...kernel_ir.loops import KFunc, PtrType
from ..fusion import constant_value, evaluate_body, scalar_constant, widen
from ..llvm_types import has_register
from ..lowering import KernelCall, LowerContext, lowers, unsupported
from .nest import Lane, broadcast_strides, emit_nest, iteration_axes, load_lane, store_lane


@lowers(Elementwise, windows="any")
def lower_elementwise(ctx: LowerContext, node: Node) -> KernelCall:
    """One kernel for an element-wise operator or a fused block of them."""
    if isinstance(node.op, Fused):
        assert node.body is not None
        nodes = list(node.body)
        pairs = list(zip(node.body.inputs, node.inputs))
        outs = list(zip(node.body.outputs, node.outputs))
    else:
        nodes = [node]
        pairs = [(v, v) for v in dict.fromkeys(node.inputs) if v is not None]
        outs = [(v, v) for v in node.outputs]
    reads = [(inner, outer) for inner, outer in pairs if outer is not None and not scalar_constant(outer)]
    scalars = [(inner, outer) for inner, outer in pairs if outer is not None and scalar_constant(outer)]
    result = outs[0][1].type
    assert isinstance(result, TensorType)
    types = [v.tensor for _, v in reads] + [v.tensor for _, v in outs]
    for t in (*types, *(v.tensor for _, v in scalars), *(v.tensor for n in nodes for v in n.outputs)):
        if not has_register(t.dtype):
            raise unsupported(node, f"no arithmetic on {t.dtype}")
    number = {inner: i for i, (inner, _) in enumerate(reads)}
    looked_up = {number[n.operands[0]]: number[n.operands[1]] for n in nodes if isinstance(n.op, RowsAt)}
    strides = [broadcast_strides(t, result) for t in types]
    for i in looked_up:
        strides[i] = (0, types[i].strides[1])
    axes = iteration_axes(result, strides)
    lanes = ctx.lanes

    def build(name: str) -> KFunc:
        params = [(f"x{i}", PtrType(v.tensor.dtype)) for i, (_, v) in enumerate(reads)]
        params += [(f"y{i}", PtrType(v.tensor.dtype)) for i, (_, v) in enumerate(outs)]
        k = ctx.kernel(name, params)

        def body(lane: Lane) -> None:
            lane = _moved(k, lane, looked_up, types)
            values = {inner: widen(k, load_lane(k, k[f"x{i}"], lane, i)) for i, (inner, _) in enumerate(reads)}
            for inner, outer in scalars:
                values[inner] = constant_value(k, outer)
            evaluate_body(k, nodes, values)
            for i, (inner, _) in enumerate(outs):
                ptr = k[f"y{i}"]
                store_lane(k, ptr, lane, len(reads) + i, k.cast(values[inner], ptr.dtype))

        emit_nest(k, axes, lanes, body)
        return k.func

    constants = tuple((i, v.data.tobytes()) for i, v in enumerate(node.inputs) if v is not None and v.data is not None
                      and scalar_constant(v))
    func = ctx.function("elementwise", node, build, constants, lanes)
    operands = tuple(v for _, v in reads) + tuple(v for _, v in outs)
    return KernelCall(func, operands, axes.work, node.name, nbytes=sum((v.tensor.nbytes for v in operands), 0))


def _moved(k: Builder, lane: Lane, looked_up: Mapping[int, int], types: Sequence[TensorType]) -> Lane:
    """The lane with the offsets of operands that are looked up, by the operand that says which row, in their rows."""
    offsets = list(lane.offsets)
    for i, at in looked_up.items():
        row = k.cast(k.load(k[f"x{at}"], offsets[at]), I64)
        offsets[i] = offsets[i] + row * k.index(types[i].strides[0])
    return replace(lane, offsets=tuple(offsets))
