"""What Python does of a session's requests while a profile is made: when each began and ended, and every host step.

Owns these notes; times are `time.perf_counter`'s. Lists are only appended to, so that any thread may note.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

NO_CORE = -1


class Request(NamedTuple):
    """One request. `shapes`: of its inputs, in the plan's order; None where they are no arrays."""

    start: float
    end: float
    shapes: tuple[tuple[int, ...], ...] | None


class HostSpan(NamedTuple):
    """One step that Python ran: for an instance whose leader has a core (else NO_CORE), by its first output."""

    core: int
    thread: int
    output: str
    start: float
    end: float


class Watch:
    """The notes of one profile."""

    def __init__(self, names: Sequence[str]) -> None:
        """Nothing was noted yet. `names`: of the plan's inputs."""
        self._names = names
        self.requests: list[Request] = []
        self.hosts: list[HostSpan] = []

    def note_request(self, start: float, given: Any) -> None:
        """A request that began then is over; `given`: its inputs by name."""
        end = time.perf_counter()
        shapes = [getattr(given.get(name), "shape", None) for name in self._names]
        known = None if None in shapes else tuple(tuple(shape) for shape in shapes if shape is not None)
        self.requests.append(Request(start, end, known))

    def note_host(self, core: int, output: str, start: float) -> None:
        """A host step that began then is over."""
        self.hosts.append(HostSpan(core, threading.get_ident(), output, start, time.perf_counter()))
