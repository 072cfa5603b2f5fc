"""The loops around the register tile: work items, panels of B, blocks of K, tiles of rows.

Owns the calls of tile functions. What the rows of A are (a matrix, the pixels of a convolution) and where
a panel of B lies comes from its callers; it must not know of operators.

    for (outer, column group, row block) in work items:
        table of row offsets for the block
        for panel in column group:                    # of width vectors × lanes, stays in L2
            for block of K:  for height of tiles:  tile(...), which loops over the tiles below one another
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....ir.types import Dim, SymDim, ceil_div
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc
from ...lowering import LowerContext
from ...microkernels.table import tallest_tile
from ..tail import Tail
from .blocking import PanelKind, Product, static
from .matrix_tile import matrix_tile_function
from .tile import TileShape, tile_function, tile_params

MANY_ROWS = 7  # of a tile, from which on their addresses outnumber the integer registers
BRIEF_STEPS = 32  # of k: a tile so short ends before the memory that it asks for arrives, so it asks for the next one's


@dataclass
class Operands:
    """Pointers and per-item callbacks of one product.

    Attributes:
        a, zero, table, partial, koff: pointers, see `tile`.
        fill_table: (outer, first row, rows): write the block's offsets, entry [tap][row] at tap * row_block + row.
        panel: (outer, kind, panel number, its first column): the packed panel of B; where it is packed now, a fifth
        argument says where to.
        bias: column of the result → pointer to the accumulators' start.
        row_base, column_base: of an outer item in the result. pitch: elements between rows of the result in memory;
        a_shift: panel number → elements from the table's offsets to
        the panel's own A, where panels are groups. row_step: rows of the result between consecutive rows of a product.
        result: where the tail's one output goes; None: to the kernel's own. b_pitch: see TileShape.
    """

    a: KValue
    zero: KValue
    table: KValue
    partial: KValue
    fill_table: Callable[[KValue, KValue, KValue], None]
    panel: Callable[..., KValue]
    bias: Callable[[KValue], KValue]
    row_base: Callable[[KValue], KValue]
    pitch: Dim
    row_step: Dim = 1
    column_base: Callable[[KValue], KValue] | None = None
    a_shift: Callable[[KValue], KValue] | None = None
    koff: KValue | None = None
    result: KValue | None = None
    b_pitch: int | None = None


@dataclass(frozen=True)
class RowRange:
    """Rows [first, first + count) of one outer item."""

    outer: KValue
    first: KValue
    count: KValue


@dataclass(frozen=True)
class Step:
    """What tiles below one another multiply: a panel, or a block of k of one.

    Attributes:
        a, table: A, and the offsets of the first tile's rows. b: of the panel. taps, kc, first, last: see `tile`.
        partial: sums of the rows below one another that go on; None: there are none. koff: where A is indexed.
        ahead: what the tiles ask for of what B will be next; None: what lies behind this one. less, formed: of a B
            that is a difference, see TileShape.
    """

    a: KValue
    table: KValue
    b: KValue
    taps: KValue
    kc: KValue
    first: KValue
    last: KValue
    partial: KValue | None
    koff: KValue | None = None
    ahead: KValue | None = None
    less: KValue | None = None
    formed: KValue | None = None


def tile_for(ctx: LowerContext, shape: TileShape, tail: Tail) -> KFunc:
    """The tile function of this shape and epilogue, built once per plan."""
    key = ("tile", shape, tail.key)
    if key not in ctx.functions:
        build = matrix_tile_function if shape.emitter.matrices else tile_function
        ctx.functions[key] = build(f"{shape.name}_{len(ctx.functions)}", shape, tail)
    return ctx.functions[key]


class ProductEmitter:
    """Emits the loops of one Product into a kernel."""

    interleaved = False  # see TileShape
    by_blocks = False  # see `emit_by_blocks`

    def __init__(
        self,
        k: Builder,
        ctx: LowerContext,
        product: Product,
        tail: Tail,
        operands: Operands,
        taps: KValue | None = None,
    ) -> None:
        self.k, self.ctx, self.p, self.tail, self.o = k, ctx, product, tail, operands
        self.shift = k.index(0)
        self.taps = taps if taps is not None else k.index(product.taps)

    def emit(self) -> None:
        """The loop over the kernel's work items [begin, end)."""
        if self.by_blocks:
            self.emit_by_blocks()
            return
        k, p = self.k, self.p
        n_blocks, n_groups = k.index(p.n_row_blocks), k.index(p.n_column_groups)

        def item(index: KValue, _: list[KValue]) -> None:
            rest = k.udiv(index, n_blocks)
            row0, count = self.rows_of(index - rest * n_blocks)
            outer = k.udiv(rest, n_groups)
            self.begin_block(outer, row0, count)
            self.group(outer, row0, count, rest - outer * n_groups)

        k.for_(k["begin"], k["end"], 1, [], item)

    def emit_by_blocks(self) -> None:
        """The same loop where items of a block of rows follow one another, and share what begins it."""
        k, p = self.k, self.p
        n_blocks, n_groups = k.index(p.n_row_blocks), k.index(p.n_column_groups)

        def item(index: KValue, carried: list[KValue]) -> list[KValue]:
            block = k.udiv(index, n_groups)
            outer = k.udiv(block, n_blocks)
            row0, count = self.rows_of(block - outer * n_blocks)
            k.if_(block != carried[0], lambda: self.begin_block(outer, row0, count))
            self.group(outer, row0, count, index - block * n_groups)
            return [block]

        k.for_(k["begin"], k["end"], 1, [k.index(-1)], item)

    def begin_block(self, outer: KValue, row0: KValue, count: KValue) -> None:
        """What the panels of a block of rows share."""
        self.o.fill_table(outer, row0, count)

    def rows_of(self, block: KValue) -> tuple[KValue, KValue]:
        """First row and number of rows of a block."""
        k, p = self.k, self.p
        size = k.index(p.row_block)
        if not p.segment:
            return block * size, k.min(k.index(p.rows) - block * size, size)
        per = ceil_div(p.segment, static(p.row_block))
        segment = k.udiv(block, per)
        at = (block - segment * per) * size
        return segment * p.segment + at, k.min(p.segment - at, size)

    def group(self, outer: KValue, row0: KValue, count: KValue, number: KValue) -> None:
        """A column group of one row block."""
        k, p = self.k, self.p
        first = number * k.index(p.panels_per_item)
        self.panels(outer, row0, count, first, k.min(first + k.index(p.panels_per_item), k.index(p.n_panels)))

    def panels(self, outer: KValue, row0: KValue, count: KValue, first: KValue, last: KValue) -> None:
        """The panels [first, last) of one row block, kind by kind."""
        k = self.k
        for kind in self.p.kinds:
            width = kind.vectors * self.p.lanes
            low, high = k.index(kind.first), k.index(kind.first + kind.count)

            def one(
                panel: KValue, _: list[KValue], kind: PanelKind = kind, low: KValue = low, width: int = width
            ) -> None:
                column = k.index(kind.column) + (panel - low) * width
                b = self.o.panel(outer, kind, panel, column)
                self.shift = self.o.a_shift(panel) if self.o.a_shift is not None else k.index(0)
                self.k_blocks(outer, kind, b, column, row0, count)

            k.for_(k.max(first, low), k.min(last, high), 1, [], one)

    def k_blocks(self, outer: KValue, kind: PanelKind, b: KValue, column: KValue, row0: KValue, count: KValue) -> None:
        """One panel: blocks of K outside, tiles inside, partial sums between."""
        k, p, o = self.k, self.p, self.o
        kc, width, one = k.index(p.kc), kind.vectors * p.lanes, k.index(1)
        each = p.emitter.width
        rows = RowRange(outer, row0, count)
        if p.one_k_block:
            start = self.block_of_a(k.index(0), count)
            self.tiles(rows, kind, column, Step(start, o.table, b, self.taps, kc, one, one, None, o.koff))
            return
        whole_taps = isinstance(p.kc, int) and p.kc <= p.k_block
        if whole_taps:
            per = ceil_div(p.taps, ceil_div(p.taps, max(1, p.k_block // static(p.kc))))
            n, size = k.max(k.udiv(self.taps + (per - 1), per), 1), per
        else:
            size = self.steps_of_block()
            n = k.max(k.index(ceil_div(p.kc, size)) * self.taps, 1)

        def block(i: KValue, _: list[KValue]) -> None:
            if whole_taps:
                t0, c0 = i * size, k.index(0)
                taps, steps = k.min(self.taps - t0, size), kc
            else:
                per_tap = k.index(ceil_div(p.kc, size))
                t0 = k.udiv(i, per_tap)
                c0 = (i - t0 * per_tap) * size
                taps, steps = k.min(self.taps, 1), k.min(kc - c0, size)
            self.tiles(
                rows,
                kind,
                column,
                Step(
                    self.block_of_a(c0, count),
                    k.gep(o.table, t0 * k.index(p.row_block)),
                    k.gep(b, (t0 * kc + c0) * (each * width if o.b_pitch is None else o.b_pitch)),
                    taps,
                    steps,
                    k.cast(i == 0, n.dtype),
                    k.cast(i == n - 1, n.dtype),
                    o.partial,
                    None if o.koff is None else k.gep(o.koff, c0),
                ),
            )

        k.for_(0, n, 1, [], block)

    def steps_of_block(self) -> int:
        """Of k, where a tap has several blocks of it."""
        p = self.p
        return p.k_block if isinstance(p.kc, SymDim) else ceil_div(ceil_div(p.kc, ceil_div(p.kc, p.k_block)), 4) * 4

    def block_of_a(self, first: KValue, count: KValue) -> KValue:
        """Where the steps of k from `first` on start in the A of a block of `count` rows."""
        return self.start_of_a(first)

    def tile_of_a(self, step: Step, row: KValue) -> KValue:
        """Where the tiles from `row` on start in it."""
        return step.a

    def start_of_a(self, first: KValue) -> KValue:
        """Where the table's offsets count from, for steps of k from `first` on; `koff` has them where A is indexed."""
        if self.p.indexed:
            return self.o.a
        return self.k.gep(self.o.a, first * self.p.emitter.width + self.shift)

    def tiles(self, rows: RowRange, kind: PanelKind, column: KValue, step: Step) -> None:
        """All row tiles of a block."""
        self.when_known(rows.count, lambda known: self.tiles_of(rows, known, kind, column, step))

    def when_known(self, count: KValue, emit: Callable[[int | None], None]) -> None:
        """`emit` for each number of rows that a block can have, where that is known: they are few; else once."""
        k, p = self.k, self.p
        rows, block = p.segment or p.rows, p.row_block
        if isinstance(block, SymDim) or not p.rows_known:
            emit(None)
        elif isinstance(rows, SymDim):
            k.if_(count == block, lambda: emit(static(block)), lambda: emit(None))
        elif rows <= block or rows % block == 0:
            emit(min(rows, block))
        else:
            k.if_(count == block, lambda: emit(static(block)), lambda: emit(rows % static(block)))

    def tiles_of(self, rows: RowRange, known: int | None, kind: PanelKind, column: KValue, step: Step) -> None:
        """Tiles over `rows`: of balanced heights where their number is known, a ladder of heights otherwise."""
        for height, low, tiles in self.heights(rows.count, known, self.height(kind.vectors)):
            self.call(rows, kind, height, column, low, tiles, step)

    def height(self, vectors: int) -> int:
        """Rows of the tallest tile of a panel of so many vectors."""
        return tallest_tile(self.ctx.target, vectors, self.p.input_type)

    def heights(self, count: KValue, known: int | None, m: int) -> list[tuple[int, KValue, KValue]]:
        """(height, first row, number) of the tiles below one another that cover a block's rows, at most `m` high."""
        k = self.k
        groups, low = [], k.index(0)
        if known is None:
            for size in self.sizes_below(m):
                n = k.udiv(count - low, size)
                groups.append((size, low, n))
                low = low + n * size
            return groups
        tiles = ceil_div(known, m)
        small, extra = divmod(known, tiles)
        if extra:
            groups.append((small + 1, low, k.index(extra)))
            low = low + extra * (small + 1)
        return [*groups, (small, low, k.index(tiles - extra))]

    def sizes_below(self, m: int) -> list[int]:
        """Heights that cover any number of rows with few functions; two rows are wide enough to hide latencies.

        Blocks that are cut by a call's own rows hardly ever end with a whole tile: half a one costs less than pairs.
        """
        half = (m // 2,) if isinstance(self.p.row_block, SymDim) and m // 2 > 2 else ()
        return [m, *(s for s in (*half, 2, 1) if s < m)]

    def spacing(self, rows: int) -> tuple[int, int]:
        """Of a tile's rows those that are evenly spaced, and elements between them; see TileShape."""
        return 0, self.p.row_pitch if rows >= MANY_ROWS else 0

    def shared(self, height: int) -> int:
        """Tiles of a height that together prefetch a panel of B."""
        return self.p.shared(height)

    def call(
        self, rows: RowRange, kind: PanelKind, size: int, column: KValue, row: KValue, tiles: KValue, step: Step
    ) -> None:
        """Tiles of one height, from `row` on."""
        k, p, o = self.k, self.p, self.o
        width, m = kind.vectors * p.lanes, self.height(kind.vectors)
        shape = TileShape(
            size,
            kind.vectors,
            p.lanes,
            kind.masked,
            p.indexed,
            self.ctx.target.has_fma,
            *p.unroll,
            p.prefetched_rows(self.ctx.target, size),
            self.shared(m),
            p.emitter,
            o.b_pitch,
            self.interleaved,
            p.along_rows,
            *self.spacing(size),
            forms=step.less is not None,
        )
        at_column = column if o.column_base is None else o.column_base(rows.outer) + column
        at_row = o.row_base(rows.outer) + (rows.first + row) * k.index(o.row_step)
        ask_below = isinstance(p.kc, int) and p.taps * p.kc <= BRIEF_STEPS and not p.along_rows
        given = {
            "a": self.tile_of_a(step, row),
            "zero": o.zero,
            "b_ahead": k.gep(
                step.ahead or k.gep(step.b, step.taps * step.kc * (width * shape.emitter.width)),
                k.udiv(row, m) * (step.taps * step.kc * (width // shape.shared * shape.emitter.width)),
            ),
            "table": k.gep(step.table, row),
            "b": step.b,
            "bias": o.bias(at_column),
            "partial": o.partial if step.partial is None else k.gep(step.partial, row * width),
            "tiles": tiles,
            "table_stride": k.index(p.row_block),
            "taps": step.taps,
            "kc": step.kc,
            "first": step.first,
            "last": step.last,
            "row": at_row,
            "ahead": k.index(o.row_step) * (size if ask_below else 0),
            "row_step": k.index(o.row_step),
            "column": at_column,
            "pitch": k.index(o.pitch),
            "n_columns": k.index(p.columns) - column,
        }
        given |= {n: v for n, v in (("koff", step.koff), ("less", step.less), ("formed", step.formed)) if v is not None}
        if o.result is not None:
            given["y0"] = o.result
        call_tile(k, tile_for(self.ctx, shape, self.tail), shape, self.tail, given)


def call_tile(k: Builder, tile: KFunc, shape: TileShape, tail: Tail, given: dict[str, KValue]) -> None:
    """Call a tile function; the tail's operands and dims come from the kernel's own parameters."""
    k.call(tile, [given[name] if name in given else k[name] for name, _ in tile_params(shape, tail)])
