"""Convolutions of a few channels of bytes, as of an image, made to read whole quads of them.

A pixel gets channels of nothing until it has a multiple of four, and the image its padding: all that a line of the
filter reads is one run of bytes then. Owns the shape of that, and which convolutions are such.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Node, Value
from ...ir.ops.contraction import Conv
from ...ir.ops.quantised_products import takes_lines, takes_quads, takes_whole
from ...ir.types import ceil_div
from .quantised_steps import Dequantised

QUAD = 4
MOST_CHANNELS_OF_NOTHING = 1.0  # in times of those that there are: four bytes are added in the time of one f32


@dataclass(frozen=True)
class Image:
    """How a convolution's input is padded.

    Attributes:
        op: the convolution of what is padded. widths: of Pad, the axes' first ones before their last ones.
        channels: that are added to a pixel.
    """

    op: Conv
    widths: tuple[int, ...]
    channels: int

    def padded(self, g: GraphBuilder, x: Dequantised) -> Value:
        """The bytes with what stands for 0 around them, and in the added channels."""
        dtype = x.q.tensor.dtype.numpy
        nothing = np.zeros((), dtype) if x.zero is None or x.zero.data is None else x.zero.data.reshape(())
        y: Value = g.Pad(x.q, np.array(self.widths, np.int64), nothing.astype(dtype))
        return y

    def weights(self, w: np.ndarray) -> np.ndarray:
        """Filters [M, C, …] with zeros for the added channels."""
        return np.pad(w, [(0, 0), (0, self.channels), *[(0, 0)] * (w.ndim - 2)])


def image_of(node: Node) -> Image | None:
    """How the input of a convolution has to be padded; None: a kernel of whole numbers has it already, or never."""
    op, w = node.op, node.operands[1].tensor
    if not isinstance(op, Conv) or op.group > 1 or not w.is_static or w.rank < 3 or takes_whole(op.group, w):
        return None
    geometry, (outputs, inputs, *kernel) = op.geometry(node.operands[0].tensor, w), w.static_shape
    pads = [pad for pad in (*geometry.pads_begin, *geometry.pads_end) if isinstance(pad, int)]
    channels = ceil_div(inputs, QUAD) * QUAD
    if len(pads) < 2 * len(kernel) or channels - inputs > MOST_CHANNELS_OF_NOTHING * inputs:
        return None
    plain = op.replace(pads=(0,) * len(pads), auto_pad="NOTSET")
    filters = w.with_shape((outputs, channels, *kernel))
    if not (takes_quads(plain.group, filters) or takes_lines(plain, filters)):
        return None
    before, behind = pads[: len(kernel)], pads[len(kernel) :]
    return Image(plain, (0, 0, *before, 0, channels - inputs, *behind), channels - inputs)
