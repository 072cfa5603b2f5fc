"""How coarsely a model computes, and which of its outputs are rounded to steps."""

from __future__ import annotations

import onnx.parser
import pytest

from parax.compiler.frontend.precision import precision


def of(text: str) -> tuple[str, set[str]]:
    found = precision(onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + text))
    return found.coarsest, set(found.rounded)


@pytest.mark.parametrize(
    ("text", "coarsest"),
    [
        ("g (double[N] x) => (double[N] y) { y = Sin(x) }", "float64"),
        ("g (float[N] x) => (double[N] y) { z = Sin(x) y = Cast<to=11>(z) }", "float32"),
        ("g (float[N] x) => (float[N] y) { h = Cast<to=10>(x) z = Sin(h) y = Cast<to=1>(z) }", "float16"),
        ("g (float[N] x) => (float[N] y) { h = Cast<to=16>(x) z = Sin(h) y = Cast<to=1>(z) }", "bfloat16"),
        ("g (float[N] x) => (float[N] y) <float16[1] w = {1}> { f = Cast<to=1>(w) y = Mul(x, f) }", "float32"),
        ("g (int64[N] x) => (int64[N] y) { y = Add(x, x) }", ""),
        ("""g (float[N] x, bool c) => (float[N] y) {
             y = If(c) <then_branch = t () => (float[N] u) { h = Cast<to=10>(x) s = Sin(h) u = Cast<to=1>(s) },
                        else_branch = e () => (float[N] v) { v = Neg(x) }> }""", "float16"),
    ],
)  # fmt: skip
def test_the_coarsest_type_that_is_computed_in(text: str, coarsest: str) -> None:
    assert of(text)[0] == coarsest


def test_outputs_that_are_rounded_are_those_of_quantising_operators() -> None:
    text = """g (float[N,4] x, uint8[N] i) => (uint8[N,4] q, uint8[4,N] t, uint8[N] j, float[N,4] y)
      <float s = {0.1}, uint8 z = {3}> {
        q = QuantizeLinear(x, s, z)  t = Transpose(q)  j = Add(i, i)  y = DequantizeLinear(q, s, z) }"""
    assert of(text)[1] == {"q", "t"}
