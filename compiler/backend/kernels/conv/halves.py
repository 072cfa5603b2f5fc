"""1×1 convolutions by Strassen's algorithm: one product of constant weights, whose rows are pixels as they lie."""

from __future__ import annotations

from ....ir.types import F32
from ....kernel_ir.builder import F32PTR
from ...lowering import KernelCall, LowerContext
from ...microkernels.emitter import SINGLE
from ..matmul.blocking import Product, best_lanes
from ..matmul.strassen import counts
from ..matmul.strassen import lower as strassen
from ..tail import tail_of
from .indirect import blocks, indirect_operands
from .layer import ConvAlgorithm, ConvLayer
from .weights import ConvShape, constant_bias, constant_operands, conv_weights


class HalvesAlgorithm(ConvAlgorithm):
    """Strassen's algorithm, where its sums take less than they save."""

    name = "strassen"
    max_share = counts.MAX_SHARE
    measured_share = strassen.MEASURED_SHARE

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        able = layer.is_indirect(ctx) and not layer.is_exact(ctx) and has_halves(layer.shape)
        return able and strassen.serves(ctx, whole(ctx, layer.shape))

    def cost(self, ctx: LowerContext, layer: ConvLayer) -> float:
        return strassen.expected_share(ctx, whole(ctx, layer.shape))

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        s, fusion = layer.shape, layer.fusion
        p = strassen.plan_halves(ctx, whole(ctx, s))
        product = strassen.Strassen(ctx, p, conv_weights(s, taps_outside=True)[0, 0], constant_bias(s))
        return product.lower(ctx, fusion, tail_of(fusion, ctx.symbols), [("a", F32PTR, s.x)],
                             lambda k: indirect_operands(k, ctx, s, p, False))  # fmt: skip


def whole(ctx: LowerContext, s: ConvShape) -> Product:
    """The product that Strassen's algorithm takes apart, in steps of one k."""
    return blocks(ctx, s, F32, best_lanes(ctx.target, s.group_outputs), SINGLE)[0]


def has_halves(s: ConvShape) -> bool:
    """Whether a layer is one product of constant weights whose rows are pixels as they lie."""
    g = s.geometry
    unpadded = all(p == 0 for p in (*g.pads_begin, *g.pads_end))
    return s.taps == 1 and s.groups == 1 and unpadded and constant_operands(s)
