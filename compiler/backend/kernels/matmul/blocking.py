"""How a matrix product is cut: panels of B, blocks of rows and of K, work items.

Owns sizes only; `gemm` emits the loops. It must not know of operators.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....ir.types import F32, Dim, DType, SymDim, ceil_div
from ....targets.target import Target
from ...lowering import LowerContext
from ...microkernels.emitter import SINGLE, Emitter
from ...microkernels.table import emitter_of, tallest_tile, widest_tile
from ...microkernels.two_steps import TWO_STEPS
from .balance import Shape, best_cut, pace_of, refill_rows
from .open_rows import cut_by_rows
from .tile import best_unroll

MOST_SPREAD = 256  # steps of k of a tile that is so short that its requests for memory are worth spreading over it
WIDE = 4  # vectors of the target's usual tile, from which on its rows' addresses leave integer registers
FEWEST_ITERATIONS = 3  # to spread them over
MOST_SHARED = 8  # tiles that together prefetch one panel of B
ROWS = 96  # of a block, about
MATRIX_ROWS = 256  # of a block that is copied for matrix registers
# Bytes of such a copy, at most: half of the L2 of the CPUs that have these registers. One core of an Emerald Rapids, in
# turn, medians of 25 (2026-11-29): 512×3072×768 in blocks of 160 rows took 0.94 of the time of blocks of 64,
# 197×3072×768 0.83; 512×768×3072 in 256 0.85 of 160's.
COPY_NBYTES = 1 << 20
# Of L2, for a block of k: of a panel of B and of the rows of A, so that neither drives the other out. 3,072 steps at a
# time were 3 to 7 % slower than 1,024 or 1,536 (Sapphire Rapids, 2 MiB, 128 to 788 rows); those were alike.
L2_SHARE = 0.6
# Of k, that accumulators of floats take in before they are added to the sums of the steps before: see `tile`.
MOST_STEPS = 1024
LEAST_SEGMENT = 48  # rows of an image or a sequence from which on blocks of rows keep to one
LEAST_HALF = 4  # columns of half a vector; narrower ones multiply by an element of a vector, which a pair is not
MIN_ITEMS = 8  # work items wanted even at batch 1, so that a few cores find work


@dataclass(frozen=True)
class PanelKind:
    """Neighbouring column panels of one shape: panels [first, first + count) start at column `column`."""

    vectors: int
    masked: bool
    first: Dim
    count: Dim
    column: Dim


def panel_kinds(columns: Dim, lanes: int, most: int) -> list[PanelKind]:
    """Split columns into panels of at most `most` vectors, all of equal width up to one vector.

    A symbolic number of columns gives full panels and one masked panel of full width.
    """
    if isinstance(columns, SymDim):
        full = columns // (most * lanes)
        return [
            PanelKind(most, False, 0, full, 0),
            PanelKind(most, True, full, ceil_div(columns, most * lanes) - full, full * (most * lanes)),
        ]
    vectors = ceil_div(columns, lanes)
    panels = ceil_div(vectors, most)
    wide = ceil_div(vectors, panels)
    counts = [(wide, vectors - panels * (wide - 1)), (wide - 1, panels * wide - vectors)]
    shapes = [w for w, count in counts for _ in range(count)]
    masked = [False] * (len(shapes) - 1) + [columns % lanes != 0]
    kinds: list[PanelKind] = []
    column = 0
    for i, (w, m) in enumerate(zip(shapes, masked)):
        if kinds and (kinds[-1].vectors, kinds[-1].masked) == (w, m):
            last = kinds[-1]
            kinds[-1] = PanelKind(w, m, last.first, last.count + 1, last.column)
        else:
            kinds.append(PanelKind(w, m, i, 1, column))
        column += w * lanes
    return kinds


def static(d: Dim) -> int:
    """A dimension that the caller knows to be static."""
    assert isinstance(d, int)
    return d


def padded_columns(columns: int, lanes: int) -> int:
    """Columns of B once every panel is whole."""
    return ceil_div(columns, lanes) * lanes


@dataclass(frozen=True)
class Product:
    """Sizes of outer × [rows × (taps·kc)] · [(taps·kc) × columns] and how they are blocked.

    Attributes:
        outer: independent products (groups, batch items). row_block: rows of one work item.
        panels_per_item: column panels of one work item. indexed: see TileShape.
        k_block: steps of k for which a panel of B and a block's rows of A fit L2 together, no more than `MOST_STEPS`.
        rows_known: False if blocks have any number of rows up to row_block.
        segment: rows (of an image) whose blocks are apart from the next ones', so that their sizes are known though
            the number of segments is not; 0 = all rows are one.
        input_type: what is multiplied. emitter: of its tiles; where they take several at once, `kc` counts those steps.
        along_rows: tiles beside one another come before those below (`interleave`).
        most_rows: of a block whose number of rows a call decides; 0: row_block says all.
        row_pitch: see TileShape.
    """

    outer: Dim
    rows: Dim
    columns: Dim
    taps: int
    kc: Dim
    lanes: int
    kinds: tuple[PanelKind, ...]
    row_block: Dim
    panels_per_item: Dim
    k_block: int
    indexed: bool = False
    rows_known: bool = True
    segment: int = 0
    input_type: DType = F32
    emitter: Emitter = SINGLE
    along_rows: bool = False
    most_rows: int = 0
    row_pitch: int = 0

    def spaced(self, pitch: Dim) -> Product:
        """The product where all neighbouring rows of A lie `pitch` elements apart; high tiles of few steps use it.

        Finding each row by itself takes a share of their time. Measured on Zen 5, one core, in turn (2026-11-28), 1 × 1
        convolutions of f32 in % of the peak: 56² × 24 → 144 84 to 86, then 88 to 89; 112² × 32 → 16 64, then 68; tiles
        of six rows gain nothing.
        """
        known = isinstance(pitch, int) and isinstance(self.kc, int) and self.taps * self.kc <= MOST_SPREAD
        return replace(self, row_pitch=static(pitch)) if known else self

    @property
    def n_panels(self) -> Dim:
        return sum((kind.count for kind in self.kinds), start=0)

    @property
    def n_row_blocks(self) -> Dim:
        if self.segment:
            return self.rows // self.segment * ceil_div(self.segment, static(self.row_block))
        return ceil_div(self.rows, self.row_block)

    @property
    def n_column_groups(self) -> Dim:
        return ceil_div(self.n_panels, self.panels_per_item)

    @property
    def work(self) -> Dim:
        """Work items."""
        return self.outer * self.n_column_groups * self.n_row_blocks

    @property
    def one_k_block(self) -> bool:
        total = self.taps * self.kc
        return isinstance(total, int) and total <= self.k_block

    @property
    def unroll(self) -> tuple[int, bool]:
        """Steps of k per iteration of a tile, and whether every block of k is a multiple."""
        if self.one_k_block or (isinstance(self.kc, int) and self.kc <= self.k_block):
            return best_unroll(self.kc)
        return 4, isinstance(self.kc, int) and self.kc % 4 == 0

    def prefetched_rows(self, target: Target, rows: int) -> int:
        """Rows of the result for which a tile of `rows` asks in each iteration; 0 = for all before the first one.

        Measured: short tiles gain 2 to 10 % where the result is not in L2; where tiles are narrow and high, or A is
        found through offsets of k, the addresses push others to the stack and cost more than that. Of
        2026-11-21; the history names no CPU or command.
        """
        if widest_tile(target) < WIDE or self.indexed:
            return 0
        if not isinstance(self.kc, int) or self.taps * self.kc > MOST_SPREAD:
            return 0
        iterations = self.taps * (self.kc // self.unroll[0])
        return ceil_div(rows, iterations) if iterations >= FEWEST_ITERATIONS else 0

    def shared(self, height: int) -> int:
        """Tiles that together prefetch a panel of B: a block of few rows asks for the next one or two in all.

        1: a single tile is all that reads it, and asks for what it reads itself.
        """
        if not self.rows_known or not isinstance(self.row_block, int):
            return MOST_SHARED
        tiles = ceil_div(min(self.row_block, self.segment or size_hint(self.rows)), height)
        if tiles <= 1:
            return 1
        return 2 if tiles <= 4 else 4 if 4 < tiles < MOST_SHARED else MOST_SHARED

    @property
    def table_entries(self) -> Dim:
        """i64 elements of the offset table."""
        return (self.most_rows or self.row_block) * self.taps

    @property
    def partial_nbytes(self) -> Dim:
        """Sums of one row block and panel that wait for the next block of K."""
        widest = max(kind.vectors for kind in self.kinds)
        return 64 if self.one_k_block else (self.most_rows or self.row_block) * widest * self.lanes * 4


def plan_product(
    ctx: LowerContext,
    outer: Dim,
    rows: Dim,
    columns: Dim,
    taps: int,
    kc: Dim,
    *,
    indexed: bool = False,
    lanes: int | None = None,
    whole_rows: int = 0,
    kinds: tuple[PanelKind, ...] = (),
    segment: int = 0,
    input_type: DType = F32,
    emitter: Emitter | None = None,
    by_rows: bool = False,
) -> Product:
    """Choose panels and blocks.

    Args:
        segment, input_type: see Product. emitter: None: the usual one of the type.
        whole_rows: at least so many rows per work item (B is packed per item, so few items should share it).
        kinds: the panels, if they are not simply the columns cut into equal widths.
        by_rows: whether a number of rows that only a run knows decides the cut there.
    """
    lanes, emitter = lanes or ctx.lanes, emitter or emitter_of(ctx.target, input_type)
    kinds = kinds or tuple(panel_kinds(columns, lanes, widest_tile(ctx.target, rows, input_type)))
    widest = max(kind.vectors for kind in kinds)
    m = tallest_tile(ctx.target, widest, input_type)
    half_l2 = ctx.target.l2_nbytes // 2
    k_block = max(64, int(L2_SHARE * ctx.target.l2_nbytes) // (emitter.column_nbytes * (ROWS + widest * lanes)))
    k_block = min(k_block, MOST_STEPS) if emitter.sums.is_float else k_block
    total_k, hint, n_outer = size_hint(taps * kc), segment or size_hint(rows), size_hint(outer)
    n_panels = size_hint(sum((kind.count for kind in kinds), start=0))
    streamed = total_k > k_block
    usual = matrix_rows(total_k, m) if emitter.matrices else 2 * ROWS if streamed else ROWS
    n_blocks = ceil_div(hint, max(whole_rows, usual))
    fits = max(1, half_l2 // (min(total_k, k_block) * widest * lanes * emitter.column_nbytes))
    most = 1 if streamed else min(fits, n_panels)
    together = most
    others = ceil_div(n_panels, together) * n_outer
    if n_blocks * others < MIN_ITEMS and not whole_rows:
        n_blocks = max(n_blocks, min(ceil_div(MIN_ITEMS, others), hint // (4 * m)))
    if n_blocks * others < MIN_ITEMS:
        together = max(1, together * n_blocks * others // MIN_ITEMS)
    together = ceil_div(n_panels, ceil_div(n_panels, together))  # one large item and one small one keep a core waiting
    block = ceil_div(ceil_div(hint, n_blocks), m) * m
    p = Product(outer, rows, columns, taps, kc, lanes, kinds, block, together, k_block, indexed, segment=segment,
                input_type=input_type, emitter=emitter)  # fmt: skip
    if by_rows and isinstance(rows, SymDim) and isinstance(columns, int) and not (segment or whole_rows):
        usual = ceil_div(usual, m) * m
        own_block, panels, most_rows = cut_by_rows(rows, product_shape(ctx, p), usual, most, 2 * m)
        return replace(p, row_block=own_block, panels_per_item=panels, most_rows=most_rows)
    if whole_rows or not (segment or isinstance(rows, int)) or not isinstance(columns, int):
        return p
    block, together = best_cut(product_shape(ctx, p), (min(block, hint), together), most, 2 * m)
    return replace(p, row_block=block, panels_per_item=together)


def product_shape(ctx: LowerContext, p: Product) -> Shape:
    """What a cut of the product is judged by: at batch 1 where the number of segments is symbolic."""
    widths = tuple(kind.vectors for kind in p.kinds for _ in range(static(kind.count)))
    heights = tuple((vectors, tallest_tile(ctx.target, vectors, p.input_type)) for vectors in sorted(set(widths)))
    rows = p.segment or size_hint(p.rows)
    return Shape(rows, size_hint(p.taps * p.kc), p.taps, widths, heights, ctx.cores, size_hint(p.outer),
                 refill_rows(ctx.target), pace_of(ctx.target, bool(p.emitter.matrices)))  # fmt: skip


def matrix_rows(steps: int, height: int) -> int:
    """Rows of a block by tiles of matrix registers, of so many rows: whole tiles, whose copy leaves room in L2."""
    return max(2 * height, min(MATRIX_ROWS, COPY_NBYTES // (4 * max(1, steps)) // height * height))


def best_lanes(target: Target, columns: Dim) -> int:
    """Lanes that waste the fewest columns where narrow registers are as fast as wide ones."""
    half = target.f32_lanes // 2
    if target.splits_wide and isinstance(columns, int) and columns < 4 * target.f32_lanes:
        return half if 0 < columns % target.f32_lanes <= half else target.f32_lanes
    return target.f32_lanes


def best_tiles(target: Target, columns: Dim, depth: Dim) -> tuple[int, Emitter]:
    """Columns of a vector that waste the fewest, and how tiles of f32 multiply then; B has to be constant."""
    lanes, half = best_lanes(target, columns), target.f32_lanes // 2
    if lanes == half or half < LEAST_HALF or not isinstance(columns, int) or not isinstance(depth, int):
        return lanes, SINGLE
    wasteful = columns < 4 * lanes and 0 < columns % lanes <= half
    return (half, TWO_STEPS) if wasteful and depth % TWO_STEPS.k_step == 0 else (lanes, SINGLE)


def size_hint(d: Dim) -> int:
    """A size to plan with when a dimension is symbolic: batch 1, but at least 96."""
    return max(96, d.evaluate({s: 1 for s in d.symbols()})) if isinstance(d, SymDim) else d
