"""Functions of a byte: a register of them is looked up at a time where a target has instructions for it.

    for vector of 64 bytes:  y = table[x]           # the table stays in four registers

Elsewhere, and where elements do not lie side by side, one element follows the other.
"""

from __future__ import annotations

from ....ir.graph import Node
from ....ir.ops.byte_tables import ENTRIES, ByteTable
from ....ir.types import I64, U8
from ....kernel_ir.loops import KFunc, KType, PtrType
from ...llvm_memory import LOOKUP_FEATURE, LOOKUP_LANES
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import Lane, emit_row, emit_rows, iteration_axes, load_lane, store_lane

UNROLL = 8  # of single elements


@lowers(ByteTable)
def lower_byte_table(ctx: LowerContext, node: Node) -> KernelCall:
    """The kernel call."""
    x, table = node.operands
    y = node.output
    axes = iteration_axes(y.tensor, [x.tensor.strides, y.tensor.strides])
    in_vectors = LOOKUP_FEATURE in ctx.target.abilities and all(steps[-1] == 1 for steps in axes.strides)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(operand, PtrType(U8)) for operand in ("x", "table", "y")])

        def one(lane: Lane) -> None:
            index = k.cast(load_lane(k, k["x"], lane, 0), I64)
            store_lane(k, k["y"], lane, 1, k.load(k["table"], index))

        if not in_vectors:
            emit_rows(k, axes, lambda row: emit_row(k, axes, 1, one, row, UNROLL))
            return k.func
        entries = k.load(k["table"], 0, ENTRIES)

        def several(lane: Lane) -> None:
            found = k.op("lookup", (load_lane(k, k["x"], lane, 0), entries), KType(U8, lane.lanes))
            store_lane(k, k["y"], lane, 1, found)

        emit_rows(k, axes, lambda row: emit_row(k, axes, LOOKUP_LANES, several, row))
        return k.func

    func = ctx.function("byte_table", node, build)
    return KernelCall(func, (x, table, y), axes.work, node.name, nbytes=2 * y.tensor.nbytes)
