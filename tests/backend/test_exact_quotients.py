"""A product and a fused multiply-add in place of a division round to the same whole numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.backend.exact_quotients import WHOLE_DIGITS, nearest_single, rounding_parts
from sampling import thorough

f32 = np.float32
MANTISSAS = st.integers(2**23, 2**24 - 1)


def fused(x: np.ndarray, high: float, low: float) -> np.ndarray:
    """fma(x, high, x·low) of f32: in f64, to odd, then to f32, which is one rounding."""
    product, rest = x.astype(np.float64) * high, (x * f32(low)).astype(np.float64)
    total = product + rest
    behind = total - product
    lost = (product - (total - behind)) + (rest - behind)
    is_even = total.view(np.int64) & 1 == 0
    toward = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf))
    return np.where((lost != 0) & is_even, toward, total).astype(f32)


def test_powers_of_two_and_divisors_out_of_range_have_no_parts() -> None:
    for divisor in (0.25, 1.0, -2.0, 0.0, 1e-30, 1e30, math.inf, math.nan):
        assert rounding_parts(divisor) is None


@thorough(40, deadline=None)
@given(digits=MANTISSAS, exponent=st.integers(-30, 10), chunk=st.integers(0, 7))
def test_every_number_of_an_exponent_is_divided_as_by_the_division(digits: int, exponent: int, chunk: int) -> None:
    divisor = f32(math.ldexp(digits, exponent - 24))
    parts = rounding_parts(float(divisor))
    if parts is None:
        return
    size = 2**20
    x = np.arange(2**23 + chunk * size, 2**23 + (chunk + 1) * size).astype(f32)
    found, right = fused(x, *parts), x / divisor
    different = np.flatnonzero(found != right)
    assert len(different) <= 1  # of all numbers one at most is not proved to come out alike, and that is no half
    for value in (*found[different], *right[different]):
        whole = Fraction(float(value)).numerator
        assert (whole // (whole & -whole)).bit_length() > WHOLE_DIGITS


def test_nearly_every_divisor_has_parts() -> None:
    divisors = np.random.default_rng(0).uniform(1e-3, 1, 200).astype(f32)
    assert sum(rounding_parts(float(d)) is None for d in divisors) <= 2


@given(numerator=st.integers(-(2**60), 2**60), denominator=st.integers(1, 2**40))
def test_nearest_single_is_f32(numerator: int, denominator: int) -> None:
    x = Fraction(numerator, denominator)
    whole = nearest_single(Fraction(numerator))
    assert whole == Fraction(float(f32(numerator)))  # integers of up to 2⁶³ round once in NumPy
    assert abs(nearest_single(x) - x) <= abs(x) / 2**24


def quantising(scale: np.float32) -> onnx.ModelProto:
    """Element by element of a tensor that is one constant more than the input, so that the division stays."""
    nodes = [helper.make_node("Sub", ["x", "c"], ["d"]),
             helper.make_node("QuantizeLinear", ["d", "s", "z"], ["y"])]  # fmt: skip
    constants = [numpy_helper.from_array(np.array(v), n) for n, v in
                 (("c", f32(0)), ("s", scale), ("z", np.int16(3)))]  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("scale", [0.3, 0.0246, 0.9970133, 0.35120425, 3.0, 1.7e-3, 255.0, 0.1, 1e-12, 4e11])
def test_kernels_round_halves_and_their_neighbours_as_the_model(scale: float) -> None:
    s = f32(scale)
    halves = (np.arange(-33000, 33000).astype(f32) + f32(0.5)) * s
    neighbours = [halves]
    for way in (f32(-np.inf), f32(np.inf)):
        x = halves
        for _ in range(2):
            x = np.nextafter(x, way)
            neighbours.append(x)
    odd = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-38, 3e38, -3e38, np.inf, -np.inf], f32)
    with np.errstate(over="ignore"):
        x = np.concatenate([*neighbours, odd]).astype(f32)
        x = np.concatenate([x, x[: -len(x) % 3]]).reshape(-1, 3)
        want = np.clip(np.rint(x / s) + f32(3), -32768, 32767).astype(np.int16)
    with parax.compile(quantising(s)).session() as session:
        np.testing.assert_array_equal(session.run({"x": x})["y"], want)
