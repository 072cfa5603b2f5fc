"""Requests in flight that run together: who waits for whom, and which thread runs the batch.

A request that finds no instance free joins those of its kind. One thread of a group, its leader, waits for an instance,
takes as many of the group's requests as make a batch, wakes the next leader for those that are left, runs the batch and
hands out the results; the others sleep. The leader is a caller that waits anyway, or for submitted requests a
background thread. Knows requests as checked arrays; knows nothing of what callers hand in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from ..errors import UsageError
from .bindings import Binding
from .executor import Executor
from .joining import Joining
from .limits import MOST_SECONDS, checked_seconds
from .requests import Group, Lead, Request, Submitted
from .router import Router
from .submissions import Submissions


class Batches:
    """The requests in flight of one session, and those of them that wait.

    In flight is what has begun to wait or run and whose caller has not got the results yet.
    """

    def __init__(self, executor: Executor, router: Router, window: object) -> None:
        """Nothing is in flight.

        Args:
            executor: the session's own instances; router: runs requests on them.
            window: seconds that a request may wait for company.

        Raises:
            UsageError: no duration, or a plan whose rows are not independent.
        """
        self._window = checked_seconds(window, "batch_window", MOST_SECONDS)
        self._joining = Joining(executor)
        self._executor, self._router = executor, router
        self._background: Submissions | None = None
        self._is_closing = False
        self._n_batches = self._n_joined = 0
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # entered by the lock, which Ctrl-C cannot part from its `with`
        self._groups: dict[Hashable, Group] = {}  # the one that has waited longest for its turn first
        self._in_flight = self._running = self._n_submitted = 0

    @property
    def has_room(self) -> bool:
        """Whether one more request would begin at once."""
        return not self._groups and self._in_flight < self._executor.n_instances and self._is_free()

    def run(self, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Run a request, at once or with others.

        Args:
            arrays, outputs: in the order of the plan's inputs and outputs.

        Raises:
            InvalidInput: native code met a value out of range. UsageError: the session is closed.
        """
        request, begins, is_counted = None, False, False  # Ctrl-C may come between any two calls
        try:
            with self._lock:
                if not self.has_room:
                    request = Request(binding, arrays, outputs)
                    group = self._join(request)
                    request.leads, group.is_led = not group.is_led, True
                begins, is_counted = request is None, True
                self._running += begins
                self._in_flight += 1
            if request is None:
                self._router.serve(binding, arrays, outputs)
            else:
                self._see_through(request)
        except BaseException:
            if request is not None and not request.is_over:
                self._withdraw(request)
            raise
        finally:
            with self._lock:
                self._running -= begins
                self._in_flight -= is_counted
                self._rouse()

    def submit(self, request: Submitted, background: Submissions) -> Future[Any]:
        """The future of a request that runs in the background, with others.

        Args:
            background: whose threads lead.

        Raises:
            UsageError: the session is closed.
        """
        with self._lock:
            if self._is_closing:
                raise UsageError(self._executor.closed or "the session is closed")
            self._background = request.owner = background
            group = self._join(request)
            self._in_flight += 1
            self._n_submitted += 1
            request.future.lend_a_hand = partial(self._lead_if_nobody_does, group)
            if len(group.requests) == 1:
                self._lead_in_background(group)
        return request.future

    def delivered(self) -> None:
        """A caller has got what he waited for."""
        with self._lock:
            self._in_flight -= 1
            self._rouse()

    def statistics(self) -> list[dict[str, Any]]:
        """One record; see Session.statistics."""
        with self._lock:
            return [{"batch_window": self._window, "most_rows": self._joining.most_rows,
                     "batches": self._n_batches, "requests_batched": self._n_joined}]  # fmt: skip

    def close(self) -> None:
        """Refuse what is submitted from now on, let nobody wait for company any more, finish what was submitted."""
        while True:
            with self._lock:
                self._is_closing = True
                self._changed.notify_all()
                if not self._n_submitted:
                    return
                group = next((group for group in self._groups.values() if not group.is_led), None)
                if group is None:
                    self._changed.wait()
                    continue
            self._lead_if_nobody_does(group)

    def abandon(self) -> None:
        """After a fork: the threads that wait are not this process's."""
        self._reset()

    def _join(self, request: Request) -> Group:
        key = self._joining.key(request.arrays, request.binding.rows)
        group = self._groups.get(key) if key is not None else None
        if group is None:
            group = Group(request if key is None else key, key is not None)
            self._groups[group.key] = group
        group.append(request)
        self._rouse()
        return group

    def _see_through(self, request: Request) -> None:
        """Wait for a request's end, leading its group where that falls to it."""
        if not request.leads:
            request.sleep()
        if request.leads and request.group is not None:
            self._lead(request.group, request)
        error, request.error = request.error, None
        if error is not None:
            raise error

    def _withdraw(self, request: Request) -> None:
        """Ctrl-C reached a caller that waits. A batch that has begun is seen through, as every native call."""
        group = request.group
        if group is None:
            return
        with self._lock:
            waits = request in group.requests
            if waits:
                self._remove(request)
                if request.leads and group.requests:
                    self._hand_on(group)
                self._rouse()
        if not waits and not request.is_over:
            request.sleep()

    def _remove(self, request: Request) -> None:
        group = request.group
        assert group is not None
        group.remove(request)
        if not group.requests:
            self._groups.pop(group.key, None)

    def _lead_if_nobody_does(self, group: Group) -> None:
        with self._lock:
            if group.is_led or not group.requests:
                return
            group.is_led = True
        self._lead(group, None)

    def _lead_in_background(self, group: Group) -> None:
        assert self._background is not None
        group.is_led = False
        self._background.submit(partial(self._lead_if_nobody_does, group), "a batch", here=False)

    def _hand_on(self, group: Group) -> bool:
        """Find another leader; False: nobody may come soon."""
        waiting = next((request for request in group.requests if not isinstance(request, Submitted)), None)
        group.is_led = waiting is not None
        if waiting is not None:
            waiting.leads = True
            waiting.wake()
        elif not self._is_closing:
            self._lead_in_background(group)
        return waiting is not None or not self._is_closing

    def _lead(self, group: Group, own: Request | None) -> None:
        """Run batches of a group until the own request was in one, or one batch if there is none."""
        lead = Lead(own)
        try:
            self._go_on(group, lead)
        except BaseException:  # Ctrl-C
            self._break_off(lead)
            own = lead.own
            with self._lock:  # where the own request still waits, `_withdraw` finds the next leader
                if lead.stays and group.requests and (own is None or own.is_over):
                    self._hand_on(group)
                self._rouse()
            raise

    def _go_on(self, group: Group, lead: Lead) -> None:
        while lead.stays:
            own, batch = lead.own, lead.batch
            with self._lock:
                self._next_batch(group, batch)
                if batch:
                    lead.has_begun = True
                    self._running += 1
                has_own = own is not None and own in batch
                must_go_on = own is not None and not has_own
                lead.stays = bool(group.requests) and (must_go_on or not self._hand_on(group))
                group.is_led = group.is_led or lead.stays
                self._rouse()
            if batch:
                self._run(batch)
            lead.has_begun, lead.batch = False, []
            lead.own = None if has_own else own

    def _break_off(self, lead: Lead) -> None:
        """Answer a batch that is over; let the requests of one that is not wait again, but for the own one."""
        own, batch = lead.own, lead.batch
        if batch and batch[0].is_over:
            for request in batch:
                request.answer()
            return
        with self._lock:
            self._running -= lead.has_begun
            if own is not None and own in batch:
                own.is_over = True
            self._put_back([request for request in batch if request is not own])

    def _next_batch(self, group: Group, batch: list[Request]) -> None:
        """Wait until a batch of this group may begin, and take it; none where the group has become empty."""
        group.at_hand = True
        try:
            self._wait_for_batch(group, batch)
        finally:
            group.at_hand = group.is_timed = False

    def _wait_for_batch(self, group: Group, batch: list[Request]) -> None:
        while group.requests and not batch:
            now = time.monotonic()
            if self._next_group(now) is group:
                self._take(group, batch)
            else:
                seconds = group.begin_by - now if group.begin_by is not None and self._is_free() else 0.0
                group.is_timed = seconds > 0
                self._changed.wait(seconds if group.is_timed else None)

    def _is_free(self) -> bool:
        """Whether an instance is, or leaves another's request to be; a closed session's refuse at once."""
        executor = self._executor
        is_one = bool(executor.free) or executor.crews.n_helping > 0
        return bool(executor.closed) or (self._running < executor.n_instances and is_one)

    def _share(self) -> int:
        """Requests of a batch where all instances get as many."""
        return -(-self._in_flight // self._executor.n_instances)

    def _next_group(self, now: float) -> Group | None:
        """The group whose leader shall begin now."""
        if not self._is_free():
            return None
        return next((group for group in self._groups.values() if group.at_hand and self._is_due(group, now)), None)

    def _is_due(self, group: Group, now: float) -> bool:
        """Whether the group waits for no more company, an instance being free."""
        if group.begin_by is None:
            group.begin_by = now + self._window if group.joins else now
        return (
            len(group.requests) >= self._share()
            or group.rows >= self._joining.most_rows
            or now >= group.begin_by
            or self._is_closing
            or bool(self._executor.closed)
        )

    def _rouse(self) -> None:
        """Wake the leaders if one of them may begin, or has to begin to count the seconds, and whoever closes."""
        if self._is_closing:
            self._changed.notify_all()
        if self._groups and self._is_free():
            now = time.monotonic()
            if any(not g.is_timed or self._is_due(g, now) for g in self._groups.values() if g.at_hand):
                self._changed.notify_all()

    def _take(self, group: Group, batch: list[Request]) -> None:
        """Move the oldest requests of a group that make a batch there; none if all were cancelled."""
        share, rows = self._share(), 0
        while group.requests and (not batch or self._fits(group.requests[0], rows, len(batch), share)):
            request = group.requests[0]
            batch.append(request)
            self._remove(request)
            if request.begin():
                rows += request.binding.rows
            else:
                self._note_end(batch.pop())
        group.begin_by = None
        if group.requests:  # other groups come first
            self._groups[group.key] = self._groups.pop(group.key)

    def _fits(self, request: Request, rows: int, n_requests: int, share: int) -> bool:
        return n_requests < share and rows + request.binding.rows <= self._joining.most_rows

    def _run(self, batch: list[Request]) -> None:
        """Run a batch, or where that fails its requests one by one, and answer them."""
        is_joined = len(batch) > 1 and self._joining.run(batch, self._router)
        if not is_joined:
            for request in batch:
                request.error = self._run_alone(request)
        with self._lock:
            self._running -= 1
            self._n_batches += is_joined
            self._n_joined += len(batch) if is_joined else 0
            for request in batch:
                self._note_end(request)
            self._rouse()
        for request in batch:  # after the instance is free: a future's callbacks may run requests themselves
            request.answer()

    def _note_end(self, request: Request) -> None:
        request.is_over = True
        self._in_flight -= not request.is_late
        self._n_submitted -= isinstance(request, Submitted)

    def _run_alone(self, request: Request) -> Exception | None:
        work = partial(self._router.serve, request.binding, request.arrays, request.outputs)
        try:
            if request.kind is not None and self._background is not None:
                self._background.timed(work, request.kind)
            else:
                work()
        except Exception as error:
            return error
        return None

    def _put_back(self, requests: list[Request]) -> None:
        """Let requests of a batch that broke off wait again, before all others of their kind."""
        old = requests[0].group if requests else None
        if old is None:
            return
        group = self._groups.get(old.key) or Group(old.key, old.joins)
        is_new = not group.requests
        self._groups[group.key] = group
        for request in reversed(requests):
            if request not in group.requests:
                group.put_first(request)
        if is_new:
            self._hand_on(group)
