"""Short convolutions along one axis with few multiplications: the matrices of Winograd's algorithms.

Owns F(m, r) by Toom and Cook (Lavin and Gray, "Fast algorithms for convolutional neural networks", CVPR 2016;
Blahut, "Fast Algorithms for Signal Processing", 2010), strides by splitting input and taps into phases, and the
emission of a small matrix times a vector of registers. It must not know of layers, tiles in memory or cores.

    y = Aᵀ (G g ⊙ Bᵀ d)      y_i = Σ_k g_k d_(i+k)      m outputs, r taps, m + r − 1 multiplications
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from .....kernel_ir.builder import Builder, KValue

Matrix = tuple[tuple[Fraction, ...], ...]
NODES = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2", "-1/2", "4", "-4", "1/4", "-1/4")))


@dataclass(frozen=True)
class Phase:
    """The algorithm of taps first, first + stride, … on inputs first, first + stride, ….

    Attributes:
        bt: points × inputs. g: points × taps. at: outputs × points.
    """

    first: int
    bt: Matrix
    g: Matrix
    at: Matrix

    @property
    def points(self) -> int:
        return len(self.bt)

    @property
    def g_factors(self) -> tuple[Fraction, ...]:
        """What all coefficients of a row of G share: the first that is not 0."""
        return tuple(next(c for c in row if c) for row in self.g)

    @property
    def bare_g(self) -> Matrix:
        """G without `g_factors`."""
        return tuple(tuple(c / f for c in row) for row, f in zip(self.g, self.g_factors, strict=True))

    @property
    def weight_roundings(self) -> int:
        """At most so many on the way of a computed weight to a point of its transform, its factor left out."""
        return max(sum(map(bool, row)) for row in self.g) + 2

    @property
    def amplification(self) -> float:
        """max over outputs i of Σ_ξ |A_iξ| · max_k |G_ξk| · Σ_j |B_jξ|: see `winograd`."""
        at, g, bt = (np.abs(as_array(matrix)) for matrix in (self.at, self.g, self.bt))
        return float((at * (g.max(axis=1) * bt.sum(axis=1))).sum(axis=1).max())

    @property
    def roundings(self) -> int:
        """At most so many on the way of an input to an output, the product left out: see `emit_product`."""
        return sum(max(sum(map(bool, row)) for row in matrix) + 2 for matrix in (self.bt, self.at))


@dataclass(frozen=True)
class Axis:
    """One axis of a tile.

    Attributes:
        outputs: of a tile. taps, stride: of the convolution. phases: one for each remainder of a tap by the stride.
    """

    outputs: int
    taps: int
    stride: int
    phases: tuple[Phase, ...]

    @property
    def inputs(self) -> int:
        """Inputs that a tile reads."""
        return (self.outputs - 1) * self.stride + self.taps

    @property
    def points(self) -> int:
        """Multiplications of a tile, where the direct sum takes outputs × taps."""
        return sum(phase.points for phase in self.phases)

    @property
    def amplification(self) -> float:
        """The constant of this axis in the error bound of `winograd`, 1 for the direct sum.

        >>> round(axis_algorithm(2, 3).amplification, 1), round(axis_algorithm(4, 3).amplification, 1)
        (4.0, 29.3)
        """
        return max(phase.amplification for phase in self.phases)

    @property
    def roundings(self) -> int:
        """At most so many on the way of an input to an output, the product left out: in the transforms and in the sum
        of the phases.
        """
        return max(phase.roundings for phase in self.phases) + len(self.phases) - 1


    @property
    def weight_roundings(self) -> int:
        """As of a phase."""
        return max(phase.weight_roundings for phase in self.phases)


@cache
def axis_algorithm(outputs: int, taps: int, stride: int = 1) -> Axis:
    """F(outputs, taps): with a stride, the sum of one algorithm for each phase of the taps.

    >>> axis_algorithm(4, 3).points, axis_algorithm(2, 3).points, axis_algorithm(4, 3, 2).points
    (6, 4, 9)
    """
    firsts = range(min(stride, taps))
    phases = tuple(Phase(first, *toom_cook(outputs, len(range(first, taps, stride)))) for first in firsts)
    return Axis(outputs, taps, stride, phases)


@cache
def toom_cook(outputs: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
    """Bᵀ, G and Aᵀ of F(outputs, taps) on the points 0, ±1, ±2, ±1/2, … and infinity.

    A bilinear algorithm for the correlation is the transposed one of a polynomial product: with nodes p_i and
    N_i = Π_(k≠i) (p_i − p_k), row i of G is (1, p_i, …) / N_i, column i of Aᵀ is (1, p_i, …), and row i of Bᵀ holds the
    coefficients of Π_(k≠i) (x − p_k); infinity takes the leading coefficients alone.
    """
    one, zero = Fraction(1), Fraction(0)
    if taps == 1 or outputs == 1:  # nothing to save
        size = max(taps, outputs)
        identity = tuple(tuple(one if i == j else zero for j in range(size)) for i in range(size))
        return (identity, ((one,),) * outputs, identity) if taps == 1 else (identity, identity, ((one,) * taps,))
    finite = NODES[: outputs + taps - 2]
    size = len(finite) + 1
    bt = [_product([p for p in finite if p != q], size) for q in finite] + [_product(finite, size)]
    norms = [_evaluate(row, q) for row, q in zip(bt, finite, strict=False)]
    g = [tuple(q**j / n for j in range(taps)) for q, n in zip(finite, norms, strict=True)]
    at = [(*(q**i for q in finite), one if i == outputs - 1 else zero) for i in range(outputs)]
    signs = [1 if n > 0 else -1 for n in norms]  # Bᵀ with the sign of N, so that G stays as the literature has it
    bt = [tuple(c * s for c in row) for row, s in zip(bt, [*signs, 1], strict=True)]
    g = [tuple(c * s for c in row) for row, s in zip(g, signs, strict=True)]
    return tuple(bt), (*g, (*(zero,) * (taps - 1), one)), tuple(at)


def _product(roots: tuple[Fraction, ...] | list[Fraction], size: int) -> tuple[Fraction, ...]:
    """Coefficients of Π (x − root), lowest first, padded to `size`."""
    poly = [Fraction(1)]
    for root in roots:
        poly = [a - root * b for a, b in zip([Fraction(0), *poly], [*poly, Fraction(0)], strict=True)]
    return (*poly, *(Fraction(0),) * (size - len(poly)))


def _evaluate(poly: tuple[Fraction, ...], x: Fraction) -> Fraction:
    return sum((c * x**i for i, c in enumerate(poly)), start=Fraction(0))


def as_array(matrix: Matrix) -> np.ndarray:
    """The matrix in f64."""
    return np.array([[float(c) for c in row] for row in matrix])


def emit_product(k: Builder, matrix: Matrix, values: list[KValue]) -> list[KValue]:
    """matrix · values with shared sums: two columns, or two rows, equal up to signs cost little more than one.

    Each value reaches a result on one way only, with at most two roundings more than the row has coefficients: one for
    each coefficient, one where columns are paired and one where rows are. The coefficients of Bᵀ and Aᵀ, products of
    powers of two and sums of these, are f32 numbers.
    """
    rows, values = _pair_columns(k, [list(row) for row in matrix], list(values))
    results: dict[int, KValue] = {}
    for a in range(len(rows)):
        b = next((b for b in range(a + 1, len(rows)) if _mirrored(rows[a], rows[b])), None)
        if a in results:
            continue
        if b is None:
            results[a] = _dot(k, rows[a], values)
            continue
        same = [x if x == y else Fraction(0) for x, y in zip(rows[a], rows[b], strict=True)]
        other = [x if x != y else Fraction(0) for x, y in zip(rows[a], rows[b], strict=True)]
        even, odd = _dot(k, same, values), _dot(k, other, values)
        results[a], results[b] = even + odd, even - odd
    return [results[i] for i in range(len(rows))]


def _pair_columns(
    k: Builder, rows: list[list[Fraction]], values: list[KValue]
) -> tuple[list[list[Fraction]], list[KValue]]:
    """Replace values a and b whose columns agree up to signs by a + b and a − b."""
    n = len(values)
    taken: set[int] = set()
    for a in range(n):
        for b in range(a + 1, n):
            left, right = [row[a] for row in rows], [row[b] for row in rows]
            if taken & {a, b} or not _mirrored(left, right) or min(sum(map(bool, left)), len(rows)) < 3:
                continue
            taken |= {a, b}
            values[a], values[b] = values[a] + values[b], values[a] - values[b]
            for row, x, y in zip(rows, left, right, strict=True):
                row[a], row[b] = (x, Fraction(0)) if x == y else (Fraction(0), x)
    return rows, values


def _mirrored(left: list[Fraction], right: list[Fraction]) -> bool:
    """Whether two lines of coefficients are equal up to signs, with both equal and opposite ones among them."""
    pairs = [(x, y) for x, y in zip(left, right, strict=True) if x or y]
    return all(abs(x) == abs(y) for x, y in pairs) and 0 < sum(x == y for x, y in pairs) < len(pairs)


def _dot(k: Builder, row: list[Fraction], values: list[KValue]) -> KValue:
    """Σ row · values: coefficients of one first, the others by multiply-adds."""
    terms = sorted(((c, v) for c, v in zip(row, values, strict=True) if c), key=lambda term: abs(term[0]) != 1)
    if all(abs(c) == abs(terms[0][0]) for c, _ in terms) and abs(terms[0][0]) != 1:
        scale = terms[0][0]
        return _dot(k, [c / scale for c in row], values) * float(scale)
    (c, total), *rest = terms
    if c != 1:
        total = -total if c == -1 else total * float(c)
    for c, v in rest:
        total = total + v if c == 1 else total - v if c == -1 else k.fma(v, float(c), total)
    return total
