"""Rounding a matrix of weights so that what its activations make of it moves least: GPTQ. Knows no graph.

Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", ICLR 2023: weights
are rounded one input after the other, and what each loses is made up for by those of a row that are not rounded yet, as
the activations' second moments say.
"""

from __future__ import annotations

import numpy as np

from ...ir.types import ceil_div

DAMPING = 0.01  # of the mean second moment, added to each: inputs that never differ say nothing
GREATEST_DEPTH = 4096  # inputs of a product: the moments take their square, their inverse its third power of time
TOGETHER = 128  # inputs, what they lose is handed on at once to all that come behind them


def compensated_steps(columns: np.ndarray, moments: np.ndarray, bits: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights [N, K] as whole numbers with a scale for each block of inputs.

    Args:
        columns: f32, finite. moments: f32[K, K], the mean of x xᵀ over lines x of activations.
        bits: of a weight. size: inputs that share a scale.

    Returns:
        f64[N, blocks · size] of whole numbers from -2^(bits - 1) on, zeros behind K, and f32[N, blocks], as
        `rounded_blocks` finds scales for what each block's weights have become.
    """
    n, depth = columns.shape
    half, blocks = 1 << bits - 1, ceil_div(depth, size)
    left = columns.astype(np.float64)
    upper = _factor(moments)
    steps, scales = np.zeros((n, blocks * size)), np.ones((n, blocks), np.float32)
    span = max(size, TOGETHER // size * size)
    for first in range(0, depth, span):
        last = min(first + span, depth)
        errors = np.zeros((n, last - first))
        for k in range(first, last):
            if k % size == 0:
                scales[:, k // size] = block_scales(left[:, k : k + size], half)
            scale = scales[:, k // size].astype(np.float64)
            steps[:, k] = np.clip(np.rint(left[:, k] / scale), -half, half - 1)
            errors[:, k - first] = (left[:, k] - steps[:, k] * scale) / upper[k, k]
            left[:, k + 1 : last] -= np.outer(errors[:, k - first], upper[k, k + 1 : last])
        left[:, last:] -= errors @ upper[first:last, last:]
    return steps, scales


def block_scales(blocks: np.ndarray, half: int) -> np.ndarray:
    """f32 scales of blocks along the last axis, by which the farthest weight from zero is -half; 1 where all are 0."""
    far = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)[..., 0]
    scales = (far / -half).astype(np.float32)
    return np.where(scales == 0, np.float32(1), scales)


def _factor(moments: np.ndarray) -> np.ndarray:
    """The upper triangular U, f64[K, K], with UᵀU the inverse of the damped moments."""
    damped = moments.astype(np.float64)
    mean = float(np.mean(np.diag(damped)))
    damped[np.diag_indices(len(damped))] += DAMPING * mean if mean > 0 else 1.0
    return np.linalg.cholesky(np.linalg.inv(damped)).T


__all__ = ["GREATEST_DEPTH", "block_scales", "compensated_steps"]
