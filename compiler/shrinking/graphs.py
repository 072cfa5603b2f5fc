"""Walks over ONNX graphs: what a node uses, which operators there are, what no output needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    return _with_inner(graph.node)


def operators(graph: onnx.GraphProto) -> list[str]:
    """The ONNX names of all nodes."""
    return [node.op_type for node in all_nodes(graph)]


def drop_unused_functions(model: onnx.ModelProto) -> None:
    """Remove the local functions that no node calls, directly or through others."""
    functions = {(f.domain, f.name): f for f in model.functions}
    called, left = set(), [(n.domain, n.op_type) for n in all_nodes(model.graph)]
    while left:
        key = left.pop()
        if key in functions and key not in called:
            called.add(key)
            left += [(n.domain, n.op_type) for n in _with_inner(functions[key].node)]
    kept = [onnx.FunctionProto.FromString(f.SerializeToString()) for k, f in functions.items() if k in called]
    model.ClearField("functions")
    model.functions.extend(kept)


def _with_inner(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _with_inner(attribute.g.node)
