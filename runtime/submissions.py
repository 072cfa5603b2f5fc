"""Requests in the background: threads that run them, and futures whose waiter lends a hand.

To wake a sleeping thread and be woken by it costs a request some 60 µs. So whoever waits for a request that no thread
has begun runs it himself, and a request of a kind that takes less than handing it over would is run where it is
submitted. Owns the threads and who runs what; knows nothing of sessions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from ..errors import UsageError
from .answering import answer

INLINE_SECONDS = 50e-6
"""Requests of kinds that took less are run by the thread that submits them."""
_MOST_KINDS = 1024
Work = Callable[[], Any]


class Submission(Future[Any]):
    """A request that a thread will run, or else the first to wait for its result without a time limit."""

    def __init__(self, work: Work, owner: Submissions) -> None:
        super().__init__()
        self._work: list[Work] = [work]
        self._owner = owner

    def run(self) -> None:
        """Run the request, if nobody has begun and nobody cancelled it."""
        try:
            work = self._work.pop()  # one thread only gets it
        except IndexError:
            return
        if not self.set_running_or_notify_cancel():
            return
        try:
            result = work()
        except BaseException as error:
            answer(self._owner, self.set_exception, error)
            if not isinstance(error, Exception):  # Ctrl-C belongs to the thread that it reached
                raise
        else:
            answer(self._owner, self.set_result, result)

    def result(self, timeout: float | None = None) -> Any:
        """See Future; with no time limit, the request is run here if no thread has begun it."""
        if timeout is None and self._work:
            self.run()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As `result`."""
        if timeout is None and self._work:
            self.run()
        return super().exception(timeout)


class Submissions:
    """Runs submitted requests, at most so many at once but for those that their waiters run."""

    def __init__(self, n_threads: int) -> None:
        """Threads start with the first request that needs one."""
        self._n_threads = n_threads
        self._queue: SimpleQueue[Submission | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_closing = False
        self._took: dict[Hashable, float] = {}

    @staticmethod
    def kind_of(inputs: Any) -> Hashable:
        """What tells how long a request takes: the shapes of its inputs, None where they cannot be read."""
        try:
            return tuple([getattr(array, "shape", None) for array in inputs.values()])
        except Exception:  # whatever a caller's object raises: running it says what is wrong with it
            return None

    def is_short(self, kind: Hashable) -> bool:
        """Whether the last request of a kind took less than handing one over."""
        return self._took.get(kind, 1.0) < INLINE_SECONDS

    def submit(self, work: Work, kind: Hashable, *, here: bool) -> Future[Any]:
        """A future of what `work` returns.

        Args:
            kind: requests of one kind take about as long. here: run it in this thread, which would have to wait longer.

        Raises:
            UsageError: no thread runs requests any more.
        """
        future = Submission(lambda: self.timed(work, kind), self)
        if here:
            future.run()
            return future
        with self._lock:
            if self._is_closing:
                raise UsageError("the session is closed")
            self._start()
            self._queue.put(future)
        return future

    def timed(self, work: Work, kind: Hashable) -> Any:
        """What `work` returns; how long it took is remembered."""
        began = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - began
        if len(self._took) >= _MOST_KINDS:
            self._took.clear()
        self._took[kind] = seconds
        return result

    def _start(self) -> None:
        while len(self._threads) < self._n_threads:  # Ctrl-C may leave some for the next request to start
            thread = threading.Thread(target=_serve, args=(self._queue,), name="parax-submit", daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self) -> None:
        """Refuse what is submitted from now on, run what was submitted, then end the threads."""
        with self._lock:
            self._is_closing = True
            self._queue.put(None)
        for thread in self._threads:  # no lock is held: what runs there may submit and close
            if thread is not threading.current_thread():
                thread.join()

    def abandon(self) -> None:
        """After a fork: the threads are not this process's."""
        self._lock, self._threads = threading.Lock(), []


def _serve(queue: SimpleQueue[Submission | None]) -> None:
    """A thread's life: run what is submitted until told to stop. Holds nothing between two requests."""
    while True:
        submission = queue.get()
        if submission is None:
            queue.put(None)  # for the next thread
            return
        with suppress(BaseException):  # the future has it; the thread must outlive what a callback raises
            submission.run()
        del submission
