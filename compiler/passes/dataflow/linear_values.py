"""Where the elements of integer values come from: each a sum of inputs and an interval whose ends are sizes.

Knows the operators that integers go through on their way to where they are used; not what they are used for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import product

from ...ir.graph import Graph
from ...ir.ops.arithmetic import Max, Min, Mod, Neg
from ...ir.ops.base import Operator
from ...ir.ops.elementwise import Add, Cast, Clip, Div, Identity, Mul, Sub, Where
from ...ir.ops.filling import ConstantOfShape, Expand, Range, Tile, Trilu
from ...ir.ops.gathering import Gather, GatherElements, GatherND
from ...ir.ops.reduce import ArgMax, ArgMin, CumSum, ReduceMax, ReduceMin, ReduceSum
from ...ir.ops.selection import Compress, NonZero
from ...ir.ops.shape import Concat, Flatten, Reshape, Squeeze, Transpose, Unsqueeze
from ...ir.ops.slicing import Slice, Split
from ...ir.ops.topk import TopK
from ...ir.types import BOOL, Dim, SymDim, TensorType, floor_div, lower_bound, prod
from ...ir.values import Node, Value

MOST_WAYS = 16
"""A value that may come from more places than this is not followed."""


@dataclass(frozen=True)
class Linear:
    """Elements between Σ factor·input + low and Σ factor·input + high; `sure`: some may well be any of these."""

    low: Dim
    high: Dim
    factors: tuple[tuple[str, Dim], ...] = ()
    sure: bool = True

    def plus(self, other: Linear) -> Linear:
        """The sum of two."""
        found = dict(self.factors)
        for name, factor in other.factors:
            found[name] = found.get(name, 0) + factor
        factors = tuple((name, factor) for name, factor in found.items() if factor != 0)
        return Linear(self.low + other.low, self.high + other.high, factors, self.sure and other.sure)

    def times(self, factor: Dim, negative: bool = False) -> Linear:
        """The product with a number of known sign."""
        a, b = self.low * factor, self.high * factor
        factors = tuple((name, each * factor) for name, each in self.factors)
        return Linear(b if negative else a, a if negative else b, factors, self.sure)


Ways = tuple[Linear, ...]
"""Every element of a value is one of these."""
FLAG = Linear(0, 1)


class Origins:
    """The ways of the values that were followed, from a graph's integer inputs on."""

    def __init__(self, graph: Graph) -> None:
        self._ways: dict[Value, Ways] = {}
        for value in graph.inputs:
            if is_integer(value):
                self._ways[value] = (Linear(0, 0, ((value.name, 1),)),)

    def of(self, value: Value | None) -> Ways | None:
        """The ways of a value's elements; None: not known, or it is no integer."""
        if value is None or not isinstance(value.type, TensorType):
            return None
        if value not in self._ways:
            if value.type.dtype == BOOL:
                return (FLAG,)
            ways = _content(value) if is_integer(value) else None
            if ways is None:
                return None
            self._ways[value] = ways
        return self._ways[value]

    def put(self, value: Value, ways: Ways | None) -> None:
        """Say of a value where it comes from."""
        if ways is not None and len(ways) <= MOST_WAYS and is_integer(value):
            self._ways[value] = ways

    def follow(self, node: Node) -> None:
        """From a node's operands to its results."""
        rule = _RULES.get(type(node.op))
        results = [v for v in node.outputs if is_integer(v) and _content(v) is None]
        if rule is not None and results:
            ways = rule(self, node)
            for value in results:
                self.put(value, ways)


def is_integer(value: Value) -> bool:
    """Whether it is a tensor of integers."""
    return isinstance(value.type, TensorType) and value.type.dtype.is_int


def shape_of(value: Value | None) -> tuple[Dim, ...] | None:
    """The shape of a tensor; None where it is none, or not known."""
    return value.type.shape if value is not None and isinstance(value.type, TensorType) else None


def _content(value: Value) -> Ways | None:
    """The ways of a content that is known: the numbers in it as one interval, each size by itself."""
    if value.known is not None:
        dims = set(value.known.flat)
        sizes = [Linear(d, d) for d in dims if isinstance(d, SymDim)]
        numbers = [int(d) for d in dims if not isinstance(d, SymDim)]
        return tuple(sizes + ([Linear(min(numbers), max(numbers))] if numbers else [])) or None
    if value.data is not None and value.data.size:
        return (Linear(int(value.data.min()), int(value.data.max())),)
    return None


def union(ways: Iterable[Linear]) -> Ways:
    """Any of these."""
    return tuple(dict.fromkeys(ways))


def unsure(ways: Ways | None) -> Ways | None:
    """Of a part of a value: it need not hold each of the ways."""
    return ways if ways is None or len(ways) == 1 else tuple(replace(way, sure=False) for way in ways)


# Where the elements of results come from. A rule may give None: not known.
Rule = Callable[[Origins, Node], Ways | None]


def _same(origins: Origins, node: Node) -> Ways | None:
    return origins.of(node.inputs[0])


def _part(origins: Origins, node: Node) -> Ways | None:
    return unsure(origins.of(node.inputs[0]))


def _any(origins: Origins, node: Node) -> Ways | None:
    found = [origins.of(v) for v in node.inputs]
    return None if any(ways is None for ways in found) else union(way for ways in found for way in ways or ())


def _either(origins: Origins, node: Node) -> Ways | None:
    """One of the operands, element by element: which, is often asked just to keep an index inside."""
    found = [origins.of(v) for v in node.inputs[1 if isinstance(node.op, Where) else 0 :]]
    return None if any(ways is None for ways in found) else unsure(union(way for ways in found for way in ways or ()))


def _pairs(origins: Origins, node: Node) -> list[tuple[Linear, Linear]]:
    a, b = (origins.of(v) for v in node.inputs[:2])
    pairs = list(product(a or (), b or ()))
    return pairs if len(pairs) <= MOST_WAYS else []


def _sum(origins: Origins, node: Node) -> Ways | None:
    return union(a.plus(b) for a, b in _pairs(origins, node)) or None


def _difference(origins: Origins, node: Node) -> Ways | None:
    return union(a.plus(b.times(-1, True)) for a, b in _pairs(origins, node)) or None


def _negation(origins: Origins, node: Node) -> Ways | None:
    return union(way.times(-1, True) for way in origins.of(node.inputs[0]) or ()) or None


def _product(origins: Origins, node: Node) -> Ways | None:
    found = [_multiplied(a, b) for a, b in _pairs(origins, node)]
    return None if not found or None in found else union(way for way in found if way is not None)


def _multiplied(a: Linear, b: Linear) -> Linear | None:
    for x, y in ((a, b), (b, a)):
        if y.low == y.high and not y.factors:
            if lower_bound(y.low, 0) >= 0:
                return x.times(y.low)
            return x.times(y.low, True) if isinstance(y.low, int) else None
    if not a.factors and not b.factors and min(lower_bound(a.low, 0), lower_bound(b.low, 0)) >= 0:
        return Linear(a.low * b.low, a.high * b.high, (), a.sure and b.sure)
    return None


def _quotient(origins: Origins, node: Node) -> Ways | None:
    found = []
    for a, b in _pairs(origins, node):
        if a.factors or b.factors or b.low != b.high or lower_bound(b.low) < 1 or lower_bound(a.low, 0) < 0:
            return None
        found.append(Linear(floor_div(a.low, b.low), floor_div(a.high, b.low), (), a.sure))
    return union(found) or None


def _remainder(origins: Origins, node: Node) -> Ways | None:
    by = origins.of(node.inputs[1])
    if by is None or any(way.factors or lower_bound(way.low) < 1 for way in by):
        return None
    return union(Linear(0, way.high - 1, (), way.sure) for way in by)


def _clipped(origins: Origins, node: Node) -> Ways | None:
    """Between its ends where it has both; else the value itself or its end."""
    ways = [origins.of(v) for v in (*node.inputs, None, None)[1:3]]
    ends = [found[0] if found and len(found) == 1 else None for found in ways]
    low, high = ends
    if low is not None and high is not None and not low.factors and not high.factors:
        return (Linear(low.low, high.high),)
    value = origins.of(node.inputs[0])
    return None if value is None else unsure(union([*value, *(end for end in ends if end is not None)]))


def _counted(origins: Origins, node: Node) -> Ways | None:
    """Range: from its start to below its limit, in either direction."""
    start, limit, delta = (origins.of(v) for v in node.inputs)
    if not start or not limit or not delta or any(len(ways) > 1 or ways[0].factors for ways in (start, limit, delta)):
        return None
    begin, end, step = start[0], limit[0], delta[0]
    if isinstance(step.low, int) and step.low > 0:
        return (Linear(begin.low, end.high - 1),)
    if isinstance(step.high, int) and step.high < 0:
        return (Linear(end.low + 1, begin.high),)
    return None


def _running_sum(origins: Origins, node: Node) -> Ways | None:
    shape, axis, ways = shape_of(node.inputs[0]), node.inputs[1], origins.of(node.inputs[0])
    if not shape or ways is None or axis is None or axis.known is None or axis.known.size != 1:
        return None
    at = axis.known.flat[0]
    if isinstance(at, SymDim) or not -len(shape) <= at < len(shape):
        return None
    return _added_up(ways, shape[at], 0 if node.op.exclusive else 1)  # type: ignore[attr-defined]


def _total(origins: Origins, node: Node) -> Ways | None:
    before, after, ways = shape_of(node.inputs[0]), shape_of(node.outputs[0]), origins.of(node.inputs[0])
    if before is None or after is None or ways is None or prod(after) == 0:
        return None
    count = floor_div(prod(before), prod(after))
    return _added_up(ways, count, count)


def _added_up(ways: Ways, most: Dim, fewest: Dim) -> Ways | None:
    """Sums of `fewest` to `most` elements that are not negative."""
    if any(lower_bound(way.low, 0) < 0 for way in ways) or len(ways) > 1:
        return None
    way = ways[0].times(most)
    return (Linear(ways[0].low * fewest, way.high, way.factors),)


def _place(origins: Origins, node: Node) -> Ways | None:
    """Results that number the places of an axis."""
    shape = shape_of(node.inputs[0])
    if not shape or (isinstance(node.op, NonZero) and len(shape) > 1):
        return None
    return (Linear(0, shape[getattr(node.op, "axis", 0)] - 1),)


def _filled(origins: Origins, node: Node) -> Ways | None:
    value = node.op.value  # type: ignore[attr-defined]
    number = 0 if value is None else int(value.flat[0])
    return (Linear(number, number),)


def _with_zeros(origins: Origins, node: Node) -> Ways | None:
    ways = origins.of(node.inputs[0])
    return None if ways is None else union([*ways, Linear(0, 0)])


def _rules(rule: Rule, *kinds: type[Operator]) -> dict[type[Operator], Rule]:
    return dict.fromkeys(kinds, rule)


_RULES: dict[type[Operator], Rule] = {
    **_rules(_same, Cast, Expand, Flatten, Identity, Reshape, Squeeze, Tile, Transpose, Unsqueeze),
    **_rules(_part, Compress, Gather, GatherElements, GatherND, ReduceMax, ReduceMin, Slice, Split),
    **_rules(_either, Max, Min, Where),
    **_rules(_place, ArgMax, ArgMin, NonZero, TopK),
    Add: _sum, Clip: _clipped, Concat: _any, ConstantOfShape: _filled, CumSum: _running_sum, Div: _quotient,
    Mod: _remainder, Mul: _product, Neg: _negation, Range: _counted, ReduceSum: _total, Sub: _difference,
    Trilu: _with_zeros,
}  # fmt: skip
