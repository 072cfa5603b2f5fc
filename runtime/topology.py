"""Which cores this process may use and where they lie: affinity mask, cgroup CPU quota, NUMA nodes, caches.

Reads the kernel's files below a root folder (tests use a made-up one). Knows nothing of plans or threads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence, Set
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..env import parse_cores, read
from ..errors import UsageError

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Cache(NamedTuple):
    """One cache: its level, size in bytes, and the cores that share it."""

    level: int
    nbytes: int
    shared_by: tuple[int, ...]


class Core(NamedTuple):
    """One logical CPU: its number, NUMA node, package, and the lowest-numbered logical CPU of its physical core."""

    number: int
    node: int
    package: int
    physical: int


class Topology(NamedTuple):
    """What this process may use.

    Attributes:
        cores: usable logical CPUs; first one per physical core, node by node, then their hyper-threads.
        quota: CPUs' worth of time that the control group grants, or None where unlimited.
        caches: data and unified caches of the first core, by level.
    """

    cores: tuple[Core, ...]
    quota: float | None
    caches: tuple[Cache, ...]

    def default_cores(self) -> tuple[int, ...]:
        """The cores to use when nobody says: one per physical core, about as many as the quota pays for, at least one.

        A half counts as a whole: two threads use up a quota of 1.5 cores, one leaves a third of it.
        """
        firsts = [c.number for c in self.cores if _is_first(c, self.cores)]
        n = len(firsts) if self.quota is None else min(len(firsts), max(1, math.floor(self.quota + 0.5)))
        return tuple(firsts[:n])


def _is_first(core: Core, cores: Sequence[Core]) -> bool:
    return core.number == min(c.number for c in cores if (c.physical, c.package) == (core.physical, core.package))


def machine() -> Topology:
    """The topology of this process; read once for each affinity mask and PARAX_NUMA."""
    return _machine(frozenset(os.sched_getaffinity(0)), read("PARAX_NUMA"))


@cache
def _machine(affinity: frozenset[int], nodes: tuple[int, ...] | None) -> Topology:
    return read_topology(Path("/"), affinity, nodes)


def read_topology(root: Path, affinity: Set[int], given: Sequence[int] | None = None) -> Topology:
    """The topology below `root`, for a process that may run on the CPUs `affinity`.

    Args:
        given: NUMA nodes of CPU 0, 1, …, in the place of the kernel's; those beyond are on the last one.
    """
    nodes = _core_nodes(root) if given is None else {core: given[min(core, len(given) - 1)] for core in affinity}
    cores = []
    for number in sorted(affinity):
        folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
        siblings = _cpu_list(_text(folder / "thread_siblings_list")) or (number,)
        package = _text(folder / "physical_package_id")
        cores.append(Core(number, nodes.get(number, 0), int(package) if package.isdigit() else 0, min(siblings)))
    cores = sorted(cores, key=lambda c: (not _is_first(c, cores), c.node, c.number))
    return Topology(tuple(cores), _quota(root), _caches(root, min(affinity)))


def choose_cores(wanted: Sequence[int] | str | None) -> tuple[int, ...]:
    """The cores a session uses: those asked for, else PARAX_CORES, else every core that mask and quota allow.

    Raises:
        UsageError: a core that does not exist or that the affinity mask forbids.
    """
    if isinstance(wanted, str):
        try:
            wanted = parse_cores(wanted)
        except ValueError as error:
            raise UsageError("not understood", where="cores", expected=error, found=repr(wanted)) from error
    wanted = read("PARAX_CORES") if wanted is None else wanted
    is_list = isinstance(wanted, Sequence) and all(isinstance(core, int) for core in wanted)
    if wanted is not None and not is_list:
        found = type(wanted).__name__
        raise UsageError("not core numbers", where="cores", expected="a list, or text like 0-3,8", found=found)
    if wanted is None:
        return machine().default_cores()
    usable = os.sched_getaffinity(0)  # the topology would be read from twenty files for nothing
    chosen = tuple(dict.fromkeys(wanted))
    if not chosen or not set(chosen) <= usable:
        expected = "some of " + ",".join(map(str, sorted(usable)))
        raise UsageError("not cores that this process may use", where="cores", expected=expected, found=list(chosen))
    return chosen


def _text(path: Path) -> str:
    """A small kernel file's content, or nothing where it is absent or unreadable."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _cpu_list(text: str) -> tuple[int, ...]:
    try:
        return parse_cores(text) if text else ()
    except ValueError:
        return ()


def _core_nodes(root: Path) -> dict[int, int]:
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    return {core: int(f.name[4:]) for f in folders for core in _cpu_list(_text(f / "cpulist"))}


def _caches(root: Path, core: int) -> tuple[Cache, ...]:
    caches = []
    for folder in sorted((root / f"sys/devices/system/cpu/cpu{core}/cache").glob("index[0-9]*")):
        size, level = _text(folder / "size"), _text(folder / "level")
        if _text(folder / "type") == "Instruction" or not level.isdigit() or not size[:-1].isdigit():
            continue
        nbytes = int(size[:-1]) * _UNITS.get(size[-1], 0)
        caches.append(Cache(int(level), nbytes, _cpu_list(_text(folder / "shared_cpu_list")) or (core,)))
    return tuple(sorted(caches, key=lambda c: c.level))


def _quota(root: Path) -> float | None:
    """CPUs granted by the tightest control group from ours up to the root, version 1 or 2."""
    quotas = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        base = root / "sys/fs/cgroup"
        if controllers == "":
            mounts = [base, base / "unified"]
        elif "cpu" in controllers.split(","):
            mounts = [base / controllers, base / "cpu"]
        else:
            continue
        relative = Path(group.lstrip("/"))
        quotas += [_group_quota(mount / part) for mount in mounts for part in (relative, *relative.parents)]
    limits = [q for q in quotas if q is not None]
    return min(limits) if limits else None


def _group_quota(folder: Path) -> float | None:
    words = _text(folder / "cpu.max").split()
    if not words:
        words = [_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")]
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
        return int(words[0]) / int(words[1])
    return None
