"""Quantize: text before and after, and its numbers beside those of numpy, which rounds as the definition says."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.oracle import oracle
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.quantize.affine import ValueRange
from parax.compiler.passes.quantize.quantize import Quantize
from parax.compiler.passes.rewrite import Rewriter
from passes.check import check_pass

X = ValueRange(-1.0, 1.55)  # a step of 0.01
RANGES = {"x": X, "y": ValueRange(-2.0, 3.1), "v": ValueRange(0.0, 2.55)}


def check(before: str, after: str | None, *left_out: str, refuses: str | None = None, **more: ValueRange) -> Graph:
    pass_ = Quantize({**RANGES, **more}, left_out=frozenset(left_out))
    return check_pass(pass_, before, after, evaluate=False, refuses=refuses)


CONV = """graph @g(%x: f32[N,2,5,5]) {
  %w = const f32[3,2,3,3] "w"
  %b = const f32[3] [1, 2, 3]
  %y = Conv(%x, %w, %b) : f32[N,3,3,3]
  return %y\n}"""


def test_a_convolution_with_its_bias() -> None:
    check(CONV, """graph @g(%x: f32[N,2,5,5]) {
  %w = const i8[3,2,3,3] "w"\n  %ws = const f32[3] "ws"
  %b = const i32[3] [28089, 49166, 54966]\n  %bs = const f32[3] "bs"
  %xs = const f32[] 0.01\n  %xz = const u8[] 100
  %wr = DequantizeLinear(%w, %ws) {axis=0} : f32[3,2,3,3]
  %br = DequantizeLinear(%b, %bs) {axis=0} : f32[3]
  %xq = QuantizeLinear(%x, %xs, %xz) : u8[N,2,5,5]
  %xr = DequantizeLinear(%xq, %xs, %xz) : f32[N,2,5,5]
  %y = Conv(%xr, %wr, %br) : f32[N,3,3,3]
  return %y\n}""")


def test_what_is_left_out_and_what_has_no_range() -> None:
    check(CONV, None, "y", refuses="no product to quantise")
    check(CONV.replace("%x", "%unknown"), None, refuses="no product to quantise")


@pytest.mark.parametrize(("old", "new", "reason"), [
    ('%w = const f32[3,2,3,3] "w"', "%w = const f32[1,2,1,1] [nan, 1]", "not finite"),
    ("%b = const f32[3] [1, 2, 3]\n", "%v = Gemm(%b, %b) {transA=1}\n", "transposed"),
])  # fmt: skip
def test_products_that_stay(old: str, new: str, reason: str) -> None:
    text = CONV.replace(old, new)
    if "transA" in new:
        text = """graph @g(%x: f32[4,5]) {\n  %w = const f32[4,3] "w"\n  %y = Gemm(%x, %w) {transA=1} : f32[5,3]\n  return %y\n}"""
    else:
        text = text.replace("%b = const f32[3] [1, 2, 3]\n", "").replace(", %b", "").replace("[N,3,3,3]", "[N,1,5,5]")
    check(text, None, refuses=reason)


def test_matmul_gemm_and_their_axes() -> None:
    graph = quantized("""graph @g(%x: f32[N,4]) {
  %w = const f32[4,3] "w"\n  %u = const f32[5,3] "u"\n  %b = const f32[1,5] "b"
  %v = MatMul(%x, %w) : f32[N,3]
  %y = Gemm(%v, %u, %b) {transB=1} : f32[N,5]
  return %y\n}""")
    axes = {node.inputs[0].name: node.op.axis for node in graph if node.op.name == "DequantizeLinear" and node.inputs[0].is_constant}
    assert axes == {"v.weights": 1, "y.weights": 0, "y.bias": 0}


def test_a_residual_block_is_rounded_where_integers_flow() -> None:
    """Addends and pools read rounded numbers where what they make is read rounded; ReLU stays between."""
    graph = quantized("""graph @g(%x: f32[N,3,6,6]) {
  %w = const f32[3,3,1,1] "w"
  %y = Conv(%x, %w) : f32[N,3,6,6]
  %s = Add(%y, %x) : f32[N,3,6,6]
  %v = Relu(%s) : f32[N,3,6,6]
  %p = MaxPool(%v) {kernel_shape=[2,2], strides=[2,2]} : f32[N,3,3,3]
  %z = Conv(%p, %w) : f32[N,3,3,3]
  %e = Softmax(%z) : f32[N,3,3,3]
  return %e, %v\n}""", p=ValueRange(0.0, 2.0))
    read = {node.op.name: [v.name for v in node.operands if v.tensor.dtype.name == "f32" and not v.is_constant] for node in graph}
    assert read["Add"] == ["y.rounded", "x.rounded"] and read["Relu"] == ["s"] and read["MaxPool"] == ["v.rounded"]
    assert read["Softmax"] == ["z"] and [v.name for v in graph.outputs] == ["e", "v"]
    assert graph.value("p.scale").data == graph.value("v.scale").data  # what a pool chooses is rounded already


@pytest.mark.parametrize(("high", "rounded"), [(3.0, True), (40.0, False)])
def test_a_concat_gets_one_scale_where_its_operands_are_alike(high: float, rounded: bool) -> None:
    graph = quantized("""graph @g(%x: f32[N,2,4,4], %v: f32[N,1,4,4]) {
  %w = const f32[3,3,1,1] "w"
  %c = Concat(%x, %v) {axis=1} : f32[N,3,4,4]
  %y = Conv(%c, %w) : f32[N,3,4,4]
  return %y\n}""", c=ValueRange(-1.0, high), v=ValueRange(0.0, high))
    concat = next(node for node in graph if node.op.name == "Concat")
    assert [v.name.endswith("rounded") for v in concat.operands] == [rounded, rounded]
    if rounded:
        assert len({float(graph.value(f"{name}.scale").data) for name in "xvc"}) == 1


def test_an_addition_behind_which_nobody_rounds_stays() -> None:
    graph = quantized("""graph @g(%x: f32[N,4]) {
  %w = const f32[4,4] "w"
  %y = MatMul(%x, %w) : f32[N,4]
  %s = Add(%y, %x) : f32[N,4]
  return %s\n}""")
    add = next(node for node in graph if node.op.name == "Add")
    assert [v.name for v in add.operands] == ["y", "x"]


def quantized(text: str, **more: ValueRange) -> Graph:
    graph = parse_graph(text)
    assert Quantize({**RANGES, **more}).run(graph, Rewriter(graph))
    return graph


def test_the_numbers_are_those_of_integers() -> None:
    """f64 sums of whole numbers, scaled: what an integer kernel gives."""
    rng = np.random.default_rng(1)
    w, b = rng.standard_normal((7, 5)).astype(np.float32), rng.standard_normal(5).astype(np.float32)
    text = """graph @g(%x: f32[N,7]) {
  %w = const f32[7,5] "w"\n  %b = const f32[5] "b"
  %y = Gemm(%x, %w, %b) : f32[N,5]
  return %y\n}"""
    graph = parse_graph(text, {"w": w, "b": b})
    assert Quantize(RANGES).run(graph, Rewriter(graph))
    x = rng.uniform(-2, 2, (9, 7)).astype(np.float32)  # some beyond the range: they saturate
    got = oracle(to_onnx(graph), "reference")({"x": x})["y"]
    scale, zero = np.float32(0.01), 100
    q = np.clip(np.rint(x / scale) + zero, 0, 255)
    scales = (np.abs(w).max(0) / 127).astype(np.float32)
    steps = np.rint(w / scales)
    sums = scale * scales
    want = ((q - zero) @ steps + np.rint(b / sums.astype(np.float64))) * sums
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert np.abs(got - (np.clip(x, -1, 1.55) @ w + b)).max() < 0.1


@pytest.mark.parametrize("text", [
    "%w = const f32[6,2,3,2] \"w\"\n %b = const f32[6] [1, 2, 3, 4, 5, 6]\n %y = Conv(%x, %w, %b) {group=3} : f32[N,6,3,4]",
    "%w = const f32[6,2,3,2] \"w\"\n %y = Conv(%x, %w) {group=3} : f32[N,6,3,4]",
    "%w = const f32[6,7] \"w\"\n %y = Gemm(%x, %w) : f32[N,7]",
    "%w = const f32[7,6] \"w\"\n %b = const f32[7] [1, 2, 3, 4, 5, 6, 7]\n %y = Gemm(%x, %w, %b) {transB=1} : f32[N,7]",
])  # fmt: skip
def test_the_bias_takes_back_the_mean_that_rounding_adds(text: str) -> None:
    """On activations that are their mean everywhere, rounding the weights alone loses nothing."""
    shape = "f32[N,6,5,5]" if "Conv" in text else "f32[N,6]"
    rng = np.random.default_rng(0)
    mean = np.round(rng.uniform(-1, 1.5, 6), 2)  # whole steps of x's scale
    w = rng.standard_normal(eval(text.split("f32")[1].split("]")[0] + "]")).astype(np.float32)
    outputs = []
    for means in (None, {}, {"x": mean}):
        graph = parse_graph(f"graph @g(%x: {shape}) {{\n {text}\n return %y\n}}", {"w": w})
        if means is not None:
            assert Quantize(RANGES, means).run(graph, Rewriter(graph))
        x = np.broadcast_to(mean.reshape(1, 6, *[1] * (shape.count(",") - 1)), (2, 6, 5, 5)[: shape.count(",") + 1])
        outputs.append(oracle(to_onnx(graph), "reference")({"x": x.astype(np.float32)})["y"])
    exact, plain, corrected = outputs
    assert np.abs(corrected - exact).max() < 0.02 * np.abs(plain - exact).max() + 1e-4
