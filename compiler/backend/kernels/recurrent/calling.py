"""The call of a recurrent operator's kernel, forwards or back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....ir.graph import Node
from ....ir.types import Dim
from ....kernel_ir.builder import Builder
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Operand
from .tile import SmallProducts
from .walk import P, Walk


def recurrent_call(
    ctx: LowerContext, node: Node, kind: str, operands: Sequence[tuple[str, PtrType, Operand]], plan: P,
    emitter: Callable[[Builder, P, SmallProducts, int], Walk[P]], inputs: Dim = 0, *key: Any,
) -> KernelCall:  # fmt: skip
    """All steps in one kernel.

    Args:
        kind: of kernel. emitter: makes what writes it. inputs: elements of x that are multiplied beside the state.
        key: what its text depends on beside the node.
    """
    shape = plan.shape
    site = ctx.error_site(Fusion.of(node).root, "sequence_lens out of range") if "lens" in plan.types else 0

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands])
        emitter(k, plan, SmallProducts(k, ctx), site).emit()
        return k.func

    func = ctx.function(kind, node, build, *key, site)
    flops = 2 * shape.directions * shape.batch * shape.steps * plan.op.n_gates * shape.hidden * (inputs + shape.hidden)
    return KernelCall(func, tuple(o for _, _, o in operands), plan.work, node.name, flops=flops)


__all__ = ["recurrent_call"]
