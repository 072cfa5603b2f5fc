"""Micro-batches: the published table, and what the search promises for any sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parax.compiler.planner.partition.micro_batches import bubble, device_loss, micro_batch_sizes, micro_batches
from parax.errors import UsageError


@pytest.mark.parametrize(("n_stages", "expected"), [(2, 5), (3, 6), (4, 6), (5, 7), (6, 7), (7, 8), (8, 8)])
def test_a_batch_of_256_on_a_device_that_64_rows_fill(n_stages: int, expected: int) -> None:
    assert micro_batches(256, 64, n_stages) == expected


def test_three_stages_idle_a_quarter_of_the_time() -> None:
    assert bubble(3, micro_batches(256, 64, 3)) == 0.25
    assert micro_batch_sizes(256, 6) == [43, 43, 43, 43, 42, 42]


@given(st.integers(1, 500), st.integers(1, 300), st.integers(1, 12))
def test_the_smallest_number_that_balances_and_sizes_that_sum_to_the_batch(batch: int, device: int, k: int) -> None:
    found = micro_batches(batch, device, k)
    low = max(1, -(-batch // device))
    good = [m for m in range(low, batch + 1) if device_loss(batch, device, m) >= bubble(k, m)]
    assert found == (good[0] if good else max(low, batch))
    sizes = micro_batch_sizes(batch, found)
    assert sum(sizes) == batch and len(sizes) == found and max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_sizes_must_be_positive() -> None:
    with pytest.raises(UsageError, match="device_batch must be positive"):
        micro_batches(4, 0, 2)
