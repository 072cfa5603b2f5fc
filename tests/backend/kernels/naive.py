"""NumPy twins of the contraction kernels: one line per term of the definition, in double precision."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np


def conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    group: int,
) -> np.ndarray:
    """Cross-correlation, ONNX's attributes resolved."""
    rank = x.ndim - 2
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])])
    out = [(n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(padded.shape[2:], w.shape[2:], dilations, strides)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    images = padded.reshape(x.shape[0], group, -1, *padded.shape[2:])
    filters = w.astype(np.float64).reshape(group, -1, *w.shape[1:])
    for tap in itertools.product(*(range(k) for k in w.shape[2:])):
        window = tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, dilations, out, strides))
        part = np.einsum("ngc...,gmc->ngm...", images[(..., *window)], filters[(..., *tap)])
        y += part.reshape(y.shape)
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def conv_transpose(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    group: int,
    output_padding: Sequence[int],
) -> np.ndarray:
    """Every input pixel adds its taps to the result."""
    rank = x.ndim - 2
    whole = [
        (n - 1) * s + (k - 1) * d + 1 + extra
        for n, s, k, d, extra in zip(x.shape[2:], strides, w.shape[2:], dilations, output_padding)
    ]
    y = np.zeros((x.shape[0], group, w.shape[1], *whole))
    images = x.astype(np.float64).reshape(x.shape[0], group, -1, *x.shape[2:])
    filters = w.astype(np.float64).reshape(group, -1, *w.shape[1:])
    for tap in itertools.product(*(range(k) for k in w.shape[2:])):
        at = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilations, x.shape[2:], strides))
        y[(..., *at)] += np.einsum("ngc...,gcm->ngm...", images, filters[(..., *tap)])
    y = y.reshape(x.shape[0], -1, *whole)
    kept = tuple(slice(p, n - q) for p, q, n in zip(pads[:rank], pads[rank:], whole))
    y = y[(..., *kept)]
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def check(result: np.ndarray, expected: np.ndarray, terms: int) -> None:
    """Equal up to the rounding of a sum of `terms` products of standard normal numbers."""
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=2e-6 * max(4.0, terms**0.5) * 4)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal f32."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)
