"""How much memory and time a request may take: the user's limits, else what the machine and control group leave.

Owns the count of what a request holds and the refusal. Host operators ask `afford` before they allocate; it knows the
request that runs on the thread. Without a limit of the user's nothing is counted: only what is large is compared with
the memory that is left at that moment, which takes some 50 µs to find out.
"""

from __future__ import annotations

import math
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..errors import ResourceLimit, UsageError

SMALL_NBYTES = 64 << 20  # allocations that sum up to less are not worth a look at the machine
MAX_NBYTES = 1 << 46
MOST_SECONDS = threading.TIMEOUT_MAX // 2  # of a wait: some 146 years, whatever rounding adds
_V1, _V2 = ("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")


class Limits(NamedTuple):
    """What the user allows; None: see the module.

    Attributes:
        nbytes: of weights, arenas, copies of inputs, and all that one request makes. seconds: of a request's loops.
    """

    nbytes: int | None = None
    seconds: float | None = None


def checked_limits(max_memory: object, max_seconds: object) -> Limits:
    """The limits of a session's arguments. Raises UsageError for what is none."""
    is_size = isinstance(max_memory, int) and not isinstance(max_memory, bool) and max_memory > 0
    if max_memory is not None and not is_size:
        raise UsageError("not a size", where="max_memory", expected="bytes, 1 or more", found=shown(max_memory))
    seconds = None if max_seconds is None else checked_seconds(max_seconds, "max_seconds", MOST_SECONDS)
    if seconds == 0:
        raise UsageError("not a duration", where="max_seconds", expected="seconds above 0", found=seconds)
    return Limits(max_memory, seconds)  # type: ignore[arg-type]


def checked_seconds(seconds: object, where: str, most: float) -> float:
    """A caller's duration. Raises UsageError for what is none, or longer than `most`."""
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 <= seconds <= most:
        raise UsageError("not a duration", where=where, expected=f"seconds, 0 to {most:.0f}", found=shown(seconds))
    return float(seconds)


def shown(value: object) -> str:
    """A caller's object in a message, whatever its repr does."""
    if not isinstance(value, (int, float, str, tuple, list)):
        return type(value).__name__
    try:
        return repr(value)[:200]
    except Exception:  # an int of thousands of digits, a list of odd objects
        return type(value).__name__


class Allowance:
    """What one request holds and may still take.

    Attributes:
        base: bytes that are held anyway: weights and arenas. stacked: of scan outputs while they grow.
        held: counts the values between steps, the same memory once.
    """

    def __init__(self, limits: Limits, base: int = 0, held: Callable[[], int] = lambda: 0) -> None:
        self.limits, self.base, self.held, self.stacked = limits, base, held, 0
        self._unseen = 0  # bytes since the machine, or what is held, was last looked at
        self._worth = SMALL_NBYTES if limits.nbytes is None else min(SMALL_NBYTES, limits.nbytes // 16)
        self._ends = None if limits.seconds is None else time.monotonic() + limits.seconds

    def afford(self, nbytes: int, what: str) -> None:
        """Let so many bytes be allocated.

        Raises:
            ResourceLimit: they do not fit beside what the request holds.
        """
        self._unseen += nbytes
        if self._unseen <= self._worth:
            return
        most = self.limits.nbytes
        held = 0 if most is None else self.base + self.held() + self.stacked
        most = min(MAX_NBYTES, available_nbytes()) if most is None else most
        if held + nbytes > most:
            beside = f" beside {held} that are held" if held else ""
            raise ResourceLimit("not enough memory", where=what, expected=f"at most {most} bytes{beside}",
                                found=f"{nbytes} bytes", hint="raise --max-memory, or give smaller inputs")  # fmt: skip
        self._unseen = nbytes if nbytes <= self._worth else 0

    def take(self, nbytes: int, what: str) -> None:
        """As `afford`, for what the request holds until its end."""
        self.afford(nbytes, what)
        self.base += nbytes

    def tick(self, what: str) -> None:
        """Between iterations. Raises ResourceLimit when the time is over."""
        if self._ends is not None and time.monotonic() > self._ends:
            raise ResourceLimit("the time is over", where=what, expected=f"at most {self.limits.seconds:g} s",
                                hint="raise --max-seconds; does the loop's condition ever become false?")  # fmt: skip


class _Current(threading.local):
    """The request that runs on the thread."""

    allowance = Allowance(Limits())


_CURRENT = _Current()


@contextmanager
def within(allowance: Allowance) -> Iterator[None]:
    """Let `afford` and `tick` of this thread ask this allowance."""
    before = exchanged(allowance)
    try:
        yield
    finally:
        exchanged(before)


def exchanged(allowance: Allowance) -> Allowance:
    """The allowance that `afford` and `tick` of this thread asked until now; from now on they ask this one."""
    before, _CURRENT.allowance = _CURRENT.allowance, allowance
    return before


def current() -> Allowance:
    """The allowance of the request that runs on this thread."""
    return _CURRENT.allowance


def afford(nbytes: int, what: str) -> None:
    """As `Allowance.afford`, for the request that runs on this thread."""
    _CURRENT.allowance.afford(nbytes, what)


def afford_tensor(shape: Sequence[int], itemsize: int, what: str) -> None:
    """As `afford`. A tensor without elements may be too large, too: numpy counts the bytes without the empty axes."""
    afford(math.prod(shape) * itemsize, what)
    counted = math.prod(d for d in shape if d) * itemsize
    if counted > sys.maxsize:
        raise ResourceLimit("impossible shape", where=what, expected=f"at most {sys.maxsize} bytes", found=list(shape))


def physical_nbytes(root: Path = Path("/")) -> int:
    """Memory of the machine, or of the tightest control group from ours up."""
    found = [_meminfo(root, "MemTotal"), *(most for most, _ in _groups(root))]
    return min((n for n in found if n is not None), default=MAX_NBYTES)


def available_nbytes(root: Path = Path("/")) -> int:
    """Bytes that this process may still take before the machine, its control groups or its own limit stop it."""
    rooms = [_meminfo(root, "MemAvailable"), *(most - used for most, used in _groups(root)), _address_space(root)]
    return max(0, min((n for n in rooms if n is not None), default=MAX_NBYTES))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def _meminfo(root: Path, field: str) -> int | None:
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            found = _number(rest.removesuffix("kB").strip())
            return None if found is None else found << 10
    return None


def _groups(root: Path) -> list[tuple[int, int]]:
    """(limit, used) of our control groups up to the root, version 1 or 2; file caches that can go are not used."""
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if controllers not in ("", "memory"):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        most, used = _V1 if controllers else _V2
        relative = Path(group.lstrip("/"))
        for folder in (mount / part for part in (relative, *relative.parents)):
            limit, now = _number(_text(folder / most)), _number(_text(folder / used))
            if limit is not None and now is not None:
                found.append((limit, max(0, now - _reclaimable(folder))))
    return found


def _reclaimable(folder: Path) -> int:
    for line in _text(folder / "memory.stat").splitlines():
        name, _, rest = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return _number(rest) or 0
    return 0


def _address_space(root: Path) -> int | None:
    """What RLIMIT_AS leaves."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = _text(root / "proc/self/statm").split()
    if most == resource.RLIM_INFINITY or not pages:
        return None
    return most - int(pages[0]) * resource.getpagesize()
