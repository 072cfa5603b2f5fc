"""Candidates as they run: a race in interleaved rounds over sessions of their plans, within a budget of seconds.

Owns the measuring of candidates: who still runs, when it is settled, and what counts of each one's rounds; what one
round of a candidate is, is `contest`'s, whether the machine's cores are all there is `backend.machine`'s.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from ..contest import Contestant
from .candidate import Candidate, Load
from .choice import Measured, Row

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.plan import Plan
    from ...runtime.session import Session

FEWEST_ROUNDS, MOST_ROUNDS = 3, 30
OVERDRAFT = 2  # times the budget, after which a race ends whatever the rounds
SETTLED_ROUNDS = 7  # after which a lonely leader, or candidates with little spread, need no more
LITTLE_SPREAD = 0.02
LEFT_BEHIND = 1.15  # times the leader's: who never came nearer in FEWEST_ROUNDS runs no more
SLICE_SECONDS = 0.03  # of a candidate in a round, at least one request
WHOLE_SECONDS = 0.4  # up to which a request is run whole: one in parts gives less memory for results back and forth
WARM_UPS = 2
LONG_SECONDS = 0.3  # of a request that needs one warm-up only
DISTURBED = 1.4  # times as long as at their quickest: cores that take so long are not all there, a round is repeated
PAUSE_SECONDS = 0.05  # between looks at a disturbed machine
PATIENCE = 0.5  # of the budget: how long the race waits and repeats in all
Inputs = Mapping[str, "np.ndarray"]
Tell = Callable[[str, float], None]


def open_session(plan: Plan, candidate: Candidate, cores: Sequence[int]) -> Session:
    """A session set up as the candidate says, on the first of `cores`."""
    return plan.session(
        instances=candidate.instances, cores=tuple(cores[: candidate.n_cores]),
        cores_per_instance=candidate.cores_each, micro_batch=candidate.rows, mode=candidate.mode,
        delay=(candidate.delay_groups, candidate.delay_seconds),
    )  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """What is run to measure a candidate: a request, or as many of its rows as tell the rest.

    Attributes:
        rows: of the trial's request. clients: that call at the same time. parts: trials that make the load's request.
    """

    rows: int
    clients: int
    parts: float


def trial(row: Row, load: Load) -> Trial:
    """The trial of a candidate: the request, or if that is long, SLICE_SECONDS of whole calls on every instance."""
    c, p = row.candidate, row.predicted
    if c.rows is None:
        return Trial(load.rows, c.instances if load.saturated else 1, 1.0)
    whole = load.rows * (p.active if load.saturated else 1)
    calls = p.calls if p.seconds <= WHOLE_SECONDS else math.ceil(SLICE_SECONDS * p.calls / p.seconds)
    rows = whole if calls >= p.calls else p.active * c.rows * max(1, calls)
    return Trial(min(rows, whole), 1, whole / min(rows, whole))


@dataclass
class CandidateTimer:
    """A candidate in the race.

    Attributes:
        items: rows of all its clients' requests. times: its median seconds of a request, in each of its rounds.
        behind: whether it runs no more. in_part: whether its trial is a part of a request.
    """

    contestant: Contestant
    items: int
    times: list[float] = field(default_factory=list)
    behind: bool = False
    in_part: bool = False

    def turn(self) -> float:
        """Median seconds of a request in one round. Parts are preceded by one that does not count: whatever ran before
        leaves cold caches, which is nothing in a whole request.
        """
        if self.in_part:
            self.contestant.run_for(0.0)
        return median(self.contestant.run_for(SLICE_SECONDS)[1])

    @property
    def seconds(self) -> float:
        """Of a request: the median of the quicker half of the rounds, as whatever disturbs one adds to its time."""
        return median(quicker_half(self.times))

    @property
    def spread(self) -> float:
        """(greatest − least) / median of the quicker half of the rounds."""
        quick = quicker_half(self.times)
        return (quick[-1] - quick[0]) / self.seconds

    def each(self, seconds: float) -> float:
        """Seconds an item, where a request takes `seconds`."""
        return seconds / max(1, self.items)


class NoiseGate:
    """Repeats what ran while the machine was disturbed, after waiting for the end of that, as long as patience lasts.

    Attributes:
        waited: seconds so far.
    """

    def __init__(self, slowness: Callable[[], float], patience_seconds: float) -> None:
        """`slowness`: see backend.machine."""
        self.slowness, self.patience, self.waited = slowness, patience_seconds, 0.0

    def run(self, turn: Callable[[], float]) -> float:
        """What `turn` returns, of the last time that it ran."""
        while True:
            began = time.perf_counter()
            seconds = turn()
            if self.waited >= self.patience or self.slowness() <= DISTURBED:
                return seconds
            while time.perf_counter() - began < self.patience - self.waited and self.slowness() > DISTURBED:
                time.sleep(PAUSE_SECONDS)
            self.waited += time.perf_counter() - began


def quicker_half(times: Sequence[float]) -> list[float]:
    """The lesser half of some times in order, at least two of them if there are."""
    return sorted(times)[: max(2, (len(times) + 1) // 2)]


def measure(
    rows: Sequence[Row], plan_of: Callable[[Candidate], Plan], inputs_of: Callable[[int], Inputs], load: Load,
    cores: Sequence[int], budget_seconds: float, tell: Tell, slowness: Callable[[], float],
) -> list[Row]:  # fmt: skip
    """Run the rows' candidates in turn, round after round, until the budget is spent or it is clear what they take.

    Args:
        plan_of: what a candidate runs. inputs_of: a request of so many rows. tell: progress, (what, fraction done).
        slowness: of the cores at the moment, see backend.machine.
    """
    trials = [trial(row, load) for row in rows]
    with ExitStack() as stack:
        timers: list[CandidateTimer] = []
        for row, each in zip(rows, trials, strict=True):
            session = stack.enter_context(open_session(plan_of(row.candidate), row.candidate, cores))
            calls = [partial(session.run, inputs_of(each.rows))] * each.clients
            contestant = Contestant("parax", row.candidate.name, calls, each.rows)
            timers.append(CandidateTimer(contestant, each.rows * each.clients, in_part=each.parts > 1))
        race(timers, budget_seconds, tell, NoiseGate(slowness, PATIENCE * budget_seconds))
    found = []
    for row, each, timer in zip(rows, trials, timers, strict=True):
        seconds, items = timer.seconds, each.rows * each.clients
        figures = Measured(seconds * each.parts, items / seconds, timer.spread, len(timer.times))
        found.append(replace(row, measured=figures))
    return found


def race(timers: Sequence[CandidateTimer], budget_seconds: float, tell: Tell, gate: NoiseGate) -> None:
    """Rounds in which each one runs once. After FEWEST_ROUNDS those that were never near the leader drop out; the rest
    go on, longer if their times are spread. What `gate` waits does not count.
    """
    for timer in timers:
        tell(f"warming up {timer.contestant.setup}", 0.0)
        for _ in range(WARM_UPS):
            if timer.contestant.run_for(0.0)[1][0] > LONG_SECONDS:
                break
    began, n = time.perf_counter(), 0
    while n < MOST_ROUNDS:
        racing = [timer for timer in timers if not timer.behind]
        spent = time.perf_counter() - began - gate.waited
        if n and spent >= budget_seconds * (1 if n >= FEWEST_ROUNDS else OVERDRAFT):
            break
        if n >= SETTLED_ROUNDS and (len(racing) == 1 or all(timer.spread <= LITTLE_SPREAD for timer in racing)):
            break
        for timer in racing:
            done = (time.perf_counter() - began - gate.waited) / budget_seconds
            tell(f"round {n + 1}: {timer.contestant.setup}", min(1.0, max(done, n / MOST_ROUNDS)))
            timer.times.append(gate.run(timer.turn))
        n += 1
        if n >= FEWEST_ROUNDS:
            leader = min(timer.each(timer.seconds) for timer in racing)
            for timer in racing:
                timer.behind = timer.each(min(timer.times)) > LEFT_BEHIND * leader
