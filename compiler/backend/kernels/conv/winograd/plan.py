"""Sizes of a Winograd convolution, of its blocks and panels: what its kernels share."""

from __future__ import annotations

from dataclasses import dataclass

from .....ir.types import F32, Dim, DType, ceil_div
from .....targets.target import Target
from ....microkernels.emitter import SINGLE, Emitter
from ....microkernels.table import widest_tile
from .axes import Axis
from .counts import PANEL_WASTE

LINE_NBYTES = 64
LINE = LINE_NBYTES // 4  # f32 elements of a cache line
UNROLL = 4  # steps of k; channels come in whole vectors, so it divides them


@dataclass(frozen=True)
class Plan:
    """Sizes of one layer.

    Attributes:
        axes: the algorithms along height and width. tiles: of an image along each. block: tiles of a work item.
        vectors: registers of a panel. lanes: of a register. rows: tiles of one register tile. panels: of the layer.
        emitter: how register tiles multiply.
    """

    axes: tuple[Axis, Axis]
    tiles: tuple[Dim, Dim]
    block: int
    vectors: int
    lanes: int
    rows: int
    panels: int
    emitter: Emitter = SINGLE

    @property
    def per_image(self) -> Dim:
        return self.tiles[0] * self.tiles[1]

    @property
    def points(self) -> int:
        return self.axes[0].points * self.axes[1].points

    @property
    def width(self) -> int:
        """Output channels of a panel."""
        return self.vectors * self.lanes

    def lines_ahead(self, depth: int, l2_nbytes: int) -> int:
        """Cache lines of the next point's weights to ask for in UNROLL steps of k: none if they stay in the cache."""
        tiles = ceil_div(self.block, self.rows)
        stays = 4 * self.points * depth * self.width * self.panels < l2_nbytes
        return 0 if stays or tiles < 2 else -(-UNROLL * self.width // (LINE * tiles))

    def work(self, images: Dim) -> Dim:
        """Work items."""
        return ceil_div(images * self.per_image, self.block) * self.panels


def panels_of(outputs: int, target: Target, input_type: DType = F32) -> tuple[int, int]:
    """Registers of a panel of output channels, and how many panels there are."""
    needed, most = ceil_div(outputs, target.f32_lanes), widest_tile(target, input_type=input_type)
    vectors = min(range(1, most + 1), key=lambda v: ceil_div(needed, v) * v * PANEL_WASTE[v * 4 // most])
    return vectors, ceil_div(needed, vectors)
