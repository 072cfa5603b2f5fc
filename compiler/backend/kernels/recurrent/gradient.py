"""The way back through a recurrent operator's time steps; see ir/ops/recurrent_training.py.

    for step from the last to the first:
        for my block of units:  dG[step, row, block] = slopes of the gates · (dh, dc)[row, block]
        meet
        for my block of units:  dh[row, block] = dG[step, row] · R[:, block]                      # register tiles

The cores share the hidden units as they do forwards, and each packs the columns of R that are its own.
"""

from __future__ import annotations

from ....ir.graph import Node
from ....ir.ops.recurrent_training import RecurrentGradient
from ....kernel_ir.loops import PtrType
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Operand, lowers, unsupported
from ..reduction.reduce import root_context
from .calling import recurrent_call
from .gradient_steps import GradientEmitter
from .plan import GradientPlan, cut

NAMES = ("kept_gates", "y", "r", "lens", "h0", "kept_cells", "c0", "p", "dy", "dy_h", "dy_c")


@lowers(RecurrentGradient)
def lower_recurrent_gradient(ctx: LowerContext, node: Node) -> KernelCall:
    """All steps in one kernel."""
    fusion = Fusion.of(node)
    op = fusion.root.op
    assert isinstance(op, RecurrentGradient)
    if fusion.tail:
        raise unsupported(node, "nothing can be fused behind a recurrent operator's gradient")
    shape = op.shape(root_context(fusion))
    given = {n: v for n, v in zip(NAMES, fusion.root_inputs) if v is not None}
    used = dict(zip((o.name for o in op.signature.outputs), node.outputs))
    operands: list[tuple[str, PtrType, Operand]] = [
        (n, PtrType(v.tensor.dtype), v) for n, v in (*given.items(), *used.items())
    ]
    types = {n: v.tensor for n, v in (*given.items(), *used.items())}
    vectors = 2 if shape.hidden > ctx.lanes else 1
    rows, _, shared = cut(shape, vectors * ctx.lanes)
    plan = GradientPlan(op, shape, types, ctx.lanes, vectors, rows, shared)
    operands += plan.memory()
    return recurrent_call(ctx, node, "recurrent_gradient", operands, plan, GradientEmitter)
