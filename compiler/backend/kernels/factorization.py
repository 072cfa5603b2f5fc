"""LU and InvertLU: elimination row by row, and substitution by blocks of columns.

    LU, a work item for each matrix:
        for i: exchange row i with that of the greatest element; for the rows below: subtract a multiple of row i
    InvertLU, a work item for each matrix and block of columns of the result:
        rows of the identity, exchanged as the pivots say
        for i: y[i] -= sum over j < i of L[i, j] · y[j];  for i, last first: the same with U, divided by U[i, i]

Vectors lie along rows. Sums are fused multiply-adds in the order of the columns, so that results depend neither on how
long vectors are nor on who does which block.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...ir.graph import Node
from ...ir.ops.factorization import LU, InvertLU
from ...ir.types import I64, DType, ceil_div, prod
from ...kernel_ir.builder import Builder, KValue
from ...kernel_ir.loops import KFunc, PtrType
from ..lowering import KernelCall, LowerContext, lowers
from .nest import emit_span
from .reduction.line_tail import lanes_for

AT_ONCE = 4  # vectors of a block of columns


@lowers(LU)
def lower_lu(ctx: LowerContext, node: Node) -> KernelCall:
    """In the result, behind a copy."""
    x, (lu, pivots, det) = node.operands[0].tensor, node.outputs
    lanes = lanes_for(ctx, x.dtype)

    def build(name: str) -> KFunc:
        params = [("x", x.dtype), ("lu", x.dtype), ("pivots", I64), ("det", x.dtype)]
        k = ctx.kernel(name, [(n, PtrType(d)) for n, d in params])
        n = k.index(x.dims[-1])

        def matrix(item: KValue, _: list[KValue]) -> None:
            start = item * n * n
            emit_span(k, start, start + n * n, lanes, partial(_copy, k))
            det = _Elimination(k, x.dtype, lanes, n, start, item * n).run()
            k.store(k["det"], item, det)

        k.for_(k["begin"], k["end"], 1, [], matrix)
        return k.func

    func = ctx.function("lu", node, build)
    return KernelCall(func, (node.operands[0], lu, pivots, det), prod(x.dims[:-2]), node.name, nbytes=x.nbytes * 2)


def _copy(k: Builder, i: KValue, lanes: int, mask: KValue | None) -> None:
    k.store(k["lu"], i, k.load(k["x"], i, lanes, mask), mask)


class _Elimination:
    """One matrix lu[start:] of n rows, its pivots at pivots[row:]."""

    def __init__(self, k: Builder, dtype: DType, lanes: int, n: KValue, start: KValue, row: KValue) -> None:
        self.k, self.dtype, self.lanes, self.n, self.start, self.row = k, dtype, lanes, n, start, row

    def run(self) -> KValue:
        """All steps; the determinant."""
        return self.k.for_(0, self.n, 1, [self.k.const(1, self.dtype)], lambda i, det: [self._step(i, det[0])])[0]

    def _at(self, i: KValue, j: KValue) -> KValue:
        return self.start + i * self.n + j

    def _step(self, i: KValue, det: KValue) -> KValue:
        k = self.k
        other = self._greatest(i)
        k.store(k["pivots"], self.row + i, other)
        k.if_(other != i, lambda: emit_span(k, self._at(i, k.index(0)), self._at(i, self.n), self.lanes,
                                            partial(self._exchange, (other - i) * self.n)))  # fmt: skip
        pivot = k.load(k["lu"], self._at(i, i))
        k.if_(pivot != 0, lambda: k.for_(i + 1, self.n, 1, [], lambda r, _: self._subtract(i, r, pivot)))
        return k.select(other != i, -det, det) * pivot

    def _greatest(self, i: KValue) -> KValue:
        """The row from i on whose element in column i is the greatest; the first of these, or of the NaN."""
        k = self.k

        def size(row: KValue) -> KValue:
            return k.math("abs", k.load(k["lu"], self._at(row, i)))

        def look(row: KValue, best: list[KValue]) -> list[KValue]:
            found = size(row)
            better = (found > best[0]) | (k.is_nan(found) & ~k.is_nan(best[0]))
            return [k.select(better, found, best[0]), k.select(better, row, best[1])]

        return k.for_(i + 1, self.n, 1, [size(i), i], look)[1]

    def _exchange(self, away: KValue, at: KValue, lanes: int, mask: KValue | None) -> None:
        k = self.k
        a, b = (k.load(k["lu"], place, lanes, mask) for place in (at, at + away))
        k.store(k["lu"], at, b, mask)
        k.store(k["lu"], at + away, a, mask)

    def _subtract(self, i: KValue, row: KValue, pivot: KValue) -> None:
        """Row `row` less the multiple of row i that makes its element in column i 0; the factor stands there then."""
        k = self.k
        factor = k.load(k["lu"], self._at(row, i)) / pivot
        k.store(k["lu"], self._at(row, i), factor)
        away = (row - i) * self.n

        def part(at: KValue, lanes: int, mask: KValue | None) -> None:
            upper, own = (k.load(k["lu"], place, lanes, mask) for place in (at, at + away))
            k.store(k["lu"], at + away, k.fma(k.splat(-factor, lanes), upper, own), mask)

        emit_span(k, self._at(i, i + 1), self._at(i, self.n), self.lanes, part)


@lowers(InvertLU)
def lower_invert_lu(ctx: LowerContext, node: Node) -> KernelCall:
    """Blocks of columns stay in cache while all rows go over them."""
    (lu, pivots), y = node.operands, node.output
    dtype, size, lanes = y.tensor.dtype, y.tensor.dims[-1], lanes_for(ctx, y.tensor.dtype)
    width = AT_ONCE * lanes
    blocks = ceil_div(size, width)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [("lu", PtrType(dtype)), ("pivots", PtrType(I64)), ("y", PtrType(dtype))])
        n = k.index(size)

        def item(work: KValue, _: list[KValue]) -> None:
            matrix, block = k.udiv(work, k.index(blocks)), k.urem(work, k.index(blocks))
            first = block * width

            def columns(at: KValue, vectors: int, mask: KValue | None) -> None:
                _Substitution(k, dtype, lanes, n, matrix, at, vectors, mask).run()

            rest = n - first
            k.if_(rest >= width, lambda: columns(first, AT_ONCE, None), lambda: emit_span(
                k, first, n, lanes, lambda at, _, mask: columns(at, 1, mask)))  # fmt: skip

        k.for_(k["begin"], k["end"], 1, [], item)
        return k.func

    func = ctx.function("invert_lu", node, build)
    return KernelCall(func, (lu, pivots, y), prod(y.tensor.dims[:-2]) * blocks, node.name,
                      nbytes=y.tensor.nbytes * 2)  # fmt: skip


class _Substitution:
    """Some columns, from `at` on, of the inverse of one matrix."""

    def __init__(self, k: Builder, dtype: DType, lanes: int, n: KValue, matrix: KValue, at: KValue, vectors: int,
                 mask: KValue | None) -> None:  # fmt: skip
        self.k, self.dtype, self.lanes, self.n, self.at, self.mask = k, dtype, lanes, n, at, mask
        self.row, self.start = matrix * n, matrix * n * n
        self.shifts = [v * lanes for v in range(vectors)]

    def run(self) -> None:
        """Write them."""
        k, n = self.k, self.n
        k.for_(0, n, 1, [], lambda i, _: self._write(i, self._identity(i)))
        k.for_(0, n, 1, [], lambda i, _: self._exchange(i, k.load(k["pivots"], self.row + i)))
        k.for_(0, n, 1, [], lambda i, _: self._write(i, self._reduced(i, k.index(0), i)))

        def upper(step: KValue, _: list[KValue]) -> None:
            i = n - 1 - step
            own = k.load(k["lu"], self.start + i * n + i)
            self._write(i, [value / k.splat(own, self.lanes) for value in self._reduced(i, i + 1, n)])

        k.for_(0, n, 1, [], upper)

    def _read(self, i: KValue) -> list[KValue]:
        place = self.start + i * self.n + self.at
        return [self.k.load(self.k["y"], place + shift, self.lanes, self.mask) for shift in self.shifts]

    def _write(self, i: KValue, values: Sequence[KValue]) -> None:
        place = self.start + i * self.n + self.at
        for shift, value in zip(self.shifts, values, strict=True):
            self.k.store(self.k["y"], place + shift, value, self.mask)

    def _identity(self, i: KValue) -> list[KValue]:
        k = self.k
        columns = [k.splat(self.at + shift, self.lanes) + k.ramp(self.lanes) for shift in self.shifts]
        one, zero = (k.splat(k.const(x, self.dtype), self.lanes) for x in (1, 0))
        return [k.select(c == k.splat(i, self.lanes), one, zero) for c in columns]

    def _exchange(self, i: KValue, other: KValue) -> None:
        a, b = self._read(i), self._read(other)
        self._write(i, b)
        self._write(other, a)

    def _reduced(self, i: KValue, low: KValue, high: KValue) -> list[KValue]:
        """Row i less those from `low` to `high`, times the factors in row i of lu."""
        k = self.k

        def step(j: KValue, sums: list[KValue]) -> list[KValue]:
            factor = k.splat(-k.load(k["lu"], self.start + i * self.n + j), self.lanes)
            return [k.fma(factor, x, total) for x, total in zip(self._read(j), sums, strict=True)]

        return k.for_(low, high, 1, self._read(i), step)
