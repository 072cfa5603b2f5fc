"""Channels-last inside: chooses the physical axis order of every value.

Which orders a node's results get, and which of its operands are brought into another one, its operator says
(`Operator.layout_policy`): who asks for channels-last, who follows its input, who writes any order its readers wish,
who insists on ONNX's. A Transpose is a view, a Reshape wherever that is possible, so that transposes cancel without
anything being moved.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.axis_orders import Order
from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Control, Host, Relayout
from ...ir.ops.layout_policies import PLAIN, Layout, LayoutPolicy, Site
from ...ir.types import TensorType, is_native
from ..base import DataflowPass
from ..rewrite import Rewriter
from .layout_preferences import layout_preferences


@dataclass(frozen=True)
class AssignLayouts(DataflowPass):
    """Give every value a physical axis order.

    before: %1 = Conv(%x, %w) : f32[N,8,4,4]      after: %1 = Conv(%x, %w) : f32[N,8,4,4]{0,2,3,1}
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        before = [v.type for n in graph for v in n.outputs], len(graph)
        wishes = layout_preferences(graph)
        for node in graph.nodes_in_order():
            if not all(_has_order(v) for v in node.outputs):
                _assign(node, rw, PLAIN, [], wishes)
            elif isinstance(node.op, (Host, Control)) or any(v.known is None for v in node.outputs):
                _assign(node, rw, node.op.layout_policy, node.outputs, wishes)  # else shape arithmetic: reads no tensor
        _plain_outputs(graph)
        return before != ([v.type for n in graph for v in n.outputs], len(graph))


def _assign(
    node: Node, rw: Rewriter, policy: LayoutPolicy, results: list[Value], wishes: dict[Value, Order]
) -> None:  # fmt: skip
    site = Site(node.context(), [v.tensor for v in results])
    orders = policy.orders(node.op, site, [wishes.get(v) for v in results])
    for i, layout in orders.operands.items():
        source = node.inputs[i]
        assert source is not None
        node.set_input(i, relayout(rw, node, source, layout))
    for v, layout in zip(results, orders.results, strict=True):
        if v.tensor.layout != layout:
            v.type = v.tensor.with_layout(layout)


def _has_order(v: Value) -> bool:
    """Whether native code holds the value: strings and values of unknown rank stay as they are."""
    return isinstance(v.type, TensorType) and v.type.shape is not None and is_native(v.type)


def _plain_outputs(graph: Graph) -> None:
    """Outputs as ONNX orders them: right behind who makes them, so that no gradient waits for the end."""
    outputs = list(graph.outputs)
    for i, v in enumerate(outputs):
        if isinstance(v.type, TensorType) and v.type.layout is not None:
            outputs[i] = graph.add_node(Relayout(layout=()), [v], after=v.producer).output
    if outputs != list(graph.outputs):
        graph.set_outputs(outputs, graph.output_names)


def relayout(rw: Rewriter, node: Node, v: Value, layout: Layout) -> Value:
    """`v` in the wanted order: itself, a constant seen anew, an existing Relayout of it, or a new one before `node`."""
    t = v.tensor
    wanted = t.with_layout(layout)
    if t == wanted:
        return v
    if v.is_constant and len(v.uses) == 1 and not v.output_uses:
        v.type = wanted
        return v
    for user in v.users:
        if isinstance(user.op, Relayout) and user.output.type == wanted and _comes_before(user, node):
            return user.output
    if v.producer is not None and isinstance(v.producer.op, Relayout):
        source = v.producer.operands[0]
        if source.type == wanted:
            return source
    return rw.before(node).Relayout(v, layout=layout or ())


def _comes_before(first: Node, second: Node) -> bool:
    node: Node | None = second
    for _ in range(64):  # a Relayout made for a neighbour is close by; further away a second copy is cheap enough
        node = node.prev if node is not None else None
        if node is first:
            return True
    return False
