"""RNN, GRU and LSTM: one product for the inputs of many steps, then step by step the recurrent product and the gates.

The gates of one vector of hidden units are neighbouring columns of the packed weights, so that the register tiles give
all of them at once and the state never leaves the cache. Cores share the hidden units: each streams its own part of the
weights at every step, and they meet to exchange the new state (`recurrent_plan` says when they do not).

    for chunk of steps:
        for my block of units:  sums[block, step, row] = bias + x[step, row] · W[:, block]        # one product
        for step:
            for my block of units:
                gates[row] = sums[block, step, row] + h[row] · R[:, block]                       # register tiles
                h'[row, block], c'[row, block], y = finish(gates)
            meet
"""

from __future__ import annotations

from ....ir.graph import Node
from ....ir.ops.recurrent import Recurrent
from ....ir.types import F32
from ....kernel_ir.builder import F32PTR
from ....kernel_ir.loops import PtrType
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Operand, lowers, unsupported
from ..reduction.reduce import root_context
from .calling import recurrent_call
from .cells import cell_of
from .plan import RecurrentPlan, cut
from .steps import RecurrentEmitter
from .weights import packed_weights

NAMES = ("x", "w", "r", "b", "lens", "h0", "c0", "p")
OUTPUTS = {1: ("y", "y_h", "kept_gates"), 2: ("y", "y_h", "y_c", "kept_gates", "kept_cells")}
"""By the number of states; what is kept are the results of training forms (ir/ops/recurrent_training.py)."""


@lowers(Recurrent)
def lower_recurrent(ctx: LowerContext, node: Node) -> KernelCall:
    """The whole sequence in one kernel."""
    fusion = Fusion.of(node)
    op = fusion.root.op
    assert isinstance(op, Recurrent)
    if fusion.tail:
        raise unsupported(node, "nothing can be fused behind a recurrent operator")
    shape = op.shape(root_context(fusion))
    given = {n: v for n, v in zip(NAMES, fusion.root_inputs) if v is not None}
    used = {n: v for n, v in zip(OUTPUTS[op.n_states], node.outputs)}
    types = {n: v.tensor for n, v in (*given.items(), *used.items())}
    cell, lanes, x = cell_of(op), ctx.lanes, types["x"]
    packed = all(given[n].data is not None and given[n].producer is None for n in ("w", "r"))
    rows, steps, shared = cut(shape, lanes)
    copied = x.dtype != F32 or x.strides[-1] != 1
    plan = RecurrentPlan(op, shape, types, lanes, 1, rows, shared, cell, steps, packed, copied)

    operands: list[tuple[str, PtrType, Operand]] = []
    for name, v in given.items():
        if packed and name in ("w", "r"):
            operands.append((name, F32PTR, packed_weights(ctx, name, v, cell, shape.hidden)))
        else:
            operands.append((name, PtrType(v.tensor.dtype), v))
    operands += [(n, PtrType(v.tensor.dtype), v) for n, v in used.items()]
    operands += plan.memory()
    return recurrent_call(ctx, node, "recurrent", operands, plan, RecurrentEmitter, shape.inputs, packed)
