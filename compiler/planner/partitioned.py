"""A graph as layers and stages for a machine, with what the cost model says of each: `parax inspect --partition`.

Owns the way from a planner to a partition without code. Which cut is good is decided in `partition`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import UnsupportedOp, UsageError
from ..costs.cost import CostRule
from ..ir.graph import Graph, Node
from ..ir.schedule import Layer, Schedule, check_schedule, node_of, results_of
from ..targets.machine import Machine
from .partition.schedules import plan_layers, plan_pipeline, policy_of, scheduled_graph
from .partition.simulate import Sequential, simulate
from .partition.works import Work, graph_works
from .planner import Planner, runs_in_steps


@dataclass(frozen=True)
class LayerLine:
    """A layer: its number and stage, and predicted seconds from its first start to its last end, of a micro-batch.

    Attributes:
        operators: node → the name of the model's operator, where it has one, and the kind of its work.
        handed_on: the values that the layer hands on.
    """

    number: int
    stage: int
    layer: Layer
    seconds: float
    operators: Mapping[str, tuple[str, str]]
    handed_on: tuple[str, ...]

    def branches(self) -> Iterator[tuple[range, list[tuple[str, str]]]]:
        """Cores, and the name and kind of each operator that they run."""
        for branch in self.layer.branches:
            yield branch.cores, [self.operators[name] for name in branch.nodes]


@dataclass(frozen=True)
class Partitioned:
    """A graph with its `Result` nodes. `rows`: of a request; `seconds`, `sequential_seconds`: predicted for it."""

    graph: Graph
    schedule: Schedule
    machine: Machine
    rows: int
    seconds: float
    sequential_seconds: float
    layers: tuple[LayerLine, ...]

    def to_json(self) -> dict[str, Any]:
        """For --format json; seconds are predictions."""
        lines = [
            {"layer": line.number, "stage": line.stage, "seconds": line.seconds, "result": list(line.handed_on),
             "branches": [{"cores": list(cores), "nodes": [name for name, _ in operators]}
                          for cores, operators in line.branches()]}
            for line in self.layers
        ]  # fmt: skip
        return {
            "machine": self.machine.name, "simulated": self.machine.simulated, "rows": self.rows,
            "mode": self.schedule.mode, "n_cores": self.schedule.n_cores,
            "micro_batches": self.schedule.micro_batches, "seconds": self.seconds,
            "sequential_seconds": self.sequential_seconds, "layers": lines,
        }  # fmt: skip


def partition(planner: Planner, rows: int | None, n_stages: int | None) -> Partitioned:
    """Partition a planner's graph for its machine.

    Args:
        planner: for the hint latency. rows: of a request (default 1; 64 for a pipeline).
        n_stages: of a pipeline; None: layers.

    Raises:
        UnsupportedOp: the model runs in several steps. UsageError: rows for a fixed batch.
    """
    graph, found, n_cores, cost = planner.graph, planner.machine, planner.n_cores, planner.cost
    if runs_in_steps(graph):
        raise UnsupportedOp("the model runs in several steps, which are not partitioned", where=f"graph {graph.name}")
    load = planner.load(rows or (64 if n_stages else None))
    if rows is not None and load.rows != rows:
        raise UsageError("the model's batch is fixed", where="--batch", expected=load.rows, found=rows)
    symbol, symbols = planner.symbol, dict(planner.predictor.symbols)
    if n_stages is None:
        sizes = symbols if symbol is None else {**symbols, symbol: load.rows}
        sequential = _sequential(graph, found, n_cores, sizes, cost)
        schedule = plan_layers(graph, found, n_cores, sizes, cost=cost)
    else:
        if symbol is None:
            raise UsageError("no rows that could flow through a pipeline", where="--stages",
                             hint="leave the batch dimension open")  # fmt: skip
        sequential = _sequential(graph, found, n_cores, {**symbols, symbol: load.rows}, cost)
        schedule = plan_pipeline(graph, found, n_cores, load.rows, symbol, symbols, n_stages, cost=cost)
        sizes = {**symbols, symbol: -(-load.rows // (schedule.micro_batches or 1))}
    graph = scheduled_graph(graph, schedule)
    check_schedule(graph, schedule)
    works = _works(graph, found, schedule.n_cores, sizes, cost)
    return _predicted(graph, schedule, found, load.rows, sequential, works)


def _sequential(graph: Graph, machine: Machine, n_cores: int, sizes: dict[str, int], cost: CostRule) -> float:
    return simulate(_works(graph, machine, n_cores, sizes, cost), machine, Sequential(n_cores)).total_seconds


def _works(graph: Graph, machine: Machine, n_cores: int, sizes: dict[str, int], cost: CostRule) -> list[Work]:
    return graph_works(graph, sizes, cost, caches=machine.caches(1, n_cores))


def _predicted(
    graph: Graph, schedule: Schedule, machine: Machine, rows: int, sequential: float, works: list[Work]
) -> Partitioned:
    timeline = simulate(works, machine, policy_of(graph, schedule))
    number = {node.output.name: i for i, node in enumerate(graph)}
    results = results_of(graph)
    when = {span.work: (span.start, span.end) for span in timeline.spans if span.batch == 0}
    lines: list[LayerLine] = []
    for k, stage in enumerate(schedule.stages):
        for layer in stage.layers:
            nodes = {name: node_of(graph, name) for name in layer.nodes}
            times = [when[number[name]] for name in nodes if number[name] in when]
            seconds = max(end for _, end in times) - min(start for start, _ in times) if times else 0.0
            operators = {name: (_name(node), works[number[name]].cost.kind) for name, node in nodes.items()}
            result = results.get(len(lines))
            handed_on = () if result is None else tuple(v.name for v in result.operands)
            lines.append(LayerLine(len(lines), k, layer, seconds, operators, handed_on))
    return Partitioned(graph, schedule, machine, rows, timeline.total_seconds, sequential, tuple(lines))


def _name(node: Node) -> str:
    return node.name or f"%{node.output.name}"


__all__ = ["LayerLine", "Partitioned", "partition"]
