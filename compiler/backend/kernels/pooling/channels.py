"""Blocks of vectors of channels whose lanes share a window: whole ones, then one with masks."""

from __future__ import annotations

from collections.abc import Callable

from ....ir.types import Dim, ceil_div
from ....kernel_ir.builder import Builder, KValue


def channel_blocks(k: Builder, channels: Dim, vectors: int, lanes: int,
                   block: Callable[[KValue, list[KValue | None]], None]) -> None:
    """block(first channel, masks of its vectors) for each block of `vectors` vectors of `lanes` channels."""
    width, size = vectors * lanes, k.index(channels)
    main = k.udiv(size, width) * width
    k.for_(0, main, width, [], lambda c, _: block(c, [None] * vectors))

    def rest(n: int) -> None:
        left = size - main
        block(main, [None if isinstance(channels, int) and (v + 1) * lanes <= channels % width
                     else k.tail_mask(left - v * lanes, lanes) for v in range(n)])

    if not isinstance(channels, int):
        k.if_(main < size, lambda: rest(vectors))
    elif channels % width:
        rest(ceil_div(channels % width, lanes))
