"""How a product is cut whose rows only a run knows: as one of that many rows would be, chosen by a call's own rows.

A cut for many rows leaves cores idle where a call has few, and one for few reads B too often where it has many. So the
best cut is found for some numbers of rows while compiling; a call takes that of the nearest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ....ir.types import Dim, ceil_div, exact_max, exact_min
from .balance import Shape, best_cut

TRIED = (1, 16, 36, 49, 72, 100, 144, 196, 288, 400, 576)
"""Rows that cuts are chosen for: of images at the strides of usual networks, and between them."""
MOST_BLOCKS = 8  # of the usual number of rows; with more of them cores finish together however they are cut


def cut_by_rows(rows: Dim, shape: Shape, block: int, most_panels: int, least_rows: int) -> tuple[Dim, Dim, int]:
    """Rows of a block, panels of one item, and the most rows of a block.

    Args:
        shape: of the product, with any number of rows. block: rows of a block where there are many.
        most_panels, least_rows: see `best_cut`.
    """
    many = MOST_BLOCKS * block
    cuts = []
    for n in (*(n for n in TRIED if n < many), many):
        size, together = best_cut(replace(shape, rows=n), (min(n, block), most_panels), most_panels, least_rows)
        cuts.append((n, MOST_BLOCKS if n == many else ceil_div(n, size), together))
    begins = [0, *(math.isqrt(a * b - 1) + 1 for (a, _, _), (b, _, _) in pairwise(cuts[:-1])), many]
    n_blocks = stepwise(rows, begins, [n for _, n, _ in cuts])
    panels = stepwise(rows, begins, [together for _, _, together in cuts])
    most_rows = max(block, *(ceil_div(end - 1, n) for (_, n, _), end in zip(cuts, begins[1:])))
    return exact_max(1, ceil_div(exact_min(rows, many), n_blocks)), panels, most_rows


def stepwise(size: Dim, begins: Sequence[int], values: Sequence[int]) -> Dim:
    """The value whose range `size` is in: the first one's is all below the second's beginning, the last one's is open.

    Args:
        begins: of the values' ranges, rising. values: positive.
    """
    found: Dim = values[0]
    for begin, (before, value) in zip(begins[1:], pairwise(values), strict=True):
        if value != before:
            found = found + exact_min(1, size // begin) * (value - before)
    return found
