"""Dequantised products become products of whole numbers: the graph, the scales, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.verify import verify
from parax.compiler.passes.block.integer_products import IntegerProducts
from parax.compiler.passes.rewrite import Rewriter
from passes.check import check_pass

CONSTANTS = """%s = const f32[] 0.5
%z = const u8[] 100
%ws = const f32[4] [0.25, 0.5, 1, 2]
%wz = const i8[4] [0, 1, -1, 2]
%one = const f32[] 0.25
"""
X = "%1 = DequantizeLinear(%x, %s, %z)\n"
W = np.random.default_rng(0).integers(-100, 100, (6, 4)).astype(np.int8)
FILTERS = np.random.default_rng(1).integers(-100, 100, (4, 8, 3, 3)).astype(np.int8)


def rewritten(text: str, **data: np.ndarray) -> list[str]:
    """The operators of the graph behind the pass."""
    graph = parse_graph(text, data)
    assert IntegerProducts().run(graph, Rewriter(graph))
    verify(graph)
    return [node.op.name for node in graph if not node.op.name.startswith("Dequantize")]


def refused(text: str, reason: str, **data: np.ndarray) -> None:
    check_pass(IntegerProducts(), text, None, refuses=reason, data=data, evaluate=False)


def matrix(body: str, dtype: str = "u8") -> str:
    return f'graph @g(%x: {dtype}[N,6]) {{\n{CONSTANTS}%w = const i8[6,4] "w"\n{X}{body}\nreturn %y\n}}'


def image(body: str, filters: str = "4,8,3,3") -> str:
    channels = 8 if filters == "4,8,3,3" else int(filters.split(",")[1]) * (2 if "group" in body else 1)
    return f'graph @g(%x: u8[N,{channels},5,5]) {{\n{CONSTANTS}%w = const i8[{filters}] "w"\n{X}{body}\nreturn %y\n}}'


DQ_COLUMNS = "%2 = DequantizeLinear(%w, %ws, %wz) {axis=1}\n"
DQ_FILTERS = "%2 = DequantizeLinear(%w, %ws, %wz) {axis=0}\n"
SHORT, SCALED = ["Cast", "Cast", "Sub"], ["Cast", "Mul"]


def test_a_product_by_one_scale_a_column() -> None:
    assert rewritten(matrix(DQ_COLUMNS + "%y = MatMul(%1, %2)"), w=W) == [*SHORT, "WideningMatMul", *SCALED]


def test_a_zero_point_of_zero_is_not_subtracted() -> None:
    text = matrix(DQ_COLUMNS + "%y = MatMul(%1, %2)").replace("u8[] 100", "u8[] 0")
    assert rewritten(text, w=W) == ["Cast", "WideningMatMul", *SCALED]


@pytest.mark.parametrize("given", ["", "{alpha=0.5}", "{alpha=0.5, beta=3.0}"])
def test_gemm_keeps_its_factors_and_its_addend(given: str) -> None:
    body = DQ_COLUMNS + f"%y = Gemm(%1, %2, %ws) {given}"
    added = ["Mul", "Add"] if "beta" in given else ["Add"]
    assert rewritten(matrix(body), w=W) == [*SHORT, "WideningMatMul", *SCALED, *added]


def test_transposed_weights_have_their_columns_along_axis_0() -> None:
    text = matrix("%2 = DequantizeLinear(%w, %ws, %wz) {axis=0}\n%y = Gemm(%1, %2) {transB=1}").replace("[6,4]", "[4,6]")
    assert rewritten(text, w=W.T.copy()) == [*SHORT, "WideningMatMul", *SCALED]


def test_transposed_constants_are_transposed_at_once() -> None:
    """Rows of the constants have a scale each, which are columns of the product."""
    text = matrix("%2 = DequantizeLinear(%w, %ws, %wz) {axis=0}\n%3 = Transpose(%2) {perm=[1,0]}\n%y = MatMul(%1, %3)")
    names = rewritten(text.replace("[6,4]", "[4,6]"), w=W.T.copy())
    assert [name for name in names if name != "Transpose"] == [*SHORT, "WideningMatMul", *SCALED]


def test_views_of_what_is_dequantised_are_of_whole_numbers() -> None:
    body = "%3 = Flatten(%1)\n%2 = DequantizeLinear(%w, %ws, %wz) {axis=1}\n%y = MatMul(%3, %2)"
    text = matrix(body).replace("%x: u8[N,6]", "%x: u8[N,2,3]")
    assert [n for n in rewritten(text, w=W)][-5:] == ["Sub", "Flatten", "WideningMatMul", *SCALED]


def test_a_convolution_and_its_bias_in_units_of_the_products() -> None:
    """0.5 · (0.25, 0.5, 1, 2), and as i32."""
    bias = "%b = const i32[4] [1, -2, 3, 4]\n%t = const f32[4] [0.125, 0.25, 0.5, 1]\n"
    body = DQ_FILTERS + bias + "%3 = DequantizeLinear(%b, %t) {axis=0}\n%y = Conv(%1, %2, %3) {pads=[1,1,1,1]}"
    assert rewritten(image(body), w=FILTERS) == [*SHORT, "WideningConv", *SCALED]
    other = body.replace("0.125", "0.126")
    assert rewritten(image(other), w=FILTERS) == [*SHORT, "WideningConv", "Reshape", *SCALED, "Add"]


@pytest.mark.parametrize(("bias", "added"), [
    ([0.125, -0.5, 1.5, 4], False), ([0.125, -0.5, 1.5, 4.4], True), ([0.125, np.inf, 1.5, 4], True),
    ([0.125, np.nan, 1.5, 4], True), ([2.0**29, 0, 0, 0], True)])  # fmt: skip
def test_a_bias_of_f32_that_is_whole_in_units_of_the_products_starts_the_sums(bias: list[float], added: bool) -> None:
    """As it is where DequantizeLinear of a constant was computed before; 2^32 units are no i32."""
    text = image(DQ_FILTERS + "%y = Conv(%1, %2, %b) {pads=[1,1,1,1]}").replace("%w = const", '%b = const f32[4] "b"\n%w = const')
    assert ("Add" in rewritten(text, w=FILTERS, b=np.float32(bias))) == added


IMAGE = np.random.default_rng(2).integers(-100, 100, (4, 3, 3, 3)).astype(np.int8)


def with_quads(text: str, filters: np.ndarray) -> Graph:
    """The graph behind the pass where targets add four products of bytes in one instruction."""
    graph = parse_graph(text, {"w": filters})
    IntegerProducts(adds_quads=True).run(graph, Rewriter(graph))
    verify(graph)
    return graph


def test_an_image_gets_a_channel_of_nothing_and_its_padding() -> None:
    text = image(DQ_FILTERS + "%y = Conv(%1, %2) {pads=[1,0,2,1], strides=[2,2]}", "4,3,3,3")
    graph = with_quads(text, IMAGE)
    pad, product = (next(n for n in graph if n.op.name == name) for name in ("Pad", "WideningConv"))
    np.testing.assert_array_equal(pad.operands[1].data, [0, 0, 1, 0, 0, 1, 2, 1])
    assert pad.operands[2].data == 100 and product.op.pads == (0, 0, 0, 0) and product.op.strides == (2, 2)
    (weights,) = (node.data for node in product.operands[1:2])
    np.testing.assert_array_equal(weights[:, :3], IMAGE - np.int8([0, 1, -1, 2])[:, None, None, None])
    assert not weights[:, 3].any()


@pytest.mark.parametrize("body, filters", [
    ("%y = Conv(%1, %2) {dilations=[1,2]}", "4,3,3,3"), ("%y = Conv(%1, %2)", "4,3,1,1"), ("%y = Conv(%1, %2)", "4,1,3,3"),
    ("%y = Conv(%1, %2) {auto_pad=\"SAME_UPPER\", strides=[2,2]}", "4,3,1,1"),
], ids=["pixels apart", "no line", "mostly nothing", "no line, padded"])  # fmt: skip
def test_what_is_no_run_of_quads_stays(body: str, filters: str) -> None:
    weights = np.ones([int(n) for n in filters.split(",")], np.int8)
    assert [n.op.name for n in with_quads(image(DQ_FILTERS + body, filters), weights) if n.op.name == "Pad"] == []


def test_an_image_stays_where_four_products_take_several_instructions() -> None:
    refused(image(DQ_FILTERS + "%y = Conv(%1, %2)", "4,3,3,3"), "no constant weights of whole pairs", w=IMAGE)


STEP = "%t = const f32[] 2\n%u = const u8[] 7\n"


@pytest.mark.parametrize("relu", [False, True])
def test_the_scale_of_a_quantisation_goes_into_the_products(relu: bool) -> None:
    body = DQ_COLUMNS + STEP + "%3 = MatMul(%1, %2)\n%4 = Relu(%3)\n" + f"%y = QuantizeLinear(%{4 if relu else 3}, %t, %u)"
    graph = parse_graph(matrix(body if relu else body.replace("%4 = Relu(%3)\n", "")), {"w": W})
    assert IntegerProducts().run(graph, Rewriter(graph))
    verify(graph)
    names = [node.op.name for node in graph if not node.op.name.startswith("Dequantize")]
    assert names == [*SHORT, "WideningMatMul", *SCALED, *(["Relu"] if relu else []), "RoundTo"]
    (factor,) = (node.operands[1].data for node in graph if node.op.name == "Mul")
    np.testing.assert_array_equal(factor, np.float32([0.25, 0.5, 1, 2]) * np.float32(0.5) / 2)


KEPT = {
    "two readers": "%3 = MatMul(%1, %2)\n%5 = Relu(%3)\n%6 = QuantizeLinear(%3, %t, %u)\n%4 = DequantizeLinear(%6, %t, %u)\n"
                   "%y = Add(%4, %5)",
    "an addend": "%3 = Gemm(%1, %2, %ws)\n%y = QuantizeLinear(%3, %t, %u)",
    "a scale a column": "%3 = MatMul(%1, %2)\n%y = QuantizeLinear(%3, %ws) {axis=1}",
    "a scale of zero": "%3 = MatMul(%1, %2)\n%0 = const f32[] 0\n%y = QuantizeLinear(%3, %0, %u)",
    "a sigmoid": "%3 = MatMul(%1, %2)\n%4 = Sigmoid(%3)\n%y = QuantizeLinear(%4, %t, %u)",
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_other_quantisations_stay(name: str) -> None:
    assert "QuantizeLinear" in rewritten(matrix(DQ_COLUMNS + STEP + KEPT[name]), w=W)


def test_weights_less_their_zero_points_are_i16_where_they_need_it() -> None:
    text = matrix(DQ_COLUMNS + "%y = MatMul(%1, %2)").replace("const i8", "const u8")
    graph = parse_graph(text.replace("[0, 1, -1, 2]", "[0, 1, 255, 2]"), {"w": W.view(np.uint8)})
    IntegerProducts().run(graph, Rewriter(graph))
    (product,) = (node for node in graph if node.op.name == "WideningMatMul")
    assert product.operands[1].data.dtype == np.int16
    np.testing.assert_array_equal(product.operands[1].data, W.view(np.uint8).astype(int) - [0, 1, 255, 2])


REFUSED = {
    "floats": (matrix("%2 = DequantizeLinear(%w, %one)\n%3 = Relu(%1)\n%y = MatMul(%3, %2)"), "not both operands"),
    "rows of scales": (matrix("%2 = DequantizeLinear(%w, %v) {axis=0}\n%y = MatMul(%1, %2)").replace(
        "%one =", "%v = const f32[6] [1, 2, 3, 4, 5, 6]\n%one ="), "along a contracted axis"),
    "scales of the rows of A": (matrix(DQ_COLUMNS + "%y = MatMul(%1, %2)").replace(
        "%s = const f32[] 0.5", "%s = const f32[6] [1, 2, 3, 4, 5, 6]").replace(", %z)", ")"), "along a contracted axis"),
    "a transposed A": (matrix(DQ_COLUMNS + "%y = Gemm(%1, %2) {transA=1}").replace("[N,6]", "[6,3]"), "contracted axis"),
    "scales that vanish": (matrix(DQ_COLUMNS + "%y = MatMul(%1, %2)").replace("[] 0.5", "[] 1e-36"), "no usual ones"),
    "a scale of infinity": (matrix(DQ_COLUMNS + "%y = MatMul(%1, %2)").replace("[] 0.5", "[] inf"), "no usual ones"),
    "a negative scale": (matrix(DQ_COLUMNS + "%y = MatMul(%1, %2)").replace("[] 0.5", "[] -0.5"), "no usual ones"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_products_that_stay(name: str) -> None:
    text, reason = REFUSED[name]
    refused(text, reason, w=W)


@pytest.mark.parametrize("filters", ["4,6,3,3", "4,9,3,3"])
def test_convolutions_of_few_or_odd_channels_stay(filters: str) -> None:
    shape = tuple(map(int, filters.split(",")))
    refused(image(DQ_FILTERS + "%y = Conv(%1, %2)", filters), "whole pairs", w=np.ones(shape, np.int8))


def test_grouped_convolutions_stay() -> None:
    text = image(DQ_FILTERS + "%y = Conv(%1, %2) {group=2}", "4,8,1,1")
    refused(text, "whole pairs", w=np.ones((4, 8, 1, 1), np.int8))


def test_computed_weights_stay() -> None:
    text = matrix(DQ_COLUMNS + "%y = MatMul(%1, %2)").replace('%w = const i8[6,4] "w"\n', "")
    refused(text.replace("%x: u8[N,6]", "%x: u8[N,6], %w: i8[6,4]"), "computed")


def test_sums_that_may_leave_i32_stay_f32() -> None:
    depth = 2**31 // (155 * 127) + 1  # |x - 100| <= 155
    text = f'graph @g(%x: u8[N,{depth}]) {{\n{CONSTANTS}%w = const i8[{depth},2] "w"\n{X}'
    text += "%2 = DequantizeLinear(%w, %s)\n%y = MatMul(%1, %2)\nreturn %y\n}"
    w = np.full((depth, 2), 127, np.int8)
    refused(text, "may leave i32", w=w)
    w[:50] = 0
    assert "WideningMatMul" in rewritten(text, w=w)


def test_a_bias_that_would_leave_i32_is_added_in_f32() -> None:
    text = image(DQ_FILTERS + "%3 = DequantizeLinear(%b, %bs) {axis=0}\n%y = Conv(%1, %2, %3) {pads=[1,1,1,1]}")
    text = text.replace('%w = const', '%b = const i32[4] "b"\n%bs = const f32[4] [0.125, 0.25, 0.5, 1]\n%w = const')
    assert rewritten(text, w=FILTERS, b=np.full(4, 1000, np.int32))[-2:] == ["Cast", "Mul"]
    assert rewritten(text, w=FILTERS, b=np.full(4, 2**31 - 1, np.int32))[-1] == "Add"


def test_depthwise_convolutions_are_of_whole_numbers() -> None:
    text = image(DQ_FILTERS + "%y = Conv(%1, %2) {group=4}", "4,1,3,3").replace("u8[N,2,5,5]", "u8[N,4,5,5]")
    assert rewritten(text, w=FILTERS[:, :1].copy()) == [*SHORT, "WideningConv", *SCALED]


def test_depthwise_convolutions_that_f32_may_round_stay() -> None:
    text = image(DQ_FILTERS + "%y = Conv(%1, %2) {group=4}", "4,1,33,33").replace("u8[N,2,5,5]", "u8[N,4,50,50]")
    refused(text, "may leave", w=np.full((4, 1, 33, 33), 127, np.int8))
