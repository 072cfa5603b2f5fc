"""What the judge takes for right where rounding makes results jump."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from fuzz.compare import Expected
from fuzz.jumps import Poles

FAR = 37_633
"""The pole of the tangent, counted from 0, that the operands lie at: near 118,229, where float32 has steps of 2^-7."""
TANGENT = """<ir_version: 9, opset_import: ["": 20]>
    g (float[3] a, float[3] b) => (float[3] y) { c = Add(a, b)\n y = Tan(c) }"""
LOOP = """<ir_version: 9, opset_import: ["": 20]>
    g (float[2] x, int64 m) => (float[2] y) {
        y = Loop (m, "", x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] u) {
            d = Identity(c)\n t = Tan(s)\n h = Constant<value = float {0.5}>()\n u = Mul(t, h)
        }>
    }"""


def _tangents() -> tuple[Expected, np.ndarray]:
    """Of a pole's nearest number, of one in the middle between two poles, of a small one; and the exact results."""
    pole = (FAR + 0.5) * math.pi
    a = np.array([np.float32(pole) - 100_000, np.float32(pole + math.pi / 2) - 100_000, 0.25], np.float32)
    b = np.array([100_000, 100_000, 0.5], np.float32)
    exact = np.tan(a.astype(np.float64) + b)
    return Expected(onnx.parser.parse_model(TANGENT), {"a": a, "b": b}), exact


@pytest.mark.parametrize("value", [4000.0, -4000.0, 3.0])
def test_a_tangent_may_be_anything_where_rounding_passes_a_pole(value: float) -> None:
    expected, exact = _tangents()
    found = exact.astype(np.float32)
    assert not expected.problem({"y": found})
    found[0] = value
    assert not expected.problem({"y": found})


@pytest.mark.parametrize("at", [1, 2])
def test_a_tangent_is_what_it_is_elsewhere(at: int) -> None:
    expected, exact = _tangents()
    found = exact.astype(np.float32)
    found[at] += 1
    assert f"at [{at}]" in expected.problem({"y": found})


def test_each_tangent_of_a_loop_has_poles_of_its_own() -> None:
    x = np.array([0.3, 1.2], np.float32)
    expected = Expected(onnx.parser.parse_model(LOOP), {"x": x, "m": np.array(4)})
    y = x.astype(np.float64)
    for _ in range(4):
        y = np.tan(y) / 2
    assert not expected.problem({"y": y.astype(np.float32)})
    assert "at [1]" in expected.problem({"y": np.array([y[0], y[1] + 1], np.float32)})


def test_poles_that_are_passed() -> None:
    poles = Poles()
    poles.begin(exact=True)
    assert not poles.passed("y", np.array([1.5, 1.5, np.inf, 4.0])).any()
    poles.begin(exact=False)
    assert poles.passed("y", np.array([1.5, 1.6, np.inf, 5.0])).tolist() == [False, True, False, True]
    assert not poles.passed("y", np.array([9.0])).any(), "nothing is known of another step"
