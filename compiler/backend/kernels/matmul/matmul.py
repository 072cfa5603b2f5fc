"""MatMul and Gemm: which algorithms there are for a product, and its kernel call."""

from __future__ import annotations

from dataclasses import replace

from ....ir.graph import Node
from ....ir.ops.contraction import Gemm, MatMul
from ....ir.types import BF16, F16, prod
from ...algorithm import candidates
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, lowers
from .bf16 import Bf16Algorithm
from .direct import DirectAlgorithm, ProductAlgorithm, ProductLayer
from .halves import HalvesAlgorithm
from .plain import PlainAlgorithm
from .rounded import MatricesAlgorithm, RoundedAlgorithm
from .shapes import matrices_of
from .stored import StoredAlgorithm
from .widening import WideningAlgorithm

ALGORITHMS: tuple[ProductAlgorithm, ...] = (
    PlainAlgorithm(),
    WideningAlgorithm(),
    RoundedAlgorithm(BF16),
    MatricesAlgorithm(),
    Bf16Algorithm(),
    DirectAlgorithm(),
    HalvesAlgorithm(),
    StoredAlgorithm(F16),
    StoredAlgorithm(BF16),
)
"""In the order in which they replace each other (`algorithm.candidates`)."""


@lowers(MatMul, Gemm)
def lower_matmul(ctx: LowerContext, node: Node) -> KernelCall:
    """The kernel call of a (fused) MatMul or Gemm."""
    fusion = Fusion.of(node)
    m = matrices_of(fusion)
    flops = 2 * prod(fusion.result.tensor.dims) * m.depth
    nbytes = sum((v.tensor.nbytes for v in {*node.operands, *node.outputs}), start=0)
    call = ctx.pick(node, candidates(ALGORITHMS, ctx, ProductLayer(fusion, m)))
    return replace(call, label=node.name, flops=flops, nbytes=nbytes)
