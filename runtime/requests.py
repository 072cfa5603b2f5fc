"""Requests that wait to be run together: with a thread that sleeps meanwhile, or with a future.

Owns how a request's caller is told that it is over. Knows checked arrays; nothing of when and where they are run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from .answering import answer
from .bindings import Binding

Results = Callable[["Exception | None"], Any]


class Request:
    """A request whose caller sleeps until it is answered, or until it has to lead.

    Attributes:
        group: the one that it waits in, or waited in. leads: whether its thread must see to that group.
        is_over: whether it was run, or given up.
        error: what its run raised, for the caller.
    """

    kind: Hashable = None
    is_late = True
    """Whether whoever takes the answer, and not who gives it, says that the request is in flight no more."""

    def __init__(self, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        self.binding, self.arrays, self.outputs = binding, arrays, outputs
        self.group: Group | None = None
        self.leads = self.is_over = False
        self.error: Exception | None = None
        self._come = threading.Lock()
        self._come.acquire()

    def sleep(self) -> None:
        """Wait for `wake`."""
        self._come.acquire()

    def wake(self) -> None:
        """End the sleep of the request's thread, or its next one."""
        if self._come.locked():
            self._come.release()

    def begin(self) -> bool:
        """Whether the request shall be run."""
        return True

    def answer(self) -> None:
        """Tell who waits that it is over."""
        self.wake()


class Submitted(Request):
    """A request with a future, for which no thread waits.

    Attributes:
        owner: see answering.py.
    """

    owner: object = None

    def __init__(
        self, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray],
        results: Results, kind: Hashable, is_late: bool,
    ) -> None:  # fmt: skip
        """`results`: of the request, given None; else it raises the error, as the caller shall see it."""
        super().__init__(binding, arrays, outputs)
        self.kind, self.is_late, self._results = kind, is_late, results
        self.future = BatchedFuture()

    def begin(self) -> bool:
        """Whether nobody cancelled it."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def answer(self) -> None:
        """Set the future's result or exception."""
        if self.future.done():  # a second time, after Ctrl-C
            return
        self.future.lend_a_hand = None
        try:
            results = self._results(self.error)
        except Exception as error:
            answer(self.owner, self.future.set_exception, error)
        else:
            answer(self.owner, self.future.set_result, results)


class BatchedFuture(Future[Any]):
    """A future whose waiter leads the request's group if no thread does yet.

    Attributes:
        lend_a_hand: does that.
    """

    lend_a_hand: Callable[[], None] | None = None

    def _wait_actively(self) -> None:
        lend_a_hand = self.lend_a_hand
        if lend_a_hand is not None and not self.done():
            lend_a_hand()

    def result(self, timeout: float | None = None) -> Any:
        """See Future; with no time limit, the request may be run here."""
        if timeout is None:
            self._wait_actively()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As `result`."""
        if timeout is None:
            self._wait_actively()
        return super().exception(timeout)


class Lead:
    """What a group's leader is about.

    Attributes:
        own: its request, until that was in a batch; None if it has none. batch: which it runs.
        has_begun: whether the batch counts as running. stays: whether it goes on to lead.
    """

    def __init__(self, own: Request | None) -> None:
        self.own = own
        self.batch: list[Request] = []
        self.has_begun, self.stays = False, True


class Group:
    """Requests that may run together and wait, the oldest first.

    Attributes:
        joins: whether there may be several. rows: of all.
        is_led: whether a thread sees to it. at_hand: whether that thread waits for an instance right now.
        begin_by: when it has waited for company long enough; None until an instance was free for it.
        is_timed: whether that thread gets up then, if nobody wakes it sooner.
    """

    def __init__(self, key: Hashable, joins: bool) -> None:
        self.key, self.joins = key, joins
        self.requests: deque[Request] = deque()
        self.rows = 0
        self.is_led = self.at_hand = self.is_timed = False
        self.begin_by: float | None = None

    def append(self, request: Request) -> None:
        """Let a request wait behind the others."""
        self.requests.append(request)
        self.rows += request.binding.rows
        request.group = self

    def put_first(self, request: Request) -> None:
        """Let a request wait before all others."""
        self.requests.appendleft(request)
        self.rows += request.binding.rows
        request.group = self

    def remove(self, request: Request) -> None:
        """Let a request wait no more."""
        self.requests.remove(request)
        self.rows -= request.binding.rows


def failed(error: Exception) -> Future[Any]:
    """The future of a request that was refused."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
