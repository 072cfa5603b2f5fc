"""When the nodes of a scheduled graph run: which one is surely over before another begins.

The memory planner asks: what may share bytes. Knows no costs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....errors import InternalError
from ...ir.graph import Graph, Node, Value
from ...ir.ops.shape import Concat
from ...ir.schedule import Schedule, check_schedule, node_of, print_schedule
from ...ir.views import computes, roots


@dataclass(frozen=True)
class Spot:
    """Where in a schedule a node runs.

    Attributes:
        stage: its stage's number. branch: its branch's, unique in the schedule.
        step: its place if all branches ran one after the other.
        opens: the first step of its layer, whose branches run at the same time.
    """

    stage: int
    branch: int
    step: int
    opens: int

    def before(self, other: Spot) -> bool:
        """Whether this node is over when the other begins, for the same rows of a batch."""
        if self.stage != other.stage:
            return self.stage < other.stage
        return self.step < other.step if self.branch == other.branch else self.step < other.opens


def sequential_spots(graph: Graph) -> dict[Node, Spot]:
    """The spots of the computing nodes of a graph that run one at a time."""
    steps = (node for node in graph if computes(node))
    return {node: Spot(0, 0, i, i) for i, node in enumerate(steps)}


def scheduled_spots(graph: Graph, schedule: Schedule) -> dict[Node, Spot]:
    """The spot of every node that is no view.

    Raises:
        InternalError: the schedule does not fit the graph, or lets a node read what may not be there yet; the printed
            schedule is attached.
    """
    found: dict[Node, Spot] = {}
    n_branches = 0
    for number, stage in enumerate(schedule.stages):
        for layer in stage.layers:
            opens = len(found)
            for branch in layer.branches:
                for node in (node_of(graph, name) for name in branch.nodes):
                    if computes(node):
                        found[node] = Spot(number, n_branches, len(found), opens)
                n_branches += 1
    try:
        check_schedule(graph, schedule)
        _check_order(graph, found)
    except InternalError as error:
        if hasattr(error, "add_note"):
            error.add_note(print_schedule(schedule, graph))
        raise
    return found


def _check_order(graph: Graph, found: dict[Node, Spot]) -> None:
    root_of = roots(graph)
    for node, spot in found.items():
        for producer in (p for v in node.operands for p in _computed_by(v, root_of)):
            if not found[producer].before(spot):
                raise InternalError(f"a schedule may begin it before {producer.where} is over", where=node.where)


def _computed_by(v: Value, root_of: dict[Value, Value]) -> list[Node]:
    """The nodes that write a value's bytes: of a Concat for which nothing runs, those of its operands."""
    producer = root_of.get(v, v).producer
    if producer is None:
        return []
    if isinstance(producer.op, Concat) and not computes(producer):
        return [node for part in producer.operands for node in _computed_by(part, root_of)]
    return [producer]


__all__ = ["Spot", "scheduled_spots", "sequential_spots"]
