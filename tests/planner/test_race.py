"""The race of candidates: who drops out, when it ends, what counts of the rounds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest

from fake_clock import FakeClock
from parax.compiler import contest
from parax.compiler.contest import Contestant
from parax.compiler.planner import measure
from parax.compiler.planner.candidate import Candidate, Load
from parax.compiler.planner.choice import Row
from parax.compiler.planner.measure import CandidateTimer, NoiseGate, race, trial
from parax.compiler.planner.partition.simulate import Timeline
from parax.compiler.planner.predict import Prediction


def quiet(what: str, done: float) -> None:
    """Progress that nobody sees."""


def undisturbed() -> NoiseGate:
    return NoiseGate(lambda: 1.0, 1.0)


CLOCK = FakeClock()


def sleeper(seconds: Callable[[], float]) -> CandidateTimer:
    return CandidateTimer(Contestant("parax", "sleeper", [lambda: CLOCK.sleep(seconds())], 1), 1)


@pytest.fixture(autouse=True)
def time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SLICE_SECONDS", 0.0)
    for module in (measure, contest):
        monkeypatch.setattr(module, "time", CLOCK)


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
    timers = [sleeper(lambda: next(toggled)) for _ in range(3)]
    began = CLOCK.perf_counter()
    race(timers, 0.05, quiet, undisturbed())
    assert CLOCK.perf_counter() - began < 0.5
    assert all(len(timer.times) >= measure.FEWEST_ROUNDS for timer in timers)


def test_long_requests_end_a_race_after_a_round() -> None:
    timers = [sleeper(lambda: 0.02) for _ in range(3)]
    race(timers, 0.02, quiet, undisturbed())
    assert [len(timer.times) for timer in timers] == [1, 1, 1]


def test_what_ran_while_cores_were_away_is_run_again() -> None:
    slow, turns = iter([1.0, 2.0, 1.9, 1.1, 1.0]), itertools.count(1)
    gate = NoiseGate(lambda: next(slow), 10.0)
    assert gate.run(lambda: float(next(turns))) == 1.0
    assert gate.waited == 0.0
    assert gate.run(lambda: float(next(turns))) == 3.0, "the second turn was disturbed"
    assert gate.waited == pytest.approx(measure.PAUSE_SECONDS)


def test_a_machine_that_stays_disturbed_is_measured_as_it_is() -> None:
    gate = NoiseGate(lambda: 2.0, 0.1)
    began = CLOCK.perf_counter()
    assert [gate.run(lambda: 5.0) for _ in range(3)] == [5.0, 5.0, 5.0]
    assert CLOCK.perf_counter() - began < 1.0
    timers = [sleeper(lambda: 1e-3) for _ in range(2)]
    race(timers, 0.01, quiet, gate)
    assert all(len(timer.times) >= measure.FEWEST_ROUNDS for timer in timers)


def test_the_first_part_of_a_request_finds_cold_caches_and_does_not_count() -> None:
    times = itertools.cycle([0.05, 1e-3])
    timer = sleeper(lambda: next(times))
    assert timer.turn() >= 0.05
    assert timer.turn() < 0.05
    timer.in_part = True
    assert [timer.turn() < 0.05 for _ in range(2)] == [True, True]


@pytest.mark.parametrize(
    ("times", "seconds", "spread"),
    [([3.0], 3.0, 0.0), ([1.0, 9.0], 5.0, 1.6), ([9.0, 1.0, 1.2], 1.1, 0.2 / 1.1),
     ([1.0, 7.0, 1.1, 8.0, 1.2], 1.1, 0.2 / 1.1)],
)  # fmt: skip
def test_the_quicker_half_of_the_rounds_counts(times: Sequence[float], seconds: float, spread: float) -> None:
    timer = CandidateTimer(Contestant("parax", "x", [], 1), 1, list(times))
    assert timer.seconds == pytest.approx(seconds)
    assert timer.spread == pytest.approx(spread)


def predicted(candidate: Candidate, seconds: float, calls: int, active: int) -> Row:
    timeline = Timeline(seconds, [], 1.0, 0.0, 0.0, 0.0)
    return Row(candidate, Prediction(seconds, 64 / seconds, 0.1, 0.0, 0.0, 0.5, timeline, active, calls))


def test_short_requests_run_whole_and_long_ones_in_part() -> None:
    load, candidate = Load(64), Candidate(2, 1, 4)
    assert trial(predicted(candidate, 0.3, 8, 2), load).rows == 64
    assert trial(predicted(candidate, 8.0, 8, 2), load).rows == 8
    assert trial(predicted(candidate, 8.0, 8, 2), load).parts == 8.0
