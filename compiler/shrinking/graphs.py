"""Walks over ONNX graphs: what a node uses, which operators there are, what no output needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx


def prune(graph: onnx.GraphProto) -> set[str]:
    """Remove nodes, initializers and inputs that no output needs; returns the inputs' names."""
    needed = {o.name for o in graph.output}
    for i in reversed(range(len(graph.node))):
        if needed & set(graph.node[i].output):
            needed |= uses_of(graph.node[i])
        else:
            del graph.node[i]
    for items in (graph.initializer, graph.input):  # in place: weights may be as large as memory has room for
        for i in reversed(range(len(items))):
            if items[i].name not in needed:
                del items[i]
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
