"""Functions of a byte: one element after the other is looked up, for which AVX2 has no instruction."""

from __future__ import annotations

from ....ir.graph import Node
from ....ir.ops.byte_tables import ByteTable
from ....ir.types import I64, U8
from ....kernel_ir.loops import KFunc, PtrType
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import Lane, emit_row, emit_rows, iteration_axes, load_lane, store_lane

UNROLL = 8


@lowers(ByteTable)
def lower_byte_table(ctx: LowerContext, node: Node) -> KernelCall:
    """The kernel call."""
    x, table = node.operands
    y = node.output
    axes = iteration_axes(y.tensor, [x.tensor.strides, y.tensor.strides])

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(operand, PtrType(U8)) for operand in ("x", "table", "y")])

        def one(lane: Lane) -> None:
            index = k.cast(load_lane(k, k["x"], lane, 0), I64)
            store_lane(k, k["y"], lane, 1, k.load(k["table"], index))

        emit_rows(k, axes, lambda row: emit_row(k, axes, 1, one, row, UNROLL))
        return k.func

    func = ctx.function("byte_table", node, build)
    return KernelCall(func, (x, table, y), axes.work, node.name, nbytes=2 * y.tensor.nbytes)
