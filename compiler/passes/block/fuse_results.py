"""Element-wise operators that give several large results of a graph become one block, which reads each operand once.

Owns which operators join. An optimiser's update is the case: weights, gradients and state are read once, new weights
and new state are written once, at the speed of the memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Elementwise
from ...ir.types import TensorType
from ..base import BlockPass
from ..rewrite import Rewriter
from .fuse_elementwise import fuse_block

Space = tuple[tuple[int, ...], tuple[int, ...]]
"""Known sizes and the layout: what the results of a block have in common."""


@dataclass(frozen=True)
class FuseResults(BlockPass):
    """Merge what computes several outputs of the graph of one known shape, of so many elements at least.

    before: %m = Add(%a, %g); %w = Sub(%b, %m); return %m, %w
    after:  %m, %w = fused<Add>(%a, %g, %b) { %m = Add(%a, %g); %w = Sub(%b, %m); return %m, %w }
    """

    least_elements: int = 8192
    max_nodes: int = 64
    max_operands: int = 24

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        counts: dict[Space, int] = {}
        for v in dict.fromkeys(graph.outputs):
            space = _space(v)
            if space is not None and v.producer is not None and isinstance(v.producer.op, Elementwise):
                counts[space] = counts.get(space, 0) + 1
        for space, count in counts.items():
            if count > 1 and _count(space[0]) >= self.least_elements:
                for block in _blocks(graph, space):  # of later steps, which no earlier block's node belongs to
                    changed |= self._fuse(graph, block, rw)
        return changed

    def _fuse(self, graph: Graph, block: list[Node], rw: Rewriter) -> bool:
        if sum(n.output.output_uses > 0 for n in block) < 2:
            return False
        inside = set(block)
        operands = {v for n in block for v in n.operands if v.producer not in inside}
        if len(block) > self.max_nodes or len(operands) > self.max_operands:
            return rw.no_match("too many operators or operands", block[0])
        _bring_together(graph, block)
        fuse_block(graph, block, {n: i for i, n in enumerate(graph)})
        return True


def _space(v: Value) -> Space | None:
    """The value's sizes and layout; None where a size is not known."""
    t = v.type
    if not isinstance(t, TensorType) or t.shape is None or not all(isinstance(d, int) for d in t.dims):
        return None
    return tuple(int(d) for d in t.dims if isinstance(d, int)), tuple(t.axis_order)


def _count(dims: Iterable[int]) -> int:
    count = 1
    for d in dims:
        count *= d
    return count


def _blocks(graph: Graph, space: Space) -> list[list[Node]]:
    """The element-wise operators of the space, in sets that nothing outside depends on and leads back into.

    Operators are put into steps: a way through anything else ends in a later step than it began. One whose readers all
    are in later steps is put off, so that its result need not wait in memory.
    """
    step: dict[Node, int] = {}
    members: dict[Node, None] = {}
    for node in graph:
        if isinstance(node.op, Elementwise) and len(node.outputs) == 1 and _space(node.output) == space:
            members[node] = None
        before = [p for v in node.operands if (p := v.producer) is not None]
        step[node] = max((step[p] + (p in members and node not in members) for p in before), default=0)
    for node in reversed(members):
        users = list(node.output.users)
        if users and not node.output.output_uses and all(u in members for u in users):
            step[node] = min(step[u] for u in users)
    blocks: dict[int, list[Node]] = {}
    for node in members:
        blocks.setdefault(step[node], []).append(node)
    return [block for _, block in sorted(blocks.items())]


def _bring_together(graph: Graph, block: list[Node]) -> None:
    """Move nodes that depend on the block behind its last member, in order."""
    inside, dependent = set(block), set(block)
    last = block[-1]
    moved: list[Node] = []
    for node in graph.nodes_in_order():
        if node is last:
            break
        if node not in inside and any(v.producer in dependent for v in node.operands):
            dependent.add(node)
            moved.append(node)
    place = last
    for node in moved:
        graph.move(node, after=place)
        place = node


__all__ = ["FuseResults"]
