"""What is cheap to compute from a tensor that lives anyway is computed again where it is read late.

A training step reads most of its forward tensors again in the backward pass. Of x, x - mean and (x - mean) · scale only
x need be kept: the others become part of the kernel that reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Effort, Elementwise
from ...ir.types import TensorType
from ..base import BlockPass
from ..rewrite import Rewriter

SMALL = 8  # times smaller than what is recomputed: kept for it
EFFORTS = (Effort.CHEAP, Effort.FUNCTION)


@dataclass(frozen=True)
class RecomputeElementwise(BlockPass):
    """Give late element-wise readers of a cheap element-wise result their own copy of what computes it.

    before: %2 = Sub(%1, %m); %3 = Exp(%2); …; %8 = Mul(%2, %7); %9 = Add(%1, %8)
    after:  %2 = Sub(%1, %m); %3 = Exp(%2); …; %s = Sub(%1, %m); %8 = Mul(%s, %7); %9 = Add(%1, %8)

    No more is kept for it: a single large operand lives about as long anyway, in place of the result.

    Attributes:
        least_nbytes: of a tensor that is worth it. distance: nodes before a reader is late.
        most_flops: that are computed again for each element of a reader. Writing and reading the element takes the time
            of more.
    """

    least_nbytes: int = 1 << 16
    distance: int = 8
    most_flops: int = 20

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        order: dict[Node, float] = {node: i for i, node in enumerate(graph)}
        changed = False
        for node in reversed(graph.nodes_in_order()):
            if self._is_cheap(node) and len(node.output.uses) > 1:
                late = self._late(node, order)
                near = max((order[user] for user in node.output.users if user not in late), default=0)
                for user in late:
                    copied = self._nodes(node.output, user, order, (near + order[user]) / 2)
                    if copied is None:
                        rw.no_match("needs tensors that are not kept", node)
                        continue
                    _copy(graph, copied, node.output, user, order)
                    changed = True
        return changed

    def _is_cheap(self, node: Node) -> bool:
        if not isinstance(node.op, Elementwise) or node.op.effort not in EFFORTS or len(node.outputs) != 1:
            return False
        size = node.output.tensor.nbytes
        return isinstance(size, int) and size >= self.least_nbytes

    def _late(self, node: Node, order: dict[Node, float]) -> list[Node]:
        """The readers behind the longest time without one, if they are element-wise and it is long enough."""
        if node.output.output_uses:
            return []
        users = sorted(node.output.users, key=order.__getitem__)
        gaps = [order[user] - order[before] for before, user in zip(users, users[1:])]
        longest = max(gaps, default=0)
        late = users[gaps.index(longest) + 1 :] if longest >= self.distance else []
        same = (isinstance(u.op, Elementwise) and u.output.tensor.dims == node.output.tensor.dims for u in late)
        return late if all(same) else []

    def _nodes(self, v: Value, user: Node, order: dict[Node, float], kept_until: float) -> list[Node] | None:
        """What must run again for `user` to have `v`, in order; None if that needs what is not kept until then, or
        more than one large tensor that the user does not read itself."""
        nodes: dict[Node, None] = {}
        kept: set[Value] = set()
        pending = [v]
        while pending:
            o = pending.pop()
            node = o.producer
            if o is not v and (node in nodes or _is_small(o, v)):
                continue
            if o is not v and (node is None or _last_use(o, order) >= kept_until):
                kept.add(o)
                continue
            if node is None or not self._is_cheap(node):
                return None
            nodes[node] = None
            if sum(_flops(n) for n in nodes) > self.most_flops:
                return None
            pending += node.operands
        if len(kept - set(user.operands)) > 1:
            return None
        return sorted(nodes, key=order.__getitem__)


def _flops(node: Node) -> int:
    assert isinstance(node.op, Elementwise)
    return node.op.effort.flops


def _last_use(v: Value, order: dict[Node, float]) -> float:
    return inf if v.output_uses else max((order[user] for user in v.users), default=-1)


def _is_small(v: Value, than: Value) -> bool:
    size, other = (t.nbytes if isinstance(t, TensorType) else None for t in (v.type, than.type))
    return isinstance(size, int) and isinstance(other, int) and size * SMALL <= other


def _copy(graph: Graph, nodes: list[Node], v: Value, user: Node, order: dict[Node, float]) -> None:
    """Put copies of the nodes before `user`, which reads that of `v`."""
    new: dict[Value, Value] = {}
    for node in nodes:
        inputs = [o if o is None else new.get(o, o) for o in node.inputs]
        copy = graph.add_node(node.op, inputs, before=user, name=user.name, types=[o.type for o in node.outputs])
        order[copy] = order[user]
        new[node.output] = copy.output
    for i, operand in enumerate(user.inputs):
        if operand is v:
            user.set_input(i, new[v])


__all__ = ["RecomputeElementwise"]
