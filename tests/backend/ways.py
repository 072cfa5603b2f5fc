"""The ways in which cores may share the work of a kernel, and what lies around its buffers meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

from backend.guards import FRONT, REAR
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.passes.dataflow.memory_planning import replaceable

Pieces = list[tuple[int, int]]
GARBAGE = 0xC5  # floats of about -6000
NANS = 0xFF
MOST_PIECES = 48


def whole(work: int, random: Random) -> Pieces:
    """All at once."""
    return [(0, work)]


def equal_pieces(work: int, random: Random, n: int) -> Pieces:
    """`n` pieces, the last one first."""
    cuts = [work * i // n for i in range(n + 1)]
    return list(zip(cuts, cuts[1:]))[::-1]


def item_by_item(work: int, random: Random) -> Pieces:
    """One item each, the last one first; of much work so many pieces that each has few items."""
    return equal_pieces(work, random, max(1, min(work, MOST_PIECES)))


def shuffled(work: int, random: Random) -> Pieces:
    """Unequal pieces in any order, empty ones at the beginning, in the middle and at the end of the work among them."""
    edges = sorted({0, work, *(random.randrange(work + 1) for _ in range(6))})
    pieces = [*zip(edges, edges[1:]), *((e, e) for e in {0, work // 2, work, edges[-2] if len(edges) > 1 else 0})]
    random.shuffle(pieces)
    return pieces


@dataclass(frozen=True)
class Way:
    """How the kernels of one run are called.

    Attributes:
        cut: the pieces of a kernel's work, in the order in which they run. threads: that take turns with them, at once.
        cores: that a kernel in which cores meet is given to. times: that everything runs, on the same buffers.
        side: where buffers are flush against a page that may not be touched. garbage: their content before.
        overwrite: results take the place of this one of the operands that they may replace; None: of none.
    """

    name: str
    cut: Callable[[int, Random], Pieces] = whole
    side: str = REAR
    garbage: int = GARBAGE
    threads: int = 1
    cores: int = 1
    times: int = 1
    overwrite: int | None = None

    def pieces(self, work: int, random: Random, *, meets: bool) -> list[Pieces]:
        """Who runs what: a list for each thread."""
        if meets:
            return [[piece] for piece in equal_pieces(work, random, self.cores) if piece[0] < piece[1]]
        cuts = self.cut(work, random)
        return [cuts[i :: self.threads] for i in range(self.threads)]


ALONE = Way("in one piece", times=2)
SHUFFLED = Way("in pieces of any size and order", shuffled, FRONT, NANS, cores=3)
USUAL = (ALONE, SHUFFLED)
EVERY = (
    *USUAL,
    Way("item by item, the last first", item_by_item, FRONT, cores=5),
    Way("by two threads at once", item_by_item, threads=2, cores=2, times=2),
    Way("over the first operand, in pieces", shuffled, REAR, NANS, overwrite=0),
    Way("over the last operand, by two threads", item_by_item, FRONT, threads=2, overwrite=-1),
)


def at_once(shares: Sequence[Pieces], run: Callable[[int, int], None]) -> None:
    """Each share in a thread of its own, or here if there is but one."""

    def work(pieces: Iterable[tuple[int, int]]) -> None:
        for piece in pieces:
            run(*piece)

    if len(shares) == 1:
        work(shares[0])
        return
    with ThreadPoolExecutor(max(1, len(shares))) as threads:
        for done in [threads.submit(work, share) for share in shares]:
            done.result()


def overwritten(graph: Graph, roots: dict[Value, Value], choice: int) -> dict[Value, Value]:
    """Result → the operand whose place it takes, by the memory plan's rule; of several the one numbered `choice`."""

    def owner(v: Value) -> Value:
        return roots.get(v, v)

    last: dict[Value, object] = {}
    for node in graph:
        last.update((owner(v), node) for v in node.operands)
    kept = {owner(v) for v in graph.outputs}
    hosts: dict[Value, Value] = {}
    for node in graph:
        places = [v for v in replaceable(node, node.outputs[0], owner)
                  if v.data is None and last[v] is node and v not in kept]  # fmt: skip
        if places:
            place = places[choice % len(places)]
            hosts[node.outputs[0]] = hosts.get(place, place)
    return hosts
