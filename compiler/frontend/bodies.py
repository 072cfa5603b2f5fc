"""The graphs inside of nodes: branches and loop bodies, at any depth. Knows protobufs; knows no operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import AttributeProto, GraphProto, NodeProto


def bodies(nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    """Every graph inside the nodes' attributes, at any depth."""
    front = list(nodes)
    while front:
        for attribute in front.pop().attribute:
            graphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
            for graph in graphs:
                yield graph
                front.extend(graph.node)


def with_inner_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, then those of every graph inside of them."""
    own = list(nodes)
    yield from own
    for graph in bodies(own):
        yield from graph.node
