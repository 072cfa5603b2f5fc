"""The instances that work off one request's pieces together: one leads, others join and leave between two pieces.

The leader's caller opens a queue (handoff.py), has free instances join, and closes it; others that come free later may
join as long as pieces are left: the leader looks for them between two pieces, and whoever frees one looks in the stead
of a leader that is late. One that joined is told to leave when requests wait for it, unless what they wait for is about
to end. Owns the queues and who works on them; which requests wait is the executor's.

As in the executor, an instance goes from list to list in one call of C. One that joined belongs to its crew until
native code says that it is not busy any more; whoever hands instances over next sweeps it up, so that nothing is lost
where Ctrl-C kept the leader from doing that.
"""

from __future__ import annotations

import ctypes
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import ResourceLimit
from .handoff import AGAIN, LEAVE, TELL, UNFINISHED, Queue
from .instance import Instance
from .memory import address_of, aligned_bytes
from .native import MachineCode
from .turns import Turn, move_one

FIRST_LOOK, LAST_LOOK = 1_000_000, 16_000_000
"""Nanoseconds after which a leader with room for others comes back from native code, between two pieces, to look for
some: at first, and at most, as the time doubles."""
GRACE = 1_000_000
"""Nanoseconds that an instance just freed keeps ready, asleep, before it begins a piece: a caller that asks again at
once shall not find it at work for as long as a piece takes."""
MOST_LEFT = 4
"""Times the rows of the request that has waited longest: a request before it with no more left is helped first. Both
then wait for less than twice what one core takes for the own request alone."""
_NEXT, _COUNT, _STATUS, _BEGAN, _LOOK = 0, 1, 4, 5, 6  # words of a queue
_LIBC = ctypes.CDLL(None)


class Crew:
    """One request's queue and those who work it off beside its leader.

    Attributes:
        address: of the queue. words: its numbers, writable.
        helpers: instances that joined, until they are swept up. most: instances that its pieces are worth.
        is_done: native code has closed the queue and waited for all. is_over: the leader's caller is gone.
    """

    __slots__ = ("_memory", "_rows", "address", "helpers", "is_done", "is_over", "kept", "memory", "most", "words")

    def __init__(self) -> None:
        self._memory = aligned_bytes(ctypes.sizeof(Queue))
        self.address = address_of(self._memory)
        self.words = (ctypes.c_int64 * 8).from_address(self.address)
        self.helpers: list[Instance] = []
        self.kept: Any = None
        _LIBC.sem_init(ctypes.c_void_p(self.address + Queue.done.offset), 0, 0)
        self.begin(0, 0, 0, 0, 0, (0, 0), None)

    def begin(
        self, count: int, pieces: int, run: int, rows: int, most: int, memory: tuple[int, int], kept: Any
    ) -> None:
        """Nobody has taken a piece yet.

        Args:
            count: of pieces, whose records lie at the address `pieces`. run: of the native function. rows: in all.
            most: instances. memory: bytes of arena, and per thread, for the largest piece.
            kept: what has to live until all are done.
        """
        self.words[:] = [0, count, pieces, run, 0, 0, 0, 0]
        self._rows, self.most, self.memory, self.kept = rows, most, memory, kept
        self.is_done = self.is_over = False

    @property
    def left(self) -> int:
        """Pieces that nobody has taken."""
        return 0 if self.words[_STATUS] else max(0, self.words[_COUNT] - self.words[_NEXT])

    @property
    def rows_left(self) -> int:
        """About as many rows."""
        return self.left * self._rows // max(1, self.words[_COUNT])

    @property
    def has_failed(self) -> bool:
        """Whether a piece has failed, or nobody shall take any more."""
        return bool(self.words[_STATUS])

    @property
    def is_late(self) -> bool:
        """Whether the leader works on a piece since before it wanted to look for others."""
        return 0 < self.words[_LOOK] < time.monotonic_ns()

    def begin_at(self, nanoseconds: int) -> None:
        """The monotonic clock's time from which late starts count."""
        self.words[_BEGAN] = nanoseconds

    def lead(self, leader: Instance, nanoseconds: int) -> int:
        """Work off pieces with the calling thread, and close the queue once none is left.

        Args:
            nanoseconds: after which to come back between two pieces; 0: at the end.

        Returns:
            0, or the status of a piece that failed; AGAIN: not at the end; UNFINISHED: others are not, see `wait`.
        """
        self.words[_LOOK] = time.monotonic_ns() + nanoseconds if nanoseconds and self.left > 1 else 0
        status = int(leader.code.crew(leader.worker_address, self.address))
        self.is_done = status not in (AGAIN, UNFINISHED)
        return status

    def lead_then(self, leader: Instance, last: Instance, numbers: np.ndarray) -> int:
        """Work all pieces off with the calling thread, wait for the others, and lead another instance into a segment.

        Args:
            numbers: f32, which the pieces write: where one is not finite, `last` does nothing.

        Returns:
            0, or the status of a piece that failed; HELD: a number is not finite.
        """
        assert leader.code.crew_then is not None
        where = leader.worker_address, self.address, last.worker_address, address_of(numbers)
        status = int(leader.code.crew_then(*where, numbers.size))
        self.is_done = True
        return status

    def wait(self, code: MachineCode) -> int:
        """Wait for the others, without an instance; the answer is 0 or the status of a piece that failed."""
        status = int(code.wait(self.address))
        self.is_done = True
        return status

    def break_off(self, code: MachineCode) -> None:
        """Wait for the pieces that somebody works on, and leave the others."""
        if not self.is_done:
            self.words[_STATUS] = 1
            self.wait(code)


class Crews:
    """Those of one session's instances. Callers hold the executor's lock, but for `new`.

    Attributes:
        active: crews that somebody leads, or that have helpers, the oldest first.
    """

    def __init__(self, code: MachineCode | None, free: list[Instance]) -> None:
        """None yet. free: where helpers come from and go back to."""
        self._code, self._free = code, free
        self.active: list[Crew] = []
        self._spare: list[Crew] = []
        self._given_up: list[Crew] = []  # native code may write to a queue's semaphore once more: it is never freed

    def new(self) -> Crew:
        """A crew without helpers. To be begun, and then appended to `active`."""
        try:
            return self._spare.pop()
        except IndexError:
            return Crew()

    def recruit(self, crew: Crew, most: int, before: Callable[[Sequence[Instance]], None] | None = None) -> int:
        """Have free instances join, as many as there are pieces; returns how many did.

        Args:
            before: called with those that are about to.
        """
        first, most = len(crew.helpers), 0 if crew.is_over else min(most, crew.left)
        while len(crew.helpers) - first < most and move_one(self._free, crew.helpers):
            try:
                crew.helpers[-1].ready_for(*crew.memory)
            except ResourceLimit:  # of what only would have helped
                break
        ready = [helper for helper in crew.helpers[first : first + most] if helper.is_ready_for(*crew.memory)]
        if not ready or self._code is None:
            return 0
        for helper in ready:
            helper.begin_after(0)
        if before is not None:
            before(ready)
        workers = array("Q", [helper.worker_address for helper in ready])
        return int(self._code.join(workers.buffer_info()[0], len(ready), crew.address))

    @property
    def n_helping(self) -> int:
        """Instances that others lead."""
        return sum(len(crew.helpers) for crew in self.active)

    def sweep(self) -> None:
        """Free the helpers that are done, and forget crews that are over."""
        for crew in tuple(self.active):
            for i in range(len(crew.helpers) - 1, -1, -1):
                if not crew.helpers[i].is_busy:
                    if crew.has_failed:
                        crew.helpers[i].clear_failure()
                    self._free[:0] = map(list.pop, (crew.helpers,), (i,))  # the leader's core is where its caller is
            if crew.is_over and not crew.helpers:
                self.active.remove(crew)
                crew.kept = None
                (self._spare if crew.is_done else self._given_up).append(crew)

    def widen(self, crew: Crew, n_instances: int, grace: int = 0) -> None:
        """Have free instances that nobody waits for join a crew, up to its share.

        Args:
            grace: nanoseconds from now after which they begin.
        """

        def later(ready: Sequence[Instance]) -> None:
            for helper in ready:
                helper.begin_after(time.monotonic_ns() + grace - crew.words[_BEGAN])

        most = min(crew.most, self.share(n_instances)) - 1 - len(crew.helpers)
        self.recruit(crew, most, later if grace else None)

    def widen_late(self, n_instances: int) -> None:
        """The same for crews whose leaders are late to look, after a short grace."""
        for crew in self.active:
            if self._free and crew.is_late and crew.left:
                self.widen(crew, n_instances, GRACE)

    def take_in(self, rows: int) -> bool:
        """Have a free instance help a request that is about to end, although one of so many rows waits."""
        return any(crew.left and crew.rows_left <= MOST_LEFT * rows and self.recruit(crew, 1) for crew in self.active)

    def share(self, n_instances: int) -> int:
        """Instances for each crew, its leader counted, where those that run requests alone have one each."""
        alone = max(0, n_instances - len(self._free) - self.n_helping - len(self.active))
        return -(-(n_instances - alone) // max(1, len(self.active)))

    def recall(self, waiting: Iterable[Turn], n_instances: int) -> None:
        """Have helpers leave for requests that wait, but those of requests that are about to end; all shall tell."""
        turns = [turn for turn in waiting if not turn.held]
        share = max(1, n_instances // (len(turns) + len(self.active)))
        wanted = sum(min(turn.wanted, share) for turn in turns)
        rows = turns[0].rows if turns else 0  # as `take_in` is asked: nobody leaves to come back
        for crew in sorted(self.active, key=lambda crew: -len(crew.helpers)):
            for helper in crew.helpers:
                leaves = helper.told == LEAVE or (wanted > 0 and crew.rows_left > MOST_LEFT * rows)
                helper.tell(LEAVE if leaves else TELL)
                wanted -= leaves

    def abandon(self) -> None:
        """After a fork: nobody works here."""
        self.active, self._spare = [], []
