"""Prepared requests of one plan, worked off together by several sessions' instances, and one of another behind them.

The calling thread leads the first instance through a queue, other threads lead the others, and then all go through the
last request: one native call (handoff.py), in which no thread touches the interpreter. Owns the requests' records in
native memory and who leads what.
"""

from __future__ import annotations

import array
import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ParaxError
from .crews import Crew
from .executor import Executor
from .handoff import HELD, Worker
from .instance import Instance
from .memory import address_of
from .prepared import Prepared
from .session import Session
from .tensors import Apart

Results = dict[str, np.ndarray]


class Joint:
    """Requests that are run together, again and again. Nobody else may use the sessions meanwhile.

    Attributes:
        last: the request behind the others.
    """

    def __init__(
        self, sessions: Sequence[Session], requests: Sequence[Prepared], numbers: np.ndarray,
        last_session: Session, last: Prepared,
    ) -> None:  # fmt: skip
        """Lay everything out in native memory.

        Args:
            sessions: of one plan, for which `can_join` holds. requests: of the first of them.
            numbers: f32, which the requests write: where one is not finite, the last request is not run.
            last_session: for which `can_join` holds, too. last: of it.
        """
        self._session, self._executors = sessions[0], [session.executor for session in sessions]
        self._last_executor, self.last, self._numbers = last_session.executor, last, numbers
        self._requests = requests
        self._made = [request.allocated() for request in requests]
        self._io = _Pointers(self._executors[0], requests, self._made)
        self._apart = Apart({f"{i}: {name}": a for i, made in enumerate(self._made) for name, a in made.items()})
        self._last_made = last.allocated()
        self._last_io = _Pointers(self._last_executor, [last], [self._last_made])
        bindings = [request.binding for request in requests]
        self._memory = max(b.arena_nbytes for b in bindings), max(b.scratch_nbytes for b in bindings)
        self._pieces = array.array("Q")
        for i, binding in enumerate(bindings):
            self._pieces.extend((self._io.address(i), binding.dims_address))
        self._instances = [executor.instances[0] for executor in self._executors]
        self._workers = self._leading()
        self._joining = array.array("Q", map(ctypes.addressof, self._workers[1:]))
        self._crew = Crew()

    def _leading(self) -> list[Worker]:
        """The worker whose thread leads each instance: the last request's on the same core, where there is one.

        So that the threads of the last request are awake when it begins.
        """
        leader, *others = self._instances
        workers, followers = [Worker.from_address(leader.worker_address)], self._last_instance.followers()
        for instance in others:
            address = followers.pop(instance.cores[0], 0)
            if not address:
                instance.ready_for(*self._memory)
            workers.append(Worker.from_address(address or instance.worker_address))
            workers[-1].lead = instance.worker_address
        return workers

    def run(
        self, shared: Mapping[str, Any], own: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Results], Results | None]:  # fmt: skip
        """Run all requests.

        Args:
            shared: inputs of which every request takes as many rows, one behind the other.
            own: others of each request, as of `Prepared.run`.

        Returns:
            the outputs of each, and those of the last one, or None if it was not run; the next run writes over them.

        Raises:
            As `Prepared.run`. Some requests may have been run, but not the last.
        """
        held: list[Instance] = []
        try:
            kept = self._given(shared, own)
            self._executors[0].take_one(held)
            return self._made, self._last_made if self._work(kept) else None
        except ParaxError:
            raise
        except Exception as error:
            raise self._session.explained(error) from error
        finally:
            self._executors[0].free.extend(held)
            self._executors[0].hand_over()

    def _given(self, shared: Mapping[str, Any], own: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Point to what is given. Returns what has to live until the requests are done."""
        first, kept = self._requests[0], []
        for name, value in shared.items():
            place, given = first.in_shares(name, value, len(self._requests))
            self._apart.require(given)
            self._io.share(place, given)
            kept.append(given)
        for i, changes in enumerate(own):
            for place, given in self._requests[i].changed(changes).items():
                self._io.point(i, place, address_of(given))
                kept.append(given)
        return kept

    def seconds(self) -> list[float]:
        """When each instance found nothing more to do in the last run, in seconds of time.perf_counter."""
        return [worker.ended * 1e-9 for worker in self._workers]

    @property
    def _last_instance(self) -> Instance:
        return self._last_executor.instances[0]

    def _work(self, given: Any) -> bool:
        """Whether the last request was run. given: arrays that live until then."""
        leader = self._instances[0]
        for instance in self._instances:
            instance.reserve(*self._memory)
            instance.binding = None  # native code sets the worker
        last, binding = self._last_instance, self.last.binding
        last.reserve(binding.arena_nbytes, binding.scratch_nbytes)
        last.point(self._last_executor.segment, binding.dims_address, self._last_io.address(0))
        crew, count, run = self._crew, len(self._requests), leader.code.segments[self._executors[0].segment]
        crew.begin(count, self._pieces.buffer_info()[0], run, count, len(self._instances), self._memory, given)
        try:
            leader.code.join(self._joining.buffer_info()[0], len(self._joining), crew.address)
            status = crew.lead_then(leader, last, self._numbers)
            failed = self._executors[0] if status not in (0, HELD) else self._last_executor
            if status != HELD and (status or last.status):
                raise failed.failure(status or last.status)
        except BaseException:  # Ctrl-C, too
            crew.break_off(leader.code)
            for instance in (*self._instances, last):
                instance.clear_failure()
            raise
        finally:
            crew.kept = None
        return status != HELD


class _Pointers:
    """Where the tensors of some requests of a session lie, as native code reads it."""

    def __init__(self, executor: Executor, requests: Sequence[Prepared], results: Sequence[Results]) -> None:
        self._slots = {place: slot for slot, place in enumerate(executor.in_order)}
        self._n = len(executor.in_order) + len(executor.out_order)
        self._words, self._n_requests = array.array("Q"), len(requests)
        for request, made in zip(requests, results, strict=True):
            outputs = list(made.values())
            self._words.extend(address_of(request.arrays[i]) for i in executor.in_order)
            self._words.extend(address_of(outputs[i]) for i in executor.out_order)

    def address(self, i: int) -> int:
        """Of a request's."""
        return self._words.buffer_info()[0] + 8 * i * self._n

    def point(self, i: int, place: int, address: int) -> None:
        """A request's input of that number lies elsewhere."""
        if place in self._slots:  # native code reads it
            self._words[i * self._n + self._slots[place]] = address

    def share(self, place: int, whole: np.ndarray) -> None:
        """Each request's input of that number is its share of an array's rows."""
        begin, step = address_of(whole), whole.nbytes // self._n_requests
        for i in range(self._n_requests):
            self.point(i, place, begin + i * step)


def can_join(sessions: Sequence[Session]) -> bool:
    """Whether requests of these sessions are native from end to end, and no profile is made of them."""
    for session in sessions:
        code = session.executor.code
        if session.watch is not None or not session.executor.is_direct or code is None or code.crew_then is None:
            return False
    return True
