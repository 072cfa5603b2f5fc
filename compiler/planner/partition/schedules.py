"""Partitions of a graph as schedules, which say who runs what; the graph is only read.

Owns the two entries of the room: `plan_layers` for one request on all cores, `plan_pipeline` for batches that flow
through stages. It must not know kernels; what things cost is asked of the cost model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate

from ...backend.costs import node_cost
from ...costs.cost import CostRule
from ...ir.graph import Graph, Node
from ...ir.schedule import Branch, Layer, Schedule, Stage, results_of, sequential_schedule
from ...passes.pipelines import SCHEDULED
from ...passes.rewrite import Rewriter
from ...targets.machine import Machine
from .branches import Branches, TaskTimes
from .dag import Dag, Mask, bits, contract_views, mask_of
from .layers import LayerOptions, layer_partition
from .micro_batches import micro_batches
from .simulate import Layers, Part, Pipeline, Policy, Sequential, simulate
from .stages import balanced_stages
from .works import Measured, Work, graph_works

MOST_STAGES = 8  # of a pipeline: the bubble grows with each
FULL = 0.95  # of the throughput of a whole batch: a micro-batch with as much fills the device

Parts = list[tuple[int, int, Mask]]
"""A layer: first core, number of cores, operators."""


@dataclass
class Operators:
    """The operators of a graph on a machine: its nodes but for views, which go with what they are views of.

    Attributes:
        nodes: of each operator, its views included. free: views of graph inputs, which wait for nothing.
        works: one for each operator.
    """

    graph: Graph
    dag: Dag
    times: TaskTimes
    nodes: list[list[Node]]
    free: list[Node]
    works: list[Work]

    @classmethod
    def of(
        cls, graph: Graph, machine: Machine, n_cores: int, symbols: Mapping[str, int],
        measured: Measured | None = None, cost: CostRule = node_cost,
    ) -> Operators:  # fmt: skip
        """The operators as they cost with these sizes."""
        works = graph_works(graph, symbols, cost, caches=machine.caches(1, n_cores), measured=measured)
        dag, groups, free = contract_views(works)
        nodes = list(graph)
        own = [replace(works[group[0]], after=tuple(bits(before))) for group, before in zip(groups, dag.before)]
        return cls(graph, dag, TaskTimes(own, machine), [[nodes[i] for i in group] for group in groups],
                   [nodes[i] for i in free], own)  # fmt: skip

    def layers(self, n_cores: int, options: LayerOptions, within: Mask | None = None) -> list[Parts]:
        """The layers of the graph, or of some of its operators.

        What all cores run together, in sets that follow one another, is cut anew, into levels of operators that do not
        depend on one another: they are branches that share all cores. Levels of one operator are one layer together.
        """
        if n_cores == 1:
            return [[(0, 1, self.dag.everything if within is None else within)]]
        branches = Branches(self.dag, self.times, n_cores)
        found: list[Parts] = []
        for mask in layer_partition(self.dag, self.times.on(1), branches, options, within):
            parts = list(branches.arrange(mask).parts)
            if found and len(parts) == len(found[-1]) == 1:
                found[-1] = [(0, n_cores, found[-1][0][2] | mask)]
            else:
                found.append(parts)
        return [layer for parts in found for layer in (self._levels(*parts[0][1:]) if len(parts) == 1 else [parts])]

    def _levels(self, n_cores: int, together: Mask) -> list[Parts]:
        found: list[Parts] = []
        alone: Mask = 0
        for level in self.dag.levels(together):
            if sum(self.works[i].cost.kind != "view" for i in bits(level)) < 2:
                alone |= level
                continue
            if alone:
                found.append([(0, n_cores, alone)])
            found.append([(0, n_cores, 1 << i) for i in bits(level)])
            alone = 0
        return [*found, [(0, n_cores, alone)]] if alone else found

    def seconds(self, policy: Policy) -> float:
        """What the simulator of the whole says, which lets operators side by side share the memory as they run."""
        return simulate(self.works, self.times.machine, policy).total_seconds

    def schedule(
        self, stages: Sequence[tuple[int, int, list[Parts]]], micro_batches: int | None = None, batch: int = 1
    ) -> Schedule:
        """The schedule with these layers.

        Args:
            stages: first core, cores and layers of each; the cores of layers count from the stage's first.
            micro_batches: of a pipeline, for a request of `batch` rows.
        """
        free = [node.output.name for node in self.free]
        staged = []
        for first, n, of_stage in stages:
            layers = []
            for parts in of_stage:
                branches = [Branch(first + core, width, (*free, *self._in_order(mask))) if i == 0 else
                            Branch(first + core, width, self._in_order(mask))
                            for i, (core, width, mask) in enumerate(parts)]  # fmt: skip
                free = []  # it was for the first branch of all
                layers.append(Layer(tuple(branches)))
            staged.append(Stage(tuple(layers), first, n))
        n_cores = max(first + n for first, n, _ in stages)
        if micro_batches is None:
            return Schedule("layered", n_cores, tuple(staged))
        return Schedule("pipelined", n_cores, tuple(staged), micro_batches, -(-batch // micro_batches))

    def _in_order(self, mask: Mask) -> tuple[str, ...]:
        return tuple(node.output.name for i in bits(mask) for node in self.nodes[i])


def has_branches(graph: Graph) -> bool:
    """Whether any two operators could run side by side, whatever they cost."""
    dag, _, _ = contract_views(graph_works(graph, {}))
    return any(dag.ancestors[i] | 1 << i | dag.descendants[i] != dag.everything for i in range(dag.n))


def plan_layers(
    graph: Graph,
    machine: Machine,
    n_cores: int,
    symbols: Mapping[str, int],
    options: LayerOptions | None = None,
    measured: Measured | None = None,
    cost: CostRule = node_cost,
) -> Schedule:
    """Partition a graph into layers of branches side by side.

    The graph must be optimised and final: what is added later has no place in the schedule. Where nothing is better
    than one node after the other on all cores, as the search sees it part by part or as the simulator sees the whole,
    the schedule is "sequential".

    Args:
        n_cores: of the instance. symbols: sizes of symbolic dimensions to plan for.
        measured: what nodes took, with these sizes, alone on one core and on all; better than any prediction.
        cost: what a node costs.
    """
    operators = Operators.of(graph, machine, n_cores, symbols, measured, cost)
    layers = _best_layers(operators, n_cores, options)
    return operators.schedule([(0, n_cores, layers)]) if layers else sequential_schedule(graph, n_cores)


def _best_layers(operators: Operators, n_cores: int, options: LayerOptions | None = None) -> list[Parts]:
    """The layers of a graph, none where one operator after the other is as good; see `plan_layers`."""
    layers = operators.layers(n_cores, options or LayerOptions()) if operators.dag.n else []
    if all(len(parts) == 1 for parts in layers):
        return []
    side_by_side = Layers(tuple(tuple(Part(first, n, tuple(bits(mask))) for first, n, mask in parts)
                                for parts in layers))  # fmt: skip
    return layers if operators.seconds(side_by_side) < operators.seconds(Sequential(n_cores)) else []


def plan_pipeline(
    graph: Graph,
    machine: Machine,
    n_cores: int,
    batch: int,
    symbol: str = "N",
    symbols: Mapping[str, int] | None = None,
    n_stages: int | None = None,
    options: LayerOptions | None = None,
    cost: CostRule = node_cost,
) -> Schedule:
    """Partition a graph into pipeline stages on cores of their own, for batches cut into micro-batches.

    The number of stages is the one with the shortest predicted time (M + K − 1)·(longest stage), unless given. A stage
    with several cores is partitioned into layers as `plan_layers` does. The schedule is "sequential" where there are
    not two operators or not two cores.

    Args:
        batch: rows of a request. symbol: the dimension that counts rows. symbols: sizes of the others.
        cost: what a node costs.
    """
    @cache
    def of(rows: int) -> Operators:
        return Operators.of(graph, machine, n_cores, {**(symbols or {}), symbol: rows}, cost=cost)

    device = device_batch(lambda rows: sum(of(rows).times.on(n_cores)), batch)
    most = min(n_cores, MOST_STAGES)
    best: tuple[float, int, Operators, list[tuple[Mask, int]]] | None = None
    for k in range(2, most + 1) if n_stages is None else (n_stages,):
        n_micro = micro_batches(batch, device, k)
        operators = of(-(-batch // n_micro))
        if operators.dag.n < k:
            break
        stages = _stages(operators, n_cores, k)
        longest = max(sum(operators.times.on(c)[i] for i in bits(mask)) for mask, c in stages)
        if best is None or (n_micro + k - 1) * longest < best[0]:
            best = ((n_micro + k - 1) * longest, n_micro, operators, stages)
    if best is None:
        return sequential_schedule(graph, n_cores)
    _, n_micro, operators, stages = best
    whole = options or LayerOptions()
    each = replace(whole, most_evaluations=whole.most_evaluations // len(stages))
    firsts = accumulate((c for _, c in stages), initial=0)
    return operators.schedule(
        [(first, c, operators.layers(c, each, mask)) for first, (mask, c) in zip(firsts, stages)], n_micro, batch
    )


def device_batch(seconds: Callable[[int], float], batch: int) -> int:
    """Bdev: the fewest rows, a power of two, whose throughput is nearly that of a whole batch.

    Args:
        seconds: of a run with so many rows.
    """
    enough, rows = seconds(batch) / batch / FULL, 1
    while rows < batch and seconds(rows) / rows > enough:
        rows *= 2
    return min(rows, batch)


def _stages(operators: Operators, n_cores: int, n_stages: int) -> list[tuple[Mask, int]]:
    order = operators.dag.by_depth(operators.dag.everything)

    def seconds(c: int) -> list[float]:
        return [operators.times.on(c)[i] for i in order]

    found = balanced_stages(seconds, len(order), n_cores, n_stages)
    return [(mask_of([order[i] for i in units]), c) for units, c in found]


def scheduled_graph(graph: Graph, schedule: Schedule) -> Graph:
    """A copy of the graph with the schedule written into it, as the compiler will."""
    copy = graph.clone()
    for kind in SCHEDULED:
        kind(schedule).run(copy, Rewriter(copy))
    return copy


def policy_of(graph: Graph, schedule: Schedule) -> Layers | Pipeline | Sequential:
    """The schedule as a policy of the simulator, for the works of the graph into which it is written."""
    number = {node.output.name: i for i, node in enumerate(graph)}
    results = {layer: node.output.name for layer, node in results_of(graph).items()}

    def part(branch: Branch, layers: Iterable[int] = ()) -> Part:
        """A branch, and the `Result` nodes of some layers behind it."""
        names = [*branch.nodes, *(results[i] for i in layers if i in results)]
        return Part(branch.first_core, branch.n_cores, tuple(number[name] for name in names))

    if schedule.mode == "sequential":
        return Sequential(schedule.n_cores)
    if schedule.mode == "layered":
        return Layers(tuple(
            tuple(part(branch, [i] if k == 0 else []) for k, branch in enumerate(layer.branches))
            for i, layer in enumerate(schedule.layers)
        ))  # fmt: skip
    whole, at = [], 0
    for stage in schedule.stages:
        nodes = tuple(name for layer in stage.layers for name in layer.nodes)
        whole.append(part(Branch(stage.first_core, stage.n_cores, nodes), range(at, at + len(stage.layers))))
        at += len(stage.layers)
    return Pipeline(tuple(whole), schedule.micro_batches or 1)


__all__ = ["Operators", "device_batch", "has_branches", "plan_layers", "plan_pipeline", "policy_of",
           "scheduled_graph"]  # fmt: skip
