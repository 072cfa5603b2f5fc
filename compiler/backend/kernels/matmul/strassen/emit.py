"""The loops of a Strassen–Winograd product: sums of A per block of rows, then seven products per pair of panels.

Winograd's form of Strassen's algorithm (Winograd, "On multiplication of 2 × 2 matrices", 1971; Douglas et al., "GEMMW",
1994). A block's rows are cut in an upper and a lower half, the columns in two, each block of k in two: with A and B as
2 × 2 blocks, and R a power of two for each row that makes it as large as the one it is paired with (`sums`),

    S1 = R(A21 + A22)  S2 = S1 - A11     S3 = A11 - R A21   S4 = A12 - S2         once per block of rows
    T1 = B12 - B11     T2 = B22 - T1     T3 = B22 - B12     T4 = B21 - T2         once per pair of panels
    P1 = A11·B11       P2 = A12·B21      P3 = S4·B22        P4 = A22·T4
    P5 = S1·T1         P6 = S2·T2        P7 = S3·T3
    U2 = P1 + P6       U3 = U2 + P7
    C11 += P1 + P2     C12 += U2 + P5 + P3     C21 += U3/R + P4     C22 += (U3 + P5)/R

Every product but P1 and P5 is added to the sum that it belongs to by the tile itself, and the last block of k finishes
C11, C12 and C21 by the tile's own epilogue. Each T is formed by the first tile that reads it, behind its multiply-adds.
A block of rows that the algorithm's bound would not hold for is multiplied directly, by the same panels. It must not
know where A and B come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .....kernel_ir.builder import Builder, KValue
from ....lowering import LowerContext
from ...tail import Tail
from ..blocking import PanelKind, Product, static
from ..gemm import Operands, ProductEmitter, RowRange
from .items import Items
from .product import Sum, product_function
from .sums import RowSums

QUARTERS = 4
N_SHARED, N_OWN = 3, 4
"""Blocks of sums, of half the rows and a panel's columns each: P1 and what becomes of it, and those of the result."""


@dataclass(frozen=True)
class Pair:
    """A pair of panels, one in each half of the columns.

    Attributes:
        columns, panels: the first column of each, and where it lies. first, last: the blocks of rows that meet it.
    """

    kind: PanelKind
    columns: tuple[KValue, KValue]
    panels: tuple[KValue, KValue]
    first: KValue
    last: KValue


@dataclass(frozen=True)
class Block:
    """A block of rows, with one of k.

    Attributes:
        number: among those of a work item. known: its rows, where they are known. upper, lower: its halves.
        k: the number of the block of k. formed: whether an earlier block has formed the sums of B.
    """

    number: KValue
    known: int | None
    upper: RowRange
    lower: RowRange
    k: KValue
    formed: KValue


class StrassenEmitter(ProductEmitter):
    """Emits the loops of one Product whose kinds cover the left half of the columns.

    Args:
        operands: those of the direct product; `panel` and `bias` serve the columns of the right half, too; `partial`
            has the blocks of sums. sums: of the rows. zeros: as many as a panel has columns. t: four sums of B.
    """

    def __init__(
        self, k: Builder, ctx: LowerContext, p: Product, tail: Tail, operands: Operands, items: Items, sums: RowSums,
        zeros: KValue, t: KValue,
    ) -> None:  # fmt: skip
        super().__init__(k, ctx, p, tail, operands)
        self.items, self.s, self.h, self.zeros, self.t = items, sums, sums.h, zeros, t
        (self.kind,) = p.kinds
        self.width = self.kind.vectors * p.lanes
        self.quarter = self.h.depth * self.width

    def emit(self) -> None:
        """The loop over work items: a pair of panels, and a group of blocks of rows, whose sums serve all pairs."""
        k, together = self.k, self.h.together
        n_blocks, n_pairs = k.index(self.items.count * self.items.blocks), k.index(self.p.n_panels)

        def item(index: KValue, carried: list[KValue]) -> list[KValue]:
            group = k.udiv(index, n_pairs)
            first = group * together
            last = k.min(first + together, n_blocks)
            k.if_(group != carried[0], lambda: self.sums_of_rows(first, last))
            self.pair(index - group * n_pairs, first, last)
            return [group]

        k.for_(k["begin"], k["end"], 1, [k.index(-1)], item)

    def rows_of(self, block: KValue) -> tuple[KValue, KValue]:
        """First row and number of rows of a block: an item's are equal, but for one row."""
        k = self.k
        per, own = k.index(self.items.blocks), k.index(self.items.rows)
        item = k.udiv(block, per)
        number = block - item * per
        first = k.udiv(number * own, per)
        return item * own + first, k.udiv((number + 1) * own, per) - first

    def each_block(
        self, first: KValue, last: KValue, body: Callable[[KValue, RowRange, list[KValue]], list[KValue]],
        carried: Sequence[KValue] = (),
    ) -> None:  # fmt: skip
        """For the blocks of a group: their number in it, and the rows, whose offsets are in the table."""
        k, outer = self.k, self.k.index(0)

        def block(n: KValue, carried: list[KValue]) -> list[KValue]:
            row0, count = self.rows_of(n)
            self.o.fill_table(outer, row0, count)
            return body(n - first, RowRange(outer, row0, count), carried)

        k.for_(first, last, 1, list(carried), block)

    def sums_of_rows(self, first: KValue, last: KValue) -> None:
        """S1 to S4 of a group of blocks."""
        a = self.start_of_a(self.k.index(0))

        def block(number: KValue, rows: RowRange, _: list[KValue]) -> list[KValue]:
            self.s.emit(number, a, self.o.table, self.upper(rows.count), rows.count)
            return []

        self.each_block(first, last, block)

    def upper(self, count: KValue) -> KValue:
        """Rows of the upper half."""
        return self.k.udiv(count + 1, 2)

    def pair(self, number: KValue, first: KValue, last: KValue) -> None:
        """One pair of panels: block of k after block, and for each the blocks of rows."""
        k, width = self.k, self.width
        columns = number * width, number * width + static(self.p.columns) // 2
        left, right = (self.o.panel(k.index(0), self.kind, number, column) for column in columns)
        pair = Pair(self.kind, columns, (left, right), first, last)

        def rows_of_pair(number: KValue, rows: RowRange, formed: KValue, n: KValue) -> list[KValue]:
            upper = RowRange(rows.outer, rows.first, self.upper(rows.count))
            lower = RowRange(rows.outer, rows.first + upper.count, rows.count - upper.count)
            block = Block(number, self.items.known_rows, upper, lower, n, formed)
            k.if_(n == 0, lambda: self.begin_sums(pair, number, upper.count))
            return k.if_(
                self.s.holds(number), lambda: self.seven(pair, block), lambda: self.directly(pair, block)
            )

        def block_of_k(n: KValue, _: list[KValue]) -> None:
            self.each_block(first, last, lambda at, rows, formed: rows_of_pair(at, rows, formed[0], n), [k.index(0)])

        k.for_(0, self.h.blocks, 1, [], block_of_k)

    def directly(self, pair: Pair, block: Block) -> list[KValue]:
        """A block of rows by the product as it is."""
        k, o = self.k, self.o
        own = self.blocks_of_sums(block.number)[N_SHARED:]
        a = self.start_of_a(block.k * (2 * self.h.depth))
        tables = (block.upper, o.table), (block.lower, k.gep(o.table, block.upper.count))
        for n, (rows, table) in enumerate(tables):
            for m, (panel, column) in enumerate(zip(pair.panels, pair.columns, strict=True)):
                b = k.gep(panel, block.k * (2 * self.quarter))
                self.product(block, rows, column, (a, table), Sum(b), own[2 * n + m], b, k.index(0), self.ends(block),
                             depth=2 * self.h.depth)  # fmt: skip
        return [block.formed]

    def ends(self, block: Block) -> KValue:
        """Whether a block of k is the last one, as a number."""
        return self.k.cast(block.k == self.h.blocks - 1, block.k.dtype)

    def blocks_of_sums(self, number: KValue) -> list[KValue]:
        """Three that are shared, then those that become the result of a block of rows."""
        k, each = self.k, self.h.rows * self.width
        own = number * N_OWN + N_SHARED
        return [k.gep(self.o.partial, n * each) for n in (*range(N_SHARED), *(own + n for n in range(N_OWN)))]

    def begin_sums(self, pair: Pair, number: KValue, rows: KValue) -> None:
        """The blocks that become the result start from the bias."""
        k, lanes, vectors = self.k, self.p.lanes, range(pair.kind.vectors)
        own = self.blocks_of_sums(number)[N_SHARED:]
        biases = [self.o.bias(column) for column in pair.columns]
        starts = [[k.load(bias, j * lanes, lanes) for j in vectors] for bias in biases]

        def row(i: KValue, _: list[KValue]) -> None:
            for place, values in zip(own, starts + starts, strict=True):
                for j, value in enumerate(values):
                    k.store(place, i * self.width + j * lanes, value, align=4 * lanes)

        k.for_(0, rows, 1, [], row)

    def seven(self, pair: Pair, block: Block) -> list[KValue]:
        """The seven products of a block of rows and one of k."""
        k, o, h, upper, lower = self.k, self.o, self.h, block.upper, block.lower
        x, y, z, c11, c12, c21, c22 = self.blocks_of_sums(block.number)
        b11, b12 = (k.gep(panel, block.k * (2 * self.quarter)) for panel in pair.panels)
        b21, b22 = k.gep(b11, self.quarter), k.gep(b12, self.quarter)
        t1, t2, t3, t4 = (k.gep(self.t, n * self.quarter) for n in range(QUARTERS))
        left, right = (self.start_of_a(block.k * (2 * h.depth) + shift) for shift in (0, h.depth))
        a11, a12, a22 = (left, o.table), (right, o.table), (right, k.gep(o.table, upper.count))
        s1, s2, s3, s4 = self.s.operands(block.number, block.k)
        forms, ends = block.formed == 0, block.number == pair.last - pair.first - 1
        ahead_of_sums = [k.select(forms, *both) for both in ((b12, b11), (b22, b21))]
        ahead_of_next = [k.select(ends, k.gep(b, 2 * self.quarter), own) for b, own in ((b11, t3), (b21, t4))]
        last, column = self.ends(block), pair.columns[0]

        def keep(a: tuple[KValue, KValue], b: Sum, onto: KValue, ahead: KValue, first: int = 0) -> None:
            self.product(block, upper, column, a, b, onto, ahead, k.index(first), k.index(0))

        def finish(
            rows: RowRange, column: KValue, a: tuple[KValue, KValue], b: Sum, onto: KValue, ahead: KValue
        ) -> None:
            self.product(block, rows, column, a, b, onto, ahead, k.index(0), last)

        keep(a11, Sum(b11), x, ahead_of_sums[0], first=1)
        self.add(block, upper, lambda get, back: ((c11, get(c11) + get(x)),))
        finish(upper, column, a12, Sum(b21), c11, ahead_of_sums[1])
        keep(s1, Sum(t1, b12, b11), z, t1, first=1)
        keep(s2, Sum(t2, b22, t1), x, t2)
        self.add(block, upper, lambda get, back: ((y, get(x)), (c12, get(c12) + (get(x) + get(z)))))
        finish(upper, pair.columns[1], s4, Sum(b22), c12, b22)
        keep(s3, Sum(t3, b22, b12), y, ahead_of_next[0])
        self.add(block, lower, lambda get, back: (
            (c21, get(c21) + get(y) * back), (c22, get(c22) + (get(y) + get(z)) * back)))  # fmt: skip
        finish(lower, column, a22, Sum(t4, b21, t2), c21, ahead_of_next[1])
        zero, one = k.index(0), k.index(1)  # C22 has all its products: no step of k, only the epilogue
        k.if_(last != 0, lambda: self.product(block, lower, pair.columns[1], a22, Sum(t4), c22, t4, zero, one, taps=0))
        return [one]

    def product(
        self, block: Block, rows: RowRange, column: KValue, a: tuple[KValue, KValue], b: Sum, onto: KValue,
        ahead: KValue, first: KValue, last: KValue, taps: int = 1, depth: int = 0,
    ) -> None:  # fmt: skip
        """One of the seven: all row tiles, the first of which forms its B if that is a sum that nobody has formed."""
        k, known = self.k, block.known
        half = None if known is None or known % 2 else known // 2
        func = product_function(self.ctx, self.p, self.tail, self.o, half, self.h.rows)
        forms = k.index(0) if b.b is None else 1 - block.formed
        given = {"a": a[0], "table": a[1], "b": b.b or b.place, "less": b.less or b.place, "place": b.place,
                 "onto": onto, "ahead": ahead, "zeros": self.zeros, "forms": forms, "taps": k.index(taps),
                 "kc": k.index(depth or self.h.depth), "first": first, "last": last, "row": rows.first,
                 "rows": rows.count, "column": column}  # fmt: skip
        k.call(func, [given[p.name] if p.name in given else k[p.name] for p in func.params])

    def add(self, block: Block, rows: RowRange, results: Callable[..., tuple[tuple[KValue, KValue], ...]]) -> None:
        """Store what `results` makes of the blocks of sums and of a row's 1/R, vector by vector."""
        k, lanes = self.k, self.p.lanes

        def vector(at: KValue, back: KValue) -> None:
            for place, value in results(lambda place: k.load(place, at, lanes, align=4 * lanes), back):
                k.store(place, at, value, align=4 * lanes)

        def row(i: KValue, _: list[KValue]) -> None:
            back = k.splat(self.s.back(block.number, i), lanes)
            for j in range(0, self.width, lanes):
                vector(i * self.width + j, back)

        k.for_(0, rows.count, 1, [], row)
