"""Which of a session's instances serve a lone request of one shape: as predicted, until a few requests were timed.

Owns the choice for one shape. A request that is not alone takes one of the session's own instances, whatever was
chosen: `serve` says so, and does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from ..errors import ResourceLimit
from .bindings import Binding
from .executor import Executor

SAMPLES = 4
"""Requests that each way is timed by, one after the other, as its threads sleep after a while that others are used; the
first, which meets cold memory and wakes them, does not count."""
MOST_TRIALS = 4 * SAMPLES
"""Requests that may go a way to be timed, also of those that others joined, which do not count."""
GAIN = 0.97
"""Of the predicted way's seconds: what another must not take more than."""
SAVED = 8e-6
"""Seconds that another way must save where the session's own instances are the predicted one: requests that need not be
routed go straight there (`run_ready`, the fast path), which takes some microseconds less than while they are timed."""
FAR, SLACK = 1.5, 5e-3
"""Of the quickest request's seconds, and seconds more: one that took longer has said enough of its way, even cold."""
LONG = 10e-3
"""Seconds of a request that fewer cores are not tried for: to share one costs cores microseconds a kernel."""
MOST_NBYTES = 64 << 20
"""Of an arena that is made to find out whether it is worth it."""
Run = Callable[[Executor, Binding], None]


class Way:
    """Instances × cores of each, made when they are first needed, and what requests took there.

    Attributes:
        n_cores: that a request has there at most.
    """

    __slots__ = ("_make", "_prepared", "is_beaten", "n_cores", "n_trials", "name", "seconds")

    def __init__(self, name: str, n_cores: int, make: Callable[[], tuple[Executor, Binding]]) -> None:
        self.name, self.n_cores, self._make = name, n_cores, make
        self._prepared: tuple[Executor, Binding] | None = None
        self.seconds: list[float] = []
        self.n_trials = 0
        self.is_beaten = False

    @property
    def is_known(self) -> bool:
        """Whether no more requests shall go here to be timed."""
        return self.is_beaten or len(self.seconds) >= SAMPLES or self.n_trials >= MOST_TRIALS

    @property
    def place(self) -> tuple[Executor, Binding]:
        """The instances, and the request's binding there.

        Raises:
            ResourceLimit: the system gives no more threads.
        """
        if self._prepared is None:
            self._prepared = self._make()
        return self._prepared

    @property
    def least(self) -> float:
        """Seconds of the quickest request but the first; infinite where nothing is known."""
        return min(self.seconds[1:], default=float("inf"))


class Ways:
    """The ways to serve a lone request of one shape.

    Attributes:
        chosen: the way that is taken, once that is decided.
        stays: whether that is the session's own instances; also where others cannot be made.
        shares: instances of the session's own → the way over their cores, for requests that get so many (teams.py).
    """

    __slots__ = ("_own", "_ways", "chosen", "shares", "stays")

    def __init__(self, own: Executor, ways: Sequence[Way], shares: Mapping[int, Way] | None = None) -> None:
        """The first of the ways is the predicted one."""
        self._own, self._ways, self.shares = own, tuple(ways), shares or {}
        self.chosen = ways[0] if len(ways) == 1 else None
        self.stays = False

    def serve(self, run: Run) -> bool:
        """Have a request run if it is alone; False: it is not, or the session's own instances are chosen.

        Raises:
            What `run` raises.
        """
        own, chosen = self._own, self.chosen
        way = chosen or next((way for way in self._ways if not way.is_known), self._ways[0])
        try:
            executor, binding = way.place
        except ResourceLimit:  # of what nobody asked for
            way.is_beaten, self.chosen = True, None
            self._decide()
            return False
        if chosen is not None:  # that could be the own ones: who holds all of them may wait for none
            return executor is not own and own.lend(lambda: run(executor, binding))
        began = time.perf_counter()
        if executor is own:
            if not own.is_idle():
                return False
            run(executor, binding)
        elif not own.lend(lambda: run(executor, binding)):
            return False
        way.n_trials += 1
        if own.is_idle():  # nobody came meanwhile
            way.seconds.append(time.perf_counter() - began)
            self._give_up()
        self._decide()
        return True

    def _give_up(self) -> None:
        """No more requests go ways that took far longer; never so the predicted one, whose first met cold weights.

        First requests are held against first ones, which all meet cold memory, later ones against later ones. A long
        request is not even tried on fewer cores than the predicted way has.
        """
        predicted = self._ways[0]
        is_long = LONG < predicted.least < float("inf")
        first = min(way.seconds[0] for way in self._ways if way.seconds)
        least = min(way.least for way in self._ways)
        for way in self._ways[1:]:
            took, quickest = (way.least, least) if len(way.seconds) > 1 else (min(way.seconds, default=0.0), first)
            is_narrow = is_long and not way.seconds and way.n_cores < predicted.n_cores
            way.is_beaten = way.is_beaten or is_narrow or took > FAR * quickest + SLACK

    def _decide(self) -> None:
        left = [way for way in self._ways if not way.is_beaten]
        if not left:
            self.stays = True
        elif len(left) == 1 or all(way.is_known for way in left):
            predicted, best = left[0], min(left, key=lambda way: way.least)
            most = predicted.least * GAIN
            if best is not predicted and predicted.place[0] is self._own:
                most = min(most, predicted.least - SAVED)
            chosen = predicted if best.least == float("inf") or best.least >= most else best
            stays = chosen.place[0] is self._own
            self.stays, self.chosen = stays, chosen  # in that order, for other threads, and no call between, for Ctrl-C

    def statistics(self) -> dict[str, object]:
        """What was chosen, None while it is not; seconds of the quickest timed request, and requests timed, by way."""
        timed = {way.name: {"seconds": min(way.seconds[1:] or way.seconds), "requests": len(way.seconds)}
                 for way in self._ways if way.seconds}  # fmt: skip
        return {"chosen": self.chosen.name if self.chosen is not None else None, "timed": timed}
