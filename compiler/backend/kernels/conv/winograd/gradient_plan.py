"""Sizes of a weight gradient by Winograd's algorithms, and what they cost beside the direct sum."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from .....ir.types import Dim, TensorType, ceil_div
from .....targets.machine import Machine
from .....targets.target import Target
from ....microkernels.table import tallest_tile
from ...matmul.blocking import size_hint
from ..weight_gradient_sizes import Sizes
from . import counts
from .axes import Axis, axis_algorithm
from .plan import LINE, panels_of

TILES = (2, 3, 4, 5)  # pixels of dy along an axis of a tile, where the kernel has several taps
BLOCKS = (8, 12, 16, 24, 32, 48, 64, 96)  # tiles of a block
FEWEST_CHANNELS = 16  # of a work item: of fewer, each tile of dy would be transformed too often


@dataclass(frozen=True)
class GradientPlan:
    """Sizes of one weight gradient.

    Attributes:
        axes: F(taps, tile) along height and width. tiles: of an image along each. n_tiles: of all images; hinted.
        block: tiles at a time. chunk: input channels of a work item. vectors: registers of a panel of output channels.
        rows: input channels of a register tile. panels: of the output channels. lanes: of a register.
    """

    axes: tuple[Axis, Axis]
    tiles: tuple[Dim, Dim]
    n_tiles: int
    block: int
    chunk: int
    vectors: int
    rows: int
    panels: int
    lanes: int
    is_single: bool

    @property
    def points(self) -> int:
        return self.axes[0].points * self.axes[1].points

    @property
    def width(self) -> int:
        """Output channels of a panel."""
        return self.vectors * self.lanes

    @property
    def x_step(self) -> int:
        """f32 elements from point to point of the transformed x: a line more, so that not all meet in one set."""
        return self.block * self.chunk + LINE

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
    lanes, images = s.lanes, size_hint(s.dy.dims[0])
    vectors, panels = panels_of(s.outputs, target)
    out = [size_hint(d) for d in s.geometry.output]
    for pixels in itertools.product(*(TILES if taps > 1 else (1,) for taps in s.geometry.kernel)):
        axes = [axis_algorithm(taps, n) for taps, n in zip(s.geometry.kernel, pixels, strict=True)]
        most = counts.MOST_POINTS_ALONE if 1 in s.geometry.kernel else counts.MOST_POINTS
        points = axes[0].points * axes[1].points
        if points >= math.prod(pixels) * math.prod(s.geometry.kernel) or max(a.points for a in axes) > most:
            continue
        tiles = (ceil_div(s.geometry.output[0], pixels[0]), ceil_div(s.geometry.output[1], pixels[1]))
        n_tiles = images * math.prod(-(-n // size) for n, size in zip(out, pixels, strict=True))
        fixed = isinstance(s.dy.dims[0], int)
        for chunk, block in itertools.product(_chunks(s.inputs, lanes), {*BLOCKS, n_tiles} if fixed else BLOCKS):
            if block > min(n_tiles, max(BLOCKS) * 2):
                continue
            p = GradientPlan((axes[0], axes[1]), tiles, n_tiles, block, chunk, vectors, tallest_tile(target, vectors),
                             panels, lanes, fixed and block == n_tiles)  # fmt: skip
            yield cycles(s, p, pace, n_cores), p


def _chunks(inputs: int, lanes: int) -> list[int]:
    """Equal parts of the input channels, in whole vectors."""
    sizes = [inputs // n for n in range(1, inputs // FEWEST_CHANNELS + 1) if inputs % n == 0]
    return [size for size in sizes if size % lanes == 0]


def cycles(s: Sizes, p: GradientPlan, pace: counts.Pace, n_cores: int) -> float:
    """Of the core that takes longest, in the time of one vector's multiply-adds at the peak."""
    points, tiles, chunk, outputs = p.points, p.n_tiles, p.chunk, p.panels * p.width
    n_blocks = -(-tiles // p.block)
    products = counts.PRODUCT_CYCLES * points * tiles * chunk * outputs
    transforms = counts.POINT_CYCLES * points * (tiles * (chunk + outputs) + chunk * outputs)
    arithmetic = (products + transforms) / p.lanes / pace.winograd
    sums = points * chunk * p.width * p.sum_panels
    # each block reads and writes the sums; a panel reads all of the block's x again, and a chunk of channels all of dy
    moved = 0 if p.is_single else 8 * points * chunk * outputs * n_blocks
    nbytes = 4 * (sums + points * p.block * (chunk + outputs))
    spilled = max(0.0, 1 - counts.HELD_SHARE * pace.l2_nbytes / nbytes)
    moved += 4 * points * tiles * (chunk * (p.panels + 1) + 2 * outputs)
    item = arithmetic + spilled * moved * pace.last
    items = s.inputs // chunk
    return item * -(-items // n_cores)


def direct_cycles(s: Sizes, pace: counts.Pace, n_cores: int) -> float:
    """The same of the direct sum."""
    pixels = size_hint(s.dy.dims[0]) * math.prod(size_hint(d) for d in s.geometry.output)
    return pixels * math.prod(s.geometry.kernel) * s.inputs * s.outputs / s.lanes / pace.direct / n_cores


def cores_of(machine: Machine | None) -> int:
    """Those that share a call; of an unknown machine, one."""
    return 1 if machine is None else machine.cores_per_socket * machine.n_sockets


def channels_last(t: TensorType) -> bool:
    """Whether an image's channels lie innermost."""
    return t.strides[1] == 1 and t.axis_order == (0, 2, 3, 1)
