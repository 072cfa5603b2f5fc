"""Nodes in an order in which names are defined before they are used. Knows only names."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
from onnx import NodeProto

from ...errors import InvalidModel


def in_order(nodes: Sequence[NodeProto]) -> Sequence[NodeProto]:
    """`nodes` as they are if they are sorted, else sorted; names that no node defines are left to the caller.

    Raises InvalidModel if there is a cycle.
    """
    producers: dict[str, int] = {}
    sorted_already = True
    for i, node in enumerate(nodes):
        for name in node.output:
            if name:
                producers.setdefault(name, i)
    for i, node in enumerate(nodes):
        if any(producers.get(name, -1) >= i for name in node.input):
            sorted_already = False
            break
    if sorted_already:
        return nodes
    order = nx.DiGraph()
    order.add_nodes_from(range(len(nodes)))
    for i, node in enumerate(nodes):
        order.add_edges_from((producers[name], i) for name in node.input if name in producers)
    try:
        return [nodes[i] for i in nx.lexicographical_topological_sort(order)]
    except nx.NetworkXUnfeasible:
        cycle = [nodes[i].output[0] for i, _ in nx.find_cycle(order)]
        raise InvalidModel("the nodes form a cycle", found=" → ".join(map(str, cycle[:5]))) from None
