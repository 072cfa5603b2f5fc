"""What an exchange costs: bytes that were read and written, time that instances waited, cores without an instance."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, replace
from threading import Lock
from typing import Any

import numpy as np


@dataclass
class Traffic:
    """Moves vectors, and counts what that reads and writes. One per thread, so that counting needs no lock.

    Bytes are those of the operands: what a cache saves, and what it reads before a line is written, is not seen.

    Attributes:
        read, written: bytes. waited: seconds.
    """

    read: int = 0
    written: int = 0
    waited: float = 0.0

    def add(self, into: np.ndarray, part: np.ndarray) -> None:
        """into += part; NumPy's loop over vector registers, without the interpreter's lock."""
        np.add(into, part, out=into)
        self.read += into.nbytes + part.nbytes
        self.written += into.nbytes

    def copy(self, into: np.ndarray, part: np.ndarray) -> None:
        """into = part; also without the interpreter's lock."""
        np.copyto(into, part)
        self.read += part.nbytes
        self.written += into.nbytes

    def take(self, lock: Lock) -> None:
        """Acquire a lock; the time counts where another holds it."""
        if not lock.acquire(blocking=False):
            began = time.perf_counter()
            lock.acquire()
            self.waited += time.perf_counter() - began

    def wait(self, queue: Any) -> Any:
        """The next entry of a queue."""
        began = time.perf_counter()
        entry = queue.get()
        self.waited += time.perf_counter() - began
        return entry

    def clear(self) -> None:
        """Nothing was counted."""
        self.read, self.written, self.waited = 0, 0, 0.0


@dataclass
class Counters:
    """Sums over the steps of a training that came to their end.

    Attributes:
        exchange: its name. weights_nbytes: of all trained parameters, S in the formulas below.
        steps: that are counted. seconds: that they took. update_seconds: from the last gradient of each step to the
            new weights. idle_seconds: that instances waited for one another, summed over them.
        read, written: bytes of the exchange: gradients that are added, and weights that are copied.
        update_read, update_written: bytes of the operands and results of the optimiser's step.
        cores_lost: cores that run no instance. staleness: updates that were made between reading the weights and using
            the gradient, at most.

    With n instances, one shard each, the exchange reads and writes in a step: `fixed` nothing; `gradient-server` 3nS,
    less S, as the first instance at a block copies; `parameter-server` 5nS less S; `ring` 5(n - 1)S. The update reads
    and writes: `fixed` (n + 2 + 2k)S with k vectors that the optimiser keeps; the servers (3 + 2k)S, once; `ring`
    n(3 + 2k)S.
    """

    exchange: str
    weights_nbytes: int
    cores_lost: int
    steps: int = 0
    seconds: float = 0.0
    update_seconds: float = 0.0
    idle_seconds: float = 0.0
    read: int = 0
    written: int = 0
    update_read: int = 0
    update_written: int = 0
    staleness: int = 0

    def note(
        self, seconds: float, update_seconds: float, idle: float, moved: Iterable[Traffic], updated: Iterable[Traffic]
    ) -> None:
        """One more step."""
        self.steps += 1
        self.seconds += seconds
        self.update_seconds += update_seconds
        self.idle_seconds += idle
        for traffic in moved:
            self.read, self.written = self.read + traffic.read, self.written + traffic.written
            self.idle_seconds += traffic.waited
        for traffic in updated:
            self.update_read += traffic.read
            self.update_written += traffic.written

    def since(self, before: Counters) -> Counters:
        """What came after some earlier ones, but for the staleness, which is that of all steps."""
        sums = [f.name for f in fields(self) if f.default is not MISSING and f.name != "staleness"]
        return replace(self, **{name: getattr(self, name) - getattr(before, name) for name in sums})

    def per_step(self) -> dict[str, float | int | str]:
        """Means over the steps, as records and summaries show them."""
        n = max(1, self.steps)
        found: dict[str, float | int | str] = {
            "exchange": self.exchange, "cores_lost": self.cores_lost, "update_ms": 1e3 * self.update_seconds / n,
            "idle_ms": 1e3 * self.idle_seconds / n, "read_bytes": (self.read + self.update_read) // n,
            "written_bytes": (self.written + self.update_written) // n,
        }  # fmt: skip
        return found | ({"staleness": self.staleness} if self.staleness else {})
