"""How finely a matrix product is cut into work items, so that a few cores finish together at batch 1.

Owns the cost of an item and the comparison of cuts; `blocking` says which cuts are possible. Cores take contiguous
ranges of equally many items, so that items of unequal cost, or too few of them, leave cores waiting:

    cost of a cut = Σ over numbers of cores n of  n · max over cores (Σ of its items' costs)

Costs count cycles of a core that starts one vector multiply-add in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from ....targets.target import Target

# Of 2026-11-21; the history names no CPU or command of a measurement.
TILE_CYCLES = 40  # to set up a tile and to finish it, besides its stores
ITEM_CYCLES = 150  # to find an item's place
ROW_CYCLES = 3  # to fill in a row's offset for one tap
LEAST_GAIN = 0.01  # a finer cut must bring that much
HIDING_ROWS = 36  # of a block, whose multiply-adds hide that panels of B come from the second cache; see `refill_rows`
LINE_NBYTES = 64
MOST_ITEMS = 64  # so many items are balanced well enough by themselves


@dataclass(frozen=True)
class Pace:
    """What tiles take, in cycles as above.

    Attributes:
        speed: products by a vector in a cycle. tile: to set one up and to finish it, besides its stores. panel: of a
            block, to begin its tiles. stored: a vector of results. copied: a row's step of k. fewest: rows in whose
            time a panel of B comes from the second cache.
    """

    speed: float = 1.0
    tile: float = TILE_CYCLES
    panel: float = 0.0
    stored: float = 1.0
    copied: float = 0.0
    fewest: float = 0.0


def pace_of(target: Target, matrices: bool) -> Pace:
    """That of a target's tiles of vectors, or of matrix registers.

    A product of registers takes a cycle a row, for 16 steps of 16 columns. Giving registers their shapes takes 200
    cycles of an Emerald Rapids (`perf record` of a 1 × 1 convolution, 56² × 64 → 256, where that was 16 % of the time
    in blocks of 58 rows, 2026-11-29); a tile, a result and a copy are estimated by their instructions.
    """
    if not matrices:
        return Pace()
    starts = target.multiply_adds(target.f32_lanes)
    speed = 16 / starts
    return Pace(speed, 80 * starts, 200 * starts, 2 * starts, 0.25 * starts,
                starts * LINE_NBYTES / target.core.l2_nbytes_per_cycle * speed)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """What is to be cut.

    Attributes:
        rows, steps, taps: of the product; steps are taps × k. widths: vectors of each panel, in order.
        height: rows of the tallest tile, per width. cores: numbers of cores to judge a cut by.
        outer: independent products. refill: rows' worth of multiply-adds that a block without rows to hide it would
            wait for its panels of B; see `refill_rows`. pace: of its tiles.
    """

    rows: int
    steps: int
    taps: int
    widths: tuple[int, ...]
    height: tuple[tuple[int, int], ...]
    cores: tuple[int, ...]
    outer: int = 1
    refill: float = 0.0
    pace: Pace = Pace()

    def item(self, rows: int, widths: Sequence[int]) -> float:
        """Cost of one item."""
        waits = self.refill * max(0.0, 1 - rows / HIDING_ROWS)
        pace = self.pace
        cost: float = ITEM_CYCLES + (ROW_CYCLES * self.taps + pace.copied * self.steps) * rows
        heights = dict(self.height)
        for width in widths:
            tiles = -(-rows // heights[width])
            heights_of_tiles = 1 + (rows % tiles != 0)
            cost += pace.panel * heights_of_tiles + tiles * pace.tile + rows * width * pace.stored
            # a tile of one row waits for B: two cycles for each line that comes from L2
            cost += self.steps * width * max(rows + waits, 2 * tiles, pace.fewest) / pace.speed
        return cost

    def cost(self, block: int, together: int) -> float:
        """Of blocks of `block` rows and `together` panels."""
        blocks = [min(block, self.rows - row) for row in range(0, self.rows, block)]
        one = [
            self.item(rows, self.widths[panel : panel + together])
            for panel in range(0, len(self.widths), together)
            for rows in blocks
        ]
        sums = [0, *accumulate(one * self.outer)]
        n = len(sums) - 1
        return sum(
            cores * max(sums[n * (core + 1) // cores] - sums[n * core // cores] for core in range(cores))
            for cores in self.cores
        )


def refill_rows(target: Target) -> float:
    """Rows' worth of multiply-adds that a panel of B takes on its way from the second cache, there and into the first.

    Each block of rows reads its panels again, behind its multiply-adds if there are enough. Measured on Emerald
    Rapids, where this is 4 (GEMM, one thread, 2026-11-26, cuts in turn, medians of 7): 35×650×2600 reaches 86 % of the
    peak in blocks of 18 rows and 93 to 96 % in one of 35; 49×2048×512 93 % in blocks of 25 rows and 97 % in one of 49.
    """
    core = target.core
    return 2 * target.multiply_adds(target.f32_lanes) * target.vector_bits / 8 / core.l2_nbytes_per_cycle


@lru_cache(maxsize=1024)
def best_cut(shape: Shape, usual: tuple[int, int], most_panels: int, least_rows: int) -> tuple[int, int]:
    """Blocks of rows and panels of one item.

    Args:
        usual: (rows of a block, panels) to be improved upon. most_panels: that fit the cache together.
        least_rows: of a block.
    """
    rows, panels = shape.rows, len(shape.widths)
    best, least = usual, shape.cost(*usual) * (1 - LEAST_GAIN)
    first = -(-rows // usual[0])
    if first * -(-panels // usual[1]) * shape.outer >= MOST_ITEMS:
        return usual
    for n_blocks in range(1, max(1, rows // least_rows) + 1):
        block = -(-rows // n_blocks)
        if block > max(usual[0], least_rows) or n_blocks * shape.outer > MOST_ITEMS:
            continue
        counts = range(-(-panels // most_panels), panels + 1)
        for together in dict.fromkeys(-(-panels // groups) for groups in counts):  # few: √panels of them, twice
            cost = shape.cost(block, together)
            if cost < least * (1 - 1e-6):
                best, least = (block, together), cost
    return best
