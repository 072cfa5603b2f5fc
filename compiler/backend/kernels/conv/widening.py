"""Convolutions of whole numbers by constant ones, in i32, by the register tiles of pairs and quads of channels."""

from __future__ import annotations

from ....ir.ops.widening import ByteConv, WideningConv
from ...lowering import KernelCall, LowerContext
from ...microkernels.table import emitter_of
from ..matmul.widening import multiplies, tiles_for
from .indirect import lower_indirect
from .layer import ConvAlgorithm, ConvLayer
from .matrices import lower_matrices
from .weights import conv_weights


class WideningAlgorithm(ConvAlgorithm):
    """The indirect convolution with two or four channels in a step."""

    name = "widening"

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        s = layer.shape
        if not isinstance(layer.fusion.root.op, WideningConv) or not s.constant or s.groups > 1:
            return False
        input_type = tiles_for(s.x.tensor.dtype, s.w.tensor.dtype)
        if s.group_inputs * s.taps == 0 or not s.channels_last_input or s.y.axis_order != s.last_order:
            return False
        if not multiplies(ctx.target, input_type, conv_weights(s, taps_outside=True)):
            return False
        emitter = emitter_of(ctx.target, input_type)
        return bool(emitter.matrices) or s.group_inputs % emitter.k_step == 0

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        s, op = layer.shape, layer.fusion.root.op
        margin = op.margin if isinstance(op, ByteConv) else 0
        input_type = tiles_for(s.x.tensor.dtype, s.w.tensor.dtype)
        if emitter_of(ctx.target, input_type).matrices:
            return lower_matrices(ctx, layer.fusion, s, input_type, margin)
        return lower_indirect(ctx, layer.fusion, s.by_lines(), input_type=input_type, margin=margin)
