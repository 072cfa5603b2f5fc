"""Products of bf16 by a constant matrix of bf16, in f32, by the register tile of pairs."""

from __future__ import annotations

from ....ir.types import BF16
from ...lowering import KernelCall, LowerContext
from .direct import ProductAlgorithm, ProductLayer, has_pairs, lower_direct


class Bf16Algorithm(ProductAlgorithm):
    """Two steps of k in one instruction or two multiply-adds, B packed at compile time; A is read where it lies."""

    name = "bf16-pairs"

    def applies(self, ctx: LowerContext, layer: ProductLayer) -> bool:
        return has_pairs(ctx, layer.fusion, layer.matrices)

    def lower(self, ctx: LowerContext, layer: ProductLayer) -> KernelCall:
        return lower_direct(ctx, layer.fusion, layer.matrices, BF16)
