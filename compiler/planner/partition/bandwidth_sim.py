"""Tasks that wait for one another, run on cores of their own and share the memory's bandwidth: a discrete-event run.

Owns the event loop and the sharing; it must not know where tasks come from (simulate's policies make them).

Between two events every task progresses at a constant rate, limited by its arithmetic and by its share of the links
that its bytes cross. Shares are max-min fair for cores (Bertsekas and Gallager, "Data Networks", 6.5.2): all flows grow
by the same rate a core until their own limit or a full link stops them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....errors import InternalError
from ...targets.machine import Machine
from .works import SPREAD

EPSILON = 1e-9  # rounding: of a task left, of cores on a link
AT_ONCE = 1e15  # progress per second of what takes no time


@dataclass
class Task:
    """Something that runs on cores of its own once others are done.

    Attributes:
        alone: seconds that it takes with the memory for itself. far: bytes from memory, of one copy.
        after: numbers of the tasks that must end first. cores: how many share its bandwidth (0: none).
        links: link → part of its bytes that crosses it.
        copies: how many equal tasks, on other cores, this one stands for.
    """

    alone: float
    far: float
    after: tuple[int, ...]
    cores: int
    links: Mapping[int, float] = field(default_factory=dict)
    copies: int = 1


@dataclass(frozen=True)
class Run:
    """When each task began and ended; the highest use of any link, 1 = all of it."""

    began: list[float]
    ended: list[float]
    peak: float


def capacities(machine: Machine) -> list[float]:
    """Bytes per second of the links: each socket's memory, then what each socket can take from other sockets."""
    return [machine.bandwidth_per_socket] * machine.n_sockets + [machine.remote_bandwidth] * machine.n_sockets


def links_of(machine: Machine, sockets: Sequence[tuple[int, int]], home: int | None = None) -> dict[int, float]:
    """The links that the bytes of a task on these (socket, cores) cross.

    Args:
        home: the socket in whose memory all of them are; None: each socket's part is in its own memory; SPREAD.
    """
    cores = sum(n for _, n in sockets)
    links: dict[int, float] = {}
    for socket, n in sockets:
        homes = [s for s, _ in sockets] if home == SPREAD else [socket if home is None else home]
        for memory in homes:
            part = n / cores / len(homes)
            links[memory] = links.get(memory, 0.0) + part
            if memory != socket:
                links[machine.n_sockets + socket] = links.get(machine.n_sockets + socket, 0.0) + part
    return links


def run_tasks(tasks: Sequence[Task], links: Sequence[float]) -> Run:
    """Run all tasks.

    Raises:
        InternalError: some tasks wait for one another for ever.
    """
    waiting = [len(t.after) for t in tasks]
    followers: list[list[int]] = [[] for _ in tasks]
    for i, t in enumerate(tasks):
        for before in t.after:
            followers[before].append(i)
    began, ended = [0.0] * len(tasks), [math.inf] * len(tasks)
    ready = [i for i, n in enumerate(waiting) if n == 0]
    heapq.heapify(ready)
    left: dict[int, float] = {}
    now = peak = 0.0
    n_done = 0
    while ready or left:
        while ready:
            i = heapq.heappop(ready)
            began[i] = now
            left[i] = 1.0
        rates, used = share([(i, tasks[i]) for i in left], links)
        peak = max(peak, used)
        step = min(left[i] / rates[i] for i in left)
        now += step
        for i in [i for i in left if left[i] - step * rates[i] <= EPSILON]:
            del left[i]
            ended[i] = now
            n_done += 1
            for follower in followers[i]:
                waiting[follower] -= 1
                if waiting[follower] == 0:
                    heapq.heappush(ready, follower)
        for i in left:
            left[i] -= step * rates[i]
    if n_done < len(tasks):
        raise InternalError("tasks wait for one another", where="simulator", found=f"{len(tasks) - n_done} never ran")
    return Run(began, ended, peak)


def share(running: Sequence[tuple[int, Task]], links: Sequence[float]) -> tuple[dict[int, float], float]:
    """Progress per second of each running task, and the highest use of a link."""
    rates: dict[int, float] = {}
    flows: list[tuple[float, int, Task]] = []
    for i, t in running:
        if t.far <= 0 or not t.links or t.alone <= 0:
            rates[i] = 1 / t.alone if t.alone > 0 else AT_ONCE
        else:
            flows.append((t.far / t.alone / max(1, t.cores), i, t))
    flows.sort(key=lambda flow: flow[:2])
    free = list(links)
    weights = [0.0] * len(links)  # cores whose bytes cross the link, of the flows that still grow
    for _, _, t in flows:
        for link, part in t.links.items():
            weights[link] += part * max(1, t.cores) * t.copies
    while flows:
        level = min(free[k] / w for k, w in enumerate(weights) if w > EPSILON)
        if flows[0][0] <= level:
            done = [flows.pop(0)]
            speed = done[0][0]
        else:
            full = {k for k, w in enumerate(weights) if w > EPSILON and free[k] / w <= level * (1 + EPSILON)}
            done = [flow for flow in flows if full & set(flow[2].links)]
            flows = [flow for flow in flows if not full & set(flow[2].links)]
            speed = level
        for _, i, t in done:
            cores = max(1, t.cores)
            rates[i] = speed * cores / t.far
            for link, part in t.links.items():
                free[link] -= speed * part * cores * t.copies
                weights[link] -= part * cores * t.copies
    used = max((1 - max(0.0, f) / c for f, c in zip(free, links) if c < math.inf), default=0.0)
    return rates, used
