"""Sizes of attention, and how its queries, keys and values are cut."""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.types import Dim, TensorType, ceil_div, prod
from ...lowering import LowerContext
from ...microkernels.emitter import Emitter
from ...microkernels.table import tallest_tile, widest_tile
from ..matmul.blocking import MIN_ITEMS, PanelKind, padded_columns, panel_kinds, static
from ..matmul.tile import LINE
from .products import PAIR, STEP, emitter_for, has_matrices

TILES, HIGH_TILES = 4, 2  # of rows in a block of queries, of vectors and of matrix registers
KEYS = 512  # in a block: with the scores of TILES tiles of queries, and k and v of a usual head, they fit L2


@dataclass(frozen=True)
class Heads:
    """Sizes and blocking of one call.

    Attributes:
        queries, keys, depth, columns: M, S, D and E. outer: axes of the result that count heads.
        group: queries of a work item. tile: rows of a register tile. width: columns of a panel of keys.
        block: keys of a block. kinds: the panels of v. emitter: how tiles multiply. matrices: whether matrix registers
        do, which read the same panels.
    """

    outer: tuple[int, ...]
    n_outer: Dim
    queries: Dim
    keys: Dim
    depth: int
    columns: int
    lanes: int
    tile: int
    width: int
    group: Dim
    block: int
    kinds: tuple[PanelKind, ...]
    emitter: Emitter
    matrices: bool = False

    @property
    def rows(self) -> int:
        """Queries of a block."""
        return self.tile * (HIGH_TILES if self.matrices else TILES)

    @property
    def together(self) -> int:
        """Rows whose exponentials are computed together, to hide latencies; a register tile is a multiple."""
        return next(n for n in (3, 2, 1) if self.tile % n == 0)

    @property
    def paired(self) -> bool:
        """Whether tiles take two steps at once."""
        return self.emitter.k_step == PAIR

    @property
    def q_pitch(self) -> int:
        return padded_columns(self.depth, self.lanes * self.emitter.k_step)

    @property
    def score_pitch(self) -> int:
        """A cache line more than a power of two, so that rows do not meet in one set of the cache."""
        return self.block + LINE

    @property
    def out_pitch(self) -> int:
        return padded_columns(self.columns, self.lanes)

    @property
    def n_groups(self) -> Dim:
        return 1 if self.group == self.queries else ceil_div(self.queries, self.group)

    @property
    def score_depth(self) -> int:
        """Steps of a score."""
        return ceil_div(self.depth, self.whole_steps) * self.together_steps

    @property
    def key_steps(self) -> Dim:
        """Steps of a result."""
        return ceil_div(self.keys, self.whole_steps) * self.together_steps

    @property
    def together_steps(self) -> int:
        """Steps that are multiplied together, so that panels are whole ones of these, with zeros at their ends."""
        return STEP if self.matrices else 1

    @property
    def whole_steps(self) -> int:
        """Inputs of those."""
        return self.emitter.k_step * self.together_steps

    @property
    def n_panels(self) -> Dim:
        """Panels of keys."""
        return ceil_div(self.keys, self.width)


def plan_heads(ctx: LowerContext, q: TensorType, v: TensorType) -> Heads:
    """Whole heads where there are enough of them for a few cores, else groups of queries."""
    rank, target, emitter = q.rank, ctx.target, emitter_for(ctx.target, q.dtype)
    vectors = widest_tile(target, 64, emitter.element)
    tile, width = tallest_tile(target, vectors, emitter.element), vectors * ctx.lanes
    matrices = has_matrices(target, q.dtype)
    depth, columns, queries, keys = static(q.dims[-1]), static(v.dims[-1]), q.dims[-2], v.dims[-2]
    outer = tuple(range(rank - 2))
    n_outer = prod(q.dims[:-2])
    group: Dim = queries
    if isinstance(n_outer, int) and isinstance(queries, int) and n_outer < MIN_ITEMS:
        pieces = min(ceil_div(MIN_ITEMS, max(n_outer, 1)), ceil_div(queries, tile * (1 if matrices else TILES)))
        group = ceil_div(ceil_div(queries, max(pieces, 1)), tile) * tile
    block = min(KEYS, ceil_div(keys, width) * width) if isinstance(keys, int) else KEYS
    kinds = tuple(panel_kinds(columns, ctx.lanes, vectors))
    return Heads(outer, n_outer, queries, keys, depth, columns, ctx.lanes, tile, width, group, max(block, width), kinds,
                 emitter, matrices)  # fmt: skip
