"""Det and Inverse against NumPy in double precision: every type, odd sizes, targets, matrices without an inverse."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_node
from parax.compiler.targets.target import Target

HALF = {np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7}
UNIT = {np.float32: 2.0**-23, np.float64: 2.0**-52, **HALF}
INVERSE = op("Inverse", "com.microsoft")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 70), st.sampled_from([(), (1,), (3,), (2, 2)]),
       st.sampled_from(list(UNIT)))  # fmt: skip
def test_random_matrices(seed: int, n: int, batch: tuple[int, ...], dtype: Any) -> None:
    x = np.random.default_rng(seed).normal(size=(*batch, n, n)).astype(dtype)
    wide = x.astype(np.float64)
    work = np.float64 if dtype == np.float64 else np.float32
    bound = 8 * n * UNIT[work] * np.linalg.cond(wide).max() + 4 * UNIT[dtype]
    (inverse,) = run_node(INVERSE, [x])
    wanted = np.linalg.inv(wide)
    assert inverse.dtype == dtype
    np.testing.assert_allclose(inverse.astype(np.float64), wanted, 0, bound * np.abs(wanted).max())
    (det,) = run_node(op("Det"), [x])
    wanted = np.linalg.det(wide)
    assert det.dtype == dtype and det.shape == batch
    with np.errstate(over="ignore"):
        held = np.abs(wanted.astype(dtype).astype(np.float64)) < np.inf  # a half may not hold it
    np.testing.assert_allclose(np.where(held, det.astype(np.float64), 0), np.where(held, wanted, 0), bound, 2.0**-24)


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
def test_targets_agree(target: Target) -> None:
    x = np.random.default_rng(1).normal(size=(2, 37, 37)).astype(np.float32)
    for operator in (op("Det"), INVERSE):
        found, wanted = run_node(operator, [x], target=target)[0], run_node(operator, [x])[0]
        np.testing.assert_allclose(found, wanted, 1e-3, 1e-3 * np.abs(wanted).max())  # some have no fused multiply-add


def test_exchanges_change_the_sign() -> None:
    for n in range(1, 9):
        x = np.eye(n, dtype=np.float32)[np.random.default_rng(n).permutation(n)]
        assert run_node(op("Det"), [x])[0] == round(np.linalg.det(x))
        np.testing.assert_array_equal(run_node(INVERSE, [x])[0], x.T)


def test_matrices_without_an_inverse() -> None:
    x = np.array([[0, 0, 0], [0, 0, 1], [0, 2, 0]], np.float32)
    assert run_node(op("Det"), [x])[0] == 0
    assert not np.isfinite(run_node(INVERSE, [x])[0]).all()


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize("column", range(3))
def test_a_nan_is_not_lost(row: int, column: int) -> None:
    x = np.array([[0, 3, 1], [0, 1, 5], [2, 0, 4]], np.float32)
    x[row, column] = np.nan
    assert np.isnan(run_node(op("Det"), [x])[0]) and np.isnan(run_node(INVERSE, [x])[0]).any()
