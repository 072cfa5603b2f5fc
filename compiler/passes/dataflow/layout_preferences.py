"""Which memory order the readers of each value would like: found backwards, from those that insist.

What an operator would like it says itself (`Operator.layout_policy`). Changes nothing.
"""

from __future__ import annotations

from collections import Counter

from ...ir.axis_orders import Order, plain
from ...ir.graph import Graph, Value
from ...ir.ops.layout_policies import Site
from ...ir.types import TensorType


def layout_preferences(graph: Graph) -> dict[Value, Order]:
    """The most wanted order of every value that any reader has an opinion on."""
    votes: dict[Value, Counter[Order]] = {}
    for v in graph.outputs:
        if isinstance(v.type, TensorType) and v.type.shape is not None:
            votes.setdefault(v, Counter())[plain(v.type.rank)] += 1
    wishes: dict[Value, Order] = {}
    for node in reversed(graph.nodes_in_order()):
        for v in node.outputs:
            if v in votes:
                wishes[v] = votes[v].most_common(1)[0][0]
        if all(v.known is not None for v in node.outputs):
            continue
        if not all(_has_shape(v) for v in (*node.operands, *node.outputs)):
            continue
        site, wished = Site(node.context(), [v.tensor for v in node.outputs]), wishes.get(node.outputs[0])
        for i, source in enumerate(node.inputs):
            if source is None or source.is_constant:
                continue
            order = node.op.layout_policy.preference(node.op, site, i, wished)
            if order is not None and len(order) == source.tensor.rank:
                votes.setdefault(source, Counter())[order] += 1
    return wishes


def _has_shape(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.shape is not None
