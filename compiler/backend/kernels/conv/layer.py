"""A convolution as its algorithms see it: the operator with its tail, its sizes, and what kernels ask of both.

Owns what several algorithms ask for. It must not know any of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.ops.bf16_products import Bf16Conv
from ....ir.ops.contraction import IntegralConv
from ....ir.types import BF16, F32, DType
from ....targets.target import Target
from ...algorithm import Algorithm
from ...fusion import Fusion
from ...lowering import LowerContext
from ...microkernels.emitter import Emitter
from ...microkernels.table import emitter_of, has_instruction
from ..matmul.blocking import best_lanes, best_tiles
from .cost import FEW_CHANNELS
from .weights import ConvShape


@dataclass(frozen=True)
class ConvLayer:
    """A convolution, with what is fused to it, and its sizes."""

    fusion: Fusion
    shape: ConvShape

    @property
    def is_multiplied(self) -> bool:
        """Whether a register tile serves it: no other types or layouts, no sums of nothing, more than one channel."""
        s = self.shape
        return s.tiled and s.group_inputs * s.taps > 0 and not s.is_depthwise

    def has_pairs(self, ctx: LowerContext) -> bool:
        """Whether it is for tiles of vectors of pairs of bf16: whole pairs of channels side by side, filters that are
        constant or that the tiles weave.

        Where a target has none but by conversion, a model's own convolutions of bf16 are faster by copies of f32.
        """
        s = self.shape
        narrow, emitter = s.x.tensor.dtype == s.w.tensor.dtype == BF16, emitter_of(ctx.target, BF16)
        if not narrow or not self.is_multiplied or s.groups > 1 or s.group_inputs % 2:
            return False
        if not s.channels_last_input or emitter.matrices:
            return False
        if not s.constant:
            return emitter.weave is not None
        return isinstance(self.fusion.root.op, Bf16Conv) or has_instruction(ctx.target, BF16)

    def is_single(self, ctx: LowerContext) -> bool:
        """Whether a register tile of f32 serves it."""
        return self.is_multiplied and not self.has_pairs(ctx)

    def is_exact(self, ctx: LowerContext) -> bool:
        """Whether no algorithm may be used whose rounding differs from plain sums of products."""
        return not ctx.fp.winograd or isinstance(self.fusion.root.op, IntegralConv)

    def wide(self, target: Target) -> ConvShape:
        """With small groups merged, so that their columns fill registers."""
        return self.shape.merge_groups(target.f32_lanes)

    def own(self, ctx: LowerContext) -> ConvShape:
        """The sizes that products are made of: with merged groups where zeros between them may be multiplied."""
        return self.wide(ctx.target) if ctx.fp.merged_groups else self.shape

    def is_indirect(self, ctx: LowerContext) -> bool:
        """Whether the input channels of a tap are a run that a register tile reads where it is."""
        s = self.shape
        long_runs = self.own(ctx).group_inputs >= FEW_CHANNELS
        return self.is_multiplied and s.x.tensor.dtype == F32 and s.channels_last_input and long_runs


def tiles_of(target: Target, s: ConvShape, input_type: DType = F32) -> tuple[int, Emitter]:
    """Columns of a vector of an indirect convolution's tiles, and how they multiply."""
    if input_type == F32 and s.constant:
        return best_tiles(target, s.group_outputs, s.group_inputs)
    return best_lanes(target, s.group_outputs), emitter_of(target, input_type)


ConvAlgorithm = Algorithm[ConvLayer]
