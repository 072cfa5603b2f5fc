"""One layer on the cores of an instance: its operators in sequence on all of them, or as branches side by side.

Owns the arrangement of a set of operators and its predicted seconds: Mofang's choice between greedy and sequential, in
the form that the backend executes. Which sets become layers is `layers`' affair.

Branches are the weakly connected components of the set. They are dealt to groups of cores, the longest first to the
group that is done first (Graham's LPT rule), and the groups' sizes follow what they have to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.machine import Machine
from .dag import Dag, Mask, bits
from .works import BESIDE, Work, seconds_alone


@dataclass(frozen=True)
class Arrangement:
    """A layer: predicted seconds, the barrier at its end included, and (first core, number of cores, operators)."""

    seconds: float
    parts: tuple[tuple[int, int, Mask], ...]


class Prices:
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


class Branches:
    """Arranges sets of operators of one DAG on `n_cores` cores. The same object answers for every set."""

    def __init__(self, dag: Dag, prices: Prices, n_cores: int) -> None:
        self.dag, self.prices, self.n_cores = dag, prices, n_cores
        machine = prices.machine
        self.bandwidth = machine.bandwidth_per_socket * -(-n_cores // machine.cores_per_socket)
        self.barrier = machine.barrier(n_cores)
        self.on_all, self.on_one = prices.on(n_cores), prices.on(1)
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
        best = Arrangement(sum([on_all[i] for i in bits(part)]), ((0, self.n_cores, part),))
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
        least = sum([self.prices.far[i] for i in bits(part)]) / self.bandwidth
        for n_groups in _group_counts(min(len(components), self.n_cores)):
            found = self._grouped(components, works, n_groups, least)
            if found.seconds < best.seconds:
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
        seconds = max(self._chain(group, c) for group, c in zip(groups, cores, strict=True))
        parts, first = [], 0
        for group, c in zip(groups, cores, strict=True):
            parts.append((first, c, group))
            first += c
        return Arrangement(max(seconds * BESIDE, least) + self.barrier, tuple(parts))

    def _chain(self, part: Mask, n_cores: int) -> float:
        on = self.prices.on(n_cores)
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


__all__ = ["Arrangement", "Branches", "Prices", "share_cores"]
