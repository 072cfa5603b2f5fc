"""When two results are the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parax.compiler.compare import RULES, Tolerance, difference, rule_of

F = np.float32


@pytest.mark.parametrize(
    ("found", "expected", "passes"),
    [
        ([1.0], [1.001], True),
        ([1.0], [1.01], False),
        ([1.0, 0.0], [1.0, 0.00007], True),
        ([1.0, 0.0], [1.0, 0.00008], False),
        ([100.0, 0.0], [100.0, 0.007], True),
        ([0.0], [0.00009], False),
        ([0.0], [0.0000009], True),
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
    result = difference("y", found, expected, Tolerance(rtol=1e-2))
    assert result.top1 == 1.0, "a tie within the tolerance"
    result = difference("y", found, expected, Tolerance(rtol=2.3e-3, atol=0))
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


def test_small_numbers_are_compared_with_something() -> None:
    expected = np.full((1, 1000), 1e-3, F) * np.linspace(0.5, 1.5, 1000, dtype=F)
    wrong = np.full((1, 1000), 1e-3, F)
    result = difference("y", wrong, expected)
    assert not result.passed
    assert result.atol < 1.1e-6


@pytest.mark.parametrize("name", RULES)
def test_every_type_allows_its_own_rounding_and_not_ten_percent_too_much(name: str) -> None:
    pytest.importorskip("ml_dtypes")
    rule, dtype = RULES[name], np.dtype(name)
    exact = np.linspace(-3, 3, 997)
    assert difference("y", (exact * (1 + rule.eps)).astype(dtype), exact.astype(dtype)).passed
    assert not difference("y", (exact * (1 + 4 * rule.rtol)).astype(dtype), exact.astype(dtype)).passed


def test_a_coarser_type_on_the_way_counts_a_finer_one_does_not() -> None:
    assert rule_of(np.dtype(F), "float16") == RULES["float16"]
    assert rule_of(np.dtype(F), "float64") == rule_of(np.dtype(np.complex64)) == RULES["float32"]
    assert rule_of(np.dtype(np.float64), "float32") == RULES["float32"]
    found, expected = np.array([1.004], F), np.array([1], F)
    assert not difference("y", found, expected).passed
    assert difference("y", found, expected, Tolerance(coarsest="float16")).passed


def test_what_somebody_says_wins() -> None:
    found, expected = np.array([1.004], np.float16), np.array([1], np.float16)
    assert difference("y", found, expected).passed
    assert not difference("y", found, expected, Tolerance(rtol=1e-4, atol=1e-4)).passed
    assert difference("y", found, expected, Tolerance(rtol=0, atol=1)).passed


def test_a_step_is_allowed_where_integers_were_rounded() -> None:
    a = np.array([1, 2, 3], np.uint8)
    assert difference("y", a + np.uint8(1), a, Tolerance(steps=1)).passed
    assert not difference("y", a + np.uint8(2), a, Tolerance(steps=1)).passed
    assert not difference("y", a + np.uint8(1), a).passed


@pytest.mark.parametrize(
    ("expected", "warning"),
    [
        ([np.nan, np.nan], "holds no number"),
        ([1.0, np.inf, np.nan], "67% of the reference is NaN or infinite"),
        ([2.0, 2.0], "is 2 everywhere"),
        ([0.0, 0.0], "is 0 everywhere"),
        ([1e-8, 2e-8, 1.0], ""),
        ([1e-8, 2e-8, 1e-4], "67% of the reference is smaller than atol"),
        ([1e-8, 2e-8, 3e-8], "100% of the reference is smaller than atol"),
        ([], "no elements"),
        ([1.0, 2.0, 0.0, 0.0, 0.0], ""),
    ],
)
def test_agreeing_with_a_reference_that_says_little_is_said(expected: list[float], warning: str) -> None:
    array = np.array(expected, F)
    result = difference("y", array.copy(), array)
    assert result.passed
    assert warning in result.warning
    assert bool(warning) == bool(result.warning), result.warning


def test_a_given_atol_far_above_the_reference_is_said() -> None:
    expected = np.array([1e-3, 2e-3], F)
    assert "smaller than atol, 1.0e-02" in difference("y", expected * 2, expected, Tolerance(atol=1e-2)).warning
