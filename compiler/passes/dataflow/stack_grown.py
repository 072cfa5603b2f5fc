"""States of loops that only grow: what each iteration appends is stacked, and joined once behind the loop.

Exporters write a list that a decoder fills as a state to which every iteration joins a piece: a copy of all that was
made so far, and a size that changes, which keeps the body from being native code. Owns which states are of that kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Graph, Node, Value, nested_graphs
from ...ir.ops.base import Control
from ...ir.ops.iterations import Iterations
from ...ir.ops.shape import Concat
from ...ir.settled import settle_symbols
from ...ir.types import Dim, SymDim, TensorType, symbol, symbols_of
from ..base import DataflowPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class StackGrown(DataflowPass):
    """Let a Loop stack the pieces that its iterations append to a state which nothing in its body reads.

    before: %y = Loop(%n, %go, %x) { body(%i, %c, %s: f32[m,4]) { … %t = Concat(%s, %piece) {axis=0}; return %c, %t } }
    after:  %1 = Loop(%n, %go) { body(%i, %c) { … return %c, %piece } }; %y = Concat(%x, Squeeze(%1, [1])) {axis=0}
    """

    on_bodies: ClassVar[bool] = False

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        count = 0
        for nested in nested_graphs(graph):
            for node in nested.nodes_in_order():
                current: Node | None = node if isinstance(node.op, Control) else None
                while current is not None and (current := _stacked_once(graph, current, count, rw)) is not None:
                    count += 1
        return count > 0


@dataclass(frozen=True)
class _Grown:
    """State `index` of a loop, to which `pieces` are joined along `axis` of the state."""

    index: int
    axis: int
    start: Value
    state: Value
    joined: Value
    pieces: Sequence[Value]


def _stacked_once(root: Graph, node: Node, number: int, rw: Rewriter) -> Node | None:
    """The node that takes the loop's place once one of its states is stacked; None where none is.

    Args:
        number: of the rewrite, for names, and so for the symbols of sizes, that nothing has.
    """
    assert isinstance(node.op, Control)
    how = node.op.iterations(len(node.inputs), [v.type for v in node.outputs])
    body = node.body
    if how is None or not how.is_counted or body is None:
        return None
    for index in range(how.n_states):
        grown = _grown(node, body, how, index, rw)
        if grown is not None:
            return _rewritten(root, node, number, how, grown)
    return None


def _grown(node: Node, body: Graph, how: Iterations, index: int, rw: Rewriter) -> _Grown | None:
    start, state = node.inputs[how.n_ahead + index], body.inputs[how.n_ahead + index]
    joined = body.outputs[how.n_results_ahead + index]
    concat = joined.producer
    if start is None or concat is None or not isinstance(concat.op, Concat) or concat.operands[0] is not state:
        return None
    if len(state.uses) != 1 or state.output_uses or joined.uses or joined.output_uses != 1:
        rw.no_match("a state that grows is read in the body", node)
        return None
    types = [v.type for v in (start, state, *concat.operands[1:])]
    shapes = [t.shape for t in types if isinstance(t, TensorType) and t.shape is not None]
    if len(shapes) != len(types) or len(shapes) < 3:
        return None
    axis = concat.op.axis % len(shapes[0])
    fixed = [(*shape[:axis], *shape[axis + 1 :]) for shape in shapes]
    if any(shape != fixed[0] for shape in fixed) or not all(isinstance(d, int) and d > 0 for d in fixed[0]):
        rw.no_match("a state that grows has other axes of open sizes", node)
        return None
    lengths, opened = [shape[axis] for shape in shapes[2:]], symbols_of(shapes[1])
    if not all(isinstance(d, int) for d in lengths) or opened & _constrained(body):
        rw.no_match("what a state grows by is not of one length", node)
        return None
    return _Grown(index, axis, start, state, joined, concat.operands[1:])


def _constrained(body: Graph) -> frozenset[str]:
    return frozenset().union(*(symbols_of(pair) for nested in nested_graphs(body) for pair in nested.constraints))


def _rewritten(root: Graph, node: Node, number: int, how: Iterations, grown: _Grown) -> Node:
    """The loop without the state, whose pieces it stacks behind its other results."""
    graph, body = node.output.graph, node.body
    assert body is not None
    at, result = how.n_ahead + grown.index, how.n_results_ahead + grown.index
    concat = grown.joined.producer
    assert concat is not None
    piece, *more = grown.pieces
    if more:
        piece = GraphBuilder(body, before=concat, name=concat.name).Concat(*grown.pieces, axis=grown.axis)
    outputs, names = [*body.outputs], [*body.output_names]
    name = names.pop(result)
    del outputs[result]
    body.set_outputs([*outputs, piece], [*names, name])
    body.erase(concat)
    body.erase_input(grown.state)
    inputs = [v for i, v in enumerate(node.inputs) if i != at]
    kept = [v for i, v in enumerate(node.outputs) if i != grown.index]
    names = [f"{v.name}.stacked{number}" for v in (*kept, node.outputs[grown.index])]
    bodies, node.bodies = node.bodies, {}
    new = graph.add_node(node.op, inputs, names, name=node.name, before=node, bodies=bodies)
    node.bodies = {}
    whole = _whole(GraphBuilder(graph, before=node, name=node.name), new.outputs[-1], grown)
    values = [*new.outputs[:-1]]
    values.insert(grown.index, whole)
    sizes = _renamed(node.outputs, values)
    Rewriter(graph).replace(node, values)
    settle_symbols(root, sizes)
    return new


def _whole(g: GraphBuilder, stacked: Value, grown: _Grown) -> Value:
    """The state after the last iteration: what it began as, and the pieces."""
    sizes = stacked.tensor.dims[1:]
    axis, rank = grown.axis, len(sizes)
    if axis:
        stacked = g.Transpose(stacked, perm=[*range(1, axis + 1), 0, *range(axis + 1, rank + 1)])
    if sizes[axis] == 1:
        rows = g.Squeeze(stacked, np.array([axis + 1], np.int64))
    else:
        shape = [*sizes[:axis], -1, *sizes[axis + 1 :]]
        rows = g.Reshape(stacked, np.array(shape, np.int64))
    return rows if grown.start.tensor.dims[axis] == 0 else g.Concat(grown.start, rows, axis=axis)


def _renamed(old: Sequence[Value], new: Sequence[Value]) -> dict[str, Dim]:
    """What symbols of the old results are in the new ones."""
    sizes: dict[str, Dim] = {}
    for a, b in zip(old, new, strict=True):
        if not isinstance(a.type, TensorType) or not isinstance(b.type, TensorType):
            continue
        for m, n in zip(a.type.shape or (), b.type.shape or (), strict=False):
            if isinstance(m, SymDim) and m != n and len(m.symbols()) == 1 and m == symbol(*m.symbols()):
                sizes.setdefault(next(iter(m.symbols())), n)
    return sizes


__all__ = ["StackGrown"]
