"""CoupleProbabilities against the same iteration written with NumPy, and against what it is to solve."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_node


def matrix(pairs: np.ndarray, n: int) -> np.ndarray:
    """Of a class against another."""
    r = np.zeros((n, n))
    for (i, j), value in zip(itertools.combinations(range(n), 2), pairs):
        r[i, j], r[j, i] = value, 1 - value
    return r


def plain(pairs: np.ndarray, n: int) -> np.ndarray:
    """Probabilities of the classes of one row."""
    r = matrix(pairs, n)
    q = -r.T * r
    np.fill_diagonal(q, (r**2).sum(axis=0))
    p = np.full(n, 1 / n)
    for _ in range(max(100, n)):
        qp = q @ p
        whole = p @ qp
        if np.abs(qp - whole).max() < 0.005 / n:
            break
        for t in range(n):
            step = (whole - qp[t]) / q[t, t]
            p[t] += step
            whole = (whole + step * (step * q[t, t] + 2 * qp[t])) / (1 + step) ** 2
            qp, p = (qp + step * q[t]) / (1 + step), p / (1 + step)
    return p


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(classes=st.integers(2, 9), rows=st.integers(1, 5), seed=st.integers(0, 999))
@settings(max_examples=15, deadline=None)
def test_as_the_plain_one(target, dtype, classes, rows, seed) -> None:
    n_pairs = classes * (classes - 1) // 2
    pairs = np.random.default_rng(seed).uniform(1e-3, 1 - 1e-3, (rows, n_pairs)).astype(dtype)
    (found,) = run_node(op("CoupleProbabilities", "parax", classes=classes), [pairs], symbols={"N": 0}, target=target)
    np.testing.assert_allclose(found, [plain(row, classes) for row in pairs.astype(np.float64)], rtol=1e-9)
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_probabilities_that_agree_are_found() -> None:
    wanted = np.array([0.5, 0.2, 0.25, 0.05])
    pairs = np.array([[wanted[i] / (wanted[i] + wanted[j]) for i, j in itertools.combinations(range(4), 2)]])
    (found,) = run_node(op("CoupleProbabilities", "parax", classes=4), [pairs])
    np.testing.assert_allclose(found[0], wanted, atol=0.01)


def test_not_a_number_makes_every_class_so() -> None:
    (found,) = run_node(op("CoupleProbabilities", "parax", classes=3), [np.array([[0.5, np.nan, 0.5]])])
    assert np.isnan(found).all()
