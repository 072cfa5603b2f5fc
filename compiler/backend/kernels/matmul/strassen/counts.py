"""What Strassen's algorithm takes of a product's time, one level of it, and where that is worth its memory.

Strassen, "Gaussian elimination is not optimal" (1969), in Winograd's form: seven products of half the size for eight.
Owns this count: the one source for the cost model (`matmul.cost`) and for the kernels (`lower`).
"""

from __future__ import annotations

PRODUCTS = 7  # and as many matrices made of B's quarters, in place of four
# Of 2026-11-21; the history names no CPU or command of a measurement.
SUM_CYCLES = 33  # for 16 elements of each of A's four sums, per half row: A comes from further away, and they go there
KEPT_CYCLES = 14  # for 16 elements of each of the kept products and what is made of them, per half row
TILE_CYCLES = 40  # to set up a tile of 6 rows and 64 columns, of which there are 7/4 as many
CYCLES_PER_BYTE = 0.1  # of the weights that the sums of B add, on their way from memory
MAX_SHARE = 0.97  # of the direct product's time, or it is not worth the memory


def arithmetic(depth: int, columns: int) -> float:
    """What the cores have to do for a [rows × depth] · [depth × columns] product, in times of the direct one's.

    The direct one is counted as one multiply-add of 16 elements a cycle.
    """
    sums = SUM_CYCLES / 4 / columns
    kept = KEPT_CYCLES / 4 / depth
    tiles = (PRODUCTS / 4 - 1) * TILE_CYCLES / 6 / 64 * 16 / depth
    return PRODUCTS / 8 + sums + kept + tiles


def share(rows: int, depth: int, columns: int) -> float:
    """The time of the product in times of the direct one's: the way of more weights from memory counts too."""
    return arithmetic(depth, columns) + CYCLES_PER_BYTE * 4 * (PRODUCTS / 4 - 1) * 16 / rows


def pays(rows: int, depth: int, columns: int) -> bool:
    """Whether it serves a product of constant B better than the direct sum."""
    return depth % 2 == 0 and share(rows, depth, columns) <= MAX_SHARE
