"""Code that no output needs goes away."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.graph import Graph
from ..base import DataflowPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class DeadCode(DataflowPass):
    """Remove nodes and constants that no graph output depends on.

    before: %1 = Relu(%x); %2 = Tanh(%x); return %2      after: %2 = Tanh(%x); return %2
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in reversed(graph.nodes_in_order()):
            if not any(v.is_used for v in node.outputs):
                rw.erase(node)
                changed = True
        for constant in graph.constants:
            if not constant.is_used:
                graph.erase_constant(constant)
        return changed
