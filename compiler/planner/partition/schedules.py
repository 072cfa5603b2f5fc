"""Partitions written into a graph: nodes in order, `Result` nodes between layers, and the schedule that says who runs.

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
from ...ir.ops.internal import Result
from ...ir.schedule import Branch, Layer, Schedule, Stage, sequential_schedule
from ...passes.partition.result_nodes import ResultNodes
from ...passes.rewrite import Rewriter
from ...targets.machine import Machine
from .branches import Branches, TaskTimes
from .dag import Dag, Mask, bits, contract_views, mask_of
from .layers import LayerOptions, layer_partition
from .merging import merge_where_it_pays
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

    def write(
        self, stages: Sequence[tuple[int, int, list[Parts]]], micro_batches: int | None = None, batch: int = 1
    ) -> Schedule:
        """Bring the graph's nodes into the order of the layers and insert the `Result` nodes.

        Args:
            stages: first core, cores and layers of each; the cores of layers count from the stage's first.
            micro_batches: of a pipeline, for a request of `batch` rows.
        """
        layers = [(first, parts) for first, _, of_stage in stages for parts in of_stage]
        branches = [[Branch(first + core, n, self._in_order(mask)) for core, n, mask in parts]
                    for first, parts in layers]  # fmt: skip
        first_branch = branches[0][0]
        branches[0][0] = Branch(first_branch.first_core, first_branch.n_cores, (*self.free, *first_branch.nodes))
        for node in (node for layer in branches for branch in layer for node in branch.nodes):
            self.graph.move(node)
        cuts = tuple(accumulate(sum(len(branch.nodes) for branch in layer) for layer in branches))[:-1]
        ends = accumulate(len(of_stage) for _, _, of_stage in stages)
        stage_at = {end - 1: k for k, end in enumerate(ends)} if micro_batches is not None else {}
        ResultNodes(cuts, stage_at).run(self.graph, Rewriter(self.graph))
        results = {node.op.layer: node for node in self.graph if isinstance(node.op, Result)}
        made = iter([Layer(tuple(layer), results.get(i)) for i, layer in enumerate(branches)])
        staged = tuple(Stage(tuple(next(made) for _ in of_stage), first, n) for first, n, of_stage in stages)
        n_cores = max(first + n for first, n, _ in stages)
        if micro_batches is None:
            return Schedule("layered", n_cores, staged)
        return Schedule("pipelined", n_cores, staged, micro_batches, -(-batch // micro_batches))

    def _in_order(self, mask: Mask) -> tuple[Node, ...]:
        return tuple(node for i in bits(mask) for node in self.nodes[i])


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
    merge: bool = False,
    cost: CostRule = node_cost,
) -> Schedule:
    """Partition a graph into layers of branches side by side, and insert the `Result` nodes between them.

    The graph must be optimised and final: what is added later has no place in the schedule. It stays as it is where
    nothing is better than one node after the other on all cores, as the search sees it part by part or as the simulator
    sees the whole; the schedule is "sequential" then.

    Args:
        n_cores: of the instance. symbols: sizes of symbolic dimensions to plan for.
        measured: what nodes took, with these sizes, alone on one core and on all; better than any prediction.
        merge: also merge sibling convolutions where that pays; they may round differently then.
        cost: what a node costs.
    """
    if merge:
        merge_where_it_pays(graph, machine, n_cores, symbols, cost)
    operators = Operators.of(graph, machine, n_cores, symbols, measured, cost)
    return write_layers(operators, best_layers(operators, n_cores, options), n_cores)


def best_layers(operators: Operators, n_cores: int, options: LayerOptions | None = None) -> list[Parts]:
    """The layers of a graph, none where one operator after the other is as good; see `plan_layers`."""
    layers = operators.layers(n_cores, options or LayerOptions()) if operators.dag.n else []
    if all(len(parts) == 1 for parts in layers):
        return []
    side_by_side = Layers(tuple(tuple(Part(first, n, tuple(bits(mask))) for first, n, mask in parts)
                                for parts in layers))  # fmt: skip
    return layers if operators.seconds(side_by_side) < operators.seconds(Sequential(n_cores)) else []


def write_layers(operators: Operators, layers: list[Parts], n_cores: int) -> Schedule:
    """Write layers into the operators' graph, which is equal to the one for which they were found."""
    if not layers:
        return sequential_schedule(operators.graph, n_cores)
    return operators.write([(0, n_cores, layers)])


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
    return operators.write(
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


def policy_of(graph: Graph, schedule: Schedule) -> Layers | Pipeline | Sequential:
    """The schedule as a policy of the simulator, for the works of the graph as it is now."""
    number = {node: i for i, node in enumerate(graph)}

    def part(branch: Branch, results: Iterable[Node | None] = ()) -> Part:
        nodes = [*branch.nodes, *(node for node in results if node is not None)]
        return Part(branch.first_core, branch.n_cores, tuple(number[node] for node in nodes))

    if schedule.mode == "sequential":
        return Sequential(schedule.n_cores)
    if schedule.mode == "layered":
        return Layers(tuple(
            tuple(part(branch, [layer.result] if k == 0 else []) for k, branch in enumerate(layer.branches))
            for layer in schedule.layers
        ))  # fmt: skip
    whole = []
    for stage in schedule.stages:
        nodes = tuple(node for layer in stage.layers for node in layer.nodes)
        whole.append(part(Branch(stage.first_core, stage.n_cores, nodes), [layer.result for layer in stage.layers]))
    return Pipeline(tuple(whole), schedule.micro_batches or 1)


__all__ = ["Operators", "Parts", "best_layers", "device_batch", "has_branches", "plan_layers", "plan_pipeline",
           "policy_of", "write_layers"]  # fmt: skip
