"""When two results are the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parax.compiler.compare import difference

F = np.float32


@pytest.mark.parametrize(
    ("found", "expected", "passes"),
    [
        ([1.0], [1.001], True),
        ([1.0], [1.01], False),
        ([0.0], [0.00009], True),
        ([0.0], [0.00011], False),
        ([np.nan], [np.nan], True),
        ([np.nan], [1.0], False),
        ([1.0], [np.nan], False),
        ([np.inf], [np.inf], True),
        ([np.inf], [-np.inf], False),
        ([1e30], [np.inf], False),
        ([], [], True),
    ],
)
def test_floats(found: list[float], expected: list[float], passes: bool) -> None:
    assert difference("y", np.array(found, F), np.array(expected, F)).passed is passes


def test_integers_booleans_and_strings_must_be_equal() -> None:
    for dtype in (np.int64, np.uint8, np.bool_, np.str_, object):
        a = np.array([0, 1, 1]).astype(dtype)
        assert difference("y", a, a.copy()).passed
        assert not difference("y", a, a[::-1].copy()).passed


def test_shape_and_type_come_first() -> None:
    assert "shape" in difference("y", np.zeros((2, 1), F), np.zeros(2, F)).problem
    assert "type" in difference("y", np.zeros(2, np.float64), np.zeros(2, F)).problem


def test_half_precision_has_its_own_tolerance() -> None:
    a = np.array([1.0], np.float16)
    assert difference("y", a, a + np.float16(0.005)).passed
    assert not difference("y", a, a + np.float16(0.05)).passed


def test_another_winner_fails_a_distribution_even_within_tolerance() -> None:
    expected = np.array([[0.5010, 0.4990]], F)
    found = np.array([[0.4999, 0.5001]], F)
    result = difference("y", found, expected, rtol=1e-2)
    assert result.top1 == 1.0, "a tie within the tolerance"
    result = difference("y", found, expected, rtol=2.3e-3, atol=0)
    assert result.worst <= 1
    assert result.top1 == 0.0
    assert not result.passed


def test_the_problem_names_the_place() -> None:
    expected, found = np.zeros((2, 3), F), np.zeros((2, 3), F)
    found[1, 2] = 7
    assert "[1, 2]" in difference("y", found, expected).problem


@given(st.lists(st.floats(width=32, allow_nan=True), min_size=1, max_size=20))
def test_everything_equals_itself(values: list[float]) -> None:
    a = np.array(values, F)
    result = difference("y", a, a.copy())
    assert result.passed
    assert result.max_abs == 0
