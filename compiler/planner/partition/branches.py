"""One layer on the cores of an instance: its operators on all of them together, or as branches on cores of their own.

Owns the arrangement of a set of operators and its predicted seconds: Mofang's choice between greedy and sequential, in
the form that the backend executes. Which sets become layers is `layers`' affair.

Together, all cores share every operator; they meet after each level of operators that do not depend on one another, so
that they wait once a level: WAITING of the longest operator's time, not of each one's. On cores of their own branches
never wait, but run beside others, and what crosses the layer's ends lies with cores that do not need it: all cores have
written the layer's operands, row by row, and will read its results so.

Branches are the weakly connected components of the set. They are dealt to groups of cores, the longest first to the
group that is done first (Graham's LPT rule), and the groups' sizes follow what they have to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...targets.machine import Machine
from .dag import Dag, Mask, bits
from .works import BESIDE, WAITING, Work, seconds_alone

GAIN = 0.03  # that branches on cores of their own must promise over all cores together: predictions err by as much


@dataclass(frozen=True)
class Arrangement:
    """A layer: predicted seconds, the barrier at its end included, and (first core, number of cores, operators)."""

    seconds: float
    parts: tuple[tuple[int, int, Mask], ...]


class TaskTimes:
    """Seconds of each operator alone on any number of cores, as predicted or measured, remembered."""

    def __init__(self, works: Sequence[Work], machine: Machine) -> None:
        self.works, self.machine = works, machine
        self.far = [work.cost.far_nbytes for work in works]
        self._on: dict[int, list[float]] = {}

    def on(self, n_cores: int) -> list[float]:
        """Seconds of every operator on that many cores."""
        if n_cores not in self._on:
            self._on[n_cores] = [
                seconds_alone(work.cost, self.machine, n_cores) * work.correction(self.machine, n_cores)
                for work in self.works
            ]
        return self._on[n_cores]


class Crossing:
    """What it costs that a group of cores alone reads and writes what all of them have written and will read."""

    def __init__(self, dag: Dag, works: Sequence[Work], machine: Machine, n_cores: int) -> None:
        self.dag, self.n_cores = dag, n_cores
        self.per_byte = max(0.0, 1 / machine.peer_bandwidth_per_core - 1 / machine.l2_bandwidth_per_core)
        self.written: list[float] = []  # by each operator; a view of several hands on what these wrote
        for work, before in zip(works, dag.before, strict=True):
            of_view = sum([self.written[b] for b in bits(before)]) if work.cost.kind == "view" else 0.0
            self.written.append(of_view or work.cost.written_nbytes)

    def seconds(self, groups: Sequence[Mask], cores: Sequence[int]) -> list[float]:
        """More seconds that each group needs for its operands, and all cores afterwards for its results."""
        found = []
        for group, c in zip(groups, cores, strict=True):
            inside = bits(group)
            above = leaving = 0
            for i in inside:
                above |= self.dag.before[i]
                leaving |= 1 << i if self.dag.behind[i] & ~group else 0
            read, handed = (sum([self.written[i] for i in bits(m)]) for m in (above & ~group, leaving))
            elsewhere = 1 - c / self.n_cores
            found.append(self.per_byte * elsewhere * (read / c + handed / self.n_cores))
        return found


class Branches:
    """Arranges sets of operators of one DAG on `n_cores` cores. The same object answers for every set."""

    def __init__(self, dag: Dag, times: TaskTimes, n_cores: int) -> None:
        self.dag, self.times, self.n_cores = dag, times, n_cores
        machine = times.machine
        self.bandwidth = machine.bandwidth_per_socket * -(-n_cores // machine.cores_per_socket)
        self.barrier = machine.barrier(n_cores)
        self.crossing = Crossing(dag, times.works, machine, n_cores)
        self.on_all, self.on_one = times.on(n_cores), times.on(1)
        self._known: dict[Mask, float] = {}
        self.n_evaluated = 0

    def seconds(self, part: Mask) -> float:
        """Seconds of the best arrangement of a set."""
        found = self._known.get(part)
        if found is None:
            self.n_evaluated += 1
            found = self._known[part] = self.arrange(part).seconds
        return found

    def arrange(self, part: Mask) -> Arrangement:
        """The best arrangement of a set."""
        on_all = self.on_all
        together = sum([on_all[i] for i in bits(part)])
        if self.n_cores > 1 and part & (part - 1):
            longest = [max([on_all[i] for i in bits(level)]) for level in self.dag.levels(part)]
            together -= WAITING * (together - sum(longest))
        best = Arrangement(together, ((0, self.n_cores, part),))
        if self.n_cores == 1:
            return best
        components = self.dag.components(part)
        if len(components) == 1:
            return best
        on_one = self.on_one
        works = {c: sum([on_one[i] for i in bits(c)]) for c in components}
        if max(works.values()) / self.n_cores >= best.seconds:
            return best
        components.sort(key=lambda c: -works[c])
        least = sum([self.times.far[i] for i in bits(part)]) / self.bandwidth
        for n_groups in _group_counts(min(len(components), self.n_cores)):
            found = self._grouped(components, works, n_groups, least)
            if found.seconds < min(best.seconds, together * (1 - GAIN)):
                best = found
        return best

    def _grouped(self, components: Sequence[Mask], works: dict[Mask, float], n: int, least: float) -> Arrangement:
        """The components dealt to `n` groups of cores; `least`: seconds that the memory needs for all."""
        groups, loads = [0] * n, [0.0] * n
        for component in components:
            k = loads.index(min(loads))
            groups[k] |= component
            loads[k] += works[component]
        cores = share_cores(loads, self.n_cores)
        seconds = max(self._chain(group, c) * BESIDE for group, c in zip(groups, cores, strict=True))
        seconds += max(self.crossing.seconds(groups, cores))
        parts, first = [], 0
        for group, c in zip(groups, cores, strict=True):
            parts.append((first, c, group))
            first += c
        return Arrangement(max(seconds, least) + self.barrier, tuple(parts))

    def _chain(self, part: Mask, n_cores: int) -> float:
        on = self.times.on(n_cores)
        return sum([on[i] for i in bits(part)])


def share_cores(loads: Sequence[float], n_cores: int) -> list[int]:
    """Cores in proportion to some loads, at least one each; what rounding leaves goes to the largest shares."""
    total = sum(loads) or 1.0
    cores = [max(1, int(n_cores * load / total)) for load in loads]
    while sum(cores) < n_cores:
        k = max(range(len(loads)), key=lambda k: loads[k] / cores[k])
        cores[k] += 1
    while sum(cores) > n_cores:
        k = min((k for k in range(len(loads)) if cores[k] > 1), key=lambda k: loads[k] / (cores[k] - 1))
        cores[k] -= 1
    return cores


def _group_counts(most: int) -> list[int]:
    """Numbers of groups worth trying: all small ones, then steps of about a quarter, and the largest."""
    counts, n = [], 2
    while n < most:
        counts.append(n)
        n += max(1, n // 4)
    return [*counts, most]


__all__ = ["Arrangement", "Branches", "TaskTimes", "share_cores"]
