"""Pools among bytes: which are, and which quantisation is nothing then."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.passes.block.sink_dequantization import SinkDequantization
from passes.check import check_pass

CONSTANTS = """%s = const f32[] 0.37
%z = const u8[] 100
%t = const f32[] 0.5
%u = const u8[] 99
%many = const f32[2] [0.5, 0.25]
"""
POOL = "%2 = MaxPool(%1) {kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]}"


def graph(body: str, dtype: str = "u8") -> str:
    return f"graph @g(%x: {dtype}[N,2,7,7]) {{\n{CONSTANTS.replace('u8', dtype)}{body}\nreturn %y\n}}"


def test_a_pool_comes_before_what_dequantises() -> None:
    before = "%1 = DequantizeLinear(%x, %s, %z)\n%y = MaxPool(%1) {kernel_shape=[3,3]}"
    after = "%1 = MaxPool(%x) {kernel_shape=[3,3]}\n%y = DequantizeLinear(%1, %s, %z)"
    check_pass(SinkDequantization(), graph(before), graph(after), symbols={"N": 2})


@pytest.mark.parametrize("dtype", ["u8", "i8"])
def test_the_same_scale_again_is_nothing(dtype: str) -> None:
    before = f"%1 = DequantizeLinear(%x, %s, %z)\n{POOL}\n%y = QuantizeLinear(%2, %s, %z)"
    after = POOL.replace("%2", "%y").replace("%1", "%x")
    check_pass(SinkDequantization(), graph(before, dtype), graph(after, dtype), symbols={"N": 2})


@pytest.mark.parametrize("given", ["%t, %z", "%s, %u", "%s"])
def test_another_scale_or_zero_point_stays(given: str) -> None:
    before = f"%1 = DequantizeLinear(%x, %s, %z)\n%y = QuantizeLinear(%1, {given})"
    check_pass(SinkDequantization(), graph(before), None, refuses="quantised by another")


@pytest.mark.parametrize("body", [
    "%1 = DequantizeLinear(%x, %many) {axis=1}\n%y = MaxPool(%1) {kernel_shape=[3,3]}",
    "%1 = DequantizeLinear(%x, %s, %z)\n%y = AveragePool(%1) {kernel_shape=[3,3]}",
    "%1 = DequantizeLinear(%x, %s, %z)\n%2, %3 = MaxPool(%1) {kernel_shape=[3,3]}\n%4 = Cast(%3) {to=f32}\n"
    "%y = Add(%2, %4)",
], ids=["a scale a channel", "a mean", "places"])  # fmt: skip
def test_other_pools_stay(body: str) -> None:
    check_pass(SinkDequantization(), graph(body), None, evaluate=False)


TABLE = f"%table = const u8[6,6] {list(range(220, 256))}\n"


def picked(body: str) -> str:
    return f"graph @g(%i: i64[N,2], %x: u8[6,6]) {{\n{CONSTANTS}{TABLE}{body}\nreturn %y\n}}"


@pytest.mark.parametrize(("axis", "dims"), [(0, "N,2,6"), (1, "6,N,2")])
def test_what_is_looked_up_is_dequantised_alone(axis: int, dims: str) -> None:
    before = f"%1 = DequantizeLinear(%table, %s, %z)\n%y = Gather(%1, %i) {{axis={axis}}}"
    after = f"%1 = Gather(%table, %i) {{axis={axis}}} : u8[{dims}]\n%y = DequantizeLinear(%1, %s, %z)"
    check_pass(SinkDequantization(), picked(before), picked(after), symbols={"N": 3})


@pytest.mark.parametrize("body", [
    "%1 = DequantizeLinear(%x, %s, %z)\n%y = Gather(%1, %i)",
    "%six = const f32[6] [0.5, 0.25, 1.0, 2.0, 3.0, 4.0]\n%1 = DequantizeLinear(%table, %six)\n%y = Gather(%1, %i)",
], ids=["no constants", "a scale a column"])  # fmt: skip
def test_other_lookups_stay(body: str) -> None:
    check_pass(SinkDequantization(), picked(body), None, evaluate=False)


@pytest.mark.parametrize("scale", [1e-6, 0.1, 1 / 3, 0.37, 7.0, 1e6])
@pytest.mark.parametrize("zero", [0, 1, 114, 255])
def test_every_byte_comes_back(scale: float, zero: int) -> None:
    q, s = np.arange(256, dtype=np.int32), np.float32(scale)
    back = np.clip(np.rint(((q - zero).astype(np.float32) * s) / s) + zero, 0, 255)
    np.testing.assert_array_equal(back, q)
