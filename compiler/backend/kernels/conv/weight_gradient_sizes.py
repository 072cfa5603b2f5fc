"""Sizes of a weight gradient and where its operands lie: what its kernels share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....ir.ops.geometry import WindowGeometry
from ....ir.types import Dim, TensorType, ceil_div, prod
from ....kernel_ir.builder import Builder, KValue
from ..plain import decompose

CHUNK = 96  # input channels of a work item; chosen, not measured
PANEL_NBYTES = 64 << 10  # of packed dy, which stays in the second-level cache; chosen, not measured
MOST_MERGED = 11  # taps that are merged: the loops of all tiles are written out; chosen, not measured
LINE_PIXELS = 512  # of a line at a time; chosen, not measured


@dataclass(frozen=True)
class Sizes:
    """Operands, sizes and blocks of one gradient.

    Attributes:
        rows: lines of dy, over all images. chunk: input channels of a work item, whole tiles. tile_rows, vectors: of
            the register tile. block_rows, block_pixels: lines, and pixels of each, that are packed at a time.
    """

    x: TensorType
    dy: TensorType
    dw: TensorType
    geometry: WindowGeometry
    groups: int
    lanes: int
    tile_rows: int
    vectors: int

    @property
    def inputs(self) -> int:
        """Input channels of a group."""
        return self.dw.static_shape[1]

    @property
    def outputs(self) -> int:
        """Output channels of a group."""
        return self.dw.static_shape[0] // self.groups

    @property
    def merges_taps(self) -> bool:
        """Whether the taps of the last axis count as channels, as few of these would leave a register tile empty."""
        g = self.geometry
        few = self.groups == 1 and self.inputs < self.tile_rows and 1 < g.kernel[-1] <= MOST_MERGED
        return few and g.dilations[-1] == 1

    @property
    def sums_apart(self) -> bool:
        """Whether blocks are added up in scratch: where vectors of the result do not lie side by side."""
        return self.dw.strides[0] != 1 and not self.merges_taps

    @property
    def line(self) -> int:
        """Pixels of a line of x under a block's, with its padding."""
        return (self.block_pixels - 1) * self.geometry.strides[-1] + self.geometry.kernel[-1]

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def rows(self) -> Dim:
        return self.dy.dims[0] * prod(self.geometry.output[:-1])

    @property
    def chunk(self) -> int:
        return min(ceil_div(CHUNK, self.tile_rows), ceil_div(self.inputs, self.tile_rows)) * self.tile_rows

    @property
    def n_chunks(self) -> int:
        return -(-self.inputs // self.chunk)

    @property
    def n_panels(self) -> int:
        return -(-self.outputs // self.width)

    @property
    def tap_rows(self) -> int:
        """Taps of all axes but the last."""
        return math.prod(self.geometry.kernel[:-1])

    @property
    def block_pixels(self) -> int:
        line = self.geometry.output[-1]
        return min(line, LINE_PIXELS) if isinstance(line, int) else LINE_PIXELS

    @property
    def block_rows(self) -> int:
        return max(1, PANEL_NBYTES // max(1, self.block_pixels * self.width * 4))


def output_row(k: Builder, s: Sizes, r: KValue) -> KValue:
    """Where line r of dy begins."""
    strides = s.dy.strides
    index = split(k, r, (s.dy.dims[0], *s.geometry.output[:-1]))
    base = k.index(0)
    for i, step in zip(index, (strides[0], *strides[2:-1]), strict=True):
        base = base + i * k.index(step)
    return base


def input_row(k: Builder, s: Sizes, r: KValue, taps: Sequence[KValue]) -> tuple[KValue, KValue]:
    """Where x's line under line r and the taps of the outer axes begins, and whether it is one."""
    g, strides = s.geometry, s.x.strides
    image, *out = split(k, r, (s.dy.dims[0], *g.output[:-1]))
    base, valid = image * k.index(strides[0]), k.index(0) == 0
    for axis, (o, tap) in enumerate(zip(out, taps, strict=True)):
        at = o * g.strides[axis] + tap * g.dilations[axis] - k.index(g.pads_begin[axis])
        valid = valid & (at >= 0) & (at < k.index(g.input[axis]))
        base = base + at * k.index(strides[2 + axis])
    return base, valid


def place(k: Builder, s: Sizes, taps: Sequence[KValue], m: KValue, c: KValue) -> KValue:
    """Where the result's element of output channel m, input channel c of its group and the taps is."""
    strides = s.dw.strides
    at = m * k.index(strides[0]) + c * k.index(strides[1])
    for tap, step in zip(taps, strides[2:], strict=True):
        at = at + tap * k.index(step)
    return at


def split(k: Builder, flat: KValue, dims: Sequence[Dim]) -> list[KValue]:
    """The index along each axis of a flat one, outermost first."""
    return decompose(k, flat, range(len(dims)), dims)
