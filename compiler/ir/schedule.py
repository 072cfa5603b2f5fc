"""What runs where: the nodes of an optimised graph on the cores of one instance.

Owns the result of partitioning, which the planner finds, a pass writes into the graph and the backend lowers. Knows no
costs and no algorithm.

A schedule names nodes by their first outputs, and so fits every copy of the graph for which it was found. In the graph
into which `passes/partition/result_nodes.py` has written it, nodes are in the schedule's order, stage by stage, layer
by layer, with a `Result` node behind every layer that hands values on. Cores are numbered from 0 within the instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from ...errors import InternalError
from .graph import Graph, Node, Value
from .ops.internal import Result
from .views import roots

Mode = Literal["sequential", "layered", "pipelined"]
SEVERAL = -1  # where a branch's number may stand: all of the layer's


@dataclass(frozen=True)
class Branch:
    """Nodes that run one after the other on cores of their own.

    With several cores these share each kernel's work items and meet after each kernel.

    Attributes:
        nodes: by their first outputs.
    """

    first_core: int
    n_cores: int
    nodes: tuple[str, ...]

    @property
    def cores(self) -> range:
        return range(self.first_core, self.first_core + self.n_cores)


@dataclass(frozen=True)
class Layer:
    """Branches that do not depend on one another, views of inputs aside, and run at the same time.

    They run on disjoint cores, or all of them on all cores of the stage (a *shared* layer): every kernel is cut over
    these, and the cores meet only once each has its part of the first kernel of every branch behind it, then once it
    has that of the second ones, and so on. All cores of the stage meet at the layer's end, where a `Result` hands on
    what later layers use, if they use anything. A sequential layer is one branch over all cores.
    """

    branches: tuple[Branch, ...]

    @property
    def nodes(self) -> Iterator[str]:
        """The nodes of all branches, without the `Result`."""
        return (node for branch in self.branches for node in branch.nodes)

    @property
    def shared(self) -> bool:
        """Whether all branches run on the same cores."""
        return len(self.branches) > 1 and len({branch.cores for branch in self.branches}) == 1


@dataclass(frozen=True)
class Stage:
    """Layers that run one after the other on the cores of one pipeline stage."""

    layers: tuple[Layer, ...]
    first_core: int
    n_cores: int

    @property
    def cores(self) -> range:
        return range(self.first_core, self.first_core + self.n_cores)


@dataclass(frozen=True)
class Schedule:
    """Where every node of a graph runs.

    Attributes:
        mode: "sequential" (one layer of one branch), "layered" (one stage) or "pipelined" (stages work on different
            micro-batches at the same time; what crosses from stage to stage needs two buffers).
        n_cores: cores of the instance. micro_batches: into how many parts a pipelined batch is cut.
        micro_rows: of each of them, in the batch that the schedule was made for; None: whatever there is.
    """

    mode: Mode
    n_cores: int
    stages: tuple[Stage, ...]
    micro_batches: int | None = None
    micro_rows: int | None = None

    @property
    def layers(self) -> Iterator[Layer]:
        return (layer for stage in self.stages for layer in stage.layers)


def sequential_schedule(graph: Graph, n_cores: int) -> Schedule:
    """One node after the other on all cores."""
    branch = Branch(0, n_cores, tuple(n.output.name for n in graph if not isinstance(n.op, Result)))
    return Schedule("sequential", n_cores, (Stage((Layer((branch,)),), 0, n_cores),))


def node_of(graph: Graph, name: str) -> Node:
    """The node whose first output has the name.

    Raises:
        InternalError: there is none.
    """
    node = graph.value(name).producer if graph.has_value(name) else None
    if node is None or node.output.name != name:
        raise InternalError("a schedule of another graph", where=f"graph {graph.name}", found=f"node %{name}")
    return node


def results_of(graph: Graph) -> dict[int, Node]:
    """The `Result` nodes, by the number of the layer that each ends."""
    return {node.op.layer: node for node in graph if isinstance(node.op, Result)}


def check_schedule(graph: Graph, schedule: Schedule) -> None:
    """Check what the backend relies on.

    Raises:
        InternalError: a node in no branch or in two, cores outside the stage or shared by branches or stages, an
            operand from a branch that runs at the same time, from a later layer, or past a `Result`.
    """
    _check_cores(schedule)
    order: dict[Node, tuple[int, int]] = {}
    n_expected = 0
    for i, layer in enumerate(schedule.layers):
        for b, branch in enumerate(layer.branches):
            n_expected += len(branch.nodes)
            order.update((node_of(graph, name), (i, b)) for name in branch.nodes)
    for i, result in results_of(graph).items():
        n_expected += 1
        order[result] = (i, SEVERAL)
    if n_expected != len(order) or set(order) != set(graph):
        raise InternalError("a schedule must have every node once", where=f"graph {graph.name}",
                            expected=len(graph), found=n_expected)  # fmt: skip
    bytes_of = roots(graph)
    for node in graph:
        _check_operands(node, order, bytes_of)


def _check_cores(schedule: Schedule) -> None:
    taken = 0
    for stage in schedule.stages:
        if stage.first_core < taken or stage.n_cores < 1:
            raise InternalError("stages share cores", where=f"stage on cores {stage.cores}")
        if schedule.mode == "pipelined":
            taken = stage.cores.stop
        if stage.cores.stop > schedule.n_cores:
            raise InternalError("a stage has cores that the instance lacks", found=stage.cores)
        for layer in stage.layers:
            used = [core for branch in layer.branches for core in branch.cores]
            if layer.shared and layer.branches[0].cores == stage.cores:
                continue
            if len(set(used)) != len(used) or not set(used) <= set(stage.cores):
                raise InternalError("branches share cores or leave their stage", found=used)


def _check_operands(node: Node, order: dict[Node, tuple[int, int]], bytes_of: dict[Value, Value]) -> None:
    layer, branch = order[node]
    for v in node.operands:
        if v.producer is None:
            continue
        from_layer, from_branch = order[v.producer]
        here = from_layer == layer and (from_branch == branch or isinstance(node.op, Result))
        here |= from_layer == layer and bytes_of[v].producer is None  # a view of what is there from the start
        handed_on = from_layer == layer - 1 and isinstance(v.producer.op, Result)
        if not (here or handed_on):
            raise InternalError(f"{v} of layer {from_layer}, branch {from_branch} does not reach its user",
                                where=node.where, found=f"layer {layer}, branch {branch}")  # fmt: skip


def print_schedule(schedule: Schedule, graph: Graph) -> str:
    """The schedule as text: stages, layers, each branch with its cores and nodes, and what a layer hands on.

    Args:
        graph: with the `Result` nodes.
    """
    results = results_of(graph)
    batches = f", {schedule.micro_batches} micro-batches" if schedule.micro_batches else ""
    lines = [f"schedule {schedule.mode} on {_count(schedule.n_cores, 'core')}{batches} {{"]
    number = 0
    for i, stage in enumerate(schedule.stages):
        lines.append(f"  stage {i} on {_cores(stage.cores)} {{")
        for layer in stage.layers:
            lines.append(f"    layer {number} {{")
            lines += [f"      {_cores(b.cores)}: {_names(b.nodes)}" for b in layer.branches]
            if number in results:
                lines.append(f"      result: {_names(v.name for v in results[number].outputs)}")
            lines.append("    }")
            number += 1
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _names(names: Iterable[str]) -> str:
    return " ".join(f"%{name}" for name in names)


def _cores(cores: range) -> str:
    return f"core {cores.start}" if len(cores) == 1 else f"cores {cores.start}-{cores.stop - 1}"


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")
