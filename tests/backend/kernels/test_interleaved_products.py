"""Products whose A is copied in the order of the tiles, as gradients of weights: with the bits of A where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_graph, run_node
from backend.kernels.naive import check, normal
from parax.compiler.backend.kernels.matmul.blocking import MOST_STEPS
from parax.compiler.ir.text import parse_graph
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
    if axis == 1 or k <= MOST_STEPS // 2:
        np.testing.assert_array_equal(found, run_node(op("MatMul"), [a, b])[0])
    else:  # blocks of k are alike where k is known when compiling, and as long as may be where it is not
        check(found, a.astype(np.float64) @ b.astype(np.float64), k)


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize(
    "m, k, n", [(1, 700, 40), (7, 5, 24), (23, 1301, 33), (390, 67, 40), (401, 3001, 17), (800, 30, 70),
                (25, 67, 600), (53, 1301, 570), (391, 33, 1100)], ids=str
)
def test_blocks_of_rows_and_of_k(m: int, k: int, n: int, target: Target) -> None:
    a, b = normal(m, k), normal(k, n)
    check(both(a, b, target=target), a.astype(np.float64) @ b.astype(np.float64), k)


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize(
    "m, k, n", [(1, 8, 1100), (10, 8, 1100), (50, 5, 1230), (390, 33, 1050), (26, 128, 1100)], ids=str
)
def test_few_steps_go_along_the_rows(m: int, k: int, n: int, target: Target) -> None:
    a, b = normal(m, k), normal(k, n)
    a[0, k // 2] = np.nan  # of one row: no other one may get it
    b[k - 1, n - 1] = np.inf
    found = both(a, b, target=target)
    assert np.isnan(found[0]).all()
    check(found[1:, :-1], a[1:].astype(np.float64) @ b[:, :-1].astype(np.float64), k)


@pytest.mark.parametrize("last", ["Relu", "Erf"])
def test_along_the_rows_with_a_tail(last: str) -> None:
    """Of a column, of the result's own shape, and of one that is computed apart; two stacks, rows a run knows."""
    text = f"""graph @g(%a: f32[2,S,20], %b: f32[20,1101], %c: f32[1101], %d: f32[2,S,1101]) {{
      %y = fused<MatMul>(%a, %b, %c, %d) : f32[2,S,1101]
        body(%a: f32[2,S,20], %b: f32[20,1101], %c: f32[1101], %d: f32[2,S,1101]) {{
          %p = MatMul(%a, %b) : f32[2,S,1101]
          %q = Add(%p, %c) : f32[2,S,1101]
          %r = {last}(%q) : f32[2,S,1101]
          %y = Mul(%r, %d) : f32[2,S,1101]
          return %y
        }}
      return %y
    }}"""
    a, b, c, d = normal(2, 43, 20), normal(20, 1101), normal(1101), normal(2, 43, 1101)
    (found,) = run_graph(parse_graph(text), {"a": a, "b": b, "c": c, "d": d}, {"S": 43})
    (product,) = run_node(op("MatMul"), [a, b], constants=[1])
    (expected,) = run_node(op(last), [product + c])
    np.testing.assert_allclose(found, expected * d, rtol=1e-5, atol=1e-6)


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
