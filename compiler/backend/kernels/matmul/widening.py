"""Products of i16 by constant whole numbers of 8 or 16 bits, in i32, by the register tile of pairs."""

from __future__ import annotations

from ....ir.ops.widening import WideningMatMul
from ....ir.types import I16
from ...lowering import KernelCall, LowerContext
from ...microkernels.table import tiles
from .direct import ProductAlgorithm, ProductLayer, lower_direct
from .shapes import is_packed


class WideningAlgorithm(ProductAlgorithm):
    """Two steps of k in one instruction, B packed at compile time."""

    name = "widening"

    def applies(self, ctx: LowerContext, layer: ProductLayer) -> bool:
        m, y = layer.matrices, layer.fusion.result.tensor
        if not isinstance(layer.fusion.root.op, WideningMatMul) or not is_packed(m) or m.depth == 0:
            return False
        if m.column_axis is None or y.axis_order[-1] != m.column_axis or m.a.tensor.dtype != I16:
            return False
        return any(tiles(ctx.target, m.b.tensor.dtype))

    def lower(self, ctx: LowerContext, layer: ProductLayer) -> KernelCall:
        return lower_direct(ctx, layer.fusion, layer.matrices, layer.matrices.b.tensor.dtype)
