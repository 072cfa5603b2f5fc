"""Winograd's F(2, 3) × F(2, 3) of whole numbers: exact, with 16 multiplications where the direct sum takes 36.

Bᵀ has whole coefficients, rows of G and with them U = G g Gᵀ are halves: 4·U is whole, and so is 4 times the result,
which is shifted right. With |x| <= 255 (bytes less a zero point) and |w| <= 255

    |Bᵀ d B| <= 4 · 255 = 1,020      |4·U| <= 9 · 255 = 2,295        both are i16
    |4·y| <= 4 · 255 · Σ|w| of an output channel                      must be below 2^31 (`holds`)

Sums on the way are modulo 2^32, so that no other bound is needed: whatever they pass through, 4·y comes out.
"""

from __future__ import annotations

import numpy as np

from .....ir.ops.geometry import WindowGeometry
from .....ir.ops.quantised_products import heaviest
from .....ir.ops.widening import WideningConv
from .....ir.types import I16, Dim, ceil_div, prod
from .....kernel_ir.builder import KValue
from .....targets.target import Target
from ....lowering import KernelCall, LowerContext
from ..layer import ConvAlgorithm, ConvLayer
from . import counts
from .axes import axis_algorithm
from .emit import WinogradKernel
from .lower import kernel_call, layers_of, plan

AXIS = axis_algorithm(2, 3)
MAX_SHARE = 0.7  # of the direct convolution's cycles: the transformed weights are 3.6 bytes each
# 512 × 512 channels of 7 × 7 pixels wait for their transformed weights: 1.55 ms by 16 tiles, directly 1.23 (Zen 3)
FEWEST_TILES, LARGE = 24, 1 << 20
GREATEST = 255  # of activations


class WholeKernel(WinogradKernel):
    """The loops of whole numbers."""

    def begun(self, value: KValue, bias: KValue) -> KValue:
        return (value >> 2) + bias


class WholeWinogradAlgorithm(ConvAlgorithm):
    """3 × 3 taps of stride 1, whole vectors of channels, constant weights."""

    name = "widening-winograd2x2"
    max_share, measured_share = MAX_SHARE, 1.0

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        s, g = layer.shape, layer.shape.geometry
        if not isinstance(layer.fusion.root.op, WideningConv) or not s.constant or s.groups > 1:
            return False
        assert s.w.data is not None
        if s.x.tensor.dtype != I16 or not is_filtered(g, s.w.data, ctx.target, s.x.tensor.dims[0]):
            return False
        return s.channels_last_input and s.y.axis_order == s.last_order

    def cost(self, ctx: LowerContext, layer: ConvLayer) -> float:
        """As of f32: products and what is direct take alike less of the time, and transforms of i16, too."""
        layers, pace = layers_of(layer.shape, ctx.calls), counts.pace_of(ctx.machine, ctx.lanes)
        direct = counts.most_cycles(layers, ctx.lanes, pace) / counts.MAX_SHARE
        return counts.cycles(layers, counts.SMALLEST, ctx.lanes, pace) / direct

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        return kernel_call(ctx, layer.fusion, layer.shape, plan(ctx, layer.shape, (AXIS, AXIS)), WholeKernel, scale=4)


def is_filtered(g: WindowGeometry, weights: np.ndarray, target: Target, images: Dim) -> bool:
    """Whether the sizes of a convolution of one group suit the algorithm, and four times any output is an i32."""
    if (g.kernel, g.strides, g.dilations) != ((3, 3), (1, 1), (1, 1)):
        return False
    outputs, inputs, lanes = *weights.shape[:2], target.f32_lanes
    whole = inputs % (2 * lanes) == 0 and outputs % lanes == 0
    known = all(isinstance(p, int) for p in (*g.pads_begin, *g.pads_end))
    n_tiles = prod((images, *(ceil_div(d, 2) for d in g.output)))
    if weights.size >= LARGE and isinstance(n_tiles, int) and n_tiles < FEWEST_TILES:
        return False
    return whole and known and 4 * GREATEST * heaviest(weights) < 2**31
