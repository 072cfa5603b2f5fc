"""What a candidate will take, by the cost model and the simulator.

Owns the way from a candidate and a load to simulated runs: how the executor cuts a request, which caches an instance
has, what is remembered. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...runtime.cut import row_ranges
from ..ir.graph import Graph
from ..ir.machine import Machine
from ..passes.partition.simulate import Instances, Timeline, simulate
from ..passes.partition.works import Work, busy_seconds, far_limit, graph_works
from .candidate import Candidate, Load


@dataclass(frozen=True)
class Prediction:
    """What the model says of a candidate under a load.

    Attributes:
        seconds: from a request's call to its answer. items_per_second: rows over all instances.
        memory_share: of the kernels' time, in which memory sets the pace. barrier_share: of the time, at barriers.
        idle_share: of the candidate's cores, without work (a pipeline's bubble, branches of unequal length).
        utilisation: arithmetic done, over the cores' peak.
        timeline: of one call on every instance that takes part. active: how many do.
        calls: one after the other on an instance.
    """

    seconds: float
    items_per_second: float
    memory_share: float
    barrier_share: float
    idle_share: float
    utilisation: float
    timeline: Timeline
    active: int
    calls: int


@dataclass
class Predictor:
    """Predictions for one graph on one machine.

    Args:
        symbol: the dimension that counts independent rows; None where requests are not cut.
        symbols: sizes of the other symbolic dimensions.
        least_rows: what the executor gives an instance at least (see `fewest_rows`).
    """

    graph: Graph
    machine: Machine
    symbol: str | None = None
    symbols: Mapping[str, int] = field(default_factory=dict)
    least_rows: int = 1
    _runs: dict[tuple[int, int, int, float], Timeline] = field(default_factory=dict)
    _works: dict[tuple[int, float], list[Work]] = field(default_factory=dict)

    def works(self, rows: int, cache_nbytes: float) -> list[Work]:
        """The graph's works for a call of `rows` rows, on an instance with so much cache."""
        key = rows, cache_nbytes
        if key not in self._works:
            sizes = {**self.symbols, self.symbol: rows} if self.symbol is not None else dict(self.symbols)
            self._works[key] = graph_works(self.graph, sizes, cache_nbytes=cache_nbytes)
        return self._works[key]

    def run(self, instances: int, cores: int, rows: int, delay: tuple[int, float] = (1, 0.0)) -> Timeline:
        """One call of `rows` rows on each of so many instances at the same time."""
        groups, seconds = delay
        key = instances, cores, rows, groups * seconds
        if key not in self._runs:
            works = self.works(rows, cache_share(self.machine, instances, cores))
            policy = Instances(instances, cores, rows, groups, seconds)
            self._runs[key] = simulate(works, self.machine, policy)
        return self._runs[key]

    def predict(self, candidate: Candidate, load: Load) -> Prediction:
        """What a sequential candidate takes."""
        instances = candidate.instances
        if candidate.rows is None:
            active, sizes = (instances if load.saturated else 1), [load.rows]
        elif load.saturated:
            active, sizes = instances, [n for _, n in row_ranges(load.rows, 1, candidate.rows)]
        else:
            active = max(1, min(instances, load.rows // self.least_rows))
            sizes = [n for _, n in row_ranges(load.rows, active, candidate.rows)]
        delay = candidate.delay_groups, candidate.delay_seconds
        runs = {n: self.run(active, candidate.cores_each, n, delay) for n in set(sizes)}
        head_start = (candidate.delay_groups - 1) * candidate.delay_seconds
        call = self.machine.call_seconds
        each = sum(runs[n].total_seconds - call - head_start for n in sizes)
        queues = 1 if load.saturated or candidate.rows is None else active
        seconds = each / queues + head_start + call
        items = load.rows * (active if load.saturated else 1) / seconds
        return self._described(candidate, runs[max(sizes)], active, seconds, items, -(-len(sizes) // queues))

    def _described(
        self, candidate: Candidate, timeline: Timeline, active: int, seconds: float, items: float, calls: int
    ) -> Prediction:  # fmt: skip
        machine, cores = self.machine, candidate.cores_each
        rows = timeline.rows // active
        works = self.works(rows, cache_share(machine, active, cores))
        spans = [span for span in timeline.spans if span.batch == 0]
        kernels = sum(span.end - span.start for span in spans)
        bound = sum(s.end - s.start for s in spans if is_memory_bound(works[s.work], machine, cores, active))
        span = timeline.total_seconds or 1.0
        used = timeline.core_use * machine.n_cores / (active * cores)
        peak = machine.flops_per_core * active * cores * span
        return Prediction(
            seconds, items, bound / kernels if kernels else 0.0, len(spans) * machine.barrier(cores) / span,
            max(0.0, 1.0 - used), timeline.flops / peak, timeline, active, calls,
        )  # fmt: skip


def cache_share(machine: Machine, instances: int, cores: int) -> float:
    """Bytes of cache that an instance may count on: its cores' own, and its part of the sockets' last-level cache."""
    busy = min(machine.cores_per_socket, -(-instances * cores // machine.n_sockets))
    return cores * (machine.l2_nbytes + machine.l3_nbytes / max(1, busy))


def is_memory_bound(work: Work, machine: Machine, cores: int, instances: int) -> bool:
    """Whether memory, shared by all instances, takes longer over a work than its cores."""
    cost = work.cost
    if cost.kind == "view":
        return False
    own = far_limit(machine, machine.sockets_of(0, cores))
    fair = min(own, machine.bandwidth / max(1, instances))
    return cost.far_nbytes / fair > busy_seconds(cost, machine, cores)


def fewest_rows(predictor: Predictor) -> int:
    """The fewest rows worth waking another instance for: their work takes longer than the hand-off."""
    rows = 1
    while rows < 1024 and predictor.run(1, 1, rows).total_seconds < 2 * predictor.machine.call_seconds:
        rows *= 2
    return rows
