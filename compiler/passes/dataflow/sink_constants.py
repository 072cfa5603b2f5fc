"""Constants move into the bodies that use them, where kernels may pack them and other passes see them."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.graph import Graph, Node
from ...ir.ops.base import Control
from ..base import DataflowPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class SinkConstants(DataflowPass):
    """Copy captured constants into the bodies of If, Loop and Scan.

    before: %1 = If(%c, %w) {captures=1} @then_branch(%w) {…}      after: %1 = If(%c) @then_branch() {… with %w inside}
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in [n for n in graph if isinstance(n.op, Control)]:
            changed |= _sink(node, rw)
        return changed


def _sink(node: Node, rw: Rewriter) -> bool:
    assert isinstance(node.op, Control)
    first = len(node.inputs) - node.op.captures
    constant = [i for i, v in enumerate(node.inputs) if i >= first and v is not None and v.is_constant]
    if not constant:
        return rw.no_match("captures no constant", node)
    from_end = len(node.inputs)
    for body in node.bodies.values():
        doomed = []
        for i in constant:
            outer, inner = node.inputs[i], body.inputs[i - from_end]
            assert outer is not None
            copy = body.add_constant(outer.data)
            copy.type = outer.type
            body.replace_all_uses_with(inner, copy)
            doomed.append(inner)
        for inner in doomed:
            body.erase_input(inner)
    kept = [v for i, v in enumerate(node.inputs) if i not in constant]
    op = node.op.replace(captures=node.op.captures - len(constant))
    new = rw.graph.add_node(op, kept, before=node, name=node.name, types=[v.type for v in node.outputs],
                            bodies=node.bodies)
    rw.replace(node, new.outputs)
    return True
