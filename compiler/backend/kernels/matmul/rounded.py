"""Products of operands of a narrower type than f32, or that are rounded to it, by the tiles that the target has."""

from __future__ import annotations

from dataclasses import replace

from ....ir.types import BF16, DType
from ...lowering import KernelCall, LowerContext
from ...microkernels.table import emitter_of, products_of_f32s
from .direct import ProductAlgorithm, ProductLayer, is_rounded, is_tiled
from .matrix_products import lower_matrices, lower_tiles
from .shapes import is_packed


class RoundedAlgorithm(ProductAlgorithm):
    """The tiles of another element type, to which the operands are rounded: where that is asked for, nothing else."""

    def __init__(self, to: DType) -> None:
        self.name, self.to = to.name, to

    def applies(self, ctx: LowerContext, layer: ProductLayer) -> bool:
        return ctx.matmul_input == self.to and is_rounded(ctx, layer.fusion, layer.matrices)

    def lower(self, ctx: LowerContext, layer: ProductLayer) -> KernelCall:
        return replace(lower_tiles(ctx, layer.fusion, layer.matrices, self.to), rounded_to=self.to)


class MatricesAlgorithm(ProductAlgorithm):
    """Products of bf16 by a constant matrix, wherever the target has matrix registers for them."""

    name = "matrices"

    def applies(self, ctx: LowerContext, layer: ProductLayer) -> bool:
        m = layer.matrices
        narrow = m.a.tensor.dtype == m.b.tensor.dtype == BF16
        if not narrow or not is_tiled(layer.fusion, m) or not is_packed(m):
            return False
        return bool(emitter_of(ctx.target, BF16).matrices)

    def cost(self, ctx: LowerContext, layer: ProductLayer) -> float:
        return 1 / products_of_f32s(ctx.target, BF16)

    def lower(self, ctx: LowerContext, layer: ProductLayer) -> KernelCall:
        return lower_matrices(ctx, layer.fusion, layer.matrices, BF16)
