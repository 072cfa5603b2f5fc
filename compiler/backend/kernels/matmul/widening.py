"""Products of whole numbers by constant ones, in i32, by the register tiles of pairs and quads."""

from __future__ import annotations

import numpy as np

from ....ir.ops.widening import WideningMatMul
from ....ir.types import I16, U8, DType
from ....targets.target import Target
from ...lowering import KernelCall, LowerContext
from ...microkernels.table import emitter_of, tiles
from ...microkernels.whole import pair_weight
from .direct import ProductAlgorithm, ProductLayer
from .matrix_products import lower_tiles
from .shapes import is_packed


class WideningAlgorithm(ProductAlgorithm):
    """Several steps of k in one instruction, B packed at compile time."""

    name = "widening"

    def applies(self, ctx: LowerContext, layer: ProductLayer) -> bool:
        m, y = layer.matrices, layer.fusion.result.tensor
        if not isinstance(layer.fusion.root.op, WideningMatMul) or not is_packed(m) or m.depth == 0:
            return False
        if m.column_axis is None or y.axis_order[-1] != m.column_axis:
            return False
        assert m.b.data is not None
        return multiplies(ctx.target, tiles_for(m.a.tensor.dtype, m.b.tensor.dtype), m.b.data)

    def lower(self, ctx: LowerContext, layer: ProductLayer) -> KernelCall:
        m = layer.matrices
        return lower_tiles(ctx, layer.fusion, m, tiles_for(m.a.tensor.dtype, m.b.tensor.dtype))


def tiles_for(a: DType, weights: DType) -> DType:
    """The element type by which the table calls the tiles for an operand: bytes, or i16 by the weights' type."""
    assert a in (U8, I16)
    return U8 if a == U8 else weights


def multiplies(target: Target, input_type: DType, columns: np.ndarray) -> bool:
    """Whether a target has tiles of an element type whose sums are exact for weights [..., K, N]."""
    if not any(tiles(target, input_type)):
        return False
    most = emitter_of(target, input_type).heaviest_pair
    return most is None or pair_weight(columns) <= most
