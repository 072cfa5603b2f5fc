"""Gradient nodes become the operators that compute them. Owns what is differentiated; `passes/autodiff` does it."""

from __future__ import annotations

from dataclasses import dataclass

from ....errors import InvalidModel
from ...ir.graph import Graph, Node, Value
from ...ir.ops.training import Gradient
from ..autodiff.reverse import gradients
from ..base import DataflowPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class Autodiff(DataflowPass):
    """Write out the gradients that a graph asks for.

    before: %y = Mul(%x, %x); %d = Gradient(%x) {xs=["x"], y="y"}      after: %d = Mul(2.0, %x)

    Where the inputs of the Gradient node are other tensors than the names say, what leads from the names to y is made
    once more, from the inputs.
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class. Raises InvalidModel for names that the graph has not, UnsupportedOp as `gradients`."""
        nodes = [node for node in graph if isinstance(node.op, Gradient)]
        for node in nodes:
            assert isinstance(node.op, Gradient)
            named = [_named(graph, node, name) for name in (*node.op.xs, *node.op.zs)]
            y = _named(graph, node, node.op.y)
            given = dict(zip(named, node.operands))
            if any(name is not value for name, value in given.items()):
                y = _made_from(graph, node, y, given)
            inputs = [given[v] for v in named]
            count = len(node.op.xs)
            found = gradients(graph, y, inputs[:count], before=node, held=inputs[count:],
                              again=_is_differentiated(graph, node))  # fmt: skip
            rw.replace(node, found)
        return bool(nodes)


def _is_differentiated(graph: Graph, node: Node) -> bool:
    """Whether another Gradient node differentiates what depends on this one's results."""
    flows = set(node.outputs)
    for n in graph:
        if any(v in flows for v in n.operands):
            flows.update(n.outputs)
    others = [n for n in graph if isinstance(n.op, Gradient) and n is not node]
    return any(_named(graph, n, n.op.y) in flows for n in others if isinstance(n.op, Gradient))


def _named(graph: Graph, node: Node, name: str) -> Value:
    if not graph.has_value(name):
        raise InvalidModel("no tensor has that name", where=node.where, expected="a tensor of the graph", found=name)
    return graph.value(name)


def _made_from(graph: Graph, node: Node, y: Value, given: dict[Value, Value]) -> Value:
    """y once more, from the inputs that the node has in the place of the tensors it names."""
    new = dict(given)
    for n in _before(graph, node, y, set(given)):
        copy = graph.add_node(n.op, [None if v is None else new.get(v, v) for v in n.inputs], [None] * len(n.outputs),
                              name=n.name, before=node, bodies=n.bodies)  # fmt: skip
        new.update(zip(n.outputs, copy.outputs))
    return new.get(y, y)


def _before(graph: Graph, node: Node, y: Value, cut: set[Value]) -> list[Node]:
    """The nodes that lead from the cut to y, in order."""
    needed, back = {y}, []
    at = node.prev
    while at is not None:
        made = [v for v in at.outputs if v in needed and v not in cut]
        if made:
            back.append(at)
            needed.update(at.operands)
        at = at.prev
    flows, nodes = set(cut), []
    for n in reversed(back):
        if any(v in flows for v in n.operands):
            nodes.append(n)
            flows.update(n.outputs)
    return nodes
