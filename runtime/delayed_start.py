"""Delayed start (ParaX): the instances that share a request begin in groups, so that they meet memory-bound kernels at
different times.

Of the p instances on a NUMA node, number j belongs to group ⌊j·n/p⌋, and group g begins g·t after the request. Owns
that rule; the sleep is in native code (handoff.py).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from ..errors import IncompatiblePlan, UsageError
from .instance import Instance
from .limits import checked_seconds, shown
from .manifest import Delay
from .manifest_reader import MAX_CORES, MAX_DELAY_SECONDS
from .native import LATE_START, MachineCode
from .topology import machine


def start_delays(nodes: Sequence[int], delay: Delay) -> list[int]:
    """Nanoseconds after the request at which each instance begins.

    Args:
        nodes: the NUMA node of each.
    """
    members, before = Counter(nodes), Counter[int]()
    found = []
    for node in nodes:
        group = before[node] * delay.groups // members[node]
        before[node] += 1
        found.append(round(group * delay.seconds * 1e9))
    return found


def begin_late(instances: Sequence[Instance], delay: Delay) -> int:
    """Have some instances that share a request begin later; the monotonic clock's nanoseconds from which they count."""
    nodes = nodes_of([instance.cores[0] for instance in instances])
    for instance, nanoseconds in zip(instances, start_delays(nodes, delay), strict=True):
        instance.begin_after(nanoseconds)
    return time.monotonic_ns()


def checked_delay(groups: int, seconds: float) -> Delay:
    """A delay that somebody asked for.

    Raises:
        UsageError: no group or more than there may be cores, or a time that is none or too long.
    """
    if not isinstance(groups, int) or isinstance(groups, bool) or not 1 <= groups <= MAX_CORES:
        raise UsageError("not a number of groups", where="delay", expected=f"1 to {MAX_CORES}", found=shown(groups))
    return Delay(groups, checked_seconds(seconds, "delay", MAX_DELAY_SECONDS))


def usable_delay(delay: Delay | None, code: MachineCode | None, n_instances: int) -> Delay | None:
    """The delay, if there are instances to be late.

    Raises:
        IncompatiblePlan: the plan's code cannot wait.
    """
    if delay is None or code is None or n_instances < 2 or delay.groups < 2 or not delay.seconds:
        return None
    if LATE_START not in code.functions:
        raise IncompatiblePlan("the plan's code starts all instances at once", where=code.target.code,
                               hint="compile the model again, or leave out the delay")  # fmt: skip
    return delay


def nodes_of(cores: Sequence[int]) -> list[int]:
    """The NUMA nodes of some cores."""
    known = {core.number: core.node for core in machine().cores}
    return [known.get(core, 0) for core in cores]
