"""Latencies of many subsets of one graph's works, quickly: sequential and greedy, remembered by subset.

Owns the list scheduler. A search asks it tens of thousands of times, so everything that depends on a work alone is
counted once, and the loop is on plain floats. Memory is one pool here: sockets are not told apart.

Greedy: whenever cores are free, the ready works take them, those with the longest way to the end first (Graham's list
scheduling, by critical path); cores are split in proportion to what the works have to do, and kept until they are done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ...targets.machine import Machine
from .works import Work, seconds_alone

AT_ONCE = 1e15  # progress per second of what takes no time


@dataclass(frozen=True)
class Span:
    """A work on the cores (first, number) from `start` to `end` seconds; `batch`: which instance or micro-batch."""

    work: int
    cores: tuple[int, int]
    start: float
    end: float
    batch: int = 0


class Latencies:
    """Answers for subsets of `works` on `n_cores` cores of a machine.

    Works that wait for works outside of the subset are taken to be ready: subsets are run one after the other.
    """

    def __init__(self, works: Sequence[Work], machine: Machine, n_cores: int) -> None:
        self.machine, self.n_cores = machine, n_cores
        costs = [work.cost for work in works]
        self.after = _without_views(works)
        self.is_view = [cost.kind == "view" for cost in costs]
        self.far = [cost.far_nbytes for cost in costs]
        self.most = [max(1, min(n_cores, cost.parallel_items)) for cost in costs]
        self.bandwidth = machine.bandwidth_per_socket * -(-n_cores // machine.cores_per_socket)
        self.on_all = [seconds_alone(cost, machine, n_cores) for cost in costs]
        self.on_one = [seconds_alone(cost, machine, 1) for cost in costs]
        self.end_barrier = machine.barrier(n_cores)
        self._costs = costs
        self._alone: list[dict[int, float]] = [{} for _ in works]
        self._known: dict[frozenset[int], float] = {}
        self.followers: list[list[int]] = [[] for _ in works]
        for i, before in enumerate(self.after):
            for b in before:
                self.followers[b].append(i)
        self.to_end = [0.0] * len(works)
        for i in reversed(range(len(works))):
            self.to_end[i] = self.on_one[i] + max((self.to_end[f] for f in self.followers[i]), default=0.0)

    def sequential(self, subset: Iterable[int]) -> float:
        """Seconds of the subset, one work at a time on all cores."""
        on_all = self.on_all
        return sum([on_all[i] for i in subset])

    def greedy(self, subset: Iterable[int]) -> float:
        """Seconds of the subset run greedily, and of the barrier after it."""
        key = frozenset(subset)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._greedy(key, None)[0] + self.end_barrier
        return found

    def greedy_spans(self) -> tuple[float, list[Span], float]:
        """All works: seconds, who ran where, and the highest share of the bandwidth."""
        record: list[tuple[int, int, float, float]] = []
        seconds, peak = self._greedy(range(len(self.on_all)), record)
        return seconds + self.end_barrier, _place(record, self.n_cores), peak

    def _alone_on(self, work: int, n_cores: int) -> float:
        known = self._alone[work]
        if n_cores not in known:
            known[n_cores] = seconds_alone(self._costs[work], self.machine, n_cores)
        return known[n_cores]

    def _greedy(
        self, subset: Collection[int], record: list[tuple[int, int, float, float]] | None
    ) -> tuple[float, float]:
        """Seconds and the bandwidth's peak; `record` gets (work, cores, start, end)."""
        waiting: dict[int, int] = {}
        ready: list[int] = []
        for i in subset:
            if self.is_view[i]:
                continue
            waiting[i] = n = sum([b in subset for b in self.after[i]])
            if n == 0:
                ready.append(i)
        free, now, peak = self.n_cores, 0.0, 0.0
        running: dict[int, tuple[int, float, float]] = {}  # work → cores, start, seconds alone
        left: dict[int, float] = {}
        while ready or running:
            if ready and free:
                for i, n in self._split(ready, free):
                    free -= n
                    ready.remove(i)
                    running[i] = (n, now, self._alone_on(i, n))
                    left[i] = 1.0
            rates, used = self._rates(running)
            peak = max(peak, used)
            step = min([left[i] / rate for i, rate in rates.items()])
            now += step
            for i, rate in rates.items():
                rest = left[i] - step * rate
                if rest > 1e-9:
                    left[i] = rest
                    continue
                n, start, _ = running.pop(i)
                free += n
                if record is not None:
                    record.append((i, n, start, now))
                for f in self.followers[i]:
                    if f in waiting:
                        waiting[f] -= 1
                        if waiting[f] == 0:
                            ready.append(f)
        return now, peak

    def _split(self, ready: Sequence[int], free: int) -> list[tuple[int, int]]:
        """Which ready works start, and on how many cores."""
        order = sorted(ready, key=lambda i: -self.to_end[i]) if len(ready) > 1 else ready
        if len(order) >= free:
            return [(i, 1) for i in order[:free]]
        if len(order) == 1:
            return [(order[0], min(free, self.most[order[0]]))]
        total = sum([self.on_one[i] for i in order]) or 1.0
        cores = [max(1, min(self.most[i], int(free * self.on_one[i] / total))) for i in order]
        while sum(cores) > free:
            cores[cores.index(max(cores))] -= 1
        spare = free - sum(cores)
        while spare:  # to whom it helps most
            able = [k for k in range(len(order)) if cores[k] < self.most[order[k]]]
            if not able:
                break
            cores[max(able, key=lambda k: self.on_one[order[k]] / cores[k])] += 1
            spare -= 1
        return list(zip(order, cores))

    def _rates(self, running: dict[int, tuple[int, float, float]]) -> tuple[dict[int, float], float]:
        """Progress per second of each running work, and the share of the bandwidth in use."""
        far = self.far
        rates: dict[int, float] = {}
        wanted: list[tuple[float, int, int]] = []
        total = 0.0
        for i, (n, _, alone) in running.items():
            if far[i] <= 0 or alone <= 0:
                rates[i] = 1 / alone if alone > 0 else AT_ONCE
                continue
            cores, flow = min(n, self.most[i]), far[i] / alone
            wanted.append((flow / cores, cores, i))
            total += flow
        if total > self.bandwidth:
            wanted.sort()
            rest, cores_left = self.bandwidth, sum([n for _, n, _ in wanted])
            for k, (flow, n, i) in enumerate(wanted):
                fair = min(flow, rest / cores_left)
                wanted[k] = (fair, n, i)
                rest -= fair * n
                cores_left -= n
            total = self.bandwidth - rest
        for flow, n, i in wanted:
            rates[i] = flow * n / far[i]
        return rates, total / self.bandwidth


def _without_views(works: Sequence[Work]) -> list[tuple[int, ...]]:
    """What each work waits for if views are left out: a view passes on what it waits for itself."""
    after: list[tuple[int, ...]] = []
    for work in works:
        found: set[int] = set()
        for b in work.after:
            found.update(after[b] if works[b].cost.kind == "view" else (b,))
        after.append(tuple(sorted(found)))
    return after


def _place(record: Sequence[tuple[int, int, float, float]], n_cores: int) -> list[Span]:
    """Give recorded works cores by number: the lowest free ones. Work on cores that are apart becomes several spans."""
    free_at = [0.0] * n_cores
    spans = []
    for work, n, start, end in sorted(record, key=lambda r: (r[2], r[3])):
        chosen = [core for core in range(n_cores) if free_at[core] <= start + 1e-12][:n]
        for core in chosen:
            free_at[core] = end
        first = 0
        for k in range(1, len(chosen) + 1):
            if k == len(chosen) or chosen[k] != chosen[k - 1] + 1:
                spans.append(Span(work, (chosen[first], k - first), start, end))
                first = k
    return spans
