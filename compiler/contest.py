"""Fair timing of several contestants: interleaved rounds A B A B, medians, spread, ratios of the same round.

Owns the measuring; knows nothing of what the contestants run (for `parax bench` they are in `commands.peers`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import median

Call = Callable[[], object]
WARM_UP_SECONDS = 0.5
FEWEST_WARM_UPS = 3


@dataclass
class Contestant:
    """One way of running the model.

    Args:
        side: whose it is, "parax" or a peer's name.
        setup: in words: "1 × 8 cores", "8 × 1 core".
        calls: one function per concurrent client; each call does `items` items.
        items: rows of the batch in one call.
        close: frees what it holds.
        blame: says whose failure it is when a call raises.
    """

    side: str
    setup: str
    calls: Sequence[Call]
    items: int
    close: Call = field(default=lambda: None)
    blame: Callable[[], AbstractContextManager[None]] = nullcontext
    rates: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Median over the rounds of items per second."""
        return median(self.rates)

    @property
    def spread(self) -> float:
        """(greatest − least) / median of the rounds' rates."""
        return (max(self.rates) - min(self.rates)) / self.rate

    def latency(self, quantile: float) -> float:
        """Seconds of one call, at a quantile over all rounds."""
        return quantile_of(self.seconds, quantile)

    def run_for(self, duration: float) -> tuple[float, list[float]]:
        """Let every client call for `duration` seconds, at least once; (items per second, seconds of each call)."""
        times: list[list[float]] = [[] for _ in self.calls]
        errors: list[BaseException] = []
        gate = threading.Barrier(len(self.calls))

        def client(number: int) -> None:
            try:
                gate.wait()
                times[number] = _repeat(self.calls[number], duration)
            except BaseException as error:  # handed to the caller's thread below
                errors.append(error)
                gate.abort()

        began = time.perf_counter()
        if len(self.calls) == 1:
            client(0)
        else:
            threads = [threading.Thread(target=client, args=(number,)) for number in range(len(self.calls))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        elapsed = time.perf_counter() - began
        if errors:
            with self.blame():
                raise errors[0]
        seconds = [t for each in times for t in each]
        return len(seconds) * self.items / elapsed, seconds


def _repeat(call: Call, duration: float) -> list[float]:
    times: list[float] = []
    now = time.perf_counter()
    end = now + duration
    while not times or now < end:
        call()
        after = time.perf_counter()
        times.append(after - now)
        now = after
    return times


def quantile_of(values: Sequence[float], quantile: float) -> float:
    """The value below which so great a share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]


def hold(contestants: Sequence[Contestant], duration: float, rounds: int, tell: Callable[[str, float], None]) -> None:
    """Warm everybody up, then `rounds` rounds in which each runs once; results are added to the contestants.

    Args:
        duration: seconds for each contestant in all, over its rounds.
        tell: progress, (what, fraction done).
    """
    for contestant in contestants:
        tell(f"warming up {contestant.side} {contestant.setup}", 0.0)
        for _ in range(FEWEST_WARM_UPS):
            contestant.run_for(0.0)
        contestant.run_for(WARM_UP_SECONDS)
    for number in range(rounds):
        for place, contestant in enumerate(contestants):
            done = (number + place / len(contestants)) / rounds
            tell(f"round {number + 1}/{rounds}: {contestant.side} {contestant.setup}", done)
            rate, seconds = contestant.run_for(duration / rounds)
            contestant.rates.append(rate)
            contestant.seconds.extend(seconds)


@dataclass(frozen=True)
class Ratio:
    """How much better one side is than another, each in its best set-up: above 1 is better.

    Attributes:
        middle, least, greatest: of the rounds' own ratios.
    """

    what: str
    ours: str
    theirs: str
    middle: float
    least: float
    greatest: float


def compare(contestants: Sequence[Contestant], ours: str, theirs: str) -> list[Ratio]:
    """Throughput of the two sides' fastest set-ups, and latency of their quickest single-client ones."""
    ratios = []
    a, b = (max((c for c in contestants if c.side == side), key=lambda c: c.rate) for side in (ours, theirs))
    each = [x / y for x, y in zip(a.rates, b.rates, strict=True)]
    ratios.append(Ratio("throughput", a.setup, b.setup, median(each), min(each), max(each)))
    singles = [[c for c in contestants if c.side == side and len(c.calls) == 1] for side in (ours, theirs)]
    if all(singles):
        a, b = (max(side, key=lambda c: c.rate) for side in singles)
        each = [x / y for x, y in zip(a.rates, b.rates, strict=True)]
        ratios.append(Ratio("latency", a.setup, b.setup, median(each), min(each), max(each)))
    return ratios
