"""Sums of one or two dequantised bytes that are quantised again take one factor a byte, where no result changes.

    round(((a - za)·sa + (b - zb)·sb) / s) = round((a - za)·fa + (b - zb)·fb),   fa ≈ sa/s, fb ≈ sb/s

Both sides are functions of two bytes: of 65,536 results, which are all compared. About two of them lie so near to the
middle between two steps that f32's roundings decide, so that factors nearby are tried until none differs. Owns that
search. `fold_steps` folds more, and may be a step off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.elementwise import Add, Cast, Div, Mul, Relu, Sub
from ...ir.ops.quantization import RoundTo
from ...ir.types import F32, I8, U8
from ..base import BlockPass
from ..rewrite import Rewriter
from .quantised_steps import is_usual

BYTES = (U8, I8)
NEIGHBOURS = 8  # factors that are tried on each side of the nearest one
NEAR = 2.0**-6  # to the middle between two steps: further from it, factors so near to each other give the same
Numbers = np.ndarray


@dataclass(frozen=True)
class Term:
    """Whole numbers of f32 that are a byte less its zero point, by the byte: `numbers`; times a factor."""

    whole: Value
    numbers: Numbers
    factor: np.float32


@dataclass
class Scaled:
    """What is rounded: the sum of terms, then `steps` of it, the last one first; `scale`: what they multiply by."""

    terms: list[Term] = field(default_factory=list)
    steps: list[Callable[[Numbers], Numbers]] = field(default_factory=list)
    scale: float = 1.0
    is_rectified: bool = False

    def given(self) -> Numbers:
        """What it is for every byte of every term, as the model's own operators round it."""
        y = summed(self.terms, [term.factor for term in self.terms])
        for step in reversed(self.steps):
            y = step(y)
        return y


@dataclass(frozen=True)
class FoldByteSums(BlockPass):
    """Fold scales between dequantised bytes and a rounding into a factor each, where every result stays the same.

    before: %1 = Mul(Sub(Cast(%a), %za), %sa); %2 = Mul(Cast(%b), %sb); %y = parax::RoundTo(Div(Add(%1, %2), %s), %z)
    after:  %y = parax::RoundTo(Add(Mul(Sub(Cast(%a), %za), %fa), Mul(Cast(%b), %fb)), %z)
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if node.graph is graph and isinstance(node.op, RoundTo) and node.output.tensor.dtype in BYTES:
                changed |= _folded(node, rw)
        return changed


def _folded(node: Node, rw: Rewriter) -> bool:
    found = _scaled(node.operands[0])
    zero = _number(node.operands[1]) if len(node.operands) > 1 else np.float32(0)
    if found is None or not found.steps or zero is None:
        return rw.no_match("no sum of one or two scaled bytes that is scaled again", node)
    if any(term.whole.tensor.dims != node.output.tensor.dims for term in found.terms):
        return rw.no_match("a byte is repeated along an axis", node)
    factors = [float(term.factor) * found.scale for term in found.terms]
    if not all(is_usual(abs(x)) for x in (*factors, *(float(term.factor) for term in found.terms))):
        return rw.no_match("a scale is too large or too small", node)
    whole = np.iinfo(node.output.tensor.dtype.numpy)
    low, high = whole.min - zero, whole.max - zero
    same = next((same for relu in (False, True)[: 1 + found.is_rectified]
                 if (same := _same_steps(found, factors, low, high, relu)) is not None), None)  # fmt: skip
    if same is None:
        return rw.no_match("every factor nearby gives another result of some bytes", node)
    chosen, relu = same
    g = rw.before(node)
    scaled = [g.Mul(term.whole, factor) for term, factor in zip(found.terms, chosen, strict=True)]
    y = g.Add(*scaled) if len(scaled) > 1 else scaled[0]
    rw.replace(node, g.RoundTo(g.Relu(y) if relu else y, *node.operands[1:], to=node.output.tensor.dtype))
    return True


def _scaled(v: Value) -> Scaled | None:
    """What a value of f32 is, where it is that, and nothing else reads what it is made of."""
    found = Scaled()
    while (term := _term(v)) is None:
        node = _only_read(v)
        if node is None:
            return None
        if isinstance(node.op, Add):
            terms = [_term(operand) for operand in node.operands]
            found.terms = [term for term in terms if term is not None]
            return found if len(found.terms) == len(terms) else None
        if isinstance(node.op, Relu):
            found.is_rectified = True
            found.steps.append(lambda y: np.maximum(y, np.float32(0)))
        elif not _is_scaling(node, found):
            return None
        v = node.operands[0]
    found.terms = [term]
    return found


def _is_scaling(node: Node, found: Scaled) -> bool:
    """Whether it is one by a positive number, which a Relu passes; it is noted then."""
    factor = _number(node.operands[1]) if isinstance(node.op, (Mul, Div)) else None
    if factor is None or not is_usual(float(factor)):
        return False
    if isinstance(node.op, Div):
        found.steps.append(lambda y: y / factor)
        found.scale /= float(factor)
    else:
        found.steps.append(lambda y: y * factor)
        found.scale *= float(factor)
    return True


def _term(v: Value) -> Term | None:
    """A byte less its zero point, times a factor or not."""
    numbers = _whole(v)
    if numbers is not None:
        return Term(v, numbers, np.float32(1))
    node = _only_read(v)
    if node is None or not isinstance(node.op, Mul):
        return None
    whole, factor = node.operands
    numbers, scale = _whole(whole), _number(factor)
    return None if numbers is None or scale is None else Term(whole, numbers, scale)


def _whole(v: Value) -> Numbers | None:
    """The whole number that a value of f32 is for every byte, if it is a byte less a whole number."""
    node, zero = v.producer, np.float32(0)
    if node is not None and isinstance(node.op, Sub):
        number = _number(node.operands[1])
        if number is None or number != np.rint(number) or abs(number) > 2**16:
            return None
        node, zero = node.operands[0].producer, number
    if node is None or not isinstance(node.op, Cast) or v.tensor.dtype != F32:
        return None
    of = node.operands[0].tensor.dtype
    if of not in BYTES:
        return None
    least = np.iinfo(of.numpy).min
    return np.arange(least, least + 256).astype(np.float32) - zero


def _only_read(v: Value) -> Node | None:
    """What makes a value of f32 that one operand alone reads."""
    return v.producer if len(v.uses) == 1 and not v.output_uses and v.tensor.dtype == F32 else None


def _number(v: Value) -> np.float32 | None:
    """A constant of one element."""
    if v.data is None or v.producer is not None or v.data.size != 1:
        return None
    return np.float32(v.data.reshape(-1)[0])


def _same_steps(
    found: Scaled, factors: list[float], low: float, high: float, relu: bool
) -> tuple[list[np.float32], bool] | None:
    """Factors near to the exact ones by which every pair of bytes is rounded to the same, clamped to [low, high]."""

    def rounded(y: Numbers) -> Numbers:
        return np.clip(np.rint(np.maximum(y, np.float32(0)) if relu else y), low, high)

    given = found.given()
    wanted = np.clip(np.rint(given), low, high)
    near = np.nonzero(np.abs(given - np.floor(given) - np.float32(0.5)) < NEAR)
    for chosen in _neighbours(factors):
        terms = [term.numbers[i] * factor for term, i, factor in zip(found.terms, near, chosen, strict=True)]
        if not (rounded(sum(terms[1:], terms[0])) == wanted[near]).all():
            continue
        if (rounded(summed(found.terms, chosen)) == wanted).all():
            return chosen, relu
    return None


def summed(terms: list[Term], factors: list[np.float32]) -> Numbers:
    """The sum of the terms by other factors for every byte of the first, by every byte of the second."""
    scaled = [term.numbers * factor for term, factor in zip(terms, factors, strict=True)]
    return scaled[0] if len(scaled) == 1 else scaled[0][:, None] + scaled[1]


def _neighbours(factors: list[float]) -> Iterator[list[np.float32]]:
    """Numbers of f32 around each of the factors, in every combination, the nearest ones first."""
    lists = [np.float32(f) + np.arange(-NEIGHBOURS, NEIGHBOURS + 1) * np.spacing(np.float32(f)) for f in factors]
    places = np.stack(np.meshgrid(*[np.arange(2 * NEIGHBOURS + 1)] * len(factors), indexing="ij"), -1)
    flat = places.reshape(-1, len(factors))
    for place in flat[np.argsort(np.abs(flat - NEIGHBOURS).sum(axis=1), kind="stable")]:
        yield [np.float32(own[i]) for own, i in zip(lists, place, strict=True)]


__all__ = ["FoldByteSums"]
