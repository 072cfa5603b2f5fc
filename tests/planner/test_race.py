"""The race of candidates: who drops out, when it ends, what counts of the rounds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

import pytest

from parax.compiler.contest import Contestant
from parax.compiler.planner import measure
from parax.compiler.planner.candidate import Candidate, Load
from parax.compiler.planner.choice import Row
from parax.compiler.planner.measure import Calm, Racer, race, trial
from parax.compiler.planner.partition.simulate import Timeline
from parax.compiler.planner.predict import Prediction


def quiet(what: str, done: float) -> None:
    """Progress that nobody sees."""


def undisturbed() -> Calm:
    return Calm(lambda: 1.0, 1.0)


def sleeper(seconds: Callable[[], float]) -> Racer:
    return Racer(Contestant("parax", "sleeper", [lambda: time.sleep(seconds())], 1), 1)


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SLICE_SECONDS", 0.0)


def test_who_is_left_behind_drops_out_after_a_few_rounds() -> None:
    quick, slow = sleeper(lambda: 1e-3), sleeper(lambda: 5e-3)
    race([quick, slow], 0.1, quiet, undisturbed())
    assert slow.behind
    assert len(slow.times) == measure.FEWEST_ROUNDS
    assert len(quick.times) >= measure.SETTLED_ROUNDS


def test_who_was_near_once_is_only_disturbed_and_stays() -> None:
    spells = itertools.chain([1e-3] * 4, itertools.repeat(5e-3))
    quick, disturbed = sleeper(lambda: 1e-3), sleeper(lambda: next(spells))
    race([quick, disturbed], 0.03, quiet, undisturbed())
    assert not disturbed.behind
    assert disturbed.spread > 1.0


def test_the_budget_ends_a_race_that_is_not_settled() -> None:
    toggled = itertools.cycle([2e-3, 3e-3])
    racers = [sleeper(lambda: next(toggled)) for _ in range(3)]
    began = time.perf_counter()
    race(racers, 0.05, quiet, undisturbed())
    assert time.perf_counter() - began < 0.5
    assert all(len(racer.times) >= measure.FEWEST_ROUNDS for racer in racers)


def test_long_requests_end_a_race_after_a_round() -> None:
    racers = [sleeper(lambda: 0.02) for _ in range(3)]
    race(racers, 0.02, quiet, undisturbed())
    assert [len(racer.times) for racer in racers] == [1, 1, 1]


def test_what_ran_while_cores_were_away_is_run_again() -> None:
    slow, turns = iter([1.0, 2.0, 1.9, 1.1, 1.0]), itertools.count(1)
    calm = Calm(lambda: next(slow), 10.0)
    assert calm.run(lambda: float(next(turns))) == 1.0
    assert calm.waited == 0.0
    assert calm.run(lambda: float(next(turns))) == 3.0, "the second turn was disturbed"
    assert calm.waited >= measure.PAUSE_SECONDS


def test_a_machine_that_stays_disturbed_is_measured_as_it_is() -> None:
    calm = Calm(lambda: 2.0, 0.1)
    began = time.perf_counter()
    assert [calm.run(lambda: 5.0) for _ in range(3)] == [5.0, 5.0, 5.0]
    assert time.perf_counter() - began < 1.0
    racers = [sleeper(lambda: 1e-3) for _ in range(2)]
    race(racers, 0.01, quiet, calm)
    assert all(len(racer.times) >= measure.FEWEST_ROUNDS for racer in racers)


def test_the_first_part_of_a_request_finds_cold_caches_and_does_not_count() -> None:
    times = itertools.cycle([0.05, 1e-3])
    racer = sleeper(lambda: next(times))
    assert racer.turn() >= 0.05
    assert racer.turn() < 0.05
    racer.in_part = True
    assert [racer.turn() < 0.05 for _ in range(2)] == [True, True]


@pytest.mark.parametrize(
    ("times", "seconds", "spread"),
    [([3.0], 3.0, 0.0), ([1.0, 9.0], 5.0, 1.6), ([9.0, 1.0, 1.2], 1.1, 0.2 / 1.1),
     ([1.0, 7.0, 1.1, 8.0, 1.2], 1.1, 0.2 / 1.1)],
)  # fmt: skip
def test_the_quicker_half_of_the_rounds_counts(times: Sequence[float], seconds: float, spread: float) -> None:
    racer = Racer(Contestant("parax", "x", [], 1), 1, list(times))
    assert racer.seconds == pytest.approx(seconds)
    assert racer.spread == pytest.approx(spread)


def predicted(candidate: Candidate, seconds: float, calls: int, active: int) -> Row:
    timeline = Timeline(seconds, [], 1.0, 0.0, 0.0, 0.0)
    return Row(candidate, Prediction(seconds, 64 / seconds, 0.1, 0.0, 0.0, 0.5, timeline, active, calls))


def test_short_requests_run_whole_and_long_ones_in_part() -> None:
    load, candidate = Load(64), Candidate(2, 1, 4)
    assert trial(predicted(candidate, 0.3, 8, 2), load).rows == 64
    assert trial(predicted(candidate, 8.0, 8, 2), load).rows == 8
    assert trial(predicted(candidate, 8.0, 8, 2), load).parts == 8.0
