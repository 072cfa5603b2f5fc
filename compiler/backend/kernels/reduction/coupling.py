"""CoupleProbabilities: the probabilities of classes that agree best with those of pairs, a row after the other.

    R[i,j] = the pair's, R[j,i] = 1 - R[i,j];  Q[t,t] = Σ_j R[j,t]²,  Q[t,j] = -R[j,t]·R[t,j];  P = 1 / classes
    until max_t |(QP)[t] - PᵀQP| < 0.005 / classes, or 100 times (more classes: as many as there are):
        for t: P[t] += (PᵀQP - (QP)[t]) / Q[t,t];  P /= its sum;  QP and PᵀQP to match
"""

from __future__ import annotations

from ....ir.graph import Node
from ....ir.ops.ml_svm import CoupleProbabilities
from ....ir.types import F64
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...lowering import KernelCall, LowerContext, Scratch, lowers

LEAST_ROUNDS = 100
TOLERANCE = 0.005  # for all classes together


@lowers(CoupleProbabilities)
def lower_couple_probabilities(ctx: LowerContext, node: Node) -> KernelCall:
    """One work item per row."""
    assert isinstance(node.op, CoupleProbabilities)
    x, y, n = node.operands[0], node.output, node.op.classes
    scratch = [Scratch(n * n * F64.nbytes)] * 2 + [Scratch(n * F64.nbytes)] * 2

    def build(name: str) -> KFunc:
        typed = [("x", x.tensor.dtype), ("r", F64), ("q", F64), ("p", F64), ("qp", F64), ("y", F64)]
        k = ctx.kernel(name, [(each, PtrType(t)) for each, t in typed])
        row = _Row(k, n)

        def item(work: KValue, _: list[KValue]) -> None:
            pairs, columns = (k.index(s) for s in x.tensor.strides)
            row.read(work * pairs, columns)
            row.couple()
            rows, classes = (k.index(s) for s in y.tensor.strides)
            k.for_(0, n, 1, [], lambda t, _: k.store(k["y"], work * rows + t * classes, k.load(k["p"], t)))

        k.for_(k["begin"], k["end"], 1, [], item)
        return k.func

    func = ctx.function("couple_probabilities", node, build)
    return KernelCall(func, (x, *scratch, y), y.tensor.dims[0], node.name, nbytes=x.tensor.nbytes + y.tensor.nbytes)


class _Row:
    """One row's probabilities, in scratch."""

    def __init__(self, k: Builder, n: int) -> None:
        self.k, self.n = k, n

    def at(self, name: str, i: KValue, j: KValue) -> KValue:
        return self.k.load(self.k[name], i * self.n + j)

    def read(self, first: KValue, step: KValue) -> None:
        """R, Q and P from the pairs that begin at `first`."""
        k, n = self.k, self.n

        def pair(i: KValue, j: KValue, number: KValue) -> list[KValue]:
            value = k.cast(k.load(k["x"], first + number * step), F64)
            k.store(k["r"], i * n + j, value)
            k.store(k["r"], j * n + i, 1.0 - value)
            return [number + 1]

        k.for_(0, n, 1, [k.index(0)],
               lambda i, at: k.for_(i + 1, n, 1, at, lambda j, carried: pair(i, j, carried[0])))

        def line(t: KValue, _: list[KValue]) -> None:
            def off(j: KValue, carried: list[KValue]) -> list[KValue]:
                back = self.at("r", j, t)
                k.store(k["q"], t * n + j, -(back * self.at("r", t, j)))
                return [carried[0] + back * back]

            (below,) = k.for_(0, t, 1, [k.const(0.0, F64)], off)
            (whole,) = k.for_(t + 1, n, 1, [below], off)
            k.store(k["q"], t * n + t, whole)
            k.store(k["p"], t, k.const(1 / n, F64))

        k.for_(0, n, 1, [], line)

    def couple(self) -> None:
        """P, in rounds."""
        k, n = self.k, self.n

        def look(seen: list[KValue]) -> tuple[KValue, list[KValue]]:
            whole, worst = self.products()
            return (seen[0] < max(LEAST_ROUNDS, n)) & ~(worst < TOLERANCE / n), [seen[0], whole]

        def turn(seen: list[KValue]) -> list[KValue]:
            return [seen[0] + 1, *k.for_(0, n, 1, [seen[1]], lambda t, whole: [self.moved(t, whole[0])])]

        k.while_([k.index(0), k.const(0.0, F64)], look, turn)

    def products(self) -> tuple[KValue, KValue]:
        """Writes QP; returns PᵀQP and the farthest that a class is from it."""
        k, n, zero = self.k, self.n, self.k.const(0.0, F64)

        def line(t: KValue, carried: list[KValue]) -> list[KValue]:
            (qp,) = k.for_(0, n, 1, [zero], lambda j, s: [s[0] + self.at("q", t, j) * k.load(k["p"], j)])
            k.store(k["qp"], t, qp)
            return [carried[0] + k.load(k["p"], t) * qp]

        (whole,) = k.for_(0, n, 1, [zero], line)
        (worst,) = k.for_(0, n, 1, [zero], lambda t, s: [k.max(s[0], k.math("abs", k.load(k["qp"], t) - whole))])
        return whole, worst

    def moved(self, t: KValue, whole: KValue) -> KValue:
        """Moves class t to where it fits, and all that follows from it; returns PᵀQP."""
        k = self.k
        qp, q = k.load(k["qp"], t), self.at("q", t, t)
        step = (whole - qp) / q
        sum_ = 1.0 + step
        k.store(k["p"], t, k.load(k["p"], t) + step)

        def each(j: KValue, _: list[KValue]) -> None:
            k.store(k["qp"], j, (k.load(k["qp"], j) + step * self.at("q", t, j)) / sum_)
            k.store(k["p"], j, k.load(k["p"], j) / sum_)

        k.for_(0, self.n, 1, [], each)
        return (whole + step * (step * q + 2.0 * qp)) / (sum_ * sum_)
