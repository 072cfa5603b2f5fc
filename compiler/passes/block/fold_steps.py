"""What lies between whole numbers and a rounding becomes one factor for each tensor of them, and one constant.

    round((a - za)·sa/s + (b - zb)·sb/s) = round(a·fa + b·fb + c),   fa = sa/s, fb = sb/s, c = -za·fa - zb·fb

Owns the algebra of dequantisations before RoundTo: additions of quantised tensors, biases, a change of scale. Factors
are those of f64, rounded once: results differ from the model's by f32's roundings alone, which decide where a number
lies as near to one step as to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Graph, Node, Value
from ...ir.ops.elementwise import Add, Cast, Div, Mul, Relu, Sub
from ...ir.ops.quantization import RoundTo
from ...ir.types import F32, I8, U8
from ..base import BlockPass
from ..rewrite import Rewriter

MOST_TERMS = 3
LARGEST_FACTOR = 2.0**12  # of a byte, in steps: more, and the constant takes digits that a step needs
NO_CHANGE = 2.0**-14  # distance of a byte's factor from 1, and of the constant from the zero point, at which it stays


@dataclass(frozen=True)
class Sum:
    """Σ factor · tensor + constant, in f64; factors broadcast to their tensors' shape as the constant does."""

    terms: dict[Value, np.ndarray]
    constant: np.ndarray
    nodes: frozenset[Node] = frozenset()

    def plus(self, other: Sum, sign: int, node: Node) -> Sum:
        """The sum of both, or the difference."""
        terms = dict(self.terms)
        for v, factor in other.terms.items():
            terms[v] = terms.get(v, np.zeros(())) + sign * factor
        return Sum(terms, self.constant + sign * other.constant, self.nodes | other.nodes | {node})

    def times(self, factor: np.ndarray, node: Node) -> Sum:
        """Each term and the constant, times a constant."""
        terms = {v: f * factor for v, f in self.terms.items()}
        return Sum(terms, self.constant * factor, self.nodes | {node})


@dataclass(frozen=True)
class FoldSteps(BlockPass):
    """Fold scales and zero points before a rounding into one factor a tensor and one constant.

    before: %1 = Mul(Sub(Cast(%a), %za), %sa); %y = parax::RoundTo(Div(%1, %s), %z)
    after:  %y = parax::RoundTo(Add(Mul(Cast(%a), %f), %c), %z)
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if node.graph is graph and isinstance(node.op, RoundTo) and node.operands[0].tensor.dtype == F32:
                changed |= _folded(node, rw)
        return changed


def _folded(node: Node, rw: Rewriter) -> bool:
    steps, relu = _below_relu(node)
    found = _sum_of(steps[-1].operands[0] if steps else node.operands[0])
    for step in reversed(steps):
        if isinstance(step.op, Div):
            found = found.times(1 / _constant(step.operands[1]), step)
        elif isinstance(step.op, Mul):
            found = found.times(_constant(step.operands[1]), step)
    shape = node.output.tensor.dims
    whole = [v for v in found.terms if _whole(v) is not None]
    if not whole or not 0 < len(found.terms) <= MOST_TERMS or any(v.tensor.dims != shape for v in found.terms):
        return rw.no_match("not a few whole numbers of the result's shape", node)
    if not _is_exact_enough(found):
        return rw.no_match("a factor is none, or takes the constant's digits", node)
    same = None if relu else _unchanged(node, found)
    if same is not None:
        rw.replace(node, same)
        return True
    n_before = len(found.nodes) - sum(isinstance(n.op, Cast) for n in found.nodes)
    n_after = 2 * len(found.terms) - 1 + bool(np.any(found.constant))
    n_divisions = sum(isinstance(n.op, Div) for n in found.nodes)
    if n_before + n_divisions <= n_after:
        return rw.no_match("nothing to fold", node)
    g = rw.before(node)
    y = _written(g, found)
    rw.replace(node, g.RoundTo(g.Relu(y) if relu else y, *node.operands[1:], to=node.output.tensor.dtype))
    return True


def _below_relu(node: Node) -> tuple[list[Node], bool]:
    """Scalings by positive numbers between a rounding and a Relu, from the rounding on, and the Relu; or none of it."""
    chain: list[Node] = []
    v = node.operands[0]
    while (made := v.producer) is not None and len(v.uses) == 1 and not v.output_uses:
        if isinstance(made.op, Relu):
            return [*chain, made], True
        positive = isinstance(made.op, (Mul, Div)) and made.operands[1].data is not None
        if not positive or not np.all(_constant(made.operands[1]) > 0):
            break
        chain.append(made)
        v = made.operands[0]
    return [], False


def _constant(v: Value) -> np.ndarray:
    assert v.data is not None
    return np.asarray(v.data, np.float64)


def _whole(v: Value) -> Value | None:
    """The whole numbers that a value is in f32; None: it is something else."""
    node = v.producer
    if node is None or not isinstance(node.op, Cast) or v.tensor.dtype != F32:
        return None
    return node.operands[0] if node.operands[0].tensor.dtype.is_int else None


def _sum_of(v: Value) -> Sum:
    """What a value of f32 is, as far as nothing else reads what it is made of."""
    alone = Sum({v: np.ones(())}, np.zeros(()))
    if v.data is not None and v.producer is None:
        return Sum({}, _constant(v))
    node = v.producer
    if node is None or v.tensor.dtype != F32 or len(v.uses) + v.output_uses > 1 or _whole(v) is not None:
        return alone
    if not isinstance(node.op, (Add, Sub, Mul, Div)):
        return alone
    a, b = node.operands
    if isinstance(node.op, (Add, Sub)):
        return _sum_of(a).plus(_sum_of(b), -1 if isinstance(node.op, Sub) else 1, node)
    if a.data is not None and isinstance(node.op, Mul):
        a, b = b, a
    if b.data is None or b.producer is not None or a.data is not None:
        return alone
    with np.errstate(all="ignore"):
        return _sum_of(a).times(1 / _constant(b) if isinstance(node.op, Div) else _constant(b), node)


def _is_exact_enough(found: Sum) -> bool:
    """Whether the factors are numbers other than 0, and those of bytes no more than digits allow."""
    for v, factor in found.terms.items():
        whole = _whole(v)
        size = np.abs(factor)
        if not np.all(np.isfinite(factor) & (size > 2.0**-100)):
            return False
        if whole is not None and whole.tensor.dtype in (U8, I8) and np.any(size > LARGEST_FACTOR):
            return False
    return bool(np.all(np.isfinite(found.constant)) and np.all(np.abs(found.constant) < 2.0**22))


def _unchanged(node: Node, found: Sum) -> Value | None:
    """The bytes that are rounded to themselves, if those are all there is."""
    if len(found.terms) != 1 or (len(node.operands) > 1 and node.operands[1].data is None):
        return None
    (v, factor), zero = next(iter(found.terms.items())), np.zeros(())
    if len(node.operands) > 1:
        zero = _constant(node.operands[1]).reshape(-1)[:1]
    q = _whole(v)
    if q is None or q.tensor.dtype not in (U8, I8) or q.tensor.dtype != node.output.tensor.dtype:
        return None
    near = np.all(np.abs(factor - 1) < NO_CHANGE / 256) and np.all(np.abs(found.constant + zero) < NO_CHANGE)
    return q if near else None


def _written(g: GraphBuilder, found: Sum) -> Value:
    y: Value | None = None
    for v, factor in found.terms.items():
        term = v if np.all(factor == 1) else g.Mul(v, _single(factor))
        y = term if y is None else g.Add(y, term)
    assert y is not None
    return g.Add(y, _single(found.constant)) if np.any(found.constant) else y


def _single(x: np.ndarray) -> np.ndarray:
    """In f32; one number where all are one."""
    return (x.reshape(-1)[0] if x.size == 1 else x).astype(np.float32)


__all__ = ["FoldSteps"]
