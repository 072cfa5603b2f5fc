"""Requests that wait for an instance, and how instances go from hand to hand. The order is the executor's."""

from __future__ import annotations

import threading
import time

from .instance import Instance


class Turn:
    """A request of so many rows that waits for an instance, which comes into `held`, until `is_over` (by itself) or
    `is_refused`; of more than one it would make use of `wanted`."""

    __slots__ = ("come", "for_good", "held", "is_over", "is_refused", "rows", "since", "wanted")

    def __init__(self, held: list[Instance], rows: int, wanted: int, for_good: bool) -> None:
        self.held, self.rows, self.wanted, self.for_good = held, rows, wanted, for_good
        self.since = time.perf_counter()
        self.is_over = self.is_refused = False
        self.come = threading.Lock()
        self.come.acquire()


def move_one(source: list[Instance], target: list[Instance], index: int = -1) -> bool:
    """Take an instance out of one list and append it to the other, in one call; False: there is none."""
    try:
        target.extend(map(list.pop, (source,), (index,)))  # no signal and no thread finds it in neither
    except IndexError:
        return False
    return True
