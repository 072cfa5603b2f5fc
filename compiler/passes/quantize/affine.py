"""The arithmetic of 8-bit quantisation: scales and zero points of activations, weights and biases. Knows no graph.

A real number r is kept as q = round(r / scale) + zero, half to even, and read as (q − zero) · scale. The scheme is
that of Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
CVPR 2018: activations u8 with one scale and zero point a tensor, weights i8 with a scale for each output channel and
no zero point, biases i32 at the product of both scales, so that they are added to sums of products as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

LEVELS = 255  # steps between the least and the greatest number of 8 bits
GREATEST_WEIGHT = 127  # −128 is left out: a weight and its negative are rounded alike
GREATEST_BIAS = 2**30  # of i32: a sum of products is added to it
LEAST_SCALE = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class ValueRange:
    """The numbers that a tensor is expected to hold: from `low` to `high`, both finite; low ≤ high."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """Of the range with zero, which padding and ReLU need to be exact."""
        return max(self.high, 0.0) - min(self.low, 0.0)

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def hull(self, other: ValueRange) -> ValueRange:
        """The least range that holds both."""
        return ValueRange(min(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True)
class Affine:
    """How a tensor of activations is kept in u8: one scale (f32, above zero), one zero point in 0..255."""

    scale: np.float32
    zero: np.uint8


def affine_of(found: ValueRange) -> Affine:
    """The scale and the zero point at which u8 covers `found` and zero, which is a level of its own."""
    low = min(found.low, 0.0)
    scale = np.float32(max(found.width / LEVELS, LEAST_SCALE))
    zero = np.clip(np.rint(-low / float(scale)), 0, LEVELS)
    return Affine(scale, np.uint8(zero))


def quantized_weights(
    weights: np.ndarray, axis: int, least: np.ndarray | None = None, light: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Weights as i8 with a scale for each index of `axis`.

    Args:
        weights: f32, finite. least: f64[channels], scales that a channel's own must not be below; None: any.
        light: the weights of two neighbouring inputs, which follow each other along the first axis but `axis`, sum to
            128 at most where they have one sign.

    Returns:
        i8 of the shape of `weights`, each in −127..127, and f32[channels].
    """
    largest = (_heaviest_pairs if light else _largest)(np.moveaxis(weights, axis, 0))
    scales = np.where(largest > 0, largest, 1.0) / GREATEST_WEIGHT
    scales = np.maximum(scales, LEAST_SCALE if least is None else np.maximum(least, LEAST_SCALE)).astype(np.float32)
    shape = [-1 if i == axis else 1 for i in range(weights.ndim)]
    steps = np.rint(weights / scales.reshape(shape))
    return np.clip(steps, -GREATEST_WEIGHT, GREATEST_WEIGHT).astype(np.int8), scales


def _largest(by_channel: np.ndarray) -> np.ndarray:
    """The greatest magnitude of each channel, f64[channels]."""
    return np.abs(by_channel.reshape(len(by_channel), -1)).max(axis=1, initial=0).astype(np.float64)


def _heaviest_pairs(by_channel: np.ndarray) -> np.ndarray:
    """The greatest sum of one sign of two neighbouring inputs of each channel; in units of it rounding adds 1 to 127.

    Args:
        by_channel: [channels, inputs, ...].
    """
    even = by_channel[:, 0::2].astype(np.float64)
    odd = np.zeros_like(even)
    odd[:, : by_channel.shape[1] // 2] = by_channel[:, 1::2]
    sums = [_largest(np.maximum(sign * even, 0) + np.maximum(sign * odd, 0)) for sign in (1, -1)]
    return np.maximum(*sums)


def quantized_bias(bias: np.ndarray, scale: np.float32, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """A bias as i32 at the scale of a product's sums.

    Args:
        bias: f32[channels], finite. scale: of the activations. scales: f32[channels] of the weights.

    Returns:
        i32[channels] and its scales f32[channels]; None where a scale is too small for f32.
    """
    sums = scale * scales
    if np.any(sums < LEAST_SCALE):
        return None
    steps = np.rint(bias / sums.astype(np.float64))
    if np.any(np.abs(steps) > 2 * GREATEST_BIAS - 1):
        return None
    return steps.astype(np.int32), sums


def least_scales(bias: np.ndarray, scale: np.float32) -> np.ndarray:
    """Scales of weights, f64[channels], below which a bias leaves the range of its i32."""
    return np.abs(bias.astype(np.float64)) / (float(scale) * GREATEST_BIAS)
