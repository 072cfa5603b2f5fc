"""One side of `python -m benchmarks.switching` in a process of its own: callers that come and go, every answer checked.

`python -m benchmarks.switching_side JSON` prints one line of JSON: for one caller and for several, the seconds of every
request in the steady state and, visit by visit, while the one load follows the other; requests that were not answered;
answers that are not, bit for bit, the first one for that input. Owns the visits; knows nothing of ratios and tables.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from examples.models import feeds

from .defaults_side import SIDES, Call, Feed, say

PATIENCE_SECONDS = 60.0
"""Beyond a visit's own time, after which a caller without an answer counts as lost."""


class Caller:
    """Asks for one input again and again, each time as soon as the last answer has been looked at.

    Attributes:
        visits: what each visit was part of, and the seconds of its answered requests.
        asked: requests, answered or not.
        differing: answers that are not the first one, bit for bit.
        failures: what was raised instead of an answer.
    """

    def __init__(self, call: Call, feed: Feed) -> None:
        """Ask once: the answer that all others have to equal."""
        self._call, self._feed = call, feed
        self._first = _bits(call(feed))
        self.visits: list[tuple[str, list[float]]] = []
        self.asked = self.differing = 0
        self.failures: list[str] = []

    def visit(self, part: str, seconds: float, least: int) -> None:
        """Ask for so long, and so often at least, as part of something."""
        times: list[float] = []
        self.visits.append((part, times))
        now = time.perf_counter()
        end = now + seconds
        while now < end or len(times) < least:
            self.asked += 1
            try:
                found = self._call(self._feed)
            except Exception as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                return
            times.append(time.perf_counter() - now)
            self.differing += _bits(found) != self._first
            now = time.perf_counter()

    @property
    def lost(self) -> int:
        """Requests without an answer."""
        return self.asked - sum(len(times) for _, times in self.visits)


def _bits(outputs: Sequence[Any]) -> list[bytes]:
    return [np.asarray(output).tobytes() for output in outputs]


def visit_together(callers: Sequence[Caller], part: str, seconds: float, least: int) -> bool:
    """All of them at once, each in a thread of its own; False where one got no answer for a minute.

    Args:
        part, seconds, least: see Caller.visit.
    """
    gate = threading.Barrier(len(callers))

    def life(caller: Caller) -> None:
        gate.wait()
        caller.visit(part, seconds, least)

    threads = [threading.Thread(target=life, args=(caller,), daemon=True) for caller in callers]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds + PATIENCE_SECONDS
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def measure(callers: Sequence[Caller], task: Mapping[str, Any]) -> dict[str, Any]:
    """The steady states of one caller and of all, then changes from one to all and back, in so many blocks of both.

    A machine that others share is not the same for long: each block's changes are held against its own steady states.
    """
    loads = {"1": callers[:1], str(len(callers)): callers}
    plan = [("warm-up", task["seconds"])]
    for block, switches in enumerate(split(task["switches"], task["blocks"])):
        plan += [(f"steady {block}", task["seconds"]), *[(f"switching {block}", task["visit"])] * switches]
    for part, seconds in plan:
        for load, those in loads.items():
            if not visit_together(those, f"{part} {load}", seconds, task["least"]):
                return _found(callers, loads, task["blocks"])
    return _found(callers, loads, task["blocks"])


def split(total: int, parts: int) -> list[int]:
    """A number in so many parts, as equal as they can be."""
    return [total * (i + 1) // parts - total * i // parts for i in range(parts)]


def _found(callers: Sequence[Caller], loads: Iterable[str], blocks: int) -> dict[str, Any]:
    def visits(what: str) -> list[list[float]]:
        return [[round(t, 7) for t in times] for caller in callers for name, times in caller.visits if name == what]

    return {
        "loads": {load: [{what: visits(f"{what} {block} {load}") for what in ("steady", "switching")}
                         for block in range(blocks)] for load in loads},
        "asked": sum(caller.asked for caller in callers), "lost": sum(caller.lost for caller in callers),
        "differing": sum(caller.differing for caller in callers),
        "failures": [failure for caller in callers for failure in caller.failures],
    }  # fmt: skip


def main(argv: Sequence[str]) -> None:
    """Entry point."""
    task = json.loads(argv[0])
    new_caller = SIDES[task["side"]](task["model"])
    given = [feeds(task["name"], 1, seed, small=task["small"], options=task["feed_options"])
             for seed in range(task["callers"])]  # fmt: skip
    callers = [Caller(new_caller(), feed) for feed in given]
    say(measure(callers, task))
    sys.stdout.flush()
    os._exit(0)  # a caller that waits for ever would keep the process


if __name__ == "__main__":
    main(sys.argv[1:])
