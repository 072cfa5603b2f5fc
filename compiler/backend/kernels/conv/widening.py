"""Convolutions of whole numbers by constant ones, in i32, by the register tiles of pairs and quads of channels."""

from __future__ import annotations

from dataclasses import replace

from ....ir.ops.widening import ByteConv, WideningConv
from ....ir.types import U8
from ....targets.target import Target
from ...lowering import KernelCall, LowerContext
from ...microkernels.table import emitter_of, tiles, without_matrices
from ..matmul.widening import multiplies, tiles_for
from .indirect import lower_indirect
from .layer import ConvAlgorithm, ConvLayer
from .matrices import LEAST_BYTES, fills_registers, lower_matrices
from .weights import ConvShape, conv_weights


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
        emitter = emitter_of(_target(ctx, s), input_type)
        return bool(emitter.matrices) or s.group_inputs % emitter.k_step == 0

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        s, op = layer.shape, layer.fusion.root.op
        margin = op.margin if isinstance(op, ByteConv) else 0
        input_type = tiles_for(s.x.tensor.dtype, s.w.tensor.dtype)
        ctx = replace(ctx, target=_target(ctx, s))
        if emitter_of(ctx.target, input_type).matrices:
            return lower_matrices(ctx, layer.fusion, s, input_type, margin)
        return lower_indirect(ctx, layer.fusion, s.by_lines(), input_type=input_type, margin=margin)


def _target(ctx: LowerContext, s: ConvShape) -> Target:
    """The target; without its matrix registers, whose time does not depend on how few bytes they hold, where vectors
    multiply a quad and channels are few."""
    vectors = without_matrices(ctx.target)
    tile = next(tiles(vectors, U8), None)
    quads = tile is not None and tile.emitter.heaviest_pair is None and s.group_inputs % tile.emitter.k_step == 0
    if not quads or vectors == ctx.target:
        return ctx.target
    return ctx.target if fills_registers(ctx, s, U8, LEAST_BYTES) else vectors
