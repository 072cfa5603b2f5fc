"""Walks over ONNX graphs: what a node uses, which operators there are, what no output needs."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def prune(graph: onnx.GraphProto) -> set[str]:
    """Remove nodes, initializers and inputs that no output needs; returns the inputs' names."""
    needed = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= uses_of(node)
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(kept)]
    for field, items in (
        ("node", nodes),
        ("initializer", [t for t in graph.initializer if t.name in needed]),
        ("input", [i for i in graph.input if i.name in needed]),
    ):
        copies = [type(item).FromString(item.SerializeToString()) for item in items]
        graph.ClearField(field)
        getattr(graph, field).extend(copies)
    return {i.name for i in graph.input}


def uses_of(node: onnx.NodeProto) -> set[str]:
    """The names that a node takes, those that its bodies take from outside among them."""
    names = set(node.input)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                names |= uses_of(inner)
            names |= {o.name for o in attribute.g.output}
    return names


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those of bodies too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)


def operators(graph: onnx.GraphProto) -> list[str]:
    """The ONNX names of all nodes."""
    return [node.op_type for node in all_nodes(graph)]
