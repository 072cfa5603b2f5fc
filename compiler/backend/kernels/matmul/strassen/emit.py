"""The loops of a Strassen–Winograd product: sums of A per work item, then seven products per pair of panels.

Winograd's form of Strassen's algorithm (Winograd, "On multiplication of 2 × 2 matrices", 1971; Douglas et al., "GEMMW",
1994). A work item's rows are cut in an upper and a lower half, k and the columns in two: with A and B as 2 × 2 blocks,

    S1 = A21 + A22    S2 = S1 - A11     S3 = A11 - A21     S4 = A12 - S2            once per item
    T1 = B12 - B11    T2 = B22 - T1     T3 = B22 - B12     T4 = T2 - B21            at compile time
    P1 = A11·B11      P2 = A12·B21      P3 = S4·B22        P4 = A22·T4
    P5 = S1·T1        P6 = S2·T2        P7 = S3·T3
    U2 = P1 + P6      U3 = U2 + P7      U4 = U2 + P5
    C11 = P1 + P2     C12 = U4 + P3     C21 = U3 - P4      C22 = U3 + P5

Every product but P5 starts its accumulators from the sum that it is added to, so that the sums of the last line cost
nothing and are finished by the tile's own epilogue. It must not know where A and B come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .....kernel_ir.builder import Builder, KValue
from ....lowering import LowerContext
from ...tail import Tail
from ..blocking import PanelKind, Product
from ..gemm import Operands, ProductEmitter, RowRange, Step

MATRICES = ("B11", "B21", "T2", "T1", "B22", "T3", "-T4")  # of B in a pair of panels, as they are read
N_SUMS = 4


Get = Callable[[KValue], KValue]
Results = Callable[[Get], tuple[tuple[KValue, KValue], ...]]  # (block of sums, its new values), of what is loaded


@dataclass(frozen=True)
class Halves:
    """Sizes of a product cut in halves.

    Attributes:
        rows: of the upper half of a full block. depth: of one half of k. columns: of the left half, whole registers.
        masked: whether the right half has fewer columns.
    """

    rows: int
    depth: int
    columns: int
    masked: bool


@dataclass(frozen=True)
class Sums:
    """Pointers: `sums` [S1 … S4][row][depth], `own` the offset of each row in one of them, `zeros` a row of A."""

    sums: KValue
    own: KValue
    zeros: KValue


class StrassenEmitter(ProductEmitter):
    """Emits the loops of one Product whose kinds cover the left half of the columns.

    Args:
        operands: `panel` gives a pair of panels: the MATRICES, each [depth][width]; `bias` the left half's
            vector and, `halves.columns` further, what the right half's has more; `partial` three blocks of sums.
    """

    def __init__(
        self, k: Builder, ctx: LowerContext, p: Product, tail: Tail, operands: Operands, halves: Halves, sums: Sums
    ) -> None:
        super().__init__(k, ctx, p, tail, operands)
        self.h, self.s = halves, sums

    def begin_block(self, outer: KValue, row0: KValue, count: KValue) -> None:
        """The table of offsets, and S1 to S4 of the block; where the lower half lacks a row it counts as zeros."""
        super().begin_block(outer, row0, count)
        k, o, lanes = self.k, self.o, self.p.lanes
        depth, upper = self.h.depth, self.upper(count)
        a = self.start_of_a(k.index(0))

        def row(i: KValue, _: list[KValue]) -> None:
            top = k.gep(a, k.load(o.table, i))
            there = upper + i < count
            low = k.select(there, k.gep(a, k.load(o.table, k.min(upper + i, count - 1))), self.s.zeros)
            at = i * depth

            def columns(c: KValue, mask: KValue | None) -> None:
                a11, a12, a21, a22 = (
                    k.load(half, c + shift, lanes, mask) for half in (top, low) for shift in (0, depth)
                )
                s1 = a21 + a22
                s2 = s1 - a11
                for n, value in enumerate((s1, s2, a11 - a21, a12 - s2)):
                    k.store(self.s.sums, at + n * (self.h.rows * depth) + c, value, mask)

            whole = depth // lanes * lanes
            k.for_(0, whole, lanes, [], lambda c, _: columns(c, None))
            if whole < depth:
                columns(k.index(whole), k.tail_mask(k.index(depth - whole), lanes))

        k.for_(0, upper, 1, [], row)

    def shared(self, height: int) -> int:
        """Tiles of a height that together prefetch one matrix of B: those of half the rows."""
        return replace(self.p, row_block=self.h.rows).shared(height)

    def upper(self, count: KValue) -> KValue:
        """Rows of the upper half."""
        return self.k.udiv(count + 1, 2)

    def k_blocks(self, outer: KValue, kind: PanelKind, b: KValue, column: KValue, row0: KValue, count: KValue) -> None:
        """One pair of panels."""
        upper = RowRange(outer, row0, self.upper(count))
        lower = RowRange(outer, row0 + upper.count, count - upper.count)
        each = self.h.depth * kind.vectors * self.p.lanes
        matrices = {name: self.k.gep(b, n * each) for n, name in enumerate(MATRICES)}
        self.when_known(count, lambda known: self.seven(upper, lower, known, kind, matrices, column))

    def seven(
        self,
        upper: RowRange,
        lower: RowRange,
        known: int | None,
        kind: PanelKind,
        b: dict[str, KValue],
        column: KValue,
    ) -> None:
        """The seven products, of which P1, P6, P7 and P5 are kept in three blocks of sums."""
        k, o, h = self.k, self.o, self.h
        width = kind.vectors * self.p.lanes
        x, y, z = (k.gep(o.partial, n * (h.rows * width)) for n in range(3))
        left, right_half = (self.start_of_a(k.index(shift)) for shift in (0, h.depth))
        below = k.gep(o.table, upper.count)
        a11, a12, a22 = (left, o.table), (right_half, o.table), (right_half, below)
        s1, s2, s3, s4 = ((k.gep(self.s.sums, n * (h.rows * h.depth)), self.s.own) for n in range(N_SUMS))
        n_upper, n_lower = (None, None) if known is None else ((known + 1) // 2, known // 2)
        right, right_kind = column + h.columns, replace(kind, masked=h.masked)
        zero, one, depth = k.index(0), k.index(1), k.index(h.depth)

        def keep(a: tuple[KValue, KValue], name: str, onto: KValue, first: KValue = zero, at: KValue = column) -> None:
            """A product onto a block of sums, or onto the bias at a column."""
            step = Step(*a, b[name], one, depth, first, zero, onto)
            self.tiles_of(upper, n_upper, kind, at, step)

        def finish(quarter: int, a: tuple[KValue, KValue], name: str, onto: KValue, taps: KValue = one) -> None:
            """A product onto a block of sums, into a quarter of the result; without taps, the block alone."""
            step = Step(*a, b[name], taps, depth, zero, one, onto)
            at, columns = (right, right_kind) if quarter in (12, 22) else (column, kind)
            rows, n = (lower, n_lower) if quarter in (21, 22) else (upper, n_upper)
            if n != 0:
                self.tiles_of(rows, n, columns, at, step)

        keep(a11, "B11", x, one)
        finish(11, a12, "B21", x)
        keep(s2, "T2", x)
        keep(s1, "T1", z, one, right)
        self.add(upper.count, width, lambda get: ((y, get(x)), (x, get(x) + get(z))))
        finish(12, s4, "B22", x)
        keep(s3, "T3", y)
        self.add(lower.count, width, lambda get: ((z, get(y) + get(z)),))
        finish(21, a22, "-T4", y)
        finish(22, a22, "-T4", z, zero)

    def add(self, rows: KValue, width: int, results: Results) -> None:
        """Store what `results` makes of the blocks of sums, vector by vector."""
        k, lanes = self.k, self.p.lanes

        def vector(at: KValue, _: list[KValue]) -> None:
            for block, value in results(lambda block: k.load(block, at, lanes, align=4 * lanes)):
                k.store(block, at, value, align=4 * lanes)

        k.for_(0, rows * width, lanes, [], vector)
