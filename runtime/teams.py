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
        held = [own.take_one()]
        try:
            in_flight = own.n_instances - len(own.free) - len(self._beside) + own.n_waiting
            for width in self.widths:
                if width * max(2, in_flight) <= own.n_instances and (joined := self._joined(held[0], width)):
                    held = joined
                    break
            self._beside.update(held[1:])
            yield held
        finally:
            self._beside.difference_update(held[1:])
            own.give(held)

    def _joined(self, first: Instance, width: int) -> list[Instance]:
        """A group of that width with its first, or another one that is free whole; none: all are held in part."""
        groups = sorted(self._groups[width], key=lambda group: first not in group)
        for group in groups:
            taken = [instance for instance in group if instance is first or _taken(self._own.free, instance)]
            if len(taken) == width:
                if first not in group:
                    self._own.give([first])
                return taken
            self._own.give([instance for instance in taken if instance is not first])
        return []


def _taken(free: list[Instance], instance: Instance) -> bool:
    """Whether it was free and is ours now; atomic, as `pop` is."""
    try:
        free.remove(instance)
    except ValueError:
        return False
    return True
