"""Products of rows of A that are copied in the order in which tiles read them: what a step of k multiplies, together.

A tile's copy is [k][rows of the tile], tile after tile, so that a tile reads one stream from one pointer. Read where
they lie, rows that are not contiguous take one element of a cache line at a time, and rows that are crowd a few sets of
the caches if they lie a multiple of a page apart.

    for (outer, row block, column group) in work items:
        copy the block's rows of A, unless the item before had them       # in blocks of k
        for panel in column group: …                                      # as in `gemm`

A product of few steps of k is all result, which memory takes twice as fast along its rows as in columns that are a
panel wide: there all panels of a group are packed first, and each tile's rows meet one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....ir.types import Dim, DType, ceil_div
from ....kernel_ir.builder import F32, F32PTR, Builder, KValue
from ....kernel_ir.loops import INDEX, KFunc, KType, PtrType
from ...fusion import load
from ...lowering import LowerContext
from ...microkernels.emitter import Emitter
from .blocking import PanelKind
from .gemm import ProductEmitter, RowRange, Step
from .pack import ROWS_AHEAD, transpose_square
from .tile import LINE

TOGETHER = 4  # tiles whose elements of a step are copied in turn, so that a line of A is fetched once or twice


@dataclass(frozen=True)
class Source:
    """Where A lies.

    Attributes:
        base: of all its elements. start: outer item → elements from there to the item's first row.
        row, step: elements from a row to the next one, and from an input to the next one; one of them is 1.
        depth: inputs of each row.
    """

    base: KValue
    start: Callable[[KValue], KValue]
    row: Dim
    step: Dim
    depth: Dim


@dataclass(frozen=True)
class Panels:
    """Panels [begin, end) of a kind, packed one behind the other at `place`, the first one's columns from `column`."""

    kind: PanelKind
    begin: KValue
    end: KValue
    column: KValue
    place: KValue


class InterleavedEmitter(ProductEmitter):
    """Emits the loops of one Product of one tap, whose operands' `a` is room for a block of rows.

    Args:
        source: what is copied there.
    """

    interleaved, by_blocks = True, True

    def __init__(self, *given: Any, source: Source) -> None:
        super().__init__(*given)
        self.source = source

    def begin_block(self, outer: KValue, row0: KValue, count: KValue) -> None:
        """The block's rows of A, in the order of its tiles, block of k after block."""
        self.when_known(count, lambda known: self.copy(RowRange(outer, row0, count), known))

    def copy(self, rows: RowRange, known: int | None) -> None:
        k, p, source = self.k, self.p, self.source
        size = k.index(p.kc if p.one_k_block else self.steps_of_block())
        n = k.index(1 if p.one_k_block else ceil_div(p.kc, self.steps_of_block()))
        row, step = k.index(source.row), k.index(source.step)
        by_columns, inputs = source.row == 1, p.emitter.k_step

        def block(i: KValue, _: list[KValue]) -> None:
            first = i * size
            steps = k.min(k.index(p.kc) - first, size)
            for height, low, tiles in self.heights(rows.count, known, self.height(0)):
                at = source.start(rows.outer) + (rows.first + low) * row + first * (step * inputs)
                place = k.gep(self.block_of_a(first, rows.count), low * steps * p.emitter.width)
                given = [k.gep(source.base, at), place, tiles, steps, step if by_columns else row]
                if inputs > 1:
                    function = weave_rows_function(self.ctx, source.base.dtype, height, p.emitter)
                    given.append(k.index(source.depth) - first * inputs)
                else:
                    function = interleave_function(self.ctx, source.base.dtype, height, by_columns)
                k.call(function, given)

        k.for_(0, n, 1, [], block)

    def panels(self, outer: KValue, row0: KValue, count: KValue, first: KValue, last: KValue) -> None:
        """Where the product goes along its rows: all panels are packed, then each tile's rows meet all of them."""
        if not self.p.along_rows:
            super().panels(outer, row0, count, first, last)
            return
        rows = RowRange(outer, row0, count)
        groups = [self.panels_of(kind, first, last) for kind in self.p.kinds]
        for panels in groups:
            self.pack(outer, panels)
        self.when_known(count, lambda known: self.along(rows, known, groups))

    def panels_of(self, kind: PanelKind, first: KValue, last: KValue) -> Panels:
        """Those of a kind in [first, last)."""
        k, p = self.k, self.p
        low = k.index(kind.first)
        begin, end = k.max(first, low), k.min(last, k.index(kind.first + kind.count))
        column = k.index(kind.column) + (begin - low) * (kind.vectors * p.lanes)
        widest = max(other.vectors for other in p.kinds) * p.lanes
        return Panels(kind, begin, end, column, k.gep(k["bpack"], (begin - first) * (k.index(p.kc) * widest)))

    def pack(self, outer: KValue, panels: Panels) -> None:
        k, width = self.k, panels.kind.vectors * self.p.lanes

        def one(number: KValue, _: list[KValue]) -> None:
            i = number - panels.begin
            place = k.gep(panels.place, i * (k.index(self.p.kc) * width))
            self.o.panel(outer, panels.kind, number, panels.column + i * width, place)

        k.for_(panels.begin, panels.end, 1, [], one)

    def along(self, rows: RowRange, known: int | None, groups: list[Panels]) -> None:
        """Rows of tiles, one below the other."""
        k, one, kc = self.k, self.k.index(1), self.k.index(self.p.kc)

        def line(height: int, row: KValue) -> None:
            for panels in groups:
                step = Step(self.o.a, self.o.table, panels.place, self.taps, kc, one, one, None)
                self.call(rows, panels.kind, height, panels.column, row, panels.end - panels.begin, step)

        for height, low, tiles in self.heights(rows.count, known, self.height(0)):
            k.for_(0, tiles, 1, [], lambda t, _, height=height, low=low: line(height, low + t * height))

    def height(self, vectors: int) -> int:
        """One copy of A serves panels of all widths."""
        return super().height(max(kind.vectors for kind in self.p.kinds))

    def block_of_a(self, first: KValue, count: KValue) -> KValue:
        return self.k.gep(self.o.a, first * count * self.p.emitter.width)

    def tile_of_a(self, step: Step, row: KValue) -> KValue:
        return self.k.gep(step.a, row * step.kc * self.p.emitter.width)


def interleave_function(ctx: LowerContext, dtype: DType, rows: int, by_columns: bool) -> KFunc:
    """A function that copies tiles of A as f32, where rows are contiguous or columns (steps of k) are.

    For t in [0, tiles), s in [0, steps), i in [0, rows): dst[(t · steps + s) · rows + i] is
    src[(t · rows + i) · stride + s], or, by columns, src[s · stride + t · rows + i].
    """
    key = ("interleave", dtype, rows, by_columns)
    if key not in ctx.functions:
        name = f"interleave{rows}_{'columns' if by_columns else 'rows'}_{dtype}_{len(ctx.functions)}"
        params: list[tuple[str, KType | PtrType]] = [("src", PtrType(dtype)), ("dst", F32PTR)]
        k = Builder(name, params + [(n, INDEX) for n in ("tiles", "steps", "stride")], inline="never")
        if by_columns:
            whole = k.udiv(k["tiles"], TOGETHER) * TOGETHER
            k.for_(0, whole, TOGETHER, [], lambda t, _: _from_columns(k, t, TOGETHER, rows))
            k.for_(whole, k["tiles"], 1, [], lambda t, _: _from_columns(k, t, 1, rows))
        else:
            k.for_(0, k["tiles"], 1, [], lambda t, _: _from_rows(k, t, rows))
        ctx.functions[key] = k.func
    return ctx.functions[key]


def _from_columns(k: Builder, first: KValue, together: int, rows: int) -> None:
    """All steps of `together` tiles."""
    source, steps = k.gep(k["src"], first * rows), k["steps"]
    places = [k.gep(k["dst"], (first + t) * steps * rows) for t in range(together)]

    def step(s: KValue, _: list[KValue]) -> None:
        at = s * k["stride"]
        for line in range(0, together * rows, LINE):
            k.prefetch(source, at + k["stride"] * ROWS_AHEAD + line)
        for t, place in enumerate(places):
            for i, lanes in _pieces(rows):
                k.store(place, s * rows + i, load(k, source, at + (t * rows + i), lanes))

    k.for_(0, steps, 1, [], step)


def weave_rows_function(ctx: LowerContext, dtype: DType, rows: int, emitter: Emitter) -> KFunc:
    """As `interleave_function` by columns, of tiles that take several inputs in a step: an element holds a row's step.

    `inputs` are there from the first step on; a zero fills up the last pair.
    """
    key = ("weave rows", dtype, rows, emitter)
    if key not in ctx.functions:
        params: list[tuple[str, KType | PtrType]] = [("src", PtrType(dtype)), ("dst", PtrType(emitter.element))]
        k = Builder(f"weave{rows}_{dtype}_{len(ctx.functions)}",
                    params + [(n, INDEX) for n in ("tiles", "steps", "stride", "inputs")], inline="never")  # fmt: skip
        whole = k.udiv(k["tiles"], TOGETHER) * TOGETHER
        k.for_(0, whole, TOGETHER, [], lambda t, _: _woven_columns(k, t, TOGETHER, rows, emitter))
        k.for_(whole, k["tiles"], 1, [], lambda t, _: _woven_columns(k, t, 1, rows, emitter))
        ctx.functions[key] = k.func
    return ctx.functions[key]


def _woven_columns(k: Builder, first: KValue, together: int, rows: int, emitter: Emitter) -> None:
    """All steps of `together` tiles."""
    weave, n = emitter.weave, emitter.k_step
    assert weave is not None and n == 2
    source, steps = k.gep(k["src"], first * rows), k["steps"]
    places = [k.gep(k["dst"], (first + t) * steps * (rows * emitter.width)) for t in range(together)]

    def step(s: KValue, there: int) -> None:
        at = s * n * k["stride"]
        for line in range(0, together * rows, LINE):
            for i in range(n):
                k.prefetch(source, at + k["stride"] * (ROWS_AHEAD + i) + line)
        for t, place in enumerate(places):
            for i, lanes in _pieces(rows):
                inputs = [load(k, source, at + k["stride"] * j + (t * rows + i), lanes) for j in range(there)]
                zeros = [k.splat(k.const(0.0, F32), lanes)] * (n - there)
                k.store(place, (s * rows + i) * emitter.width, weave(k, [*inputs, *zeros]))

    whole = k.min(k.udiv(k["inputs"], n), steps)
    k.for_(0, whole, 1, [], lambda s, _: step(s, n))
    k.if_(whole < steps, lambda: step(whole, 1))


def _from_rows(k: Builder, tile: KValue, rows: int) -> None:
    """All steps of a tile, as many at once as make a square with its rows; the next tile's are asked for."""
    lanes = 1 << (rows - 1).bit_length()
    first, steps = tile * rows, k["steps"]
    sources = [k.gep(k["src"], (first + i) * k["stride"]) for i in range(rows)]
    place = k.gep(k["dst"], first * steps)

    def square(s: KValue, _: list[KValue]) -> None:
        for source in sources:
            k.prefetch(source, s + k["stride"] * rows)
        vectors = [load(k, source, s, lanes) for source in sources]
        vectors += vectors[-1:] * (lanes - rows)
        for u, vector in enumerate(transpose_square(k, vectors)):
            for i, n in _pieces(rows):
                part = vector if n == lanes else k.shuffle(vector, vector, range(i, i + n))
                k.store(place, (s + u) * rows + i, part)

    def column(s: KValue, _: list[KValue]) -> None:
        for i, source in enumerate(sources):
            k.store(place, s * rows + i, load(k, source, s, 1))

    whole = k.udiv(steps, lanes) * lanes
    k.for_(0, whole, lanes, [], square)
    k.for_(whole, steps, 1, [], column)


def _pieces(rows: int) -> list[tuple[int, int]]:
    """(first, number) of the fewest vectors of 2^n elements that a tile's rows make."""
    pieces, at = [], 0
    while at < rows:
        lanes = 1 << (rows - at).bit_length() - 1
        pieces.append((at, lanes))
        at += lanes
    return pieces
