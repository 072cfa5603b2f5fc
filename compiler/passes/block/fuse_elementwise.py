"""Element-wise tails move into the kernel that produces the tensor.

Owns the growth of fused blocks. What a root's kernel accepts as a tail is stated by the IR's kinds: contractions,
windows and the roots in `ROOTS` take one, and element-wise operators form blocks of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Contraction, Elementwise, Fused, Window
from ...ir.types import TensorType
from ..base import BlockPass
from ..rewrite import Rewriter

ROOTS = frozenset({"Softmax", "LayerNormalization", "InstanceNormalization", "GlobalAveragePool", "GlobalMaxPool"})


@dataclass(frozen=True)
class FuseElementwise(BlockPass):
    """Merge element-wise operators into the node that feeds them.

    before: %1 = Conv(%x, %w); %2 = Relu(%1)      after: %2 = fused<Conv>(%x, %w) { %1 = Conv(%x, %w); return Relu(%1) }
    """

    max_nodes: int = 64
    max_operands: int = 24

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        order = {node: i for i, node in enumerate(graph)}
        taken: set[Node] = set()
        blocks: list[list[Node]] = []
        roots = [n for n in graph if _takes_tail(n)] + [n for n in graph if isinstance(n.op, Elementwise)]
        for root in roots:
            if root not in taken and len(root.outputs) == 1:
                block = self._grow(root, order, taken, rw)
                if len(block) > 1:
                    blocks.append(block)
                    taken.update(block)
        for block in blocks:
            _fuse(graph, block, order)
        return bool(blocks)

    def _grow(self, root: Node, order: dict[Node, int], taken: set[Node], rw: Rewriter) -> list[Node]:
        """The largest run of followers that leaves a single result."""
        block, best = [root], 1
        inside = {root}
        while len(block) < self.max_nodes:
            follower = self._next(block, inside, order, taken, rw)
            if follower is None:
                break
            block.append(follower)
            inside.add(follower)
            if len(_escaping(block, inside)) == 1:
                best = len(block)
        return block[:best]

    def _next(self, block: list[Node], inside: set[Node], order: dict[Node, int], taken: set[Node],
              rw: Rewriter) -> Node | None:
        users = {u for n in block for v in n.outputs for u in v.users if u not in inside and u in order}
        shape = block[0].output.tensor
        for user in sorted(users, key=order.__getitem__):
            reason = self._refusal(user, shape, block, inside, order, taken)
            if reason is None:
                return user
            rw.no_match(reason, user)
        return None

    def _refusal(self, user: Node, shape: TensorType, block: list[Node], inside: set[Node], order: dict[Node, int],
                 taken: set[Node]) -> str | None:
        """Why `user` may not join the block, None if it may."""
        if not isinstance(user.op, Elementwise) or len(user.outputs) != 1:
            return "not element-wise"
        if user in taken:
            return "already in another block"
        t = user.output.tensor
        if t.dims != shape.dims or t.layout != shape.layout:
            return "another shape or layout than the block's result"
        outside = [v for v in user.operands if v.producer not in inside]
        n_operands = len({v for n in [*block, user] for v in n.operands if v.producer not in inside})
        if n_operands > self.max_operands:
            return "too many operands"
        if any(_depends_on(v, inside, order, order[block[0]]) for v in outside):
            return "an operand depends on the block by another way"
        return None


def _takes_tail(node: Node) -> bool:
    return (isinstance(node.op, (Contraction, Window)) or node.op.name in ROOTS) and len(node.outputs) == 1


def _escaping(block: list[Node], inside: set[Node]) -> list[Value]:
    """Values of the block that something outside reads."""
    return [v for n in block for v in n.outputs if v.output_uses or any(u not in inside for u in v.users)]


def _depends_on(v: Value, inside: set[Node], order: dict[Node, int], start: int) -> bool:
    """Whether `v` is computed from the block; only nodes after the block's first can be."""
    stack, seen = [v], set()
    while stack:
        producer = stack.pop().producer
        if producer is None or producer in seen or order.get(producer, -1) < start:
            continue
        if producer in inside:
            return True
        seen.add(producer)
        stack.extend(producer.operands)
    return False


def _fuse(graph: Graph, block: list[Node], order: dict[Node, int]) -> None:
    """Replace the block by one Fused node at the place of its last member."""
    body = Graph("body")
    inside, inner = set(block), {}
    operands: list[Value] = []
    for n in block:
        for v in n.operands:
            if v.producer not in inside and v not in inner:
                inner[v] = body.add_input(v.name, v.type)
                inner[v].known = v.known
                operands.append(v)
    for n in block:
        copy = body.add_node(n.op, [None if v is None else inner[v] for v in n.inputs], [v.name for v in n.outputs],
                             name=n.name, types=[v.type for v in n.outputs])
        inner.update(zip(n.outputs, copy.outputs))
    (result,) = _escaping(block, inside)
    body.set_outputs([inner[result]])
    last = max(block, key=order.__getitem__)
    fused = graph.add_node(Fused(kind=block[0].op.name), operands, [None], name=block[0].name, after=last,
                           types=[result.type], bodies={"body": body})
    order[fused] = order[last]
    graph.replace_all_uses_with(result, fused.output)
    for n in reversed(block):
        graph.erase(n)
    graph.rename(fused.output, result.name)
