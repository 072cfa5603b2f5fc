"""What a training step keeps, above all from its forward to its backward half, and how long, when parts run again.

The step is a sequence of nodes. One that stands in it again makes its tensor again: who reads the tensor behind that
reads what was made last, and what was made before lives no longer than to its last reader. So an order of nodes, with
repetitions, says what lives when. Owns that model; which nodes are repeated is `choose_repeated`'s affair.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Control, Host, Operator
from ...ir.ops.work_rules import Shapes
from ...ir.views import Home, computes, homes, is_window
from .lent_outputs import rooms_of
from .memory_planning import replaceable

FLOPS_A_BYTE = 12  # that a core computes while it moves one


@dataclass
class Tensor:
    """A value with memory of its own.

    Attributes:
        size: bytes. first: number of the node that writes it. may_repeat: whether that node may run again for it.
        cost: of that, in bytes moved. lodges: whether it is small enough for the memory of an output that is lent.
        needs: tensors that the node reads. hosts: those whose bytes it may take over.
    """

    value: Value
    size: int
    first: int
    may_repeat: bool
    cost: float
    lodges: bool = False
    needs: list[int] = field(default_factory=list)
    hosts: list[int] = field(default_factory=list)


class KeptTensors:
    """The tensors of a step, numbered in the order in which they are written.

    Attributes:
        nodes: that compute, in order. tensors: see the class.
        at: value → number of its tensor; views have that of what they show.
        reads, writes: of each node, the numbers of tensors. lent: while each node runs, bytes of outputs that hold
        other tensors until they are written, i64[nodes].
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes = [n for n in graph if computes(n)]
        number = {node: i for i, node in enumerate(self.nodes)}
        home_of = homes(graph)
        owners = {v: home_of.get(v, Home(v)).value for v in graph.values()}
        outside = {*graph.inputs, *graph.constants, *(owners[v] for v in graph.outputs)}
        aliased = {owner for v, owner in owners.items() if v is not owner and is_window(v)}
        self.at: dict[Value, int] = {}
        self.tensors: list[Tensor] = []
        self.writes: list[list[int]] = []
        for node, i in number.items():
            own = [v for v in node.outputs if owners[v] is v and v not in outside]
            self.writes.append(list(range(len(self.tensors), len(self.tensors) + len(own))))
            for v in own:
                again = v is node.outputs[0] and repeated_form(node) is not None
                self._add(v, i, again and v not in aliased and not is_window(v))
        self.at.update({v: self.at[owner] for v, owner in owners.items() if owner in self.at})
        self.reads = [sorted({self.at[o] for o in node.operands if o in self.at}) for node in self.nodes]
        rooms = rooms_of(graph, number)
        largest = max((room.size for room in rooms), default=0)
        self.lent = np.zeros(len(self.nodes), np.int64)
        for room in rooms:
            self.lent[: room.until] += room.size
        for i, t in enumerate(self.tensors):
            t.lodges = t.size <= largest
            t.needs = [o for o in self.reads[t.first] if o != i]
            roots = replaceable(self.nodes[t.first], t.value, owners.__getitem__)
            t.hosts = [self.at[root] for root in roots if root in self.at]

    def _add(self, v: Value, first: int, may_repeat: bool) -> None:
        size = v.tensor.nbytes
        assert isinstance(size, int)
        self.at[v] = len(self.tensors)
        cost = cost_of(self.nodes[first]) if may_repeat else 0.0
        self.tensors.append(Tensor(v, size, first, may_repeat, cost))

    def once(self) -> Order:
        """Every node, one time."""
        return tuple(range(len(self.nodes)))

    def cost(self, order: Order) -> float:
        """Of the nodes that the order has again, in bytes moved."""
        seen: set[int] = set()
        total = 0.0
        for n in order:
            total += self.run_cost(n) if n in seen else 0.0
            seen.add(n)
        return total

    def run_cost(self, n: int) -> float:
        """Of one run of a node again, in bytes moved."""
        return self.tensors[self.writes[n][0]].cost if self.writes[n] else 0.0


Order = tuple[int, ...]
"""Numbers of nodes in the order in which they run."""


class Lives:
    """How long every version of every tensor lives, when nodes run in an order: a tensor has one for each time that it
    is made.

    Attributes:
        order: see above. tensor, born: of each version, its tensor and the place in the order where it is made.
        reads: of each version, the places of its readers. versions: of each tensor, its versions in order.
        alive: bytes that live while the node at each place runs: of tensors that fit into no output, and of those that
            do, i64[2, places]. through: the same of what lived before already. lent: bytes of outputs then.
        live: what that takes of the arena, at least.
    """

    def __init__(self, kept: KeptTensors, order: Sequence[int]) -> None:
        self.kept, self.order = kept, order
        self.tensor: list[int] = []
        self.born: list[int] = []
        self.reads: list[list[int]] = []
        self.versions: list[list[int]] = [[] for _ in kept.tensors]
        newest: list[list[int]] = [[] for _ in kept.tensors]  # readers of the last version
        seen: set[int] = set()
        for place, n in enumerate(order):
            for t in kept.reads[n]:
                newest[t].append(place)
            written = kept.writes[n][:1] if n in seen else kept.writes[n]
            seen.add(n)
            for t in written:
                self.versions[t].append(len(self.tensor))
                self.tensor.append(t)
                self.born.append(place)
                newest[t] = []
                self.reads.append(newest[t])
        self._count()

    def _count(self) -> None:
        n, tensors = len(self.order), self.kept.tensors
        change, grown = np.zeros((2, n + 2), np.int64), np.zeros((2, n + 2), np.int64)
        for t, born, reads in zip(self.tensor, self.born, self.reads, strict=True):
            size, kind, end = tensors[t].size, int(tensors[t].lodges), (reads[-1] if reads else born) + 1
            taken = bool(tensors[t].hosts) and self._is_taken_over(tensors[t], born)
            change[kind, born + taken] += size
            change[kind, end] -= size
            grown[kind, born + 1] += size
            grown[kind, end] -= size
        self.alive, self.through = (np.cumsum(a, axis=1)[:, :n] for a in (change, grown))
        self.lent = self.kept.lent[np.maximum.accumulate(np.array(self.order, np.int64))]
        self.live = beyond(self.alive, self.lent)

    def _is_taken_over(self, tensor: Tensor, place: int) -> bool:
        """Whether a tensor that is made at a place lies where an operand did that nobody reads afterwards."""
        for host in tensor.hosts:
            version = self.at(host, place)
            if version is not None and self.last(version) == place:
                return self.kept.tensors[host].size == tensor.size
        return False

    def last(self, i: int) -> int:
        """Place of the last reader of a version, or where it is made."""
        return self.reads[i][-1] if self.reads[i] else self.born[i]

    def at(self, t: int, place: int) -> int | None:
        """The version of a tensor that a node at this place reads."""
        own = self.versions[t]
        k = bisect_left(own, place, key=self.born.__getitem__)
        return own[k - 1] if k else None


def beyond(alive: np.ndarray, lent: np.ndarray) -> np.ndarray:
    """Bytes of the arena that tensors take of which some lodge in outputs: see `Lives`."""
    found: np.ndarray = alive[0] + np.maximum(alive[1] - lent, 0)
    return found


def needed(kept: KeptTensors, order: Sequence[int]) -> list[int]:
    """The places in an order of all runs but those whose tensor nobody reads before it is made again, or at all, though
    it is made elsewhere."""
    lives = Lives(kept, order)
    n_readers, idle = [len(reads) for reads in lives.reads], set[int]()
    for i in range(len(lives.tensor) - 1, -1, -1):
        t, place = lives.tensor[i], lives.born[i]
        others = len(kept.writes[order[place]]) > 1 and lives.versions[t][0] == i  # which the first run alone makes
        if not n_readers[i] and len(lives.versions[t]) > 1 and kept.tensors[t].may_repeat and not others:
            idle.add(place)
            for o in kept.reads[order[place]]:
                before = lives.at(o, place)
                assert before is not None
                n_readers[before] -= 1
    return [place for place in range(len(order)) if place not in idle]


def repeated_form(node: Node) -> Operator | None:
    """The operator that makes a node's first result a second time, to the same bits; None: random masks are kept."""
    if not node.op.deterministic or isinstance(node.op, (Control, Host)):
        return None
    form: Operator | None = node.op if len(node.outputs) == 1 else node.op.first_alone()
    return form


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


__all__ = ["KeptTensors", "Lives", "Order", "Tensor", "beyond", "cost_of", "needed", "repeated_form"]
