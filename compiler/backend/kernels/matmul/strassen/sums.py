"""What a block of rows brings to a Strassen–Winograd product: the sums of A, and what makes paired rows alike.

Row i of the upper half and row i of the lower one are added to each other, and to no others. So that neither drowns the
other, the lower one is multiplied by a power of two, R, that gives the sums of their magnitudes the same exponent; so
the error of a row is a share of its own sum of magnitudes (`lower`), and a lone outlier in one makes nothing else in
the other small. Rows that are all zeros beside one that is not, or hold an infinity or a NaN, or numbers whose sums
might leave f32's range, have no such factor: their block of rows does not take part.
"""

from __future__ import annotations

from dataclasses import dataclass

from .....ir.types import F32, I32
from .....kernel_ir.builder import Builder, KValue

N_SUMS = 4
MANTISSA, BIAS = 23, 127
FURTHEST = 100  # factors of two between paired rows


@dataclass(frozen=True)
class Halves:
    """Sizes of a product cut in halves.

    Attributes:
        rows: of the upper half of a full block. together: blocks of rows of a work item. blocks: of k. depth: of one
            half of a block of k.
    """

    rows: int
    together: int
    blocks: int
    depth: int


@dataclass(frozen=True)
class RowSums:
    """Emits the sums of the blocks of rows of a work item.

    Attributes:
        sums: pointer, [block of rows][block of k][S1 … S4][row][depth]. own: the offset of each row in one of
            them. zeros: a row of A. factors: 1/R for each pair of rows. state: 1 where the block takes part, else 0.
        limits: the least and the largest sum of magnitudes that a row may have.
    """

    k: Builder
    h: Halves
    lanes: int
    sums: KValue
    own: KValue
    zeros: KValue
    factors: KValue
    state: KValue
    limits: KValue

    def holds(self, at: KValue) -> KValue:
        """Whether the block takes part."""
        return self.k.load(self.state, at) != 0

    def back(self, at: KValue, row: KValue) -> KValue:
        """1/R of a pair of rows."""
        return self.k.load(self.factors, at * self.h.rows + row)

    def operands(self, at: KValue, block: KValue) -> tuple[tuple[KValue, KValue], ...]:
        """S1 to S4 of a block of k, each with the table of its rows."""
        k, each = self.k, self.h.rows * self.h.depth
        first = (at * self.h.blocks + block) * N_SUMS
        return tuple((k.gep(self.sums, (first + n) * each), self.own) for n in range(N_SUMS))

    def emit(self, at: KValue, a: KValue, table: KValue, upper: KValue, count: KValue) -> None:
        """The sums of `count` rows; where the lower half lacks a row it counts as zeros."""
        k = self.k

        def row(i: KValue, carried: list[KValue]) -> list[KValue]:
            there = upper + i < count
            top = k.gep(a, k.load(table, i))
            low = k.select(there, k.gep(a, k.load(table, k.min(upper + i, count - 1))), self.zeros)
            of_top, of_low = self.magnitudes(top, low)
            able, shift = self.pairing(of_top, of_low, there)
            k.store(self.factors, at * self.h.rows + i, self.power(-shift))
            self.add(at, i, top, low, self.power(shift))
            return [k.select(able, carried[0], k.const(0, F32))]

        (state,) = k.for_(0, upper, 1, [k.const(1, F32)], row)
        k.store(self.state, at, state)

    def magnitudes(self, *rows: KValue) -> list[KValue]:
        """The sum of each row's magnitudes."""
        k, lanes = self.k, self.lanes

        def vector(at: KValue, carried: list[KValue]) -> list[KValue]:
            own = [k.math("abs", k.load(row, at, lanes)) for row in rows]
            return [total + one for total, one in zip(carried, own, strict=True)]

        nothing = k.splat(k.const(0, F32), lanes)
        totals = k.for_(0, 2 * self.h.depth * self.h.blocks, lanes, [nothing for _ in rows], vector)
        return [k.reduce("add", total) for total in totals]

    def pairing(self, top: KValue, low: KValue, there: KValue) -> tuple[KValue, KValue]:
        """Whether two rows of these magnitudes may be added to each other, and the exponent of R."""
        k = self.k
        exponents = [k.bitcast(total, I32) >> MANTISSA for total in (top, low)]
        shift = exponents[0] - exponents[1]
        both = self.within(top) & self.within(low) & (shift <= FURTHEST) & (shift >= -FURTHEST)
        nothing = (top == 0) & (low == 0)
        alone = ~there & (self.within(top) | (top == 0))
        return both | nothing | alone, k.select(both, shift, k.const(0, I32))

    def within(self, total: KValue) -> KValue:
        """Whether what is made of a row stays in range; NaN is within nothing."""
        return (total >= self.k.load(self.limits, 0)) & (total <= self.k.load(self.limits, 1))

    def power(self, exponent: KValue) -> KValue:
        """Two to the power of an i32."""
        return self.k.bitcast((exponent + BIAS) << MANTISSA, F32)

    def add(self, number: KValue, i: KValue, top: KValue, low: KValue, factor: KValue) -> None:
        """S1 to S4 of a pair of rows."""
        k, h, lanes = self.k, self.h, self.lanes
        each, scale = h.rows * h.depth, k.splat(factor, lanes)

        def block(n: KValue, _: list[KValue]) -> None:
            at, to = n * (2 * h.depth), (number * h.blocks + n) * (N_SUMS * each) + i * h.depth

            def vector(c: KValue, _: list[KValue]) -> None:
                a11, a12 = (k.load(top, at + c + shift, lanes) for shift in (0, h.depth))
                a21, a22 = (k.load(low, at + c + shift, lanes) * scale for shift in (0, h.depth))
                s1 = a21 + a22
                s2 = s1 - a11
                for m, value in enumerate((s1, s2, a11 - a21, a12 - s2)):
                    k.store(self.sums, to + m * each + c, value)

            k.for_(0, h.depth, lanes, [], vector)

        k.for_(0, h.blocks, 1, [], block)
