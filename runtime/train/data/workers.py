"""How many loader workers a training step needs: equations 1 to 4 of Mofang's section on loader threads.

Pure arithmetic on measured times; who measures them is `loader.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....errors import UsageError

TOLERANCE = 0.02
"""How much slower than the best a smaller number of workers may be where none keeps up."""


@dataclass(frozen=True)
class Times:
    """What was measured, in seconds.

    Attributes:
        listing: T1, finding which samples the next batch has.
        sample: T2, loading and transforming one sample on one worker.
        step: T3, one training step.
        speedups: S(n) of n = 1, 2, … workers over one; it may fall where they hinder each other.
    """

    listing: float
    sample: float
    step: float
    speedups: tuple[float, ...]

    def seconds(self, workers: int, batch: int) -> float:
        """T(n) = max(T1, B·T2/S(n), T3), of one step that n workers feed."""
        return max(self.listing, batch * self.sample / self.speedups[workers - 1], self.step)


def workers_needed(times: Times, batch: int, *, tolerance: float = TOLERANCE) -> int:
    """The fewest workers that keep up with training.

    The smallest n with S(n) ≥ B·T2/M, M = max(T1, T3); if there is none, the smallest n with T(n) at most
    (1 + tolerance) times the least.

    Raises:
        UsageError: no speed-ups, one that is not positive, or a batch without a row.
    """
    if not times.speedups or min(times.speedups) <= 0 or batch < 1:
        raise UsageError("nothing to find the number of workers from", expected="a row or more, positive speed-ups",
                         found=f"{batch} rows, speed-ups {list(times.speedups)}")  # fmt: skip
    slowest = max(times.listing, times.step)
    counts = range(1, len(times.speedups) + 1)
    enough = [n for n in counts if times.speedups[n - 1] * slowest >= batch * times.sample]
    if enough:
        return enough[0]
    least = min(times.seconds(n, batch) for n in counts)
    return next(n for n in counts if times.seconds(n, batch) <= (1 + tolerance) * least)


@dataclass(frozen=True)
class Balance:
    """How many workers were chosen, and what that saves.

    Attributes:
        workers: chosen. before: had been. most: were allowed. batch: rows. times: measured.
    """

    workers: int
    before: int
    most: int
    batch: int
    times: Times

    def __str__(self) -> str:
        demand = self.batch * self.times.sample / max(self.times.listing, self.times.step, 1e-12)
        speedup: float = self.times.speedups[self.workers - 1]
        saved = self.most - self.workers
        verdict = "keeps up" if speedup >= demand else "is the best there is"
        return (
            f"{self.workers} of {self.most} loader workers (was {self.before}): a speed-up of {speedup:.2f} {verdict}, "
            f"{demand:.2f} are needed; {saved} saved ({saved / self.most:.0%})"
        )


def measured_speedups(rates: Sequence[float]) -> tuple[float, ...]:
    """S(n) from samples a second of 1, 2, … workers."""
    return tuple(rate / rates[0] for rate in rates)
