"""The speed gate: which of two plans answers requests sooner, measured in turns on this machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from ...runtime.plan import Plan
from ..contest import Contestant, compare, hold
from .samples import Request

ROUNDS = 7
SECONDS = 1.4  # for each plan in all, or one request in each round if that takes longer
LEAST_GAIN = 1.02  # the ratio from which a plan counts as faster: less is within what rounds differ by
FEWEST_FASTER = ROUNDS - 1  # of two equal plans one is so lucky once in 16 times
QUICKEST = 0.1  # share of the calls
OURS, THEIRS = "lower precision", "f32"


@dataclass(frozen=True)
class Gain:
    """How much faster a plan is than another: above 1 is faster.

    Attributes:
        middle, least, greatest: of the ratios of the rounds.
        quickest: the ratio of the seconds that the quickest tenth of each plan's calls needs at most: whatever else the
            machine does meanwhile adds to a call's time, so that these are the plans' own.
        n_faster: rounds in which the plan was faster.
    """

    middle: float
    least: float
    greatest: float
    quickest: float
    n_faster: int

    @property
    def factor(self) -> float:
        """What is certain: the lesser of both ways to look at it."""
        return min(self.middle, self.quickest)

    @property
    def is_faster(self) -> bool:
        return self.factor >= LEAST_GAIN and self.n_faster >= FEWEST_FASTER

    def __str__(self) -> str:
        return (f"{self.middle:.2f} × f32's speed ({self.least:.2f} to {self.greatest:.2f} in {ROUNDS} rounds; "
                f"{self.quickest:.2f} × by the quickest calls)")  # fmt: skip


def measured_gain(plan: Plan, exact: Plan, request: Request, tell: Callable[[str, float], None]) -> Gain:
    """Run both plans, each in sessions as it hints, on one request.

    Args:
        tell: progress, (what, fraction done).
    """
    with ExitStack() as stack:
        contestants = []
        for side, each in ((OURS, plan), (THEIRS, exact)):
            session = stack.enter_context(each.session())
            # without a batch to divide, several requests keep the instances busy, as a server's do
            n_clients = 1 if each.manifest.batch is not None else session.instances
            run = lambda session=session: session.run(request.inputs)  # noqa: E731
            contestants.append(Contestant(side, str(n_clients), [run] * n_clients, request.n_samples))
        hold(contestants, SECONDS, ROUNDS, tell)
        ratio = compare(contestants, OURS, THEIRS)[0]
        ours, theirs = (contestant.latency(QUICKEST) for contestant in contestants)
        n_faster = sum(a > b for a, b in zip(contestants[0].rates, contestants[1].rates, strict=True))
    return Gain(ratio.middle, ratio.least, ratio.greatest, theirs / ours, n_faster)
