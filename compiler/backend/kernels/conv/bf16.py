"""Convolutions of bf16 by constant filters of bf16, in f32, by the register tile of pairs of channels."""

from __future__ import annotations

from ....ir.types import BF16
from ...lowering import KernelCall, LowerContext
from .indirect import lower_indirect
from .layer import ConvAlgorithm, ConvLayer


class Bf16Algorithm(ConvAlgorithm):
    """The indirect convolution with two channels in a step."""

    name = "bf16-pairs"

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        return layer.has_pairs(ctx)

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        return lower_indirect(ctx, layer.fusion, layer.shape, input_type=BF16)
