"""Instances of a step: a session and a thread each, pinned to the instance's cores. Knows no gradients."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from queue import SimpleQueue

from ...plan import Plan

Work = Callable[[int], None]


class Instances:
    """Runs work on every instance at once; the calling thread is that of the first.

    Attributes:
        sessions: one per instance.
    """

    def __init__(self, plan: Plan, core_groups: Sequence[Sequence[int]]) -> None:
        """Start sessions of the plan and threads, one per group of cores."""
        self.sessions = [plan.session(1, cores, len(cores), adapt=False) for cores in core_groups]
        self._queues = [_started(cores[0], f"parax-instance-{i}") for i, cores in enumerate(core_groups) if i]

    def __len__(self) -> int:
        return len(self.sessions)

    def each(self, work: Work) -> list[float]:
        """`work(i)` on the thread of every instance i; returns when all are done.

        Returns:
            when each was done, in seconds of time.perf_counter.

        Raises:
            what the first instance that failed raised; all others are done.
        """
        done = [0.0] * len(self)

        def timed(i: int) -> None:
            try:
                work(i)
            finally:
                done[i] = time.perf_counter()

        futures: list[Future[None]] = []
        try:
            for i, queue in enumerate(self._queues, 1):
                futures.append(Future())
                queue.put((timed, i, futures[-1]))
            timed(0)
        finally:
            wait(futures)
        for future in futures:
            future.result()
        return done

    def close(self) -> None:
        """End threads and sessions."""
        for queue in self._queues:
            queue.put(None)
        for session in self.sessions:
            session.close()


Entry = tuple[Work, int, "Future[None]"] | None


def _started(core: int, name: str) -> SimpleQueue[Entry]:
    queue: SimpleQueue[Entry] = SimpleQueue()
    threading.Thread(target=_serve, args=(queue, core), name=name, daemon=True).start()
    return queue


def _serve(queue: SimpleQueue[Entry], core: int) -> None:
    """A thread's life."""
    with contextlib.suppress(OSError):  # where pinning is forbidden, the thread runs wherever the system puts it
        os.sched_setaffinity(0, {core})
    while (entry := queue.get()) is not None:
        work, i, future = entry
        try:
            work(i)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        del entry, work, future
