"""Conv: which algorithms there are for a layer, and its kernel call.

    rows = output pixels, columns = output channels of a group, taps = kernel positions, k = input channels
"""

from __future__ import annotations

from dataclasses import replace

from ....ir.graph import Node
from ....ir.ops.contraction import Conv
from ....ir.types import prod
from ...algorithm import candidates
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, lowers
from .bf16 import Bf16Algorithm
from .depthwise import DepthwiseAlgorithm
from .depthwise_whole import WholeDepthwiseAlgorithm
from .gather import GatheredAlgorithm
from .gather_pairs import ColumnPairsAlgorithm
from .groups import GroupsAlgorithm
from .images import ImageAlgorithm
from .indirect import DirectAlgorithm
from .inverted import lower_inverted
from .layer import ConvAlgorithm, ConvLayer
from .matrices import MatricesAlgorithm
from .pixel_vectorised import PixelVectorisedAlgorithm
from .plain import PlainAlgorithm
from .quads import QuadsAlgorithm
from .separable import chained, lower_separable
from .weights import ConvShape
from .widening import WideningAlgorithm
from .winograd.by_size import WinogradBySize
from .winograd.lower import WinogradAlgorithm
from .winograd.whole import WholeWinogradAlgorithm

ALGORITHMS: tuple[ConvAlgorithm, ...] = (
    PlainAlgorithm(),
    WideningAlgorithm(),
    WholeDepthwiseAlgorithm(),
    Bf16Algorithm(),
    WholeWinogradAlgorithm(),
    MatricesAlgorithm(),
    DepthwiseAlgorithm(),
    GatheredAlgorithm(),
    ColumnPairsAlgorithm(),
    ImageAlgorithm(),
    DirectAlgorithm("direct"),
    DirectAlgorithm("direct-short", row_share=0.5),
    DirectAlgorithm("direct-long", row_share=2),
    GroupsAlgorithm(),
    PixelVectorisedAlgorithm(),
    QuadsAlgorithm(),
    WinogradAlgorithm(),
    WinogradBySize(),
)
"""In the order in which they replace each other (`algorithm.candidates`)."""


@lowers(Conv, windows="rows", read="any")
def lower_conv(ctx: LowerContext, node: Node) -> KernelCall:
    """The kernel call of a (fused) convolution."""
    parts = chained(node)
    nbytes = sum((v.tensor.nbytes for v in {*node.operands, *node.outputs}), start=0)
    if parts:
        sizes = [(part.result.tensor, part.root_inputs[1]) for part in parts]
        flops = sum(2 * prod(y.dims) * prod(w.tensor.dims[1:]) for y, w in sizes if w is not None)
        call = lower_separable(ctx, *parts) if len(parts) == 2 else lower_inverted(ctx, *parts)
        return replace(call, label=node.name, flops=flops, nbytes=nbytes)
    fusion = Fusion.of(node)
    s = ConvShape.of(fusion)
    flops = 2 * prod(fusion.result.tensor.dims) * (s.group_inputs * s.taps)
    call = ctx.pick(node, candidates(ALGORITHMS, ctx, ConvLayer(fusion, s)))
    return replace(call, label=node.name, flops=flops, nbytes=nbytes)
