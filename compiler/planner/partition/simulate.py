"""How long works take on a machine under a policy: who runs when, on which cores, at which share of the bandwidth.

Owns the policies. Each becomes tasks for `bandwidth_sim`; the greedy one decides at run time and is `list_scheduler`'s.
It must not know graphs: `works` makes works from them.

    Sequential   one work after the other on all cores
    Greedy       every work that is ready runs, cores are shared
    Instances    copies of the model, each on cores of its own, in groups that may start later than others (ParaX)
    Pipeline     stages on core groups, micro-batches flow through double buffers (Mofang, GPipe)
    Layers       branches side by side, on cores of their own or all on all cores, which meet at the end of each layer
                 (Mofang's result nodes)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....errors import UsageError
from ...costs.cost import Cost
from ...targets.machine import Machine
from .bandwidth_sim import Task, capacities, links_of, run_tasks
from .list_scheduler import Latencies, Span
from .works import BESIDE, SPREAD, WAITING, Work, graph_works, seconds_alone, seconds_on

__all__ = [
    "SPREAD", "Cost", "Greedy", "Instances", "Latencies", "Layers", "Part", "Pipeline", "Policy",
    "Sequential", "Span", "Timeline", "Work", "graph_works", "lat_greedy", "lat_sequential", "seconds_alone",
    "simulate",
]  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Works that run one after the other on cores of their own: a branch of a layer, a stage of a pipeline."""

    first_core: int
    n_cores: int
    works: tuple[int, ...]


@dataclass(frozen=True)
class Sequential:
    """One work at a time. `home`: the socket whose memory holds everything; None: every socket's part lies in its own;
    SPREAD: in all, no matter which socket needs it.
    """

    n_cores: int
    home: int | None = None


@dataclass(frozen=True)
class Greedy:
    """Every ready work at once; the cores are split by what the works still have to do."""

    n_cores: int


@dataclass(frozen=True)
class Instances:
    """`n_instances` runs of the works side by side, instance j on cores [j·cores_each, (j+1)·cores_each).

    Attributes:
        batch_each: rows of one run, which the works' costs are for. delay_groups, delay_seconds: instance j of the p
            of its socket belongs to group ⌊j·n/p⌋, and group g starts g·delay_seconds late (ParaX, delayed start).
        shares_weights: whether instances of a socket and group find weights in the cache that another has just read.
    """

    n_instances: int
    cores_each: int = 1
    batch_each: int = 1
    delay_groups: int = 1
    delay_seconds: float = 0.0
    shares_weights: bool = True


@dataclass(frozen=True)
class Pipeline:
    """Each stage takes one micro-batch after the other; every cut has two buffers. Costs are for one micro-batch."""

    stages: tuple[Part, ...]
    micro_batches: int


@dataclass(frozen=True)
class Layers:
    """Branches of a layer run side by side; the next layer begins when all are done.

    Branches on the same cores share these: their works follow one another, but are waited for only together.

    `beside`: times as long as alone a work takes beside others, whatever they need of the memory.
    """

    layers: tuple[tuple[Part, ...], ...]
    beside: float = BESIDE


Policy = Sequential | Greedy | Instances | Pipeline | Layers


@dataclass(frozen=True)
class Timeline:
    """What a simulation found.

    Attributes:
        total_seconds: from the first start to the last end, the hand-off included. spans: sorted by start.
        core_use, bandwidth_use: mean shares of the machine's cores that had work, of its bandwidth that was used.
        bandwidth_peak: highest share of one link. flops: arithmetic done. rows: of all instances together.
    """

    total_seconds: float
    spans: list[Span]
    core_use: float
    bandwidth_use: float
    bandwidth_peak: float
    flops: float
    rows: int = 1

    @property
    def rows_per_second(self) -> float:
        """Throughput, if runs follow one another without a gap."""
        return self.rows / self.total_seconds


def simulate(works: Sequence[Work], machine: Machine, policy: Policy) -> Timeline:
    """Run `works` (a DAG, in topological order) on `machine`.

    Raises:
        UsageError: the policy needs more cores than the machine has, or does not run every work once.
    """
    if isinstance(policy, Greedy):
        _check_cores(policy.n_cores, machine)
        seconds, spans, peak = Latencies(works, machine, policy.n_cores).greedy_spans()
        return _timeline(works, machine, spans, seconds + machine.call_seconds, peak, 1)
    plan = _Plan(works, machine)
    rows = 1
    if isinstance(policy, Sequential):
        _check_cores(policy.n_cores, machine)
        plan.chain(range(len(works)), 0, policy.n_cores, home=policy.home)
    elif isinstance(policy, Instances):
        _check_cores(policy.n_instances * policy.cores_each, machine)
        rows = policy.n_instances * policy.batch_each
        _instances(plan, policy)
    elif isinstance(policy, Pipeline):
        _check_parts(works, policy.stages, machine)
        rows = policy.micro_batches
        _pipeline(plan, policy)
    else:
        _check_parts(works, [part for layer in policy.layers for part in layer], machine)
        _layers(plan, policy)
    return plan.run(rows)


def lat_sequential(works: Sequence[Work], machine: Machine, n_cores: int) -> float:
    """Seconds of the works one after the other on `n_cores` cores. For many subsets of one graph: `Latencies`."""
    return sum(seconds_alone(work.cost, machine, n_cores) for work in works)


def lat_greedy(works: Sequence[Work], machine: Machine, n_cores: int) -> float:
    """Seconds of the works run greedily, the barrier at the end included. For many subsets: `Latencies`."""
    return Latencies(works, machine, n_cores).greedy(range(len(works)))


@dataclass(frozen=True)
class _Placed:
    """Which span a task will be. `copies`: first core of each equal instance, with its number."""

    work: int
    n_cores: int
    copies: tuple[tuple[int, int], ...]


class _Plan:
    """Tasks of a policy, and the spans they become."""

    def __init__(self, works: Sequence[Work], machine: Machine) -> None:
        self.works, self.machine = works, machine
        self.tasks: list[Task] = []
        self.placed: list[_Placed | None] = []

    def add(self, task: Task, placed: _Placed | None = None) -> int:
        """The number of the added task."""
        self.tasks.append(task)
        self.placed.append(placed)
        return len(self.tasks) - 1

    def chain(
        self, works: Sequence[int], first_core: int, n_cores: int, after: tuple[int, ...] = (), batch: int = 0,
        home: int | None = None, copies: tuple[tuple[int, int], ...] = (), shares_weights: bool = False,
        slower: float = 1.0,
    ) -> tuple[int, ...]:  # fmt: skip
        """Works one after the other on the same cores, `slower` times as long as alone; returns what to wait for
        (`after` if there are no works).
        """
        for i in works:
            cost = self.works[i].cost
            if cost.kind == "view":
                continue
            cores = max(1, min(n_cores, cost.parallel_items))
            sockets = self.machine.sockets_of(first_core, cores)
            far = cost.far_nbytes
            if shares_weights and len(copies) > 1 and cost.kind != "lookup":  # each looks up rows of its own
                far -= cost.far_weight_nbytes * (1 - 1 / len(copies))
            alone = seconds_on(cost, self.machine, n_cores, sockets, home, far) * slower
            alone *= self.works[i].correction(self.machine, n_cores)
            task = Task(alone, far, after, cores, links_of(self.machine, sockets, home), max(1, len(copies)))
            after = (self.add(task, _Placed(i, n_cores, copies or ((first_core, batch),))),)
        return after

    def run(self, rows: int) -> Timeline:
        """Simulate the tasks."""
        done = run_tasks(self.tasks, capacities(self.machine))
        spans = [
            Span(placed.work, (first, placed.n_cores), began, ended, batch)
            for placed, began, ended in zip(self.placed, done.began, done.ended) if placed is not None
            for first, batch in placed.copies
        ]
        total = max(done.ended, default=0.0) + self.machine.call_seconds
        return _timeline(self.works, self.machine, spans, total, done.peak, rows)


def _instances(plan: _Plan, policy: Instances) -> None:
    """Equal instances (same place within their sockets, same group) become one chain of tasks with copies."""
    machine, cores = plan.machine, policy.cores_each
    of_socket: dict[int, list[int]] = {}
    for j in range(policy.n_instances):
        of_socket.setdefault(j * cores // machine.cores_per_socket, []).append(j)
    alike: dict[tuple[int, tuple[tuple[int, int], ...]], list[int]] = {}
    for members in of_socket.values():
        for place, j in enumerate(members):
            group = place * policy.delay_groups // len(members)
            alike.setdefault((group, tuple(machine.sockets_of(j * cores, cores))), []).append(j)
    for (group, _), members in alike.items():
        wait = (plan.add(Task(group * policy.delay_seconds, 0.0, (), 0)),) if group else ()
        copies = tuple((j * cores, j) for j in members)
        plan.chain(range(len(plan.works)), members[0] * cores, cores, wait, copies=copies,
                   shares_weights=policy.shares_weights)  # fmt: skip


def _pipeline(plan: _Plan, policy: Pipeline) -> None:
    """Micro-batch m of stage s waits for itself in s − 1, for m − 1 in s and, for a free buffer, for m − 2 in s + 1."""
    ends: dict[tuple[int, int], tuple[int, ...]] = {}
    for m in range(policy.micro_batches):
        for s, stage in enumerate(policy.stages):
            waits = {*ends.get((s - 1, m), ()), *ends.get((s, m - 1), ()), *ends.get((s + 1, m - 2), ())}
            ends[s, m] = plan.chain(stage.works, stage.first_core, stage.n_cores, tuple(sorted(waits)), m)


def _layers(plan: _Plan, policy: Layers) -> None:
    """A barrier of all cores ends each layer that has several branches."""
    after: tuple[int, ...] = ()
    for layer in policy.layers:
        if len(layer) > 1 and len({(part.first_core, part.n_cores) for part in layer}) == 1:
            after = _shared(plan, layer, after)
            continue
        slower = policy.beside if len(layer) > 1 else 1.0
        ends = [plan.chain(part.works, part.first_core, part.n_cores, after, slower=slower) for part in layer]
        after = tuple(sorted({end for part_end in ends for end in part_end}))
        if len(layer) > 1:
            meeting = plan.machine.barrier(sum(part.n_cores for part in layer))
            after = (plan.add(Task(meeting, 0.0, after, 0)),)


def _shared(plan: _Plan, layer: Sequence[Part], after: tuple[int, ...]) -> tuple[int, ...]:
    """The works of branches that share all cores: at the end the cores wait as long as for the longest one alone."""
    first = len(plan.tasks)
    for part in layer:
        after = plan.chain(part.works, part.first_core, part.n_cores, after, slower=1 - WAITING)
    longest = max((task.alone for task in plan.tasks[first:]), default=0.0) / (1 - WAITING)
    return (plan.add(Task(WAITING * longest, 0.0, after, 0)),) if longest else after


def _timeline(
    works: Sequence[Work], machine: Machine, spans: list[Span], total: float, peak: float, rows: int
) -> Timeline:
    used = sum((span.end - span.start) * span.cores[1] for span in spans)
    whole = {(span.work, span.batch): works[span.work].cost for span in spans}
    far = sum(cost.far_nbytes for cost in whole.values())
    return Timeline(
        total, sorted(spans, key=lambda span: (span.start, span.cores)),
        used / (machine.n_cores * total) if total else 0.0,
        far / (machine.bandwidth * total) if total else 0.0,
        peak, sum(cost.flops for cost in whole.values()), rows,
    )  # fmt: skip


def _check_cores(n_cores: int, machine: Machine) -> None:
    if not 1 <= n_cores <= machine.n_cores:
        raise UsageError("no such number of cores", where=machine.name, expected=f"1 to {machine.n_cores}",
                         found=n_cores)  # fmt: skip


def _check_parts(works: Sequence[Work], parts: Sequence[Part], machine: Machine) -> None:
    for part in parts:
        _check_cores(part.n_cores, machine)
        if not 0 <= part.first_core <= machine.n_cores - part.n_cores:
            raise UsageError("no such cores", where=machine.name, expected=f"below {machine.n_cores}",
                             found=f"{part.first_core} and {part.n_cores - 1} more")  # fmt: skip
    listed = sorted(i for part in parts for i in part.works)
    if listed != list(range(len(works))):
        raise UsageError("every work must run once", where="policy", expected=f"{len(works)} works",
                         found=f"{len(listed)}, {len(set(listed))} different")  # fmt: skip
