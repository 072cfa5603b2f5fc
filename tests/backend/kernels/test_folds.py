"""Wide items of folds: as good as narrow ones for every number of lines, positions and cores, each line by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_node
from parax.compiler.backend.kernels.reduction.folds import FAR, ITEMS_A_CORE, Schedule
from parax.compiler.backend.kernels.reduction.lines import split_lines
from parax.compiler.targets.target import Target

WIDE = FAR // 4  # f32 lines from which on items are wide


def schedule(length: int, lines: int, n_cores: int = 1, nbytes: int = 4) -> Schedule:
    """Of the column sums of f32[length, lines]."""
    return Schedule.of(split_lines([1], [0], (length, lines), [(lines, 1), (0, 1)], 8, 16), 8, nbytes, n_cores)


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@settings(max_examples=6, deadline=None)
@given(length=st.integers(16, 700), lines=st.integers(WIDE, WIDE + 90), axis=st.booleans(), seed=st.integers(0, 9))
def test_column_sums_and_extremes(target: Target, length: int, lines: int, axis: bool, seed: int) -> None:
    shape, axes = ((2, length, lines), (1,)) if axis else ((length, lines), (0,))
    x = np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float32)
    for kind, expected in (("ReduceSum", x.sum(axes)), ("ReduceMax", x.max(axes)), ("ReduceMin", x.min(axes))):
        (found,) = run_node(op(kind, keepdims=0), [x, np.array(axes)], constants=[1], target=target)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int8, np.int64, np.bool_])
def test_other_types(dtype: type) -> None:
    x = np.random.default_rng(0).integers(0, 2, (40, 4200)).astype(dtype)
    kind = "ReduceMax" if dtype in (np.bool_, np.int8) else "ReduceSum"
    (found,) = run_node(op(kind, keepdims=0), [x, np.array([0])], constants=[1])
    np.testing.assert_array_equal(found, x.max(0) if kind == "ReduceMax" else x.sum(0, dtype=dtype))


def test_each_line_has_its_own_outliers() -> None:
    x = np.random.default_rng(1).standard_normal((100, 600)).astype(np.float32)
    x[7, 3], x[99, 599], x[50, 511], x[50, 512] = np.nan, np.inf, 1e30, -1e30
    (found,) = run_node(op("ReduceSum", keepdims=0), [x, np.array([0])], constants=[1])
    np.testing.assert_allclose(found, x.sum(0, dtype=np.float64), rtol=1e-5, atol=1e-5)


def test_a_long_line_is_as_good_as_a_short_one() -> None:
    x = np.random.default_rng(0).random((60_001, 513), np.float32)
    (found,) = run_node(op("ReduceSum", keepdims=0), [x, np.array([0])], constants=[1])
    assert np.abs(found / x.sum(0, dtype=np.float64) - 1).max() < 2e-6


def test_positions_of_two_axes() -> None:
    x = np.random.default_rng(2).integers(-9, 9, (5, 2, 19, 530)).astype(np.float32)
    (found,) = run_node(op("ReduceSum", keepdims=0), [x, np.array([0, 2])], constants=[1])
    np.testing.assert_array_equal(found, x.sum((0, 2)))


@pytest.mark.parametrize("channels", [512, 520, 1001])
def test_statistics_of_many_channels(channels: int) -> None:
    last = (0, 2, 3, 1)
    for offset in (0.0, 1e4):
        x = (np.random.default_rng(3).standard_normal((8, channels, 7, 5)) + offset).astype(np.float32)
        dy = np.random.default_rng(4).standard_normal(x.shape).astype(np.float32)
        shift, distance, variance = run_node(op("BatchStatistics", "parax"), [x], outputs=3, layouts=[last])
        assert shift.shape[0] == 1
        exact = x.astype(np.float64)
        np.testing.assert_allclose(variance[0], exact.var((0, 2, 3)), rtol=1e-5)
        mean = shift[0].astype(np.float64) + distance[0]
        np.testing.assert_allclose(mean, exact.mean((0, 2, 3)), atol=2e-6)
        one = np.ones(channels, np.float32)
        sums = run_node(op("BatchGradientSums", "parax"), [x, dy, shift[0], distance[0], one], outputs=2,
                        layouts=[last, last])  # fmt: skip
        deviation = exact - mean.reshape(1, -1, 1, 1)
        np.testing.assert_allclose(sums[0][0], dy.sum((0, 2, 3), dtype=np.float64), atol=1e-4)
        np.testing.assert_allclose(sums[1][0], (dy * deviation).sum((0, 2, 3)), atol=1e-3)


def test_what_is_wide() -> None:
    assert schedule(64, WIDE).width == 256 and schedule(64, WIDE - 1).width == 0  # near
    assert schedule(15, 4096).width == 0  # short
    assert schedule(64, 2048, nbytes=1).width == 256 and schedule(64, 2040, nbytes=1).width == 0
    assert not Schedule.of(split_lines([0], [1], (4096, 4096), [(4096, 1), (1, 0)], 8, 16), 8, 4, 1).width  # along


def test_many_cores_have_items_each_and_the_items_are_those_of_the_lines() -> None:
    for lines in (512, 768, 3072, 100_000):
        for n_cores in (1, 2, 16, 64):
            made = schedule(64, lines, n_cores)
            assert made.width % 32 == 0 and made.work == -(-lines // made.width)
            assert n_cores == 1 or made.width == 32 or made.work >= ITEMS_A_CORE * n_cores
