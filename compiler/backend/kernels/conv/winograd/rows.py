"""Rows of a product cut into register tiles that are as equal as they can be: one of a row or two waits for B."""

from __future__ import annotations

from collections.abc import Callable

from .....kernel_ir.builder import Builder, KValue

Tile = Callable[[KValue, KValue, int], None]
"""Takes a tile's first row, its number among those of its height, and its height."""


def emit_row_tiles(k: Builder, count: KValue, rows: int, tile: Tile) -> None:
    """`tile` for all `count` rows, at most `rows` at a time."""
    n_tiles = k.udiv(count + (rows - 1), rows)
    short = k.udiv(count, n_tiles)
    n_taller = count - short * n_tiles
    for n in range(1, rows + 1):
        tall = short + 1 == n
        begin = k.select(tall, k.index(0), n_taller)
        end = k.select(tall, n_taller, k.select(short == n, n_tiles, n_taller))
        before = n_taller * (short + 1 - n)  # rows of taller tiles, less those of as many of this height
        k.for_(begin, end, 1, [], lambda i, _, n=n, before=before: tile(before + i * n, i, n))
