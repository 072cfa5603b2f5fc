"""What Strassen's algorithm takes of a product's time, one level of it.

Strassen, "Gaussian elimination is not optimal" (1969), in Winograd's form: seven products of half the size for eight.
Owns this count: the one source for the cost model (`matmul.cost`) and for the kernels (`lower`).
"""

from __future__ import annotations

from .....targets.machine import Machine

KIND, DIRECT = "strassen", "matmul"
"""The kinds of these kernels and of the direct ones."""
PRODUCTS = 7
# In vector multiply-adds. Zen 5 (AMD EPYC, family 26 model 2, 2026-11-29): products by 768 × 768, 768 × 3072 and back.
SUM_COST = 18  # of 16 elements of each of A's four sums, per half row: A comes from further away, and they go there
KEPT_COST = 25  # of 16 elements of each of the kept products and what is made of them, per half row
FORMED_COST = 66  # of 16 elements of each of B's four sums, once for all blocks of rows of a work item
TILE_COST = 40  # to set up a tile of 6 rows and 64 columns, of which there are 7/4 as many
DEPTH = 768  # of a block of k
MOST_ROWS = 128  # of a block: sums of more would not fit the second cache
LEAST_ROWS = 96  # of an item, for its blocks to have enough rows that sums of B are read for
MOST_TOGETHER = 8  # blocks of rows of a work item: more would leave cores without one
MAX_SHARE = 0.97  # of the direct product's time, or it is not worth it


def share(rows: int, together: int, depth: int, columns: int) -> float:
    """The time of a product by a [depth × columns] matrix in times of the direct one's.

    Args:
        rows: of a block. together: blocks that share sums of B.
    """
    block = min(depth, DEPTH)
    kept, tiles = KEPT_COST / 4 / block, (PRODUCTS / 4 - 1) * TILE_COST / 6 / 64 * 16 / block
    return PRODUCTS / 8 + SUM_COST / 4 / columns + kept + tiles + FORMED_COST / 4 / (rows * together)


def pace_of(machine: Machine | None) -> float:
    """How many times as long as the direct product's a multiply-add of this count takes: as long, of a machine that
    nobody looked at. Sums wait for the second cache, which is slower beside the arithmetic of some machines: 1.1 on
    Emerald Rapids, where the count says 0.92 of the direct product's time by 768 × 768 and 1.03 is measured.
    """
    return 1.0 if machine is None else machine.share(DIRECT) / machine.share(KIND)
