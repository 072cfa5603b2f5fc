"""Which nodes of a training step run again, and when, so that it needs no more memory than allowed.

Greedy: as long as more lives somewhere than is allowed, a tensor is let go between two of its readers and made again
for the second, with what that takes and no longer lives: the one that brings down most of the excess (bytes above the
limit, summed over nodes) for what it costs to compute again. What was made again may go once more. In the end those
runs are left out that were not needed. (Jain et al., "Checkmate", MLSys 2020, have the optimum as an integer
programme, of hundreds of variables a node.)
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf

import numpy as np

from .kept_tensors import KeptTensors, Lives, Order, beyond, needed

LEAST = 1 << 14  # bytes of a tensor worth letting go
MOST_TOGETHER = 24  # nodes that run again for one tensor
MOST_MOVES = 200  # after which a search ends

Gap = tuple[int, int]
"""A tensor, and which of its readers it is made again for: the number of that run in `_Search.runs`."""


def choose_repeated(kept: KeptTensors, limit: int, thrift: float = 1.0) -> Order:
    """The order to run nodes in; one that does not meet the limit where that cannot be met this way.

    Args:
        thrift: how much the cost counts, from 1 to 0: not at all. Less leads out of other dead ends.
    """
    search = _Search(kept, limit, thrift)
    while search.excess:
        found = search.best()
        if found is not None:
            search.repeat(found)
            continue
        before = search.excess
        search.leave_out()
        if search.excess >= before or search.moves >= MOST_MOVES:  # nothing to let go or to keep makes it better
            break
    search.leave_out()
    return search.order


@dataclass
class _Chain:
    """What runs before a reader to make a tensor again.

    Attributes:
        score: excess that goes, for its cost. nodes: in order. place: of the reader.
    """

    score: float
    nodes: list[int] = field(default_factory=list)
    place: int = 0


class _Search:
    """An order, its lives, and the gaps that are worth looking at: scores are of earlier rounds, and mostly fall."""

    def __init__(self, kept: KeptTensors, limit: int, thrift: float) -> None:
        self.kept, self.limit, self.thrift = kept, limit, thrift
        self.moves = 0
        self.names = count()
        self.order = kept.once()
        self.runs = [next(self.names) for _ in self.order]
        self.heap: list[tuple[float, Gap]] = []
        self.listed: set[Gap] = set()
        self._look()

    def _take_stock(self) -> None:
        self.lives = Lives(self.kept, self.order)
        self.place = {run: place for place, run in enumerate(self.runs)}
        above = np.maximum(self.lives.live - self.limit, 0)
        self.excess = int(above.sum())
        self.above = np.concatenate([[0], np.cumsum(above)])

    def _look(self) -> None:
        """List the gaps that are new."""
        self._take_stock()
        for i, t in enumerate(self.lives.tensor):
            tensor = self.kept.tensors[t]
            if tensor.may_repeat and tensor.size >= LEAST:
                for gap in ((t, self.runs[place]) for place in self.lives.reads[i]):
                    if gap not in self.listed:
                        self.listed.add(gap)
                        heappush(self.heap, (-inf, gap))

    def best(self) -> _Chain | None:
        """What brings most; None if nothing does, and then all gaps are looked at again."""
        fresh: set[Gap] = set()
        if self.moves >= MOST_MOVES:
            return None
        while self.heap:
            _, gap = heappop(self.heap)
            if gap[1] not in self.place:
                self.listed.discard(gap)
                continue
            found = self._scored(gap)
            if found.score <= 0 and gap in fresh:
                heappush(self.heap, (-found.score, gap))
                return None
            if found.score > 0 and (gap in fresh or not self.heap or found.score >= -self.heap[0][0]):
                self.listed.discard(gap)
                return found
            fresh.add(gap)
            heappush(self.heap, (-found.score, gap))
        return None

    def repeat(self, chain: _Chain) -> None:
        """Let the nodes run once more, before the reader."""
        self.moves += 1
        at = chain.place
        new = [*self.order[:at], *chain.nodes, *self.order[at:]]
        runs = [*self.runs[:at], *(next(self.names) for _ in chain.nodes), *self.runs[at:]]
        places = needed(self.kept, new)
        self.order, self.runs = tuple(new[p] for p in places), [runs[p] for p in places]
        self._look()

    def leave_out(self) -> None:
        """Leave out the runs that can be without more excess; the dearest first."""
        seen: set[int] = set()
        again = []
        for place, n in enumerate(self.order):
            if n in seen:
                again.append((self.kept.run_cost(n), self.runs[place]))
            seen.add(n)
        for _, run in sorted(again, reverse=True):
            at = self.place.get(run)
            if at is None or self._more_without(at) > 0:
                continue
            rest = [p for p in range(len(self.order)) if p != at]
            new = [self.order[p] for p in rest]
            places = needed(self.kept, new)
            order = tuple(new[p] for p in places)
            if int(np.maximum(Lives(self.kept, order).live - self.limit, 0).sum()) <= self.excess:
                self.order, self.runs = order, [self.runs[rest[p]] for p in places]
                self._take_stock()
        self.heap, self.listed = [], set()
        self._look()

    def _more_without(self, at: int) -> int:
        """About how much the excess grows if what runs at a place is left out: what it made lives from before, and what
        it read no longer for it."""
        lives, tensors = self.lives, self.kept.tensors
        n = self.order[at]
        t = self.kept.writes[n][0]
        before = lives.at(t, at)
        if before is None:
            return 1
        alive, first = lives.alive.copy(), lives.last(before) + 1
        alive[int(tensors[t].lodges), first:at] += tensors[t].size
        for o in self.kept.reads[n]:
            version = lives.at(o, at)
            if version is not None and lives.last(version) == at:
                reads = lives.reads[version]
                alone = reads[-2] if len(reads) > 1 else lives.born[version]
                alive[int(tensors[o].lodges), alone + 1 : at] -= tensors[o].size
        alive[:, at] = 0
        return int(np.maximum(beyond(alive, lives.lent) - self.limit, 0).sum()) - self.excess

    def _scored(self, gap: Gap) -> _Chain:
        """What becomes of the excess if the tensor is let go before this reader, and made again for it."""
        t, run = gap
        place, lives, tensor = self.place[run], self.lives, self.kept.tensors[t]
        i = lives.at(t, place)
        assert i is not None
        k = bisect_left(lives.reads[i], place)
        before = lives.reads[i][k - 1] if k else lives.born[i]
        if place - before < 2 or self.above[place] <= self.above[before + 1]:
            return _Chain(0.0)
        spared = 0.0 if k else tensor.cost
        found = []
        for deep in (True, False):
            nodes, kept = self._chain(t, place, deep)
            less = self._less(t, before, place, nodes, kept)
            cost = sum(map(self.kept.run_cost, nodes)) - spared
            found.append(_Chain(less / max(cost, 1.0) ** self.thrift, nodes, place))
        return max(found, key=lambda chain: chain.score)

    def _chain(self, t: int, place: int, deep: bool) -> tuple[list[int], list[int]]:
        """Nodes that make a tensor again at a place, and versions of tensors that must live until then for that.

        Args:
            deep: make again what no longer lives, too.
        """
        made, nodes, kept = {t}, [], dict[int, int]()

        def visit(t: int) -> None:
            for o in self.kept.tensors[t].needs:
                if o in made or o in kept:
                    continue
                j = self.lives.at(o, place)
                if j is not None and self.lives.last(j) >= place:
                    continue
                tensor = self.kept.tensors[o]
                again = deep and tensor.may_repeat and tensor.size >= LEAST and len(made) < MOST_TOGETHER
                if j is None or again:
                    made.add(o)
                    visit(o)
                else:
                    kept[o] = j
            nodes.append(self.kept.tensors[t].first)

        visit(t)
        return nodes, list(kept.values())

    def _less(self, t: int, before: int, place: int, nodes: list[int], kept: list[int]) -> float:
        """How much smaller the excess is where a tensor does not live between two places, other versions do until the
        second, and these nodes run there."""
        lives, tensors, limit = self.lives, self.kept.tensors, self.limit
        first = min([before + 1, *(lives.last(j) + 1 for j in kept)])
        alive, level = lives.alive[:, first:place].copy(), lives.through[:, place].copy()
        gone = int(tensors[t].lodges)
        alive[gone, before + 1 - first :] -= tensors[t].size
        level[gone] -= tensors[t].size
        for j in kept:
            held = tensors[lives.tensor[j]]
            alive[int(held.lodges), lives.last(j) + 1 - first :] += held.size
            level[int(held.lodges)] += held.size
        live, lent = beyond(alive, lives.lent[first:place]), lives.lent[place - 1]
        excess = int(np.maximum(live - limit, 0).sum()) - int(self.above[place] - self.above[first])
        made = {self.kept.writes[n][0] for n in nodes} - {t}
        made |= {lives.tensor[j] for j in kept}
        left = {o: sum(o in self.kept.reads[n] for n in nodes) for o in made}
        for n in nodes:
            own = self.kept.writes[n][0]
            dying = [o for o in self.kept.reads[n] if left.get(o) == 1]
            now = level.copy()
            level[int(tensors[own].lodges)] += tensors[own].size
            if not any(o in tensors[own].hosts and tensors[o].size == tensors[own].size for o in dying):
                now = level.copy()
            excess += max(0, int(beyond(now, lent)) - limit)
            for o in dying:
                level[int(tensors[o].lodges)] -= tensors[o].size
            for o in self.kept.reads[n]:
                if o in left:
                    left[o] -= 1
        return -float(excess)


__all__ = ["LEAST", "choose_repeated"]
