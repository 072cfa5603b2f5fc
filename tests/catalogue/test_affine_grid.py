"""AffineGrid against its definition in double precision: onnx.reference gives f32 alone, ONNX Runtime has no halves."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from backend.harness import op, run_node

EPSILON = {np.float64: 1e-15, np.float32: 1e-6, np.float16: 1e-3, ml_dtypes.bfloat16: 1e-2}


def positions(n: int, align_corners: bool) -> np.ndarray:
    """Centres of the first and the last element are -1 and 1, or their edges; one alone is in the middle."""
    return np.linspace(-1, 1, n) if align_corners and n > 1 else (2 * np.arange(n) + 1 - n) / n


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("size", [(4, 33), (1, 5), (2, 3, 5), (3, 1, 2)], ids=str)
def test_grids(size: tuple[int, ...], align_corners: int, dtype: Any) -> None:
    rank = len(size)
    theta = np.random.default_rng(1).uniform(-1, 1, (3, rank, rank + 1)).astype(dtype)
    axes = np.meshgrid(*(positions(n, bool(align_corners)) for n in size), indexing="ij")
    points = np.stack([*axes[::-1], np.ones(size)], -1)
    wanted = np.einsum("nij,...j->n...i", theta.astype(np.float64), points)
    (found,) = run_node(op("AffineGrid", align_corners=align_corners), [theta, np.array([3, 1, *size])], constants=[1])
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(np.float64), wanted, 4 * EPSILON[dtype], 4 * EPSILON[dtype])
