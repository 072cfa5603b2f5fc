"""Schedules at the places where their formulas can be read off, and what is out of range."""

from __future__ import annotations

import math

import pytest

import parax
from parax.runtime.train.schedules import Schedule


@pytest.mark.parametrize(
    "schedule, expected",
    [
        (Schedule(0.4, 10), {0: 0.4, 9: 0.4, 100: 0.4}),
        (Schedule(0.4, 10, warmup=4), {0: 0.1, 1: 0.2, 3: 0.4, 4: 0.4}),
        (Schedule(1.0, 10, shape="step", factor=0.5, period=3), {0: 1.0, 2: 1.0, 3: 0.5, 9: 0.125}),
        (Schedule(1.0, 8, shape="cosine", least=0.2), {0: 1.0, 4: 0.6, 8: 0.2, 20: 0.2}),
        (Schedule(1.0, 12, shape="cosine", warmup=4), {0: 0.25, 4: 1.0, 8: 0.5, 12: 0.0}),
        (Schedule(1.0, 10, shape="polynomial", power=2.0, least=0.04), {0: 1.0, 5: 0.25, 8: 0.04, 10: 0.04}),
        (Schedule(2.5, 11, shape="one-cycle"), {0: 0.1, 2.3: 2.5, 10: 0.1 / 1e4}),
    ],
    ids=lambda x: getattr(x, "shape", ""),
)
def test_places(schedule: Schedule, expected: dict) -> None:
    for step, rate in expected.items():
        assert schedule(step) == pytest.approx(rate, abs=1e-12)


def test_a_cosine_falls() -> None:
    rates = [Schedule(1.0, 50, shape="cosine", warmup=5)(t) for t in range(50)]
    assert all(a < b for a, b in zip(rates, rates[1:5])) and all(a >= b for a, b in zip(rates[4:], rates[5:]))
    assert rates[20] == pytest.approx((1 + math.cos(math.pi * 15 / 45)) / 2)


@pytest.mark.parametrize("given", [{"shape": "cos"}, {"warmup": 10}, {"warmup": -1}, {"least": 2.0}, {"period": 0},
                                   {"power": 0.0}, {"factor": -1.0}, {"steps": 0}])  # fmt: skip
def test_out_of_range(given: dict) -> None:
    with pytest.raises(parax.UsageError):
        Schedule(**{"lr": 1.0, "steps": 10, **given})
