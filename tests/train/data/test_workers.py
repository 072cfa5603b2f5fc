"""How many loader workers are needed, against the equations and the source's figures."""

from __future__ import annotations

import pytest

from parax.errors import ParaxError
from parax.runtime.train.data.workers import Balance, Times, measured_speedups, workers_needed

LINEAR = tuple(float(n) for n in range(1, 65))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (Times(0.0, 0.010, 0.020, LINEAR), 16),  # 32 · 10 ms in 20 ms: 16 at once
        (Times(0.0, 0.015, 0.010, LINEAR), 48),
        (Times(0.05, 0.010, 0.020, LINEAR), 7),  # listing is slower than the step: 320 / 50
        (Times(0.0, 0.0, 0.020, LINEAR), 1),
        (Times(0.0, 1.0, 0.001, (1.0, 1.9, 2.5, 2.4)), 3),  # none keeps up, and four hinder each other
        (Times(0.0, 1.0, 0.001, (1.0, 2.0, 2.01, 2.02)), 2),  # within the tolerance of the best
        (Times(0.0, 0.010, 0.160, (1.0, 1.7, 2.1, 1.5)), 3),
    ],
)
def test_the_fewest_that_keep_up(times: Times, expected: int) -> None:
    assert workers_needed(times, 32) == expected


@pytest.mark.parametrize(("speedups", "batch"), [((), 1), ((1.0, 0.0), 1), ((1.0,), 0)])
def test_what_cannot_be_answered_is_an_error(speedups: tuple[float, ...], batch: int) -> None:
    with pytest.raises(ParaxError, match="number of workers"):
        workers_needed(Times(0.0, 1.0, 1.0, speedups), batch)


def test_the_report_says_what_is_saved() -> None:
    times = Times(0.0, 0.010, 0.020, LINEAR)
    text = str(Balance(16, 64, 64, 32, times))
    assert text.startswith("16 of 64 loader workers (was 64)") and text.endswith("48 saved (75%)")


def test_speedups_are_over_one_worker() -> None:
    assert measured_speedups([50.0, 90.0]) == (1.0, 1.8)
