"""Which integer inputs are indices and of what, and which sizes keep computed indices inside what they index.

An analysis of the imported graph; it changes nothing. Where a value that `linear_values` follows indexes an axis, its
inputs get a range and its sizes a condition; what is not understood gets neither. Samples are made by this, so a range
may be narrower than what the model takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ....errors import ResourceLimit
from ...ir.graph import Graph
from ...ir.ops.control import If
from ...ir.ops.elementwise import Cast, Identity
from ...ir.ops.gathering import GatherND, ScatterND
from ...ir.ops.shape import Concat
from ...ir.types import Dim, SymDim, exact_max, exact_min, floor_div, guessing, lower_bound
from ...ir.values import Node, Value
from .linear_values import Linear, Origins, Ways, shape_of, union, unsure


@dataclass(frozen=True)
class Indexing:
    """What an analysed graph wants of its inputs.

    Attributes:
        ranges: name of an integer input → least and greatest index, expressions of sizes.
        conditions: (a, b), of which a must be at most b → which node says so.
    """

    ranges: dict[str, tuple[Dim, Dim]] = field(default_factory=dict)
    conditions: dict[tuple[Dim, Dim], str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Use:
    """An index that must lie between low and high."""

    way: Linear
    low: Dim
    high: Dim
    where: str


def index_ranges(graph: Graph) -> Indexing:
    """The ranges of a graph's integer inputs, and the conditions on its sizes."""
    with guessing():  # a guess decides nothing about the graph
        origins, uses = Origins(graph), list[_Use]()
        _walk(graph, origins, uses)
        ranges = _ranges(uses)
        return Indexing(ranges, _conditions(uses, ranges))


def _walk(graph: Graph, origins: Origins, uses: list[_Use]) -> None:
    """Follow a graph's values in order, those of the bodies of an If included."""
    for node in graph:
        try:
            for low, high, ways in _indices(node, origins):
                where = f"{node.where}: its indices must stay inside what they index"
                uses += [_Use(way, low, high, where) for way in ways]
            if isinstance(node.op, If):
                _branches(node, origins, uses)
            origins.follow(node)
        except (ResourceLimit, ZeroDivisionError):
            continue  # sizes beyond what can be written down: not followed


def _branches(node: Node, origins: Origins, uses: list[_Use]) -> None:
    for body in node.bodies.values():
        for outer, inner in zip(node.inputs[1:], body.inputs, strict=True):
            origins.put(inner, origins.of(outer))
        _walk(body, origins, uses)
    for output, *inner_values in zip(node.outputs, *(body.outputs for body in node.bodies.values()), strict=True):
        found = [origins.of(value) for value in inner_values]
        if all(ways is not None for ways in found):
            origins.put(output, union(way for ways in found for way in ways or ()))


def _indices(node: Node, origins: Origins) -> Iterator[tuple[Dim, Dim, Ways]]:
    """(least allowed, greatest allowed, ways) of every operand of a node that is an index."""
    found = node.op.index_range(node.context()) if node.inputs and shape_of(node.inputs[0]) is not None else None
    if found is not None and len(node.inputs) > found.operand:
        ways = origins.of(node.inputs[found.operand])
        if ways is not None:
            yield found.low, found.high, ways
    if isinstance(node.op, (GatherND, ScatterND)):
        yield from _coordinates(node, origins)


def _coordinates(node: Node, origins: Origins) -> Iterator[tuple[Dim, Dim, Ways]]:
    """As `_indices`, of indices whose last axis goes over the axes of the data."""
    sizes, shape = shape_of(node.inputs[0]), shape_of(node.inputs[1])
    if sizes is None or not shape or not isinstance(shape[-1], int):
        return
    sizes = sizes[getattr(node.op, "batch_dims", 0) :]
    for i, size in enumerate(sizes[: shape[-1]]):
        ways = _column(node.inputs[1], i, origins) if shape[-1] > 1 else origins.of(node.inputs[1])
        if ways is not None:
            yield -size, size - 1, ways


def _column(value: Value | None, i: int, origins: Origins) -> Ways | None:
    """The ways of column i of the last axis: of what was put there, where that is seen."""
    node = value.producer if value is not None else None
    while node is not None and isinstance(node.op, (Identity, Cast)):
        node = node.inputs[0].producer if node.inputs[0] is not None else None
    if node is not None and isinstance(node.op, Concat):
        rank = len(shape_of(node.outputs[0]) or ())
        for part in node.inputs if node.op.axis in (-1, rank - 1) else ():
            width = (shape_of(part) or (None,))[-1]
            if not isinstance(width, int):
                break
            if i < width:
                return origins.of(part) if width == 1 else unsure(origins.of(part))
            i -= width
    return unsure(origins.of(value))


def _ranges(uses: list[_Use]) -> dict[str, tuple[Dim, Dim]]:
    """The range of every input that is an index, in all of its uses; not negative, unless nothing else is allowed."""
    ranges: dict[str, tuple[Dim, Dim]] = {}
    for use in uses:
        for name, (low, high) in _limits(use):
            if name in ranges:
                low, high = exact_max(ranges[name][0], low), exact_min(ranges[name][1], high)
            ranges[name] = low, high
    for name, (low, high) in list(ranges.items()):
        if not (isinstance(high, int) and high < 0):
            low = exact_max(low, 0)
        ranges[name] = low, high
        if isinstance(low, int) and isinstance(high, int) and low > high:
            del ranges[name]  # uses that contradict each other
    return ranges


def _limits(use: _Use) -> Iterator[tuple[str, tuple[Dim, Dim]]]:
    """The ranges of a use's inputs by themselves."""
    way, factors = use.way, dict(use.way.factors)
    numbers = [factor for factor in factors.values() if isinstance(factor, int)]
    if not factors or len(numbers) < len(factors):
        return
    if min(numbers) > 0:  # as if all were one input
        total = sum(numbers)
        ends = -floor_div(way.low - use.low, total), floor_div(use.high - way.high, total)
        yield from ((name, ends) for name in factors)
    elif numbers == [-1]:
        yield next(iter(factors)), (way.high - use.high, way.low - use.low)


def _conditions(uses: list[_Use], ranges: dict[str, tuple[Dim, Dim]]) -> dict[tuple[Dim, Dim], str]:
    found: dict[tuple[Dim, Dim], str] = {}
    for use in uses:
        for room in _rooms(use, ranges):
            if isinstance(room, SymDim) and lower_bound(room) < 0:
                found.setdefault(_sides(room), use.where)
    return found


def _rooms(use: _Use, ranges: dict[str, tuple[Dim, Dim]]) -> Iterator[Dim]:
    """What must not be negative, if an index is to stay inside, whatever its inputs are.

    Those with a range keep to it, so it must not be empty; those without are 0 or 1.
    """
    way = use.way
    if not way.sure:
        return
    ranged = [ranges[name] for name, _ in way.factors if name in ranges]
    if ranged:
        yield from (high - low for low, high in ranged)
        return
    low, high = way.low, way.high
    for _, factor in way.factors:
        if lower_bound(factor, 0) >= 0:
            high = high + factor
        else:
            low = low + factor
    yield use.high - high
    yield low - use.low


def _sides(room: SymDim) -> tuple[Dim, Dim]:
    """(a, b) without negative terms, of which a is at most b exactly where `room` is not negative."""
    a: Dim = 0
    b: Dim = 0
    for monomial, factor in room.terms:
        part = SymDim(((monomial, abs(factor)),)) if monomial else abs(factor)
        a, b = (a, b + part) if factor > 0 else (a + part, b)
    return a, b
