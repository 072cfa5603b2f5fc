"""Scales and zero points against numpy in f64: what is rounded is half a step away at most, and zero stays zero."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.backend.microkernels.whole import pair_weight
from parax.compiler.passes.quantize.affine import (
    GREATEST_BIAS,
    LEVELS,
    ValueRange,
    affine_of,
    least_scales,
    quantized_bias,
    quantized_weights,
)


@pytest.mark.parametrize(("low", "high"), [(-1, 3), (0, 6), (-5, -1), (2, 9), (-1e-30, 1e30), (-3e38, 3e38), (0, 1e-44)])
def test_numbers_of_the_range_move_by_half_a_step_at_most(low: float, high: float) -> None:
    to = affine_of(ValueRange(low, high))
    x = np.linspace(min(low, 0), max(high, 0), 1001)
    q = np.clip(np.rint(x / float(to.scale)) + int(to.zero), 0, LEVELS)
    read = (q - int(to.zero)) * float(to.scale)
    assert np.abs(read - x).max() <= 1.0001 * float(to.scale)  # the zero point is rounded, too
    assert to.scale > 0 and np.isfinite(to.scale)
    assert float(to.scale) <= max((max(high, 0) - min(low, 0)) / LEVELS * 1.000001, np.finfo(np.float32).tiny)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_weights_by_channel(axis: int) -> None:
    w = np.random.default_rng(0).standard_normal((5, 3, 7)).astype(np.float32) * np.logspace(-3, 3, 7, dtype=np.float32)
    axis %= 3
    steps, scales = quantized_weights(w, axis)
    shape = [-1 if i == axis else 1 for i in range(3)]
    assert steps.dtype == np.int8 and scales.dtype == np.float32 and scales.shape == (w.shape[axis],)
    assert (np.abs(steps).max(axis=tuple(i for i in range(3) if i != axis)) == 127).all()
    assert (np.abs(steps * scales.reshape(shape).astype(np.float64) - w) <= 0.5001 * scales.reshape(shape)).all()


@pytest.mark.parametrize(("shape", "axis"), [((9, 7), 1), ((9, 8), 0), ((5, 7, 3, 3), 0), ((1, 4), 1)], ids=str)
def test_light_weights_of_neighbours_fit_sixteen_bits_with_any_byte(shape: tuple[int, ...], axis: int) -> None:
    """The sum of 255 times both, of one sign; no more is given up for it than that needs."""
    w = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    w.reshape(-1)[:: 3] = np.abs(w).max()
    steps, scales = quantized_weights(w, axis, light=True)
    columns = np.moveaxis(steps, axis, -1)  # inputs first
    assert 126 <= pair_weight(columns.reshape(len(columns), -1)) <= 128
    wide = scales.reshape([-1 if i == axis else 1 for i in range(w.ndim)])
    assert (np.abs(steps * wide.astype(np.float64) - w) <= 0.5001 * wide).all()
    assert (scales >= quantized_weights(w, axis)[1]).all() and (scales <= 2.0001 * quantized_weights(w, axis)[1]).all()


def test_a_channel_of_zeros_and_one_too_small_for_a_scale() -> None:
    steps, scales = quantized_weights(np.array([[0, 0], [1e-44, -1e-44], [1, -2]], np.float32), 0)
    assert steps.tolist() == [[0, 0], [0, 0], [64, -127]]
    assert (scales > 0).all() and np.isfinite(1 / scales).all()


def test_a_large_bias_makes_its_channel_coarser() -> None:
    w, bias, scale = np.array([[1e-6, 2e-6], [1, 2]], np.float32), np.array([1e4, 1.0], np.float32), np.float32(1e-3)
    _, scales = quantized_weights(w, 0, least_scales(bias, scale))
    found = quantized_bias(bias, scale, scales)
    assert found is not None
    steps, sums = found
    assert steps.dtype == np.int32 and np.abs(steps.astype(np.int64)).max() <= GREATEST_BIAS + 200  # scales are of f32
    np.testing.assert_allclose(steps * sums.astype(np.float64), bias, rtol=1e-6)
    assert scales[1] == np.float32(2 / 127)


def test_a_bias_whose_scale_f32_does_not_hold_stays() -> None:
    assert quantized_bias(np.ones(1, np.float32), np.float32(1e-30), np.array([1e-20], np.float32)) is None
    assert quantized_bias(np.full(1, 1e10, np.float32), np.float32(1), np.array([1], np.float32)) is None
