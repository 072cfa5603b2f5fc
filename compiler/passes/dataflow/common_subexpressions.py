"""Equal computations are done once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Host
from ..base import DataflowPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class CommonSubexpressions(DataflowPass):
    """Let equal operators on equal operands share one node; equal small constants share one value.

    before: %1 = Relu(%x); %2 = Relu(%x); %3 = Add(%1, %2)      after: %1 = Relu(%x); %3 = Add(%1, %1)
    """

    max_constant_nbytes: int = 4096

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = self._constants(graph)
        seen: dict[Hashable, Node] = {}
        for node in graph.nodes_in_order():
            if node.bodies or not node.op.deterministic or isinstance(node.op, Host):
                rw.no_match("a body, random or a host operator", node)
                continue
            key = (node.op.key(), node.inputs, len(node.outputs), tuple(v.type for v in node.outputs))
            first = seen.setdefault(key, node)
            if first is not node:
                rw.replace(node, first.outputs)
                changed = True
        return changed

    def _constants(self, graph: Graph) -> bool:
        seen: dict[Hashable, Value] = {}
        changed = False
        for v in graph.constants:
            if v.data is None or v.data.dtype.hasobject or v.data.nbytes > self.max_constant_nbytes:
                continue
            first = seen.setdefault((v.type, v.data.tobytes()), v)
            if first is not v and v.is_used:
                graph.replace_all_uses_with(v, first)
                changed = True
        return changed
