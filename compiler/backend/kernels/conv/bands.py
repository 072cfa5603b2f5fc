"""Bands of output rows, the work items of blocks of convolutions; also of images whose size only a run knows.

There the number of bands is chosen, while compiling, for square images of some sizes; a call takes that of the image
with as many pixels, and fewer rows where a band of wide ones would not fit the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ....ir.types import Dim, ceil_div, exact_max, exact_min
from ....kernel_ir.builder import Builder, KValue
from ...lowering import LowerContext, Operand, Scratch
from ..matmul.blocking import Product
from ..matmul.gemm import Operands, ProductEmitter
from ..matmul.open_rows import stepwise
from ..tail import Tail
from .spatial import SpatialAxis

SIDES = (4, 7, 10, 14, 20, 28, 40, 56, 112, 224)  # of results that bands are chosen for, where a call brings the size

Chosen = Callable[[SpatialAxis, SpatialAxis], int]
"""Rows of a band of an image of known size, of its rows and its line."""


@dataclass(frozen=True)
class Bands:
    """Bands of an image of `height` × `width` result pixels.

    Attributes:
        rows: of a band; the last one of an image may have fewer. most_pixels: of any band.
    """

    rows: Dim
    height: Dim
    width: Dim
    most_pixels: Dim

    @property
    def count(self) -> Dim:
        """Of an image."""
        return ceil_div(self.height, self.rows)

    def place(self, k: Builder, item: KValue) -> tuple[KValue, KValue]:
        """The first output row of a band, counted over all images, and how many it has."""
        per, height, rows = (k.index(d) for d in (self.count, self.height, self.rows))
        image = k.udiv(item, per)
        top = (item - image * per) * rows
        return image * height + top, k.min(height - top, rows)


def bands_of(rows: SpatialAxis, line: SpatialAxis, chosen: Chosen, most_rows: Dim, most_pixels: int) -> Bands:
    """The bands of an image.

    Args:
        most_rows, most_pixels: of a band that has more than one row, where only a run knows the image's size.
    """
    height, width = rows.output, line.output
    if rows.is_static and line.is_static and isinstance(width, int):
        n = chosen(rows, line)
        return Bands(n, height, width, n * width)
    values = [ceil_div(side, chosen(*(replace(axis, input=side * axis.stride, output=side) for axis in (rows, line))))
              for side in SIDES]  # fmt: skip
    n_bands = stepwise(height * width, [0, *(a * b for a, b in pairwise(SIDES))], values)
    most = exact_min(most_rows, most_pixels // exact_max(1, width))
    return Bands(exact_max(1, exact_min(ceil_div(height, n_bands), most)), height, width,
                 exact_max(most_pixels, width))  # fmt: skip


class BandEmitter(ProductEmitter):
    """The loops of a product whose blocks of rows are bands, and whose items have all panels."""

    def __init__(
        self, k: Builder, ctx: LowerContext, product: Product, tail: Tail, operands: Operands, bands: Bands
    ) -> None:
        super().__init__(k, ctx, product, tail, operands)
        self.bands = bands

    def emit(self) -> None:
        """See ProductEmitter."""
        k = self.k

        def item(index: KValue, _: list[KValue]) -> None:
            row0, count = self.rows_of(index)
            self.begin_block(k.index(0), row0, count)
            self.panels(k.index(0), row0, count, k.index(0), k.index(self.p.n_panels))

        k.for_(k["begin"], k["end"], 1, [], item)

    def rows_of(self, block: KValue) -> tuple[KValue, KValue]:
        """See ProductEmitter."""
        top, n = self.bands.place(self.k, block)
        width = self.k.index(self.bands.width)
        return top * width, n * width


def pixel_offsets(ctx: LowerContext, count: Dim, pitch: int) -> Operand:
    """The table of the offsets of `count` pixels, `pitch` elements apart: a constant, or scratch that
    `write_pixel_offsets` fills.
    """
    return ctx.weights.add(np.arange(count, dtype=np.int64) * pitch) if isinstance(count, int) else Scratch(count * 8)


def write_pixel_offsets(k: Builder, table: KValue, count: Dim, pitch: int) -> None:
    """Write such a table where it is scratch."""
    if not isinstance(count, int):
        k.for_(0, k.index(count), 1, [], lambda i, _: k.store(table, i, i * pitch))
