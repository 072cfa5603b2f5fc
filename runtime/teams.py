"""Several cores for requests that are not alone, where there are more cores than requests.

A session with an instance per core gives a lone request all of them. With a few requests in flight on many cores, each
gets an equal share: it holds so many of the session's own instances, side by side, and runs on one wider instance over
their cores. Owns who holds what; knows nothing of what runs there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .executor import Executor
from .instance import Instance
from .turns import move_one


class Teams:
    """Shares of one session's own instances.

    Attributes:
        widths: instances in a share, besides one and all of them: those that divide their number, widest first.
    """

    def __init__(self, own: Executor) -> None:
        self._own = own
        n = own.n_instances
        self.widths = [width for width in range(n // 2, 1, -1) if n % width == 0]
        self._groups = {w: [own.instances[i : i + w] for i in range(0, n, w)] for w in self.widths}
        self._beside: set[Instance] = set()  # held beside the one of each request; changed by atomic calls only

    @contextmanager
    def share(self) -> Iterator[list[Instance]]:
        """Hold a request's share of the instances, side by side; waits, in turn, where all are held.

        Whoever waited, or came while others ran, is not alone: half of all is the most.

        Raises:
            UsageError: the session is closed.
        """
        own = self._own
        held: list[Instance] = []
        try:
            own.take_one(held)
            self._widen(held)
            self._beside.update(held[1:])
            yield held
        finally:
            try:
                self._beside.difference_update(held[1:])
            finally:
                own.free.extend(held[::-1])
                own.hand_over()

    def _widen(self, held: list[Instance]) -> None:
        """Have `held`, one instance, become the widest group that is a fair share and free."""
        own = self._own
        beside = len(self._beside) + own.crews.n_helping
        in_flight = own.n_instances - len(own.free) - beside + len(own.waiting)
        for width in self.widths:
            if width * max(2, in_flight) <= own.n_instances and self._join(held, width):
                break

    def _join(self, held: list[Instance], width: int) -> bool:
        """Have `held`, one instance, become a group of that width with it, or another one that is free whole.

        Returns:
            Whether there is one: all may be held in part.
        """
        free, first = self._own.free, held[0]
        for group in sorted(self._groups[width], key=lambda group: first not in group):
            if all(instance is first or _moved(instance, free, held) for instance in group):
                if first not in group:
                    move_one(held, free, 0)
                held[:] = group
                break
            while len(held) > 1:
                move_one(held, free)
        self._own.hand_over()
        return len(held) == width


def _moved(instance: Instance, free: list[Instance], held: list[Instance]) -> bool:
    """Whether it was free and is among the held ones now."""
    try:
        index = free.index(instance)
    except ValueError:  # another thread was quicker
        return False
    if not move_one(free, held, index):
        return False
    if held[-1] is not instance:  # another thread took some meanwhile
        move_one(held, free)
        return False
    return True
