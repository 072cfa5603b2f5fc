"""Convolutions of bf16 of few channels, as of an image, by matrix registers: lines of a filter in a padded copy.

    rows = output pixels, columns = output channels, taps = lines of the filter, k = their pixels' channels

A block's input rows are copied once, pixel after pixel, with their padding and with zeros for the channels that make
whole pairs (`regions`); a register reads as many output pixels' lines there at once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....ir.ops.geometry import WindowGeometry
from ....ir.ops.quantised_products import FEWEST_CHANNELS
from ....ir.types import BF16, U32
from ....kernel_ir.builder import F32, KValue
from ...lowering import KernelCall, LowerContext
from ...microkernels.emitter import Emitter
from ...microkernels.table import emitter_of, products_of_f32s
from ..plain import strided_load
from .layer import ConvAlgorithm, ConvLayer
from .matrices import lower_blocks
from .regions import Region, RegionReader, best_region, segment_of
from .weights import ConvShape

LEAST_OUTPUTS = 16  # a register's columns: chosen, not measured
PIXELS = 16  # of an input row, copied at once


class ImageAlgorithm(ConvAlgorithm):
    """Where the target has matrix registers, and output pixels of a row fill their rows."""

    name = "matrices-image"

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        s, emitter = layer.shape, emitter_of(ctx.target, BF16)
        if not s.x.tensor.dtype == s.w.tensor.dtype == BF16 or not layer.is_multiplied or not s.constant:
            return False
        return s.groups == 1 and bool(emitter.matrices) and _image_region(s, emitter) is not None

    def cost(self, ctx: LowerContext, layer: ConvLayer) -> float:
        return 1 / products_of_f32s(ctx.target, BF16)

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        s, emitter = layer.shape, emitter_of(ctx.target, BF16)
        region = _image_region(s, emitter)
        assert region is not None and s.w.data is not None
        w = np.zeros((s.group_outputs, region.inputs, *s.geometry.kernel), s.w.data.dtype)
        w[:, : s.group_inputs] = s.w.data
        lines = w.transpose(2, 3, 1, 0).reshape(1, s.geometry.kernel[0], -1, s.group_outputs)
        return lower_blocks(ctx, layer.fusion, region.shape, BF16, region.emitter, lines, region, ImageReader)


def serves_image(geometry: WindowGeometry, channels: int, outputs: int) -> bool:
    """Whether a layer by constant filters of one group is one of those."""
    lines = geometry.rank == 2 and geometry.kernel[1] > 1 and geometry.dilations[1] == 1
    return lines and 0 < channels < FEWEST_CHANNELS and outputs >= LEAST_OUTPUTS and segment_of(geometry) > 0


def _image_region(s: ConvShape, emitter: Emitter) -> Region | None:
    g = s.geometry
    if not serves_image(g, s.group_inputs, s.group_outputs):
        return None
    inputs = max(2, 1 << (s.group_inputs - 1).bit_length())
    geometry, run = replace(g, kernel=(g.kernel[0], 1)), inputs * g.kernel[1]
    lines = replace(s, geometry=geometry, group_inputs=run, line=g.kernel[1])
    return best_region([lines], emitter, inputs)


class ImageReader(RegionReader):
    """Emits that copy of a tensor whose axes may lie in any order."""

    def line(self, start: KValue, row: KValue, place: KValue) -> None:
        """One row of the image between its padding."""
        k, r, t = self.k, self.region, self.region.shape.x.tensor
        source, step = start + row * k.index(t.strides[2]), t.strides[3]

        def some(at: KValue, _: list[KValue]) -> None:
            mask = k.tail_mask(k.index(r.pixels) - at, PIXELS)
            channels = [strided_load(k, self.x, source + k.index(t.strides[1]) * c + at * k.index(step), step, PIXELS,
                                     mask) for c in range(self.region.channels)]  # fmt: skip
            for i, part in enumerate(self.by_pixels(channels)):
                k.store(place, (at + r.left) * r.inputs + i * part.lanes, part)

        self.pad(place, 0, r.left)
        k.for_(0, r.pixels, PIXELS, [], some)
        self.pad(place, r.left + r.pixels, r.width)

    def by_pixels(self, channels: list[KValue]) -> list[KValue]:
        """Vectors of a channel each as vectors of pixels whose channels follow one another, with zeros behind them."""
        k, missing = self.k, self.region.inputs - len(channels)
        zeros = k.cast(k.splat(k.const(0, F32), PIXELS), BF16)
        every = [*channels, *[zeros] * missing]
        pairs = [k.bitcast(k.shuffle(a, b, _zip(PIXELS)), U32) for a, b in zip(every[::2], every[1::2], strict=True)]
        return [k.bitcast(v, BF16) for v in self.woven(pairs)]

    def woven(self, parts: list[KValue]) -> list[KValue]:
        """Of vectors a, b, … of as many lanes: a[0], b[0], …, a[1], b[1], …, one vector behind the other."""
        if len(parts) == 1:
            return parts
        k, order = self.k, _zip(PIXELS)
        halves = zip(self.woven(parts[::2]), self.woven(parts[1::2]), strict=True)
        return [k.shuffle(a, b, lanes) for a, b in halves for lanes in (order[:PIXELS], order[PIXELS:])]


def _zip(n: int) -> list[int]:
    """Lanes of two vectors of n, in turn."""
    return [i for lane in range(n) for i in (lane, n + lane)]
