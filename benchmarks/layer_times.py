"""How long each node of a compiled model takes while the model runs: lower quartiles of recorded runs, as they come.

Owns the measuring of layers, which `prediction` sets beside the cost model. A node's time is from the first start of
its kernels to the first start of the next node's, so that calls and barriers are in it and nodes add up to the run.
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
from parax.compiler.ir.views import view_source
from parax.compiler.options import CompileOptions
from parax.errors import UnsupportedOp
from parax.runtime.plan import Plan
from parax.runtime.session import Session
from parax.runtime.trace import KernelSpan, Recorder


@dataclass
class Traced:
    """A model compiled to record its kernels. `node_of`: kernel call → index of its node in the graph."""

    name: str
    graph: Graph
    plan: Plan
    node_of: list[int]


@dataclass
class LayerTimes:
    """Lower quartiles over runs. `nodes`: seconds by index of the node; `total`: from the first to the last kernel.

    With several instances they are means over instances that run side by side.
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
    return Traced(name, graph, plan, _nodes_of_calls(list(graph), plan.manifest.provenance["kernels"]))


def _nodes_of_calls(nodes: Sequence[Node], labels: Sequence[str]) -> list[int]:
    """The node of each kernel call: calls carry their node's name and come in the order of nodes."""
    found: list[int] = []
    at = -1
    for label in labels:
        following = (i for i in range(at + 1, len(nodes)) if nodes[i].name == label and view_source(nodes[i]) is None)
        same = at >= 0 and nodes[at].name == label
        after = next(following, None)
        if after is None and not same:
            after = None if not label else at  # a copy to an output, made after the passes: its producer's
        at = after if after is not None and (not same or after == at + 1) else at
        found.append(at)
    return found


def measure_layers(traced: Traced, session: Session, inputs: dict[str, np.ndarray], runs: int) -> LayerTimes:
    """Run the request `runs` times after three to warm up."""
    for _ in range(3):
        session.run(inputs)
    recorder = Recorder(session)
    by_node: dict[int, list[float]] = defaultdict(list)
    totals: list[float] = []
    for _ in range(runs):
        recorder.start()
        session.run(inputs)
        seconds, total = _slots(recorder.stop(), traced.node_of)
        totals.append(total)
        for node, spent in seconds.items():
            by_node[node].append(spent)
    return LayerTimes({n: _lower_quartile(times) for n, times in by_node.items()}, _lower_quartile(totals))


def _lower_quartile(times: Sequence[float]) -> float:
    """What a run takes that is little disturbed: others share the machine."""
    return sorted(times)[(len(times) - 1) // 4]


def _slots(spans: list[KernelSpan], node_of: Sequence[int]) -> tuple[dict[int, float], float]:
    """Seconds of each node and of the whole call in one run, means over instances."""
    instances = sorted({span.instance for span in spans})
    seconds: dict[int, float] = defaultdict(float)
    total = 0.0
    for instance in instances:
        own = [span for span in spans if span.instance == instance]
        n_calls = len(node_of)
        starts = [min(s.start for s in own if s.call == call) for call in range(n_calls)]
        starts.append(max(s.end for s in own))
        for call in range(n_calls):
            seconds[node_of[call]] += (starts[call + 1] - starts[call]) / len(instances)
        total += (starts[-1] - starts[0]) / len(instances)
    return dict(seconds), total
