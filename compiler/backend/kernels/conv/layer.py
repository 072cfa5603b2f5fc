"""A convolution as its algorithms see it: the operator with its tail, its sizes, and what kernels ask of both.

Owns what several algorithms ask for. It must not know any of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.ops.contraction import IntegralConv
from ....kernel_ir.builder import F32
from ....targets.target import Target
from ...algorithm import Algorithm
from ...fusion import Fusion
from ...lowering import LowerContext
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


ConvAlgorithm = Algorithm[ConvLayer]
