"""What a candidate will take, by the cost model and the simulator.

Owns the way from a candidate and a load to simulated runs: how the executor cuts a request, which caches an instance
has, what is remembered. Measures nothing.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...errors import InternalError
from ...runtime.cut import row_ranges
from ..backend.costs import node_cost
from ..costs.cost import CostRule
from ..ir.graph import Graph
from ..ir.schedule import Schedule
from ..ir.views import MemoryPlan
from ..targets.machine import Machine
from .candidate import LAYERED, PIPELINED, SEQUENTIAL, Candidate, Load
from .partition.cache_model import memory_of
from .partition.schedules import plan_layers, plan_pipeline, policy_of, scheduled_graph
from .partition.simulate import Instances, Timeline, simulate
from .partition.works import Measured, Work, far_limit, graph_works, seconds_on

Caches = tuple[float, float]
"""See Machine.caches."""
# Of 2026-11-21; the history names no CPU or command of the measurements.
HAND_OFF_SECONDS = 15e-6  # measured: two instances against one on an empty plan
CUT_SECONDS = 8e-6  # measured: a request in pieces against a whole one, on however many instances
JOIN_SECONDS = 1.4e-6  # measured: until an instance's other cores take part in a request, on NCF and MLP at 8 rows
EXPOSED = 0.2  # of the time to move a call's activations to and from memory: the part that arithmetic does not hide
SLOW = 0.5  # of a core's peak and bandwidth: what small kernels get


@dataclass(frozen=True)
class Prediction:
    """What the model says of a candidate under a load.

    Attributes:
        seconds: from a request's call to its answer. items_per_second: rows over all instances.
        memory_share: of the kernels' time, in which memory sets the pace. barrier_share: of the time, at barriers.
        idle_share: of the candidate's cores, without work (a pipeline's bubble, branches of unequal length).
        utilisation: arithmetic done, over the cores' peak.
        timeline: of one call on every instance that takes part. active: how many do.
        calls: one after the other on an instance. works: what the timeline's spans are of.
        exposed_seconds: of a request, to add where candidates are compared: more of the activations' way to
            memory shows than single kernels tell (`Machine.exposed`), and decides between candidates of equal seconds.
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
    works: Sequence[Work] = ()
    exposed_seconds: float = 0.0


@dataclass(frozen=True)
class Scheduled:
    """A schedule of the graph for calls of so many rows, its works, and how they run."""

    schedule: Schedule
    works: list[Work]
    timeline: Timeline


@dataclass
class Predictor:
    """Predictions for one graph on one machine.

    Args:
        symbol: the dimension that counts independent rows; None where requests are not cut.
        symbols: sizes of the other symbolic dimensions.
        least_rows: what the executor gives an instance at least (see `fewest_rows`).
        measured: asked with a number of cores and rows a call, what the graph's nodes took; layers are then planned and
            predicted by that. None: by the cost model.
        cost: what a node costs.
    """

    graph: Graph
    machine: Machine
    symbol: str | None = None
    symbols: Mapping[str, int] = field(default_factory=dict)
    least_rows: int = 1
    measured: Callable[[int, int], Measured] | None = None
    cost: CostRule = node_cost
    _runs: dict[tuple[int, int, int, float], Timeline] = field(default_factory=dict)
    _works: dict[tuple[int, Caches | None], list[Work]] = field(default_factory=dict)
    _scheduled: dict[tuple[str, int, int, int, bool], Scheduled | None] = field(default_factory=dict)
    _layers: dict[tuple[int, int, bool], Schedule] = field(default_factory=dict)

    @cached_property
    def memory(self) -> MemoryPlan | None:
        """Where the graph's values lie; None where the runtime decides."""
        return memory_of(self.graph)

    def works(self, rows: int, caches: Caches | None) -> list[Work]:
        """The graph's works for a call of `rows` rows, on an instance with these caches; None: without any."""
        key = rows, caches
        if key not in self._works:
            self._works[key] = graph_works(self.graph, self.sizes(rows), self.cost, caches, self.memory)
        return self._works[key]

    def sizes(self, rows: int) -> dict[str, int]:
        """All symbols' sizes for a call of `rows` rows."""
        return {**self.symbols, self.symbol: rows} if self.symbol is not None else dict(self.symbols)

    def layered(self, cores: int, rows: int, instances: int = 1) -> Scheduled | None:
        """The graph in layers on so many cores, for calls of `rows` rows; None where no layer has several branches.

        Args:
            instances: that run it side by side and share the memory's bandwidth.
        """
        key = LAYERED, cores, rows, instances, self.measured is not None
        if key not in self._scheduled:
            self._scheduled[key] = self._run_schedule(self.layers(cores, rows), rows, instances)
        return self._scheduled[key]

    def layers(self, cores: int, rows: int) -> Schedule:
        """The best layers on so many cores, for calls of `rows` rows, found at the first call; they may be one."""
        key = cores, rows, self.measured is not None
        if key not in self._layers:
            known = self.measured(cores, rows) if self.measured is not None else None
            self._layers[key] = plan_layers(self.graph, self.machine, cores, self.sizes(rows), measured=known,
                                            cost=self.cost)  # fmt: skip
        return self._layers[key]

    def pipelined(self, cores: int, rows: int) -> Scheduled | None:
        """The graph as a pipeline on so many cores, for requests of `rows` rows; None where it has no two stages."""
        key = PIPELINED, cores, rows, 1, False
        if key not in self._scheduled and self.symbol is not None:
            schedule = plan_pipeline(self.graph, self.machine, cores, rows, self.symbol, self.symbols, cost=self.cost)
            micro = -(-rows // (schedule.micro_batches or 1))
            self._scheduled[key] = self._run_schedule(schedule, micro)
        return self._scheduled.get(key)

    def _run_schedule(self, schedule: Schedule, rows: int, instances: int = 1) -> Scheduled | None:
        if schedule.mode == SEQUENTIAL:
            return None
        beside = -(-instances // self.machine.n_sockets)
        machine = replace(self.machine, bandwidth_per_socket=self.machine.bandwidth_per_socket / beside)
        known = None
        if self.measured is not None and schedule.mode == LAYERED:
            known = self.measured(schedule.n_cores, rows)
        caches = self.machine.caches(instances, schedule.n_cores)
        graph = scheduled_graph(self.graph, schedule)
        works = graph_works(graph, self.sizes(rows), self.cost, caches, measured=known)
        return Scheduled(schedule, works, simulate(works, machine, policy_of(graph, schedule)))

    def run(self, instances: int, cores: int, rows: int, delay: tuple[int, float] = (1, 0.0)) -> Timeline:
        """One call of `rows` rows on each of so many instances at the same time."""
        groups, seconds = delay
        key = instances, cores, rows, groups * seconds
        if key not in self._runs:
            works = self.works(rows, self.machine.caches(instances, cores))
            policy = Instances(instances, cores, rows, groups, seconds)
            self._runs[key] = simulate(works, self.machine, policy)
        return self._runs[key]

    def predict(self, candidate: Candidate, load: Load) -> Prediction:
        """What a candidate takes.

        Raises:
            InternalError: there is no such schedule of the graph.
        """
        if candidate.mode == PIPELINED:
            return self._pipeline(candidate, load)
        instances, call = candidate.instances, self.machine.call_seconds
        if candidate.rows is None:
            active, sizes = (instances if load.saturated else 1), [load.rows]
        elif load.saturated:
            active, sizes = instances, [n for _, n in row_ranges(load.rows, 1, candidate.rows)]
        else:
            active = max(1, min(instances, load.rows // self.least_rows))
            sizes = [n for _, n in row_ranges(load.rows, active, candidate.rows)]
        queues = 1 if load.saturated or candidate.rows is None else active
        head_start = (candidate.delay_groups - 1) * candidate.delay_seconds
        if candidate.mode == LAYERED:
            found = self._schedule(self.layered(candidate.cores_each, candidate.rows or load.rows, active), candidate)
            works, last = found.works, found.timeline
            times = [last.total_seconds - call] * len(sizes)
        else:
            delay = candidate.delay_groups, candidate.delay_seconds
            runs = {n: self.run(active, candidate.cores_each, n, delay) for n in set(sizes)}
            times = [runs[n].total_seconds - call - head_start for n in sizes]
            works = self.works(max(sizes), self.machine.caches(active, candidate.cores_each))
            last = runs[max(sizes)]
        begin = (CUT_SECONDS if len(sizes) > 1 else 0.0) + (JOIN_SECONDS if candidate.cores_each > 1 else 0.0)
        seconds = _until_all_done(times, queues) + head_start + call + begin
        items = load.rows * (active if load.saturated else 1) / seconds
        shares = self._shares(candidate, last, works, active)
        far = sum(w.cost.far_nbytes - w.cost.far_weight_nbytes for w in works) * active / self.machine.bandwidth
        calls = -(-len(sizes) // queues)
        return Prediction(seconds, items, *shares, last, active, calls, works, EXPOSED * far * calls)

    def _pipeline(self, candidate: Candidate, load: Load) -> Prediction:
        found = self._schedule(self.pipelined(candidate.cores_each, load.rows), candidate)
        last = found.timeline
        shares = self._shares(candidate, last, found.works, 1)
        seconds = last.total_seconds + CUT_SECONDS + JOIN_SECONDS
        return Prediction(seconds, load.rows / seconds, *shares, last, 1, 1, found.works)

    @staticmethod
    def _schedule(found: Scheduled | None, candidate: Candidate) -> Scheduled:
        if found is None:
            raise InternalError("the graph has no such schedule", found=candidate.name)
        return found

    def _shares(
        self, candidate: Candidate, timeline: Timeline, works: Sequence[Work], active: int
    ) -> tuple[float, float, float, float]:
        """Of memory-bound kernels, of barriers, of idle cores, and of the arithmetic peak."""
        machine, cores = self.machine, candidate.cores_each
        whole = timeline.total_seconds or 1.0
        one = [s for s in timeline.spans if s.batch == 0] if candidate.mode == SEQUENTIAL else timeline.spans
        kernels = sum((s.end - s.start) * s.cores[1] for s in one)
        slow = [s for s in one if is_memory_bound(works[s.work], machine, s.cores[1], active)]
        bound = sum((s.end - s.start) * s.cores[1] for s in slow)
        barriers = sum(machine.barrier(s.cores[1]) * s.cores[1] for s in one) / cores
        n = cores * (active if candidate.mode == SEQUENTIAL else 1)  # of the timeline
        used = timeline.core_use * machine.n_cores / n
        peak = machine.flops_per_core * n * whole
        return (bound / kernels if kernels else 0.0, barriers / whole, max(0.0, 1.0 - used), timeline.flops / peak)


def _until_all_done(times: Sequence[float], queues: int) -> float:
    """Seconds until pieces that take so long are done, each by the first of the instances that is free."""
    ends = [0.0] * queues
    for seconds in times:
        heapq.heappush(ends, heapq.heappop(ends) + seconds)
    return max(ends)


def is_memory_bound(work: Work, machine: Machine, cores: int, instances: int) -> bool:
    """Whether memory, shared by all instances, takes longer over a work than its cores."""
    cost = work.cost
    if cost.kind == "view":
        return False
    sockets = machine.sockets_of(0, cores)
    fair = min(far_limit(machine, sockets), machine.bandwidth / max(1, instances))
    return cost.far_nbytes / fair > seconds_on(cost, machine, cores, sockets, far_nbytes=0.0)


def fewest_rows(predictor: Predictor) -> int:
    """The fewest rows worth waking another instance for: their work takes longer than the hand-off, even at the pace
    of small kernels.
    """
    machine = predictor.machine
    flops = machine.flops_per_core * SLOW
    bandwidth = machine.bandwidth_per_core * SLOW
    costs = [work.cost for work in predictor.works(1, None)]
    seconds = sum(c.flops / flops + (c.read_nbytes + c.written_nbytes) / bandwidth for c in costs)
    return max(1, math.ceil(HAND_OFF_SECONDS / max(seconds, 1e-9)))
