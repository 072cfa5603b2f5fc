"""Composite operators become the operators they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.graph import Graph
from ...ir.ops.base import Composite, Operator
from ..base import BlockPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class DecomposeComposites(BlockPass):
    """Expand composites that have no kernel of their own.

    before: %1 = Gemm(%a, %b, %c)      after: %2 = MatMul(%a, %b); %1 = Add(%2, %c)
    """

    has_kernel: Callable[[Operator], bool] = lambda op: False

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        pending = [n for n in graph if isinstance(n.op, Composite)]
        while pending:
            node = pending.pop()
            if self.has_kernel(node.op):
                rw.no_match("a kernel of its own serves it", node)
                continue
            last = node.prev
            assert isinstance(node.op, Composite)
            result = node.op.expand(rw.before(node), *node.inputs)
            values = list(result) if isinstance(result, (list, tuple)) else [result]
            new = last.next if last is not None else graph.first
            while new is not None and new is not node:
                if isinstance(new.op, Composite):
                    pending.append(new)
                new = new.next
            rw.replace(node, values[: len(node.outputs)])
            changed = True
        return changed
