"""Products whose A is copied in the order of the tiles, as gradients of weights: with the bits of A where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_node
from backend.kernels.naive import check, normal
from parax.compiler.targets.target import Target
from sampling import thorough

TRANSPOSED = (1, 0)


def both(a: np.ndarray, b: np.ndarray, **how: Any) -> np.ndarray:
    """A · B with A stored by columns and by rows, which has the bits of B packed beforehand, where A is not copied."""
    (expected,) = run_node(op("MatMul"), [a, b], constants=[1], **how)
    for layout in (TRANSPOSED, None):
        (found,) = run_node(op("MatMul"), [a, b], layouts=[layout, None], **how)
        np.testing.assert_array_equal(found, expected)
    return found


@thorough(25)
@given(m=st.integers(1, 80), k=st.integers(1, 80), n=st.integers(1, 150), symbolic=st.booleans())
def test_any_size(m: int, k: int, n: int, symbolic: bool) -> None:
    a, b = normal(m, k), normal(k, n)
    check(both(a, b, symbols={"M": 0} if symbolic else {}), a.astype(np.float64) @ b.astype(np.float64), k)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("m, k, n", [(33, 20, 9), (400, 1500, 40)])
def test_rows_or_steps_that_only_a_run_knows(m: int, k: int, n: int, axis: int) -> None:
    a, b = normal(m, k), normal(k, n)
    (found,) = run_node(op("Gemm", transA=1), [np.ascontiguousarray(a.T), b], symbols={"S": axis})
    np.testing.assert_array_equal(found, run_node(op("MatMul"), [a, b])[0])


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize(
    "m, k, n", [(1, 700, 40), (7, 5, 24), (23, 1301, 33), (390, 67, 40), (401, 3001, 17), (800, 30, 70),
                (25, 67, 600), (53, 1301, 570), (391, 33, 1100)], ids=str
)
def test_blocks_of_rows_and_of_k(m: int, k: int, n: int, target: Target) -> None:
    a, b = normal(m, k), normal(k, n)
    check(both(a, b, target=target), a.astype(np.float64) @ b.astype(np.float64), k)


@pytest.mark.parametrize("place", ["a", "b"])
def test_nan_and_infinities_stay_in_their_row_and_column(place: str) -> None:
    a, b = normal(45, 130), normal(130, 37)
    (a if place == "a" else b)[3, 7] = np.nan
    (a if place == "a" else b)[5, 9] = np.inf
    found = both(a, b)
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
@pytest.mark.parametrize("columns", [50, 530])
def test_stacks_of_products(batch: tuple[int, ...], dtype: Any, columns: int) -> None:
    """Of attention's kind, keys by rows: each product has an A of its own, in a depth of a head."""
    a, b = normal(*batch, 50, 24).astype(dtype), normal(*batch, 24, columns).astype(dtype)
    layout = (*range(len(batch)), len(batch) + 1, len(batch))
    (found,) = run_node(op("MatMul"), [a, b], layouts=[layout, None])
    (by_rows,) = run_node(op("MatMul"), [a, b])
    np.testing.assert_array_equal(found, by_rows)
    for index in np.ndindex(batch):
        (one,) = run_node(op("MatMul"), [a[index], b[index]], constants=[1])
        np.testing.assert_array_equal(found[index], one)
