"""Candidates as they run: interleaved rounds over sessions of their plans, medians, within a budget of seconds.

Owns the measuring of candidates; how fair rounds are held is `contest`'s.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
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

FEWEST_ROUNDS, MOST_ROUNDS = 3, 15
SLICE_SECONDS = 0.03  # of a candidate in a round, at least one request
WARM_UPS = 2
Inputs = Mapping[str, "np.ndarray"]
Tell = Callable[[str, float], None]


def open_session(plan: Plan, candidate: Candidate, cores: Sequence[int]) -> Session:
    """A session set up as the candidate says, on the first of `cores`."""
    return plan.session(
        instances=candidate.instances, cores=tuple(cores[: candidate.n_cores]),
        cores_per_instance=candidate.cores_each, micro_batch=candidate.rows, mode=candidate.mode,
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
    """The trial of a candidate: whole calls on every instance that takes part, SLICE_SECONDS of them if there are."""
    c, p = row.candidate, row.predicted
    if c.rows is None:
        return Trial(load.rows, c.instances if load.saturated else 1, 1.0)
    whole = load.rows * (p.active if load.saturated else 1)
    calls = math.ceil(SLICE_SECONDS * p.calls / p.seconds)
    rows = whole if calls >= p.calls else p.active * c.rows * max(1, calls)
    return Trial(min(rows, whole), 1, whole / min(rows, whole))


def measure(
    rows: Sequence[Row], plan_of: Callable[[Candidate], Plan], inputs_of: Callable[[int], Inputs], load: Load,
    cores: Sequence[int], budget_seconds: float, tell: Tell,
) -> list[Row]:  # fmt: skip
    """Run the rows' candidates in turn, round after round, until the budget is spent; the rows with the medians.

    Args:
        plan_of: what a candidate runs. inputs_of: a request of so many rows. tell: progress, (what, fraction done).
    """
    trials = [trial(row, load) for row in rows]
    with ExitStack() as stack:
        contestants: list[Contestant] = []
        for row, each in zip(rows, trials, strict=True):
            session = stack.enter_context(open_session(plan_of(row.candidate), row.candidate, cores))
            calls = [partial(session.run, inputs_of(each.rows))] * each.clients
            contestants.append(Contestant("parax", row.candidate.name, calls, each.rows))
        seconds = _rounds(contestants, budget_seconds, tell)
    found = []
    for row, each, times in zip(rows, trials, seconds, strict=True):
        middle = median(times)
        spread = (max(times) - min(times)) / middle
        items = each.rows * each.clients / middle
        found.append(replace(row, measured=Measured(middle * each.parts, items, spread, len(times))))
    return found


def _rounds(contestants: Sequence[Contestant], budget_seconds: float, tell: Tell) -> list[list[float]]:
    """Every contestant's median seconds of a call, in each round."""
    for contestant in contestants:
        tell(f"warming up {contestant.setup}", 0.0)
        for _ in range(WARM_UPS):
            contestant.run_for(0.0)
    began, n = time.perf_counter(), 0
    medians: list[list[float]] = [[] for _ in contestants]
    while n < FEWEST_ROUNDS or (n < MOST_ROUNDS and time.perf_counter() - began < budget_seconds):
        for place, contestant in enumerate(contestants):
            done = (time.perf_counter() - began) / budget_seconds
            tell(f"round {n + 1}: {contestant.setup}", min(1.0, max(done, n / MOST_ROUNDS)))
            medians[place].append(median(contestant.run_for(SLICE_SECONDS)[1]))
        n += 1
    return medians
