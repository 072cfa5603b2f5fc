"""Sizes of a weight gradient by Winograd's algorithms, and what they cost beside the direct sum."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from .....ir.types import TensorType
from .....targets.target import Target
from ....microkernels.table import tallest_tile
from ...matmul.blocking import static
from ...matmul.copying import COPIED
from ..weight_gradient_sizes import Sizes
from . import counts
from .axes import Phase, toom_cook
from .plan import LINE, panels_of

TILES = (2, 3, 4, 5)  # pixels of dy along an axis of a tile, where the kernel has several taps
BLOCKS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)  # tiles of a block
MOST_TILES = 512  # of a block, where it is all of them
SUM_CYCLES = 3.0  # of a vector of sums, beside its products: loaded, added to and stored, once a block
# of kernels of one tap, by all chunks and blocks of ten layers of MobileNets on Zen 3, 2026-11-27
COPY_CYCLES, ADD_CYCLES = 8.0, 1.0  # of an element of x or dy that is copied, and of a sum that a block adds to
NEAR_SHARE = 0.25  # of the time of a byte from the last cache that one from the second-level cache takes
L1_NBYTES = 32 << 10  # the least of all CPUs that there is a target for
FEWEST_CHANNELS = 16  # of a work item: of fewer, each tile of dy would be transformed too often


@dataclass(frozen=True)
class GradientAxis:
    """F(taps, tile) along one axis of the kernel, for each remainder of a tap by the stride.

    Attributes:
        taps: of the kernel. tile: pixels of dy. phases: as of an `Axis`, whose outputs are the phase's taps.
    """

    taps: int
    tile: int
    stride: int
    phases: tuple[Phase, ...]

    @property
    def inputs(self) -> int:
        """Pixels of x under a tile of dy."""
        return (self.tile - 1) * self.stride + self.taps

    @property
    def points(self) -> int:
        return sum(phase.points for phase in self.phases)

    @property
    def amplification(self) -> float:
        """The constant of this axis in the error bound."""
        return max(phase.amplification for phase in self.phases)

    @property
    def roundings(self) -> int:
        """At most so many on the way of an input to a tap, in all three transforms."""
        return max(phase.roundings + phase.weight_roundings for phase in self.phases)


@cache
def gradient_axis(taps: int, tile: int, stride: int) -> GradientAxis:
    """The algorithms of an axis.

    >>> gradient_axis(3, 4, 1).points, gradient_axis(3, 4, 2).points, gradient_axis(1, 1, 2).points
    (6, 9, 1)
    """
    firsts = range(min(stride, taps))
    phases = [Phase(first, *toom_cook(len(range(first, taps, stride)), tile)) for first in firsts]
    return GradientAxis(taps, tile, stride, tuple(phases))


@dataclass(frozen=True)
class GradientPlan:
    """Sizes of one weight gradient.

    Attributes:
        axes: along height and width. tiles: of an image along each. n_tiles: of all images.
        block: tiles at a time. chunk: input channels of a work item. vectors: registers of a panel of output channels.
        rows: input channels of a register tile. panels: of the output channels. lanes: of a register.
        interleaved: whether the block's x lies in the order of its tiles, one behind the other; of one tap.
    """

    axes: tuple[GradientAxis, GradientAxis]
    tiles: tuple[int, int]
    n_tiles: int
    block: int
    chunk: int
    vectors: int
    rows: int
    panels: int
    lanes: int
    is_single: bool
    interleaved: bool = False

    @property
    def points(self) -> int:
        return self.axes[0].points * self.axes[1].points

    @property
    def width(self) -> int:
        """Output channels of a panel."""
        return self.vectors * self.lanes

    @property
    def x_pitch(self) -> int:
        """f32 elements from tile to tile of the transformed x; of one tap a line more, as blocks are long: a column of
        them would meet in few sets.
        """
        return self.chunk + (LINE if self.points == 1 else 0)

    @property
    def x_step(self) -> int:
        """f32 elements from point to point of the transformed x: a line more, so that not all meet in one set."""
        return self.block * self.x_pitch + LINE

    @property
    def dy_step(self) -> int:
        """The same of the transformed dy, which has panel after panel."""
        return self.block * self.panels * self.width + LINE

    @property
    def panel_step(self) -> int:
        """f32 elements of a panel's sums for one point."""
        return self.chunk * self.width + LINE

    @property
    def sum_panels(self) -> int:
        """Panels whose sums are kept: of one block, each is finished at once."""
        return 1 if self.is_single else self.panels

    @property
    def turned_channels(self) -> int:
        """Input channels whose results are turned round at a time: as many elements as vectors hold."""
        return self.lanes


def plans(s: Sizes, target: Target, pace: counts.Pace, n_cores: int) -> Iterator[tuple[float, GradientPlan]]:
    """Cycles of a core, by the counts of `counts`, and sizes; whatever saves multiplications and keeps the bound."""
    vectors, panels = panels_of(s.outputs, target)
    images, *size = (static(d) for d in (s.dy.dims[0], *s.geometry.output))
    for axes in _axes(s):
        tiles = -(-size[0] // axes[0].tile), -(-size[1] // axes[1].tile)
        n_tiles = images * tiles[0] * tiles[1]
        interleaved = is_line(s) and s.outputs / (s.lanes * target.multiply_adds(s.lanes)) >= COPIED
        for chunk, block in itertools.product(_chunks(s.inputs, s.lanes), {*BLOCKS, n_tiles}):
            if 0 < block <= min(n_tiles, MOST_TILES):
                p = GradientPlan(axes, tiles, n_tiles, block, chunk, vectors, tallest_tile(target, vectors), panels,
                                 s.lanes, block == n_tiles, interleaved)  # fmt: skip
                yield cycles(s, p, pace, n_cores), p


def _axes(s: Sizes) -> Iterator[tuple[GradientAxis, GradientAxis]]:
    """Algorithms that save multiplications and keep the bound; of one tap, a product in blocks."""
    kernel = s.geometry.kernel
    for tile in itertools.product(*(TILES if taps > 1 else (1,) for taps in kernel)):
        high, wide = (gradient_axis(*each) for each in zip(kernel, tile, s.geometry.strides, strict=True))
        most = max(phase.points for axis in (high, wide) for phase in axis.phases)
        saves = math.prod(kernel) == 1 or high.points * wide.points < math.prod(tile) * math.prod(kernel)
        if saves and most <= (counts.MOST_POINTS_ALONE if 1 in kernel else counts.MOST_POINTS):
            yield high, wide


def _chunks(inputs: int, lanes: int) -> list[int]:
    """Equal parts of the input channels, in whole vectors."""
    sizes = [inputs // n for n in range(1, inputs // FEWEST_CHANNELS + 1) if inputs % n == 0]
    return [size for size in sizes if size % lanes == 0]


def cycles(s: Sizes, p: GradientPlan, pace: counts.Pace, n_cores: int) -> float:
    """Of the core that takes longest, in the time of one vector's multiply-adds at the peak."""
    if p.points == 1:
        return _product_cycles(p, pace) * -(-(s.inputs // p.chunk) // n_cores)
    points, tiles, chunk, outputs = p.points, p.n_tiles, p.chunk, p.panels * p.width
    n_blocks = -(-tiles // p.block)
    products = counts.PRODUCT_CYCLES * points * tiles * chunk * outputs
    transforms = counts.POINT_CYCLES * points * (tiles * (chunk + outputs) + chunk * outputs)
    around = SUM_CYCLES * points * chunk * outputs * n_blocks
    arithmetic = (products + transforms + around) / p.lanes / pace.winograd
    sums = points * chunk * p.width * p.sum_panels
    # each block reads and writes the sums; a panel reads all of the block's x again, and a chunk of channels all of dy
    moved = 0 if p.is_single else 8 * points * chunk * outputs * n_blocks
    nbytes = 4 * (sums + points * p.block * (chunk + outputs))
    spilled = max(0.0, 1 - counts.HELD_SHARE * pace.l2_nbytes / nbytes)
    moved += 4 * points * tiles * (chunk * (p.panels + 1) + 2 * outputs)
    item = arithmetic + spilled * moved * pace.last
    items = s.inputs // chunk
    return item * -(-items // n_cores)


def _product_cycles(p: GradientPlan, pace: counts.Pace) -> float:
    """Of a work item where nothing is transformed.

    x and dy come from far once an item. Panel after panel reads the block's x, which a near cache may hold, and its own
    sums, which come round once a block.
    """
    tiles, chunk, outputs = p.n_tiles, p.chunk, p.panels * p.width
    n_blocks = 0 if p.is_single else -(-tiles // p.block)
    arithmetic = counts.PRODUCT_CYCLES * tiles * chunk * outputs + COPY_CYCLES * tiles * (chunk + outputs)
    arithmetic += ADD_CYCLES * chunk * outputs * n_blocks
    x, dy, sums, passing = (4 * n for n in (p.block * chunk, p.block * outputs, chunk * outputs, chunk * p.width))

    def beyond(nbytes: float, held: float) -> float:
        return max(0.0, 1 - held / nbytes)

    held = pace.l2_nbytes
    far = 4 * tiles * (chunk + outputs) + beyond(x + dy, held) * 4 * tiles * outputs
    far += beyond(x + 2 * passing, held) * 4 * tiles * chunk * (p.panels - 1)
    far += beyond(sums + x + dy, held) * 8 * chunk * outputs * n_blocks
    near = 0.0 if p.interleaved else beyond(x + 4 * p.block * p.width, L1_NBYTES) * 4 * tiles * chunk * p.panels
    return arithmetic / p.lanes / pace.winograd + (far + NEAR_SHARE * near) * pace.last


def direct_cycles(s: Sizes, pace: counts.Pace, n_cores: int) -> float:
    """The same of the direct sum, whose every item reads all pixels of its channels again."""
    images, *size = (static(d) for d in (s.dy.dims[0], *s.geometry.output))
    pixels, under = images * math.prod(size), images * math.prod(map(static, s.geometry.input))
    arithmetic = pixels * math.prod(s.geometry.kernel) * s.inputs * s.outputs / s.lanes / pace.direct
    stays = 4 * (under * s.inputs + pixels * s.outputs) < counts.STAY_SHARE * pace.l2_nbytes
    read = 0 if stays else 4 * s.tap_rows * (under * s.inputs * s.n_panels + pixels * s.outputs * s.n_chunks)
    return counts.overlapped(arithmetic, read * pace.alone, counts.EXPOSED) / n_cores


def is_line(s: Sizes) -> bool:
    """Whether a kernel of one tap meets pixel after pixel, line by line and image by image."""
    g = s.geometry
    alone = math.prod(g.kernel) == 1 and set(g.strides) == {1} and not any(g.pads_begin) and g.input == g.output
    return alone and all(t.strides[2] == t.dims[3] * t.strides[3] and t.strides[0] == t.dims[2] * t.strides[2]
                         for t in (s.x, s.dy))  # fmt: skip


def channels_last(t: TensorType) -> bool:
    """Whether an image's channels lie innermost."""
    return t.strides[1] == 1 and t.axis_order == (0, 2, 3, 1)
