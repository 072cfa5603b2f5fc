"""Requests in the background: who runs them, that each runs once, and what becomes of those that nobody waits for."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
import time
from concurrent.futures import CancelledError, Future, wait
from typing import Any

import pytest

from inside import is_closing
from parax.errors import UsageError
from parax.runtime import submissions
from parax.runtime.submissions import Submissions

LIMIT = 30


def busy(threads: Submissions, count: int) -> threading.Event:
    """Keep all threads at work until the event is set."""
    gate, begun = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        begun.release()
        gate.wait(LIMIT)

    for _ in range(count):
        threads.submit(work, "busy", here=False)
    for _ in range(count):
        assert begun.acquire(timeout=LIMIT)
    return gate


def test_a_request_runs_without_anybody_waiting() -> None:
    threads, done = Submissions(2), threading.Event()
    future = threads.submit(done.set, "k", here=False)
    assert done.wait(LIMIT) and wait([future], LIMIT).done == {future}
    threads.close()


def test_whoever_waits_runs_what_no_thread_has_begun() -> None:
    threads = Submissions(1)
    gate = busy(threads, 1)
    future = threads.submit(threading.get_ident, "k", here=False)
    assert not future.done()
    assert future.result() == threading.get_ident()
    late = threads.submit(threading.get_ident, "k", here=False)
    with pytest.raises(concurrent.futures.TimeoutError):  # the builtin one since Python 3.11
        late.result(timeout=0.01)  # within a limit nothing is run that may take longer
    gate.set()
    assert late.result(timeout=LIMIT) != threading.get_ident()
    threads.close()


def test_errors_reach_the_waiter_and_nobody_else() -> None:
    threads = Submissions(1)
    gate = busy(threads, 1)

    def fail() -> None:
        raise ValueError("no")

    helped = threads.submit(fail, "k", here=False)
    with pytest.raises(ValueError, match="no"):
        helped.result()
    asked = threads.submit(fail, "k", here=False)
    assert isinstance(asked.exception(), ValueError)
    gate.set()
    assert isinstance(threads.submit(sys.exit, "k", here=False).exception(timeout=LIMIT), SystemExit)
    alone = threads.submit(fail, "k", here=False)
    assert isinstance(alone.exception(timeout=LIMIT), ValueError)
    assert threads.submit(lambda: 5, "k", here=False).result(timeout=LIMIT) == 5
    threads.close()


def test_a_cancelled_request_never_runs() -> None:
    threads, ran = Submissions(1), threading.Event()
    gate = busy(threads, 1)
    future = threads.submit(ran.set, "k", here=False)
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result()
    gate.set()
    threads.close()
    assert not ran.is_set()


def test_each_request_runs_once_whoever_is_quicker() -> None:
    threads, counts, lock = Submissions(3), [0] * 500, threading.Lock()

    def work(i: int) -> int:
        with lock:
            counts[i] += 1
        return i

    futures: list[Future[Any]] = [threads.submit(lambda i=i: work(i), i, here=False) for i in range(500)]  # type: ignore[misc]
    waiters = [threading.Thread(target=lambda: [f.result() for f in futures]) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    for waiter in waiters:
        waiter.join(LIMIT)
    assert [f.result() for f in futures] == list(range(500)) and counts == [1] * 500
    threads.close()


def test_closing_runs_what_was_submitted() -> None:
    threads = Submissions(2)
    futures = [threads.submit(lambda: time.sleep(0.001), "k", here=False) for _ in range(40)]
    threads.close()
    assert all(f.done() for f in futures)
    threads.close()


def test_what_comes_while_closing_is_refused() -> None:
    threads = Submissions(2)
    gate = busy(threads, 2)
    closing = threading.Thread(target=threads.close)
    closing.start()
    while not is_closing(threads):
        time.sleep(0.001)
    with pytest.raises(UsageError, match="closed"):
        threads.submit(int, "k", here=False)
    gate.set()
    closing.join(LIMIT)
    assert not closing.is_alive()


def test_short_requests_are_known_by_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, now = Submissions(1), [0.0]
    monkeypatch.setattr("parax.runtime.submissions.time.perf_counter", lambda: now[0])

    def takes(seconds: float) -> None:
        now[0] += seconds

    assert not threads.is_short("a")
    threads.timed(lambda: takes(submissions.INLINE_SECONDS / 2), "a")
    threads.timed(lambda: takes(submissions.INLINE_SECONDS * 2), "b")
    assert threads.is_short("a") and not threads.is_short("b")
    here = threads.submit(threading.get_ident, "a", here=True)
    assert here.done() and here.result() == threading.get_ident()
    threads.close()


def test_ctrl_c_reaches_the_thread_that_runs_the_request() -> None:
    threads = Submissions(1)
    gate = busy(threads, 1)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        threads.submit(interrupted, "k", here=False).result()
    gate.set()
    threads.close()
