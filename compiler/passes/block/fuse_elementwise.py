"""Element-wise tails move into the kernel that produces the tensor.

Owns the growth of fused blocks. Which operators' kernels apply a tail they say themselves (`Operator.fusion_root`);
element-wise operators form blocks of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Elementwise, Fused
from ...ir.ops.elementwise import Add, Cast, Mul, Sub
from ...ir.types import TensorType, is_native
from ..base import BlockPass
from ..rewrite import Rewriter

# Bounds of the search, so that wide graphs take linear time
MOST_SEARCHED = 400  # nodes between a block and an operand of its tail
MOST_TRIED = 200  # readers of a block
MOST_APART = 16  # nodes that come with one operand of a tail
WIDENING = (Add, Cast, Mul, Sub)  # that bytes become f32 by
PATIENCE = 16  # members beyond the last one that left a single result


@dataclass(frozen=True)
class FuseElementwise(BlockPass):
    """Merge element-wise operators into the node that feeds them, with what they alone read of others.

    before: %1 = Conv(%x, %w); %2 = Relu(%1)      after: %2 = fused<Conv>(%x, %w) { %1 = Conv(%x, %w); return Relu(%1) }
    """

    max_nodes: int = 64
    max_operands: int = 24

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        order = {node: i for i, node in enumerate(graph)}
        taken: dict[Node, list[Node]] = {}  # with its block
        blocks: list[list[Node]] = []
        roots = [n for n in graph if n.op.fusion_root] + [n for n in graph if isinstance(n.op, Elementwise)]
        for root in roots:
            if root not in taken and len(root.outputs) == 1 and _is_of_numbers(root):
                members, widening = self._grow(_Block(root, order), taken, rw)
                if len(members) > 1:
                    blocks.append(members)
                    taken.update(dict.fromkeys(members, members))
                home = taken.get(widening[-1].output.users[0]) if widening else None
                if home is not None:
                    at = home.index(widening[-1].output.users[0])
                    home[at:at] = widening
                    taken.update(dict.fromkeys(widening, home))
        for members in blocks:
            fuse_block(graph, members, order)
        return bool(blocks)

    def _grow(self, block: _Block, taken: Mapping[Node, object], rw: Rewriter) -> tuple[list[Node], list[Node]]:
        """The largest run of followers that leaves a single result; but those that only widen it, which come second."""
        best, narrow, tries = 1, 0, 0
        while len(block.members) < min(self.max_nodes, best + PATIENCE) and tries < MOST_TRIED:
            user = block.next_user()
            if user is None:
                break
            tries += 1
            reason = self._refusal(user, block, taken)
            if reason is not None:
                rw.no_match(reason, user)
                continue
            more = _only_read_by(user, block, taken, self.max_operands)
            block.seen.update(more)  # none of them is a follower as well
            for node in (*more, user):
                block.add(node)
            if block.n_escaping == 1:
                best = len(block.members)
                narrow = best if block.is_narrow() else narrow
        widening = block.members[narrow:best] if narrow else []
        if _only_widen(widening, block):
            return block.members[:narrow], widening
        return block.members[:best], []

    def _refusal(self, user: Node, block: _Block, taken: Mapping[Node, object]) -> str | None:
        """Why `user` may not join the block, None if it may."""
        if not isinstance(user.op, Elementwise) or len(user.outputs) != 1:
            return "not element-wise"
        if user in taken:
            return "already in another block"
        if not _is_of_numbers(user):
            return "of strings, which lie on the host"
        t, shape = user.output.tensor, block.root.output.tensor
        if t.dims != shape.dims or t.layout != shape.layout:
            return "another shape or layout than the block's result"
        outside = [v for v in user.operands if v.producer not in block.loose_uses]
        if len(block.operands.union(outside)) > self.max_operands:
            return "too many operands"
        if any(block.leads_to(v) for v in outside):
            return "an operand depends on the block by another way"
        return None


class _Block:
    """A root and followers, with what is needed to judge the next one.

    Candidates come in graph order, so that all members that a candidate might read are known before it is judged.
    """

    def __init__(self, root: Node, order: dict[Node, int]) -> None:
        self.root, self.order = root, order
        self.members: list[Node] = []
        self.operands: set[Value] = set()
        self.loose_uses: dict[Node, int] = {}
        """Per member the uses of its result outside of the block."""
        self.n_escaping = 0
        self.seen = {root}
        """The root, whoever reads a member, and what came with those."""
        self._users: list[tuple[int, Node]] = []
        self.add(root)

    def add(self, node: Node) -> None:
        """Take in a follower of the members (or the root)."""
        for v in node.operands:
            producer = v.producer
            if producer is None or producer not in self.loose_uses:
                self.operands.add(v)
                continue
            self.loose_uses[producer] -= 1
            self.n_escaping -= self.loose_uses[producer] == 0
        self.members.append(node)
        self.loose_uses[node] = len(node.output.uses) + node.output.output_uses
        self.n_escaping += self.loose_uses[node] > 0
        for user, _ in islice(node.output.uses, MOST_TRIED):
            if user in self.order and user not in self.seen:
                self.seen.add(user)
                heappush(self._users, (self.order[user], user))

    def is_narrow(self) -> bool:
        """Whether the last member's result is of bytes, and all that is read outside."""
        last = self.members[-1]
        return self.loose_uses[last] > 0 and last.output.tensor.dtype.nbytes == 1

    def next_user(self) -> Node | None:
        """The next node in graph order that reads a member."""
        return heappop(self._users)[1] if self._users else None

    def leads_to(self, v: Value) -> bool:
        """Whether `v` is, or after a long search may be, computed from the block; only nodes after its root can be."""
        stack = [v]
        seen: set[Node] = set()
        start = self.order[self.root]
        while stack:
            if len(seen) > MOST_SEARCHED:
                return True
            producer = stack.pop().producer
            if producer is None or producer in seen or self.order.get(producer, -1) < start:
                continue
            if producer in self.loose_uses:
                return True
            seen.add(producer)
            stack.extend(producer.operands)
        return False


def _is_of_numbers(node: Node) -> bool:
    return all(is_native(v.type) for v in (*node.operands, *node.outputs))


def _only_widen(nodes: list[Node], block: _Block) -> bool:
    """Whether nodes only scale a block's bytes, by constants, for one element-wise reader, which can do so as well.

    What is stored between takes a quarter of the memory then.
    """
    if not nodes or not all(isinstance(n.op, WIDENING) and len(n.output.users) == 1 for n in nodes):
        return False
    inside = set(nodes)
    wide = {v for n in nodes for v in n.operands if v.producer not in inside and not v.is_constant}
    reader, last = nodes[-1].output.users[0], nodes[-1].output
    return len(wide) == 1 and isinstance(reader.op, Elementwise) and not last.output_uses and _is_whole(
        reader.output, block)  # fmt: skip


def _only_read_by(user: Node, block: _Block, taken: Mapping[Node, object], max_operands: int) -> list[Node]:
    """Element-wise nodes whose results only `user` reads, of what is in memory anyway: the block computes them as it
    goes, in their order. With them it reads at most as many tensors of its shape as with their results.
    """
    found: list[Node] = []
    for v in dict.fromkeys(user.operands):
        nodes = _kept_apart(v, block, taken)
        inside = set(nodes)
        reads = {o for n in nodes for o in n.operands if o.producer not in inside} - block.operands
        if sum(_is_whole(o, block) for o in reads) <= 1 and len(block.operands | reads) <= max_operands:
            found += nodes
    return found


def _kept_apart(v: Value, block: _Block, taken: Mapping[Node, object]) -> list[Node]:
    """`v`'s producer and, before it, what that alone reads; nothing where one of them may join what feeds it."""
    nodes: dict[Node, None] = {}
    pending = [v]
    while pending:
        node = (v := pending.pop()).producer
        if node is None or node in taken or node in block.seen or not _is_whole(v, block):
            continue
        is_apart = len(node.outputs) != 1 or len(v.uses) != 1 or v.output_uses or not _is_of_numbers(node)
        if is_apart or not isinstance(node.op, Elementwise):
            if len(v.uses) + v.output_uses == 1 and node.op.fusion_root:
                return []
            continue
        if len(nodes) == MOST_APART:
            return []
        nodes[node] = None
        pending += node.operands
    return sorted(nodes, key=block.order.__getitem__)


def _is_whole(v: Value, block: _Block) -> bool:
    """Whether it has the block's shape and layout."""
    t, shape = v.type, block.root.output.tensor
    return isinstance(t, TensorType) and t.dims == shape.dims and t.layout == shape.layout


def _escaping(block: list[Node], inside: set[Node]) -> list[Value]:
    """Values of the block that something outside reads."""
    return [v for n in block for v in n.outputs if v.output_uses or any(u not in inside for u in v.users)]


def fuse_block(graph: Graph, block: list[Node], order: dict[Node, int]) -> None:
    """Replace the block by one Fused node at the place of its last member, behind which all its readers must be."""
    body = Graph("body")
    inside, inner = set(block), {}
    operands: list[Value] = []
    for n in block:
        for v in n.operands:
            if v.producer in inside or v in inner:
                continue
            if v.data is not None and v.data.size == 1 and (n is not block[0] or isinstance(n.op, Elementwise)):
                inner[v] = body.add_constant(v.data, v.name)  # kernels write single numbers into their text
            else:
                inner[v] = body.add_input(v.name, v.type)
                inner[v].known = v.known
                operands.append(v)
    for n in block:
        copy = body.add_node(n.op, [None if v is None else inner[v] for v in n.inputs], [v.name for v in n.outputs],
                             name=n.name, types=[v.type for v in n.outputs])
        inner.update(zip(n.outputs, copy.outputs))
    results = _escaping(block, inside)
    body.set_outputs([inner[v] for v in results])
    last = max(block, key=order.__getitem__)
    fused = graph.add_node(Fused(kind=block[0].op.name), operands, [None] * len(results), name=block[0].name,
                           after=last, types=[v.type for v in results], bodies={"body": body})  # fmt: skip
    order[fused] = order[last]
    for old, new in zip(results, fused.outputs, strict=True):
        new.known = old.known  # who uses a size as data must be seen to
        graph.replace_all_uses_with(old, new)
    for n in reversed(block):
        graph.erase(n)
    for old, new in zip(results, fused.outputs, strict=True):
        graph.rename(new, old.name)
