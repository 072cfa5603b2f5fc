"""A CPU control group for processes that a benchmark starts: so many cores' worth of time, taken away again at the end.

Owns where such a group can be made (versions 1 and 2 of control groups) and how a process gets into it before its
program begins, because runtimes read their quota when they start. Knows nothing of what runs there.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

from parax.errors import UsageError

PERIOD_MICROSECONDS = 100_000
"""The kernel's own default: a group that has used up its share of a period waits for the next one."""
_REMOVAL_SECONDS = 5.0
_HINT = (
    "run it as root with a writable /sys/fs/cgroup (docker run --privileged), or inside of "
    "`systemd-run --user --scope -p Delegate=yes`"
)
_NUMBERS = count()


def quota(text: str) -> float:
    """An argument's type: cores' worth of processor time, a hundredth at least."""
    try:
        cores = float(text)
    except ValueError:
        cores = math.nan
    if not 0.01 <= cores < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of cores: 0.01 or more, say 1.5")
    return cores


class Group(NamedTuple):
    """A control group, or none.

    Attributes:
        folder: where the kernel shows it. None: there is no limit.
        before: words to put before a command: a process started with them is in the group before its program begins.
    """

    folder: Path | None
    before: list[str]

    def throttled(self) -> float:
        """The share of periods in which its processes wanted more than they got, since it was made.

        A quota that never bound, because the machine was too busy to give so much, was none.
        """
        if self.folder is None:
            return 0.0
        lines = (line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        found = {name: int(value) for name, value in lines}
        return found.get("nr_throttled", 0) / max(1, found.get("nr_periods", 0))


@contextmanager
def cpu_quota(cores: float | None, root: Path = Path("/")) -> Iterator[Group]:
    """A control group that lasts as long as the body; processes in it must have ended by then.

    Args:
        cores: of processor time in each second, say 1.5; None: no group, and no limit.
        root: the folder below which the kernel's files lie.

    Raises:
        UsageError: no group can be made here.
    """
    if cores is None:
        yield Group(None, [])
        return
    parent, version = parent_group(root)
    group = parent / f"parax-bench-{os.getpid()}-{next(_NUMBERS)}"
    try:
        group.mkdir()
    except OSError as error:
        raise _refused(error) from error
    try:
        _limit(group, version, cores)
        yield Group(group, ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")])
    finally:
        _remove(group)


def parent_group(root: Path) -> tuple[Path, int]:
    """This process's own control group for processor time, and the version of control groups it is of.

    Raises:
        UsageError: there is none.
    """
    base, found = root / "sys/fs/cgroup", []
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError as error:
        raise _refused(error) from error
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if "cpu" in controllers.split(","):
            found += [(mount / group.lstrip("/"), 1) for mount in (base / controllers, base / "cpu")]
            found += [(base / controllers, 1), (base / "cpu", 1)]  # a container may not see the path from the host
        elif not controllers:
            found += [(base / group.lstrip("/"), 2), (base, 2)]
    files = {1: "cpu.cfs_quota_us", 2: "cgroup.controllers"}
    found.sort(key=lambda each: each[1])  # where version 1 has the processors, version 2 has them not
    usable = next(((folder, version) for folder, version in found if (folder / files[version]).exists()), None)
    if usable is None:
        raise _refused("no control group for processor time")
    return usable


def _limit(group: Path, version: int, cores: float) -> None:
    granted = round(cores * PERIOD_MICROSECONDS)
    try:
        if version == 1:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
            (group / "cpu.cfs_quota_us").write_text(str(granted))
            return
        if not (group / "cpu.max").exists():  # the parent does not yet hand processors on
            (group.parent / "cgroup.subtree_control").write_text("+cpu")
        (group / "cpu.max").write_text(f"{granted} {PERIOD_MICROSECONDS}")
    except OSError as error:
        raise _refused(error) from error


def _remove(group: Path) -> None:
    """A group can be removed once the kernel has taken leave of its last process, a moment after that ended."""
    end = time.monotonic() + _REMOVAL_SECONDS
    while True:
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _refused(why: object) -> UsageError:
    return UsageError("no CPU control group can be made here", where="--quota", found=why, hint=_HINT)
