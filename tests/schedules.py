"""Random schedules of graphs, for tests of whoever runs them. Tests import it by this name: tests/ is on their path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import networkx as nx

from parax.compiler.ir.graph import Graph, Node
from parax.compiler.ir.schedule import Branch, Layer, Schedule, Stage
from parax.compiler.passes.partition.result_nodes import ResultNodes
from parax.compiler.passes.rewrite import Rewriter


def random_schedule(graph: Graph, random: Random, n_cores: int, n_stages: int = 0, micro_batches: int = 1) -> Schedule:
    """Cut the graph at random places, spread what is independent over the cores at random.

    Args:
        n_stages: 0 for a layered schedule, else a pipelined one of so many stages (at most `n_cores`).
    """
    nodes = graph.nodes_in_order()
    n_layers = random.randint(max(1, n_stages), max(1, n_stages, min(len(nodes), 12)))
    cuts = sorted(random.sample(range(1, len(nodes)), min(n_layers, len(nodes)) - 1))
    parts = [nodes[a:b] for a, b in zip([0, *cuts], [*cuts, len(nodes)])]
    ends = sorted(random.sample(range(1, len(parts)), max(0, min(n_stages, len(parts)) - 1)))
    groups = core_groups(random, n_cores, len(ends) + 1) if n_stages else [(0, n_cores)]
    stages = []
    for (a, b), (first, n) in zip(zip([0, *ends], [*ends, len(parts)]), groups):
        layers = [Layer(tuple(random_branches(parts[i], random, first, n))) for i in range(a, b)]
        stages.append(Stage(tuple(layers), first, n))
    if n_stages:
        return Schedule("pipelined", n_cores, tuple(stages), micro_batches)
    return Schedule("layered", n_cores, tuple(stages))


def core_groups(random: Random, n_cores: int, n: int) -> list[tuple[int, int]]:
    """(first core, cores) of `n` groups that follow one another and cover all cores."""
    edges = [0, *sorted(random.sample(range(1, n_cores), n - 1)), n_cores]
    return [(a, b - a) for a, b in zip(edges, edges[1:])]


def random_branches(nodes: Sequence[Node], random: Random, first: int, n_cores: int) -> list[Branch]:
    """The nodes of one layer on random groups of the cores, or all on all; what depends on each other in one branch."""
    inside = nx.Graph()
    inside.add_nodes_from(nodes)
    inside.add_edges_from((v.producer, node) for node in nodes for v in node.operands if v.producer in inside)
    components = list(nx.connected_components(inside))
    if len(components) > 1 and random.random() < 0.4:
        return [Branch(first, n_cores, names(node for node in nodes if node in own)) for own in components]
    groups = core_groups(random, n_cores, random.randint(1, min(n_cores, len(components))))
    home: dict[Node, tuple[int, int]] = {}
    for component in components:
        group = random.choice(groups)
        home.update((node, group) for node in component)
    return [Branch(first + at, n, names(node for node in nodes if home[node] == (at, n))) for at, n in groups]


def names(nodes: Iterable[Node]) -> tuple[str, ...]:
    """What schedules call the nodes."""
    return tuple(node.output.name for node in nodes)


def written(graph: Graph, schedule: Schedule) -> Schedule:
    """The schedule, once the graph has its Result nodes and its order."""
    ResultNodes(schedule).run(graph, Rewriter(graph))
    return schedule
