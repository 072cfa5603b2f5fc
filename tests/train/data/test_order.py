"""The order of samples: permutations, the same by parts, without a pattern."""

from __future__ import annotations

import numpy as np
import pytest

from parax.runtime.train.data.order import Shuffle


@pytest.mark.parametrize("n_samples", [1, 2, 3, 7, 16, 63, 64, 65, 1000, 4097])
def test_every_sample_comes_once(n_samples: int) -> None:
    for epoch in range(5):
        assert sorted(Shuffle(7).order(epoch, n_samples)) == list(range(n_samples))


def test_parts_are_the_whole() -> None:
    whole = Shuffle(3).order(2, 1001)
    parts = [Shuffle(3).order(2, 1001, begin, begin + 64) for begin in range(0, 1001, 64)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_seeds_and_epochs_differ() -> None:
    orders = {tuple(Shuffle(seed).order(epoch, 50)) for seed in range(10) for epoch in range(10)}
    assert len(orders) == 100


@pytest.mark.parametrize("n_samples", [5, 50])
def test_every_sample_is_as_likely_everywhere(n_samples: int) -> None:
    n_orders = 1500
    counts = np.zeros((n_samples, n_samples))
    for epoch in range(n_orders):
        counts[np.arange(n_samples), Shuffle(0).order(epoch, n_samples)] += 1
    expected = n_orders / n_samples
    freedom = (n_samples - 1) ** 2
    squares = ((counts - expected) ** 2 / expected).sum()
    assert abs(squares - freedom) < 6 * np.sqrt(2 * freedom)


def test_neighbours_are_not_near() -> None:
    order = Shuffle(1).order(0, 100_000).astype(float)
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.02
    assert abs(np.corrcoef(order, np.arange(100_000))[0, 1]) < 0.02


def test_the_order_stays_what_it_was() -> None:
    assert Shuffle(42).order(1, 10).tolist() == PINNED


PINNED = [3, 5, 7, 0, 2, 1, 8, 4, 6, 9]
