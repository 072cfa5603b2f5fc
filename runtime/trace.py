"""When which kernel ran on which core: gives the instances of a session logs, and reads them.

Needs a plan linked for tracing (see stamps.py). Knows clocks; knows nothing of operators: calls are numbers, whose
labels the manifest's provenance lists.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import IncompatiblePlan
from .instance import Instance
from .memory import address_of, aligned_bytes
from .native import code_of
from .session import Session
from .stamps import EVENT_NBYTES, HEAD_NBYTES, TRACE_OFFSET

_CALIBRATION_SECONDS = 0.02


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


class Recorder:
    """Records the kernels of a session of a traced plan between `start` and `stop`."""

    def __init__(self, session: Session, capacity: int = 1 << 14) -> None:
        """Reserve the logs: `capacity` stamps (two a kernel call) per thread.

        Raises:
            IncompatiblePlan: the plan was not linked for tracing.
        """
        code = code_of(session.plan)
        if code is None:
            raise IncompatiblePlan("a plan without native code records nothing", where=f"plan {session.plan.name!r}")
        self._ticks: Callable[[], int] = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("parax_ticks"))
        self._code = code  # keeps the function
        self._instances = session._executor.instances
        self._capacity = capacity
        self._words = (HEAD_NBYTES + capacity * EVENT_NBYTES) // 8
        nbytes = [HEAD_NBYTES + len(instance.cores) * self._words * 8 for instance in self._instances]
        self._memory = [aligned_bytes(n) for n in nbytes]
        self._began = self._ticks_per_second = 0.0

    def start(self) -> None:
        """Begin with empty logs. No request may be running."""
        for memory, instance in zip(self._memory, self._instances, strict=True):
            memory[HEAD_NBYTES:].view(np.int64)[:: self._words] = 0  # the counts: the rest stays out of the caches
            memory[:16].view(np.int64)[:] = self._words * 8, self._capacity
            self._point(instance, address_of(memory))
        if not self._ticks_per_second:
            self._ticks_per_second = self._calibrated()
        self._began = self._ticks()

    def stop(self) -> list[KernelSpan]:
        """Record no more; every span since `start`, in the order of their begin. No request may be running.

        Raises:
            IncompatiblePlan: more kernels ran than the logs hold.
        """
        spans: list[KernelSpan] = []
        for number, (memory, instance) in enumerate(zip(self._memory, self._instances, strict=True)):
            self._point(instance, 0)
            words = memory[HEAD_NBYTES:].view(np.int64)
            for tid, core in enumerate(instance.cores):
                spans += self._spans(words[tid * self._words : (tid + 1) * self._words], number, core)
        return sorted(spans, key=lambda span: span.start)

    def _spans(self, log: np.ndarray, instance: int, core: int) -> list[KernelSpan]:
        n = int(log[0])
        if n > self._capacity:
            raise IncompatiblePlan("more kernels ran than the trace holds", expected=f"≤ {self._capacity}", found=n)
        events = log[HEAD_NBYTES // 8 : HEAD_NBYTES // 8 + 2 * n].reshape(n, 2)
        seconds = (events[:, 1] - self._began) / self._ticks_per_second
        calls = events[:, 0] // 2
        return [
            KernelSpan(instance, core, int(calls[i]), float(seconds[i]), float(seconds[i + 1]))
            for i in range(0, n - 1, 2)
        ]

    def _calibrated(self) -> float:
        """Ticks per second, against the system's clock."""
        began, ticks = time.perf_counter(), self._ticks()
        time.sleep(_CALIBRATION_SECONDS)
        return (self._ticks() - ticks) / (time.perf_counter() - began)

    @staticmethod
    def _point(instance: Instance, address: int) -> None:
        instance.sync[TRACE_OFFSET : TRACE_OFFSET + 8].view(np.int64)[0] = address


def total_seconds(spans: Sequence[KernelSpan]) -> float:
    """From the first begin to the last end."""
    return max(span.end for span in spans) - min(span.start for span in spans) if spans else 0.0
