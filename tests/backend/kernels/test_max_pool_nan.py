"""MaxPool passes NaN on, from wherever it lies in a window, and gives the first greatest one's position."""

from __future__ import annotations

import numpy as np
import pytest

from backend.harness import op, run_node
from parax.compiler.targets.target import Target

LAST = (0, 2, 3, 1)


def windows(x: np.ndarray, kernel: tuple[int, int], pad: int, stride: int = 1) -> np.ndarray:
    """Each window's elements along a last axis, padding as -Inf."""
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
    found = np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))[:, :, ::stride, ::stride]
    return found.reshape(*found.shape[:4], -1)


@pytest.mark.parametrize("layout", [None, LAST])
@pytest.mark.parametrize("channels", [1, 3, 19, 64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_max_pool_passes_nan_on(dtype: type, channels: int, layout: tuple[int, ...] | None) -> None:
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((2, channels, 7, 37)).astype(dtype)
    x[rng.random(x.shape) < 0.05] = np.nan
    x[0, 0] = np.nan
    for kernel, pad in (((2, 3), 0), ((3, 3), 1)):
        (found,) = run_node(op("MaxPool", kernel_shape=kernel, pads=(pad,) * 4), [x], layouts=[layout])
        np.testing.assert_array_equal(found, windows(x, kernel, pad).max(-1))


@pytest.mark.sample(5)
@pytest.mark.parametrize("layout", [None, LAST])
@pytest.mark.parametrize("kernel", [(1, 1), (1, 3), (3, 3), (2, 2), (7, 7), (8, 8)])  # loops from 50 taps on
def test_one_nan_reaches_its_windows_and_no_others(kernel: tuple[int, int], layout: tuple[int, ...] | None,
                                                   target: Target) -> None:
    """An item for each tap of a window, on every target; an infinity, of either sign, is no NaN."""
    taps = np.arange(kernel[0] * kernel[1])
    x = np.full((taps.size, 18, 18, 18), -np.inf, np.float32)
    x[:, ::3] = np.inf
    x[:, 1::3] = np.arange(18)
    x[taps, taps % 18, 8 + taps // kernel[1], 8 + taps % kernel[1]] = np.nan
    pad = (kernel[0] - 1) // 2
    for stride in (1, 2):
        operator = op("MaxPool", kernel_shape=kernel, pads=(pad,) * 4, strides=(stride,) * 2)
        (found,) = run_node(operator, [x], layouts=[layout], target=target)
        np.testing.assert_array_equal(found, windows(x, kernel, pad, stride).max(-1))


@pytest.mark.parametrize("channels", [1, 19])
def test_the_first_nan_has_the_index(channels: int) -> None:
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((1, channels, 6, 35)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    found, indices = run_node(op("MaxPool", kernel_shape=(2, 2)), [x], outputs=2)
    at = windows(x, (2, 2), 0).argmax(-1)
    row, column = np.arange(5)[:, None] + at // 2, np.arange(34) + at % 2
    places = np.arange(channels)[:, None, None] * 6 * 35 + row * 35 + column
    np.testing.assert_array_equal(indices, places)
    np.testing.assert_array_equal(found.ravel(), x.ravel()[places.ravel()])


@pytest.mark.parametrize("size", [(33, 3), (3, 33), (20, 20)])
@pytest.mark.parametrize("layout", [None, LAST])
def test_the_first_of_equal_elements_has_the_index(layout: tuple[int, ...] | None, size: tuple[int, int]) -> None:
    """Also where vectors lie along another axis than the last, because that one has a single window."""
    x = np.random.default_rng(0).integers(-2, 3, (2, 3, *size)).astype(np.float32)
    _, indices = run_node(op("MaxPool", kernel_shape=(3, 3)), [x], outputs=2, layouts=[layout])
    at = windows(x, (3, 3), 0).argmax(-1)
    row, column = np.arange(at.shape[2])[:, None] + at // 3, np.arange(at.shape[3]) + at % 3
    images = np.arange(6).reshape(2, 3, 1, 1) * size[0] * size[1]
    np.testing.assert_array_equal(indices, images + row * size[1] + column)
