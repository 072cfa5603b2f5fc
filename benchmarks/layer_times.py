"""How long each node of a compiled model takes while the model runs: lower quartiles of recorded runs, as they come.

Owns the measuring of layers, which `prediction` sets beside the cost model. What a node's time is, `node_seconds` says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parax.compiler.compilation import Compilation
from parax.compiler.driver import build_plan, import_graph, optimise
from parax.compiler.ir.graph import Graph, Node
from parax.compiler.options import CompileOptions
from parax.compiler.planner.node_seconds import ROUNDS, Recording, lower_quartile
from parax.errors import UnsupportedOp
from parax.runtime.plan import Plan
from parax.runtime.profiling.notes import notes_of
from parax.runtime.session import Session

Inputs = dict[str, np.ndarray]


@dataclass
class Traced:
    """A model compiled to record its kernels. `node_of`: kernel call → index of its node in the graph."""

    name: str
    graph: Graph
    plan: Plan
    node_of: list[int]


@dataclass
class LayerTimes:
    """Lower quartiles over native calls. `nodes`: seconds by index of the node; `total`: from the first to the last
    kernel. With several instances the calls are those of all of them.
    """

    nodes: dict[int, float]
    total: float


def compile_traced(name: str, path: Path, options: CompileOptions | None = None) -> Traced:
    """Compile a model in the build that records its kernels.

    Raises:
        UnsupportedOp: the model is not one native step.
    """
    run = Compilation(options or CompileOptions(), lambda phase, fraction: None, trace=True)
    graph = import_graph(path, run.options)
    optimise(graph, run)
    plan = build_plan(graph, run)
    if len(plan.manifest.steps) != 1:
        raise UnsupportedOp("only models of one native step are measured", where=name)
    return Traced(name, graph, plan, _nodes_of_calls(list(graph), notes_of(plan.manifest).values))


def _nodes_of_calls(nodes: Sequence[Node], values: Sequence[str]) -> list[int]:
    """The node of each kernel call, by the node's first output; a copy made after the passes is its producer's."""
    index = {node.output.name: i for i, node in enumerate(nodes)}
    found: list[int] = []
    for value in values:
        found.append(index[value] if value in index else found[-1])
    return found


def measure_layers(traced: Traced, sessions: Sequence[tuple[Session, Inputs, int]], seconds: float) -> list[LayerTimes]:
    """Run requests for so many seconds on each of the sessions, which take turns: what disturbs one, disturbs all.

    Args:
        sessions: each with its request and its number of instances.
    """
    recordings = [Recording(session, traced.node_of, inputs, instances) for session, inputs, instances in sessions]
    by_node: list[dict[int, list[float]]] = [defaultdict(list) for _ in sessions]
    totals: list[list[float]] = [[] for _ in sessions]
    for _ in range(ROUNDS):
        for recording, nodes, own in zip(recordings, by_node, totals, strict=True):
            for spent, total in recording.turn(seconds / ROUNDS):
                own.append(total)
                for node, each in spent.items():
                    nodes[node].append(each)
    return [
        LayerTimes({n: lower_quartile(times) for n, times in nodes.items()}, lower_quartile(own))
        for nodes, own in zip(by_node, totals, strict=True)
    ]
