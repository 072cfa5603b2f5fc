"""One graph that computes every choice of quantised layers: each reader has an input that says what it reads.

For a search: what any layer loses alone, or several together, costs a run rather than a compilation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Graph, Value
from ...ir.types import BOOL, TensorType
from .affine import Affine, ValueRange, affine_of
from .layers import Layer, readers_of, shared_ranges
from .quantize import quantize_layer, rounded_value

PREFIX = "parax.rounds."


def add_switches(graph: Graph, ranges: Mapping[str, ValueRange], means: Mapping[str, np.ndarray]) -> None:
    """Give the graph an input bool[] for each reader of activations: whether it reads them, and its weights, rounded.

    A layer is computed both ways, as kernels with constant weights are the plan's own; a carrier reads one of both.

    before: %y = Conv(%x, %w)
    after:  %y1 = Conv(%x', %w'); %y0 = Conv(%x, %w); %y = Where(%switch, %y1, %y0)

    Args:
        ranges, means: those of the pass `Quantize`.
    """
    readers = readers_of(graph, ranges)
    affine = {value: affine_of(found) for value, found in shared_ranges(readers, ranges).items()}
    order = {node: i for i, node in enumerate(graph)}
    reads = sorted(readers.reads(), key=lambda read: order[read[0]])
    rounded: dict[Value, Value] = {}
    for node, _, value in reads:
        if value not in rounded:
            rounded[value] = rounded_value(value, affine[value], GraphBuilder(graph, before=node))
    carriers = {node: graph.add_input(PREFIX + node.output.name, TensorType(BOOL, ())) for node in readers.carriers}
    for node, place, value in reads:
        if node in carriers:
            node.set_input(place, GraphBuilder(graph, before=node).Where(carriers[node], rounded[value], value))
    read = {node: value for node, _, value in reads}  # before the results of layers have others in their place
    for layer in readers.layers:
        value = read[layer.node]
        _switch_layer(graph, layer, rounded[value], affine[value], means.get(value.name))


def _switch_layer(graph: Graph, layer: Layer, rounded: Value, affine: Affine, mean: np.ndarray | None) -> None:
    exact, old = layer.node, layer.node.output
    switch = graph.add_input(PREFIX + layer.name, TensorType(BOOL, ()))
    twin = graph.add_node(exact.op, exact.inputs, after=exact, name=exact.name)
    quantize_layer(Layer(twin, layer.channels), affine, mean, GraphBuilder(graph, before=twin, name=exact.name))
    twin.set_input(0, rounded)
    chosen = GraphBuilder(graph, after=twin, name=exact.name).Where(switch, twin.output, old)
    where = chosen.producer
    graph.replace_all_uses_with(old, chosen)
    where.set_input(2, old)


def switches(graph: Graph, ranges: Mapping[str, ValueRange], left_out: Collection[str]) -> dict[str, np.ndarray]:
    """The switches' values for a choice of layers: those of the pass `Quantize` with the same arguments.

    Args:
        graph: without switches.
    """
    everyone, chosen = (_names(graph, ranges, left) for left in ((), left_out))
    return {PREFIX + name: np.array(name in chosen) for name in everyone}


def _names(graph: Graph, ranges: Mapping[str, ValueRange], left_out: Collection[str]) -> set[str]:
    readers = readers_of(graph, ranges, left_out)
    return {layer.name for layer in readers.layers} | {node.output.name for node in readers.carriers}


__all__ = ["PREFIX", "add_switches", "switches"]
