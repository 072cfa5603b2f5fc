"""Result nodes between layers: everything that later layers use passes through them.

Owns where a value crosses a cut. Which cuts are good is `layers` and `stages`' affair.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...ir.graph import Graph, Node, Value
from ...ir.ops.internal import Result
from ..base import PartitionPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class ResultNodes(PartitionPass):
    """End every layer but the last with a `Result` of the values that later layers use.

    Constants and graph inputs are there from the start and pass by; so do values that are only returned. A value used
    several layers on passes every `Result` in between.

    before: %1 = Relu(%x); %2 = Neg(%1)      after, with a cut behind node 1:
            %1 = Relu(%x); %2 = parax::Result(%1) {layer=0}; %3 = Neg(%2)
    """

    cuts: tuple[int, ...] = ()
    """How many nodes stand before each cut, ascending."""
    stages: Mapping[int, int] = field(default_factory=dict)
    """Which stage ends at a cut, by the cut's number, where one does."""

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        if not self.cuts:
            return rw.no_match("no cuts")
        nodes = graph.nodes_in_order()
        if any(isinstance(node.op, Result) for node in nodes):
            return rw.no_match("the graph has Result nodes already")
        layer_of = {node: bisect_right(self.cuts, i) for i, node in enumerate(nodes)}
        changed = False
        for i, cut in enumerate(self.cuts):
            crossing = _crossing(graph, i, layer_of)
            if not crossing or cut >= len(nodes):
                rw.no_match(f"nothing crosses cut {i}")
                continue
            self._insert(graph, i, nodes[cut], crossing, layer_of)
            changed = True
        return changed

    def _insert(self, graph: Graph, i: int, before: Node, crossing: list[Value], layer_of: dict[Node, int]) -> None:
        op = Result(layer=i, stage=self.stages.get(i, -1))
        made = graph.add_node(op, crossing, before=before, n_outputs=len(crossing))
        layer_of[made] = i
        for old, new in zip(crossing, made.outputs, strict=True):
            for user, operand in list(old.uses):
                if layer_of[user] > i:
                    user.set_input(operand, new)


def _crossing(graph: Graph, i: int, layer_of: dict[Node, int]) -> list[Value]:
    """The values of layers up to `i` that nodes of later layers use now, in the order in which they are computed."""
    return [v for node in graph if layer_of[node] <= i for v in node.outputs
            if any(layer_of[user] > i for user, _ in v.uses)]  # fmt: skip


__all__ = ["ResultNodes"]
