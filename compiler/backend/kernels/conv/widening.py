"""Convolutions of i16 by constant whole numbers of 8 or 16 bits, in i32, by the register tile of pairs of channels."""

from __future__ import annotations

from ....ir.ops.widening import WideningConv
from ....ir.types import I16
from ...lowering import KernelCall, LowerContext
from ...microkernels.table import tiles
from .indirect import lower_indirect
from .layer import ConvAlgorithm, ConvLayer


class WideningAlgorithm(ConvAlgorithm):
    """The indirect convolution with two channels in a step."""

    name = "widening"

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        s = layer.shape
        if not isinstance(layer.fusion.root.op, WideningConv) or not s.constant or s.groups > 1:
            return False
        if s.x.tensor.dtype != I16 or s.group_inputs == 0 or s.group_inputs % 2 or s.taps == 0:
            return False
        lies = s.channels_last_input and s.y.axis_order == s.last_order
        return lies and any(tiles(ctx.target, s.w.tensor.dtype))

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        return lower_indirect(ctx, layer.fusion, layer.shape, input_type=layer.shape.w.tensor.dtype)
