"""What a training step keeps from its forward to its backward half, and what lives when some of that is made again.

The step is a sequence of nodes; the forward half ends with the last node that the first output, the loss, depends on.
A tensor of the forward half that the backward half reads is either kept, or dropped after its last forward reader and
computed again just before the first node that needs it: a backward reader, or another tensor that is computed again.
Owns that model of the lives of tensors; which of them are dropped is `choose_dropped`'s affair.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Control, Host
from ...ir.ops.work_rules import Shapes
from ...ir.views import Home, computes, homes, is_window
from .lent_outputs import free_nbytes
from .memory_planning import replaceable

FLOPS_A_BYTE = 12  # that a core computes while it moves one
NEVER = -1


@dataclass
class Tensor:
    """A value with memory of its own.

    Attributes:
        size: bytes. first: number of the node that writes it. last: of its last reader (or of `first`).
        last_forward: of the last reader in the forward half. first_backward: of the first one behind it; NEVER: none.
        may_drop: whether it can be computed again. cost: of that, in bytes moved. needs: tensors that its node reads.
    """

    value: Value
    size: int
    first: int
    last: int
    last_forward: int
    first_backward: int
    may_drop: bool
    cost: float
    needs: list[int] = field(default_factory=list)


class KeptTensors:
    """The tensors of a step, numbered in the order in which they are written.

    Attributes:
        nodes: that compute, in order. boundary: number of the last one of the forward half. tensors: see the class.
        at: value → number of its tensor; views have that of what they show.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes = [n for n in graph if computes(n)]
        number = {node: i for i, node in enumerate(self.nodes)}
        self.boundary = _boundary(graph, number)
        home_of = homes(graph)
        self.at: dict[Value, int] = {}
        self.tensors: list[Tensor] = []
        owners = {v: home_of.get(v, Home(v)).value for v in graph.values()}
        outside = {*graph.inputs, *graph.constants, *(owners[v] for v in graph.outputs)}
        aliased = {owner for v, owner in owners.items() if v is not owner and is_window(v)}
        readers = _readers(graph, owners, number)
        for node, i in number.items():
            for v in node.outputs:
                if owners[v] is v and v not in outside:
                    self._add(v, i, readers.get(v, []), v not in aliased)
        self.at.update({v: self.at[owner] for v, owner in owners.items() if owner in self.at})
        for t in self.tensors:
            node = self.nodes[t.first]
            t.needs = sorted({self.at[o] for o in node.operands if o in self.at} - {self.at[t.value]})
        self._in_place = self._replaced(owners)
        self._lent = free_nbytes(graph, number)

    def _add(self, v: Value, first: int, readers: list[int], alone: bool) -> None:
        node, size = self.nodes[first], v.tensor.nbytes
        assert isinstance(size, int)
        forward = [r for r in readers if r <= self.boundary]
        backward = [r for r in readers if r > self.boundary]
        self.at[v] = len(self.tensors)
        again = first <= self.boundary and alone and not is_window(v) and _repeats(node)
        self.tensors.append(Tensor(
            v, size, first, max([first, *readers]), max([first, *forward]), min(backward, default=NEVER), again,
            cost_of(node) if again else 0.0,
        ))  # fmt: skip

    def _replaced(self, owners: dict[Value, Value]) -> np.ndarray:
        """Pairs (tensor, operand's) of which the first takes the second's bytes where that dies, [2, n]."""
        pairs = []
        for i, t in enumerate(self.tensors):
            roots = replaceable(self.nodes[t.first], t.value, owners.__getitem__)
            pairs += [(i, self.at[root]) for root in roots if root in self.at][:1]
        return np.array(pairs, np.int64).reshape(-1, 2).T

    def cost(self, dropped: Collection[int]) -> float:
        """Of computing these again."""
        return sum(self.tensors[i].cost for i in dropped)

    def again(self, dropped: Collection[int]) -> dict[int, int]:
        """When each dropped tensor is computed again: number of the node before which that happens.

        Those that nobody needs again are not among them.
        """
        due: dict[int, int] = {}
        for i in sorted(dropped, reverse=True):
            t = self.tensors[i]
            if t.first_backward != NEVER:
                due[i] = min(due.get(i, t.first_backward), t.first_backward)
            if i in due:
                for need in t.needs:
                    if need in dropped:
                        due[need] = min(due.get(need, due[i]), due[i])
        return due

    def live(self, dropped: Collection[int]) -> np.ndarray:
        """Bytes that live while each node runs, with what is dropped computed again, beyond what outputs can lend."""
        due = self.again(dropped)
        first = np.array([t.first for t in self.tensors], np.int64)
        last = np.array([t.last for t in self.tensors], np.int64)
        sizes = np.array([t.size for t in self.tensors], np.int64)
        for i in dropped:
            last[i] = self.tensors[i].last_forward
        ends = {i: max(self.tensors[i].last, time) for i, time in due.items()}
        for i, time in due.items():
            for need in self.tensors[i].needs:
                if need in due:
                    ends[need] = max(ends[need], time)
                elif need not in dropped:
                    last[need] = max(last[need], time)
        change = np.zeros(len(self.nodes) + 2, np.int64)
        one, other = self._in_place
        closed = last.copy()
        for i, end in ends.items():
            closed[i] = end
        inside = np.where(first[one] <= self.boundary, last[other], closed[other]) == first[one]
        np.add.at(first, one[inside & (sizes[one] == sizes[other])], 1)
        kept = first <= last
        np.add.at(change, first[kept], sizes[kept])
        np.add.at(change, last[kept] + 1, -sizes[kept])
        takers = {int(b): int(a) for a, b in zip(one, other)}
        for i, time in due.items():
            taker = takers.get(i)
            if ends[i] == time and taker in due and due[taker] == time and sizes[taker] == sizes[i]:
                continue  # made for that alone, which takes its bytes
            change[time] += sizes[i]
            change[ends[i] + 1] -= sizes[i]
        alive: np.ndarray = np.cumsum(change)[: len(self.nodes)]
        return np.maximum(alive - self._lent, 0)


def _boundary(graph: Graph, number: dict[Node, int]) -> int:
    """Number of the last node that the first output depends on."""
    seen: set[Node] = set()
    pending = [graph.outputs[0]]
    while pending:
        node = pending.pop().producer
        if node is not None and node not in seen:
            seen.add(node)
            pending += node.operands
    return max((number[node] for node in seen if node in number), default=NEVER)


def _readers(graph: Graph, owners: dict[Value, Value], number: dict[Node, int]) -> dict[Value, list[int]]:
    """Of each value with memory of its own, the numbers of the computing nodes that read it or a view of it."""
    found: dict[Value, list[int]] = {}
    for node, i in number.items():
        for v in node.operands:
            found.setdefault(owners[v], []).append(i)
    return found


def _repeats(node: Node) -> bool:
    """Whether a node may run twice with the same result: random masks are kept."""
    return (len(node.outputs) == 1 and node.op.deterministic and not isinstance(node.op, (Control, Host)))


def cost_of(node: Node) -> float:
    """What running a node of known sizes costs, in bytes that could be moved meanwhile."""
    inner: Iterable[Node] = node.body if node.body is not None else (node,)
    flops = sum(n.op.work(_shapes(n)).flops for n in inner)
    moved = sum(_nbytes(v) for v in {*node.operands, *node.outputs})
    return moved + flops / FLOPS_A_BYTE


def _shapes(node: Node) -> Shapes:
    return Shapes([None if v is None else v.tensor.static_shape for v in node.inputs],
                  [v.tensor.static_shape for v in node.outputs])


def _nbytes(v: Value) -> int:
    size = v.tensor.nbytes
    assert isinstance(size, int)
    return size


__all__ = ["NEVER", "KeptTensors", "Tensor", "cost_of"]
