"""Composite operators become the operators they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
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
            pending += expand(rw, node)[1]
            changed = True
        return changed


def expand(rw: Rewriter, node: Node) -> tuple[list[Value], list[Node]]:
    """Put what a composite node stands for in its place.

    Returns:
        What its results are now, and the composite nodes among those that it stands for.
    """
    last, made = node.prev, []
    assert isinstance(node.op, Composite)
    result = node.op.expand(rw.before(node), *node.inputs)
    values = list(result) if isinstance(result, (list, tuple)) else [result]
    new = last.next if last is not None else rw.graph.first
    while new is not None and new is not node:
        if isinstance(new.op, Composite):
            made.append(new)
        new = new.next
    values = values[: len(node.outputs)]
    rw.replace(node, values)
    return values, made
