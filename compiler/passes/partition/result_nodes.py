"""Result nodes between layers: everything that later layers use passes through them.

Owns how a schedule is written into a graph. Which cuts are good is the planner's affair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ....errors import InternalError
from ...ir.graph import Graph, Node, Value
from ...ir.ops.internal import Result
from ...ir.schedule import Schedule, node_of
from ..base import PartitionPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class ResultNodes(PartitionPass):
    """Bring nodes into the schedule's order, and end every layer but the last with a `Result` of what later ones use.

    Constants and graph inputs are there from the start and pass by; so do values that are only returned. A value used
    several layers on passes every `Result` in between.

    before: %1 = Relu(%x); %2 = Neg(%1)      after, of the layers 1 and 2:
            %1 = Relu(%x); %2 = parax::Result(%1) {layer=0}; %3 = Neg(%2)
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class.

        Raises:
            InternalError: the schedule is of another graph.
        """
        if self.schedule is None or self.schedule.mode == "sequential":
            return rw.no_match("no layers: one node runs after the other")
        before = graph.nodes_in_order()
        if any(isinstance(node.op, Result) for node in before):
            return rw.no_match("the graph has Result nodes already")
        layers = [[node_of(graph, name) for name in layer.nodes] for layer in self.schedule.layers]
        layer_of = {node: i for i, nodes in enumerate(layers) for node in nodes}
        if set(layer_of) != set(before):
            raise InternalError("a schedule must have every node once", where=f"graph {graph.name}",
                                expected=len(before), found=len(layer_of))  # fmt: skip
        for node in layer_of:
            graph.move(node)
        changed = before != list(layer_of)
        stages = dict(_stage_ends(self.schedule))
        for i in range(len(layers) - 1):
            crossing = _crossing(graph, i, layer_of)
            if crossing:
                self._insert(graph, Result(layer=i, stage=stages.get(i, -1)), layers[i + 1][0], crossing, layer_of)
                changed = True
            else:
                rw.no_match(f"nothing crosses from layer {i} to later ones")
        return changed

    def _insert(
        self, graph: Graph, op: Result, before: Node, crossing: list[Value], layer_of: dict[Node, int]
    ) -> None:
        made = graph.add_node(op, crossing, before=before, n_outputs=len(crossing))
        layer_of[made] = op.layer
        for old, new in zip(crossing, made.outputs, strict=True):
            for user, operand in list(old.uses):
                if layer_of[user] > op.layer:
                    user.set_input(operand, new)


def _stage_ends(schedule: Schedule) -> Iterator[tuple[int, int]]:
    """Of a pipeline, the last layer of each stage and the stage's number."""
    last = -1
    for k, stage in enumerate(schedule.stages):
        last += len(stage.layers)
        if schedule.mode == "pipelined":
            yield last, k


def _crossing(graph: Graph, i: int, layer_of: dict[Node, int]) -> list[Value]:
    """The values of layers up to `i` that nodes of later layers use now, in the order in which they are computed."""
    return [v for node in graph if layer_of[node] <= i for v in node.outputs
            if any(layer_of[user] > i for user, _ in v.uses)]  # fmt: skip


__all__ = ["ResultNodes"]
