"""The rule of choice on made-up figures, and what a plan stores of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from parax.compiler.planner.candidate import LAYERED, Candidate, Load
from parax.compiler.planner.choice import Measured, Row, amount, choose
from parax.compiler.planner.partition.simulate import Timeline
from parax.compiler.planner.predict import Prediction

LOAD = Load(8)
WIDE, NARROW, SMALL = Candidate(1, 2, 8), Candidate(2, 1, 4), Candidate(2, 1, 1)
BRANCHES = Candidate(1, 2, 8, LAYERED)


def row(candidate: Candidate, predicted: float, measured: float | None = None, barrier: float = 0.0) -> Row:
    timeline = Timeline(predicted, [], 1.0, 0.0, 0.0, 0.0)
    figures = Prediction(predicted, 8 / predicted, 0.1, barrier, 0.0, 0.5, timeline, 1, 1)
    return Row(candidate, figures, None if measured is None else Measured(measured, 8 / measured, 0.01, 5))


def chosen(*rows: Row, load: Load = LOAD) -> Candidate:
    plain = [each for each in rows if each.candidate in (WIDE, SMALL)]
    return choose(rows, plain, load, "latency", "here", 2, False).candidate


def test_the_quickest_wins() -> None:
    assert chosen(row(WIDE, 0.8), row(NARROW, 1.0)) == WIDE


def test_of_equals_the_one_with_least_memory_wins() -> None:
    assert chosen(row(NARROW, 1.0), row(SMALL, 1.005), row(WIDE, 1.0)) == SMALL
    assert chosen(row(NARROW, 1.0), row(SMALL, 1.03), row(WIDE, 1.0)) in (NARROW, WIDE)


def test_traffic_that_shows_decides_between_equals() -> None:
    busy = row(SMALL, 1.0)
    busy = replace(busy, predicted=replace(busy.predicted, exposed_seconds=0.05))
    assert chosen(busy, row(WIDE, 1.0)) == WIDE


def test_what_was_measured_counts_more_than_predictions() -> None:
    assert chosen(row(WIDE, 0.5, 1.2), row(NARROW, 0.9, 1.0), row(SMALL, 0.1)) == NARROW


def test_what_is_not_plain_must_promise_more_than_predictions_err() -> None:
    assert chosen(row(WIDE, 1.0), row(BRANCHES, 0.98)) == WIDE
    assert chosen(row(WIDE, 1.0), row(BRANCHES, 0.9)) == BRANCHES
    assert chosen(row(WIDE, 1.0, 1.0), row(BRANCHES, 0.98, 0.97)) == BRANCHES


def spread(candidate: Candidate, predicted: float, measured: float, by: float) -> Row:
    return replace(row(candidate, predicted), measured=Measured(measured, 8 / measured, by, 5))


def test_predictions_decide_between_times_that_are_spread() -> None:
    assert chosen(spread(WIDE, 1.0, 1.5, 0.9), spread(SMALL, 1.8, 1.4, 0.01)) == WIDE  # a neighbour took its time
    assert chosen(spread(WIDE, 1.0, 1.5, 0.02), spread(SMALL, 1.8, 1.4, 0.01)) == SMALL
    assert chosen(spread(WIDE, 1.0, 3.0, 0.9), spread(SMALL, 1.8, 1.4, 0.01)) == SMALL  # no doubt is that great
    assert chosen(spread(BRANCHES, 0.99, 1.0, 0.2), spread(WIDE, 1.0, 1.05, 0.2)) == WIDE  # the simpler of equals


def test_a_saturated_load_counts_items() -> None:
    alone = Row(NARROW, row(NARROW, 1.0).predicted, Measured(1.5, 16.0, 0.0, 5))
    assert chosen(row(WIDE, 1.0, 1.0), alone, load=Load(8, saturated=True)) == NARROW


def test_reasons_name_the_rivals_and_what_costs_them() -> None:
    rows = [row(WIDE, 1.3, barrier=0.2), row(NARROW, 1.0), row(SMALL, 1.1)]
    found = choose(rows, [], LOAD, "latency", "here", 2, True)
    assert list(found.reasons) == [
        "predicted: 1 s a request, 8 items/s",
        "other instances: 1 × 2 cores, 8 rows a call is predicted to take 1.30 times as long "
        "(barriers: 20% of the time, here 0%)",
        "fewer rows a call: 2 × 1 core, 1 row a call is predicted to take 1.10 times as long",
        "memory sets the pace in 10% of the kernels' time, barriers take 0%, cores idle 0%, 50% of the arithmetic peak",
    ]


def test_what_a_plan_stores_is_json() -> None:
    found = choose([row(WIDE, 0.123456), row(NARROW, 1.0, 0.5)], [], LOAD, "latency", "here", 2, False).to_json()
    assert json.loads(json.dumps(found)) == found
    assert found["candidates"][found["chosen"]]["measured"] == {
        "seconds": 0.5, "items_per_second": 16.0, "spread": 0.01, "rounds": 5,
    }  # fmt: skip
    assert found["candidates"][1]["predicted"]["seconds"] == 0.1235


@pytest.mark.parametrize(("seconds", "text"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (4.5e-6, "4.5 µs"), (0.0, "0 µs")])
def test_durations_for_people(seconds: float, text: str) -> None:
    assert amount(seconds) == text
