"""Means of many elements err by units of rounding, however many; infinities stay what they are."""

from __future__ import annotations

import numpy as np
import pytest

from backend.harness import op, run_node

LAST = (0, 2, 3, 1)


@pytest.mark.parametrize("layout", [None, LAST])
@pytest.mark.parametrize("channels", [1, 3, 32])
@pytest.mark.parametrize("shape", [(4096, 1), (1, 5000), (70, 70)])
def test_means_of_many(shape: tuple[int, int], channels: int, layout: tuple[int, ...] | None) -> None:
    x = np.random.default_rng(0).uniform(0, 1, (1, channels, shape[0] + 2, shape[1] + 1)).astype(np.float32)
    (found,) = run_node(op("AveragePool", kernel_shape=shape), [x], layouts=[layout])
    wanted = np.stack([[x[:, :, i : i + shape[0], j : j + shape[1]].astype(np.float64).mean((2, 3))
                        for j in range(2)] for i in range(3)]).transpose(2, 3, 0, 1)  # fmt: skip
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_of_many_that_overflows_is_infinite(sign: int) -> None:
    x = np.full((1, 1, 40, 40), sign * 3e38, np.float32)
    (found,) = run_node(op("AveragePool", kernel_shape=(32, 32)), [x])
    np.testing.assert_array_equal(found, np.full((1, 1, 9, 9), sign * np.inf))


def test_an_infinity_among_many() -> None:
    x = np.ones((1, 2, 2000, 1), np.float32)
    x[0, 0, 7] = np.inf
    (found,) = run_node(op("AveragePool", kernel_shape=(2000, 1)), [x])
    np.testing.assert_array_equal(found.ravel(), [np.inf, 1])
