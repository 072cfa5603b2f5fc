"""When which kernel ran on which core: gives the instances of a session logs, and reads them.

Needs a plan linked for tracing (see stamps.py). Knows clocks; knows nothing of operators: calls are numbers, whose
labels the manifest's provenance lists. Times are `time.perf_counter`'s, so that what Python notes fits to them.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...errors import IncompatiblePlan
from ..executor import Executor
from ..instance import Instance
from ..memory import aligned_bytes
from ..native import code_of
from ..stamps import EVENT_NBYTES, HEAD_NBYTES, MAX_CALLS, WHOLE
from .profiled import Profiled

LEAST_SECONDS = 0.02  # between two readings of the clocks from which one's pace is taken
LOOKS = 5  # at both clocks, of which the closest counts
SPAN = np.dtype([("instance", np.int32), ("tid", np.int32), ("core", np.int32), ("call", np.int64),
                 ("start", np.float64), ("end", np.float64)])  # fmt: skip
"""A stretch of one thread's time, in seconds; of a whole entry into a segment, `call` is the segment's number."""


@dataclass(frozen=True)
class KernelSpan:
    """One core's share of one kernel call.

    Attributes:
        core: the core it was meant for. call: its number (see stamps.MAX_CALLS).
        start, end: seconds since `Recorder.start`.
    """

    instance: int
    core: int
    call: int
    start: float
    end: float


class Log(NamedTuple):
    """What was recorded, in SPANs ordered by thread, then time.

    Attributes:
        kernels: cores' shares of kernel calls. wholes: cores' entries into segments, kernels inside.
        full_at: from when on something is missing, because a log had no more room; None: nothing is.
        instances: how many there are.
    """

    kernels: np.ndarray
    wholes: np.ndarray
    full_at: float | None
    instances: int

    @classmethod
    def empty(cls) -> Log:
        """Of a plan without native code."""
        return cls(np.zeros(0, SPAN), np.zeros(0, SPAN), None, 0)


class Recorder:
    """Records the kernels of a session of a traced plan between `start` and `finish`, requests running or not."""

    def __init__(self, session: Profiled, capacity: int = 1 << 14) -> None:
        """Reserve the logs: `capacity` stamps (two a kernel call, and two a native call) per thread.

        Raises:
            IncompatiblePlan: the plan was not linked for tracing.
        """
        code = code_of(session.plan)
        if code is None or "parax_ticks" not in code.functions:
            why = "has no native code" if code is None else "was not compiled for profiling"
            raise IncompatiblePlan(f"a plan that {why} records nothing", where=f"plan {session.plan.name!r}",
                                   hint="compile with profile=True (paraxc --profile)")  # fmt: skip
        self._ticks: Callable[[], int] = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("parax_ticks"))
        self._code = code  # keeps the function
        self._size_router = session.size_router
        self._capacity = capacity
        self._words = (HEAD_NBYTES + capacity * EVENT_NBYTES) // 8
        self._logs: list[tuple[Instance, np.ndarray]] = []
        for executor in (session.executor, *self._size_router.made()):
            self._reserve(executor)
        self.began = 0.0
        self._first = self._last = (0.0, 0)

    def _reserve(self, executor: Executor) -> None:
        for instance in executor.instances:
            memory = aligned_bytes(HEAD_NBYTES + len(instance.cores) * self._words * 8)
            self._logs.append((instance, memory))

    def _follow(self, executor: Executor) -> None:
        """Record instances, too, that the session makes meanwhile."""
        n = len(self._logs)
        self._reserve(executor)
        for instance, memory in self._logs[n:]:
            self._begin(instance, memory)

    def _begin(self, instance: Instance, memory: np.ndarray) -> None:
        memory[HEAD_NBYTES:].view(np.int64)[:: self._words] = 0  # the counts: the rest stays out of the caches
        memory[:16].view(np.int64)[:] = self._words * 8, self._capacity
        instance.record_into(memory)

    def start(self) -> None:
        """Begin with empty logs."""
        self._size_router.watch(self._follow)
        for instance, memory in self._logs:
            self._begin(instance, memory)
        self._first = self._now()
        self.began = self._first[0]

    def stop(self) -> list[KernelSpan]:
        """Record no more; every kernel's span since `start`, in the order of their begin.

        Raises:
            IncompatiblePlan: more kernels ran than the logs hold.
        """
        log = self.finish()
        if log.full_at is not None:
            raise IncompatiblePlan("more kernels ran than the trace holds", expected=f"≤ {self._capacity} stamps")
        spans = [KernelSpan(instance, core, call, start - self.began, end - self.began)
                 for instance, _, core, call, start, end in log.kernels.tolist()]  # fmt: skip
        return sorted(spans, key=lambda span: span.start)

    def finish(self) -> Log:
        """Record no more; everything since `start`. Of a request that still runs, what it did until now."""
        self._size_router.watch(None)
        for instance, _ in self._logs:
            instance.record_into(None)
        self._last = self._now()
        while self._last[0] - self._first[0] < LEAST_SECONDS:
            time.sleep(LEAST_SECONDS)
            self._last = self._now()
        kernels, wholes, ends = [], [], []
        for number, (instance, memory) in enumerate(self._logs):
            words = memory[HEAD_NBYTES:].view(np.int64)
            for tid, core in enumerate(instance.cores):
                events, is_full = self._events(words[tid * self._words : (tid + 1) * self._words])
                is_whole = events[:, 0] // 2 % MAX_CALLS == WHOLE
                place = number, tid, core
                kernels.append(self._spans(events[~is_whole], place))
                wholes.append(self._spans(events[is_whole], place))
                if is_full:
                    ends.append(self._seconds(events[-1:, 1]))
        whole = np.concatenate(wholes)
        whole["call"] //= MAX_CALLS
        full_at = float(np.min(ends)) if ends else None
        return Log(np.concatenate(kernels), whole, full_at, len(self._logs))

    def _events(self, log: np.ndarray) -> tuple[np.ndarray, bool]:
        """A thread's stamps (number, ticks), and whether there were more than the log holds."""
        n = int(log[0])
        kept = log[HEAD_NBYTES // 8 :][: 2 * min(n, self._capacity)].reshape(-1, 2).copy()
        return kept, n > self._capacity

    def _spans(self, events: np.ndarray, place: tuple[int, int, int]) -> np.ndarray:
        """A begin and the end that follows make a span; those of which the other one was not recorded are left out."""
        begins = np.flatnonzero((events[:-1, 0] % 2 == 0) & (events[1:, 0] == events[:-1, 0] + 1))
        spans = np.zeros(len(begins), SPAN)
        spans["instance"], spans["tid"], spans["core"] = place
        spans["call"] = events[begins, 0] // 2
        spans["start"], spans["end"] = self._seconds(events[begins, 1]), self._seconds(events[begins + 1, 1])
        return spans

    def _seconds(self, ticks: np.ndarray) -> np.ndarray:
        """What `time.perf_counter` said when the counter stood there."""
        (first, first_ticks), (last, last_ticks) = self._first, self._last
        return first + (ticks - first_ticks) * ((last - first) / (last_ticks - first_ticks))

    def _now(self) -> tuple[float, int]:
        """Both clocks at one time, as far as they can be read together."""
        looks = []
        for _ in range(LOOKS):
            before, ticks, after = time.perf_counter(), self._ticks(), time.perf_counter()
            looks.append((after - before, (before + after) / 2, ticks))
        _, now, ticks = min(looks)
        return now, ticks


def total_seconds(spans: Sequence[KernelSpan]) -> float:
    """From the first begin to the last end."""
    return max(span.end for span in spans) - min(span.start for span in spans) if spans else 0.0
