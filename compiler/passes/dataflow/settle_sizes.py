"""Lengths of slices that only a run finds, where the model fits together only if they are one number.

Loops over rows are written as `x[i : i + 1]`, and a Slice that begins where only a run knows may give less than it is
asked for. Its length is a symbol then, which keeps a body from being native code. Owns what shows that a length is a
number, and the lookup that takes the slice's place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Graph, Node, Value, nested_graphs
from ...ir.ops.at_runtime import AtRuntime
from ...ir.ops.base import Control
from ...ir.ops.elementwise import Add
from ...ir.ops.shape import Reshape, Squeeze, Unsqueeze
from ...ir.settled import settle_symbols
from ...ir.types import Dim, SymDim, lower_bound, prod, symbol
from ..base import DataflowPass
from ..rewrite import Rewriter
from .native_control import number_of

Counts = dict[Value, Dim | None]
"""The iteration number in a loop's body → how many iterations there are at most, None where only a run knows."""
LONGEST = 64
"""Of a slice that becomes a lookup of single indices."""


@dataclass(frozen=True)
class SettleSizes(DataflowPass):
    """Let Slices of fixed length from where only a run knows be lookups of that many places, which must be there.

    That is only done where anything else is an error of the model, or cannot be: a Squeeze or a Reshape asks for that
    length, or a loop over the axis counts the places. A start for which ONNX's rules give less is an error still.

    before: body(%i) { %1 = AtRuntime(%x, %i, Add(%i, 1)) {kind="Slice"} : f32[n,4]; %2 = Squeeze(%1, [0]) }
    after:  body(%i) { %1 = Gather(%x, %i) : f32[1,4]; %2 = Squeeze(%1, [0]) }
    """

    on_bodies: ClassVar[bool] = False

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        slices = [node for nested in nested_graphs(graph) for node in nested if isinstance(node.op, AtRuntime)]
        counts = _counters(graph) if slices else {}
        changed = False
        while True:  # a length may decide that of another slice's bounds
            left = [node for node in slices if not self._settle(graph, node, counts, rw)]
            if len(left) == len(slices):
                return changed
            slices, changed = left, True

    def _settle(self, root: Graph, node: Node, counts: Counts, rw: Rewriter) -> bool:
        window = _window(node)
        if window is None:
            return rw.no_match("no slice of one axis whose start and end are a fixed length apart", node)
        sizes = _sizes(node, window)
        if sizes is None:
            return rw.no_match("more than one size of the result is open", node)
        where = node.output.graph
        name = next(iter(node.output.tensor.dims[window.axis].symbols()))  # type: ignore[union-attr]
        if not window.is_within(counts) and _wanted(where, name) != window.length:
            return rw.no_match(f"nothing says that it is of length {window.length}", node)
        settle_symbols(root, sizes)
        places = window.places(GraphBuilder(where, before=node, name=node.name), window.root in counts)
        found = GraphBuilder(where, before=node, name=node.name).Gather(window.data, places, axis=window.axis)
        Rewriter(where).replace(node, found)
        return True


@dataclass(frozen=True)
class _Window:
    """A Slice [root + first : root + first + length] of one axis."""

    data: Value
    axis: int
    starts: Value
    root: Value
    first: int
    length: int

    def is_within(self, counts: Counts) -> bool:
        """Whether a loop's iteration number begins it, in every one of whose iterations all of it is there."""
        trips = counts.get(self.root)
        if trips is None or self.first < 0:
            return False
        beyond = trips + (self.first + self.length - 1)  # behind the last iteration's last element
        return lower_bound(self.data.tensor.dims[self.axis] - beyond, 0) >= 0

    def places(self, g: GraphBuilder, from_front: bool) -> Value:
        """The indices. Of a start that counts from the end a slice may reach over it, where ONNX begins from the front
        again and nothing is left: such a start becomes one beyond every axis.

        Args:
            from_front: whether it is known not to count from the end.
        """
        at = g.Reshape(self.starts, np.array([1], np.int64))
        integer = self.starts.tensor.dtype.numpy
        if not (from_front and self.first >= 0):
            reaches_over = g.And(g.Less(at, 0), g.Not(g.Less(at, -self.length)))
            at = g.Where(reaches_over, np.array([np.iinfo(integer).max - self.length], integer), at)
        return at if self.length == 1 else g.Add(at, np.arange(self.length, dtype=integer))


def _window(node: Node) -> _Window | None:
    """What a Slice takes; None where it may be of another length anywhere."""
    op = node.op
    axis = op.sliced_axis(node.context()) if isinstance(op, AtRuntime) else None
    if axis is None:
        return None
    data, starts, ends = node.operands[:3]
    if any(v.tensor.shape is None or prod(v.tensor.dims) != 1 for v in (starts, ends)):
        return None
    (root, first), (other, last) = _offset(starts), _offset(ends)
    length = last - first
    if root is not other or root.tensor.dtype != starts.tensor.dtype or not 0 < length <= LONGEST:
        return None
    return _Window(data, axis, starts, root, first, length)


def _offset(v: Value) -> tuple[Value, int]:
    """What a number is computed of, and what is added to it on the way."""
    added = 0
    while v.producer is not None:
        op, operands = v.producer.op, v.producer.operands
        if isinstance(op, (Unsqueeze, Squeeze, Reshape)):
            v = operands[0]
        elif isinstance(op, Add) and (number := _number(operands[1])) is not None:
            v, added = operands[0], added + number
        elif isinstance(op, Add) and (number := _number(operands[0])) is not None:
            v, added = operands[1], added + number
        else:
            break
    return v, added


def _number(v: Value) -> int | None:
    number = number_of(v)
    return number if isinstance(number, int) else None


def _sizes(node: Node, window: _Window) -> dict[str, Dim] | None:
    """What the open sizes of the result are, each a symbol of its own."""
    sizes: dict[str, Dim] = {}
    found, given = node.output.tensor.dims, window.data.tensor.dims
    for axis, (a, b) in enumerate(zip(found, given, strict=True)):
        wanted: Dim = window.length if axis == window.axis else b
        if a == wanted:
            continue
        if not isinstance(a, SymDim) or isinstance(wanted, SymDim):
            return None
        if len(a.symbols()) != 1 or a != symbol(*a.symbols()):
            return None
        sizes[next(iter(a.symbols()))] = wanted
    return sizes if isinstance(found[window.axis], SymDim) else None


def _wanted(graph: Graph, name: str) -> int | None:
    """The number that a symbol must be, by a constraint that says it of that symbol alone.

    Of this graph: what is wanted in a branch, or a loop's body, is only wanted where that runs.
    """
    size = symbol(name)
    for a, b in graph.constraints:
        difference = a - b
        if not isinstance(difference, SymDim) or difference.symbols() != {name}:
            continue
        at_0, at_1 = difference.evaluate({name: 0}), difference.evaluate({name: 1})
        slope = at_1 - at_0
        if slope and difference == slope * size + at_0 and at_0 % slope == 0:
            return -at_0 // slope
    return None


def _counters(graph: Graph) -> Counts:
    """Of all loops."""
    found: Counts = {}
    for node in (node for nested in nested_graphs(graph) for node in nested):
        how = node.op.iterations(len(node.inputs), [v.type for v in node.outputs]) if isinstance(
            node.op, Control) else None
        if how is not None and how.is_counted:
            for body in node.bodies.values():
                found[body.inputs[0]] = number_of(node.inputs[0])
    return found


__all__ = ["SettleSizes"]
