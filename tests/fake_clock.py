"""A clock that only stands where somebody sleeps, in place of the module `time`: tests import it by this name."""

from __future__ import annotations

import threading


class FakeClock:
    """Each thread sleeps for itself; whoever waits for threads finds the time of the one that slept longest."""

    def __init__(self) -> None:
        self._own, self._latest, self._lock = threading.local(), 0.0, threading.Lock()
        self._main = threading.current_thread()

    def perf_counter(self) -> float:
        """Seconds since the clock was made."""
        if threading.current_thread() is self._main:
            return self._latest
        return self._begun()

    monotonic = perf_counter

    def sleep(self, seconds: float) -> None:
        """Time goes by, for the calling thread."""
        if threading.current_thread() is self._main:
            self._latest += seconds
            return
        self._own.now = self._begun() + seconds
        with self._lock:
            self._latest = max(self._latest, self._own.now)

    def _begun(self) -> float:
        """The calling thread's time, from when it first looks."""
        if not hasattr(self._own, "now"):
            self._own.now = self._latest
        now: float = self._own.now
        return now
