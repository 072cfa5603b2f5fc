"""Sessions held up at will, so that requests wait. Tests import it by this name: tests/ is on their path."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from inside import executor_of, in_flight, router_of
from parax.runtime.session import Session

LIMIT = 60
"""Seconds after which a test that waits has failed."""


def rows(n: int, first: float = 0.0) -> np.ndarray:
    return first + np.arange(n * 4, dtype=np.float32).reshape(n, 4)


def give(session: Session, instances: Sequence[Any]) -> None:
    """Return instances that a test has taken."""
    executor_of(session).free.extend(instances[::-1])
    executor_of(session).hand_over()


def counts(session: Session) -> tuple[int, int]:
    """Batches that ran, and requests in them."""
    record = session.statistics()[-1]
    return record["batches"], record["requests_batched"]


class Gate:
    """Holds up the first native request of a session, and counts the rows of all."""

    def __init__(self, session: Session) -> None:
        self.session, self.rows = session, list[int]()
        self.begun, self.opened = threading.Event(), threading.Event()
        self._serve = router_of(session).serve
        router_of(session).serve = self.serve  # type: ignore[method-assign]

    def serve(self, binding: Any, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        self.rows.append(binding.rows)
        if len(self.rows) == 1:
            self.begun.set()
            assert self.opened.wait(LIMIT)
        self._serve(binding, arrays, outputs)

    def wait_for(self, n: int) -> None:
        """Return once so many requests are in flight."""
        end = time.monotonic() + LIMIT
        while in_flight(self.session) < n:
            assert time.monotonic() < end
            time.sleep(0.001)


@contextmanager
def held_up(session: Session) -> Iterator[tuple[Gate, Callable[..., Future[Any]]]]:
    """A session of one instance whose only instance is at work, and a way to run requests in threads meanwhile."""
    gate, started = Gate(session), [0]
    with ThreadPoolExecutor(64) as pool:

        def run(*given: Any, **named: Any) -> Future[Any]:
            started[0] += 1
            future = pool.submit(session.run, *given, **named)
            gate.wait_for(started[0])
            return future

        first = run({"x": rows(1)})
        assert gate.begun.wait(LIMIT)
        try:
            yield gate, run
        finally:
            gate.opened.set()
        assert np.array_equal(first.result(LIMIT)["y"], rows(1) + 1)
