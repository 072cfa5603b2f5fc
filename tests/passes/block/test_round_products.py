"""Products of f32 become products of bf16: the graph, what is kept as bf16, and what is left alone."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from parax.compiler.backend.half_products import gains_by_halves
from parax.compiler.backend.host import resolve_target
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.verify import verify
from parax.compiler.passes.block.round_products import RoundProducts
from parax.compiler.passes.dataflow.dead_code import DeadCode
from parax.compiler.passes.rewrite import Rewriter
from passes.check import check_pass

W = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
FILTERS = np.random.default_rng(1).standard_normal((8, 8, 3, 3)).astype(np.float32)
CONV = "Conv(%{}, %w) {{pads=[1,1,1,1]}}"


def rounded(text: str, **data: np.ndarray) -> Graph:
    """The graph behind the pass, which a second run leaves alone."""
    graph = parse_graph(text, data)
    assert RoundProducts().run(graph, Rewriter(graph))
    verify(graph)
    assert not RoundProducts().run(graph, Rewriter(graph))
    DeadCode().run(graph, Rewriter(graph))
    return graph


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph]


def kept(graph: Graph) -> dict[str, str]:
    """The element type of each node's result, by its operator."""
    return {node.op.name: node.output.tensor.dtype.name for node in graph}


def refused(text: str, reason: str, **data: np.ndarray) -> None:
    check_pass(RoundProducts(), text, None, refuses=reason, data=data, evaluate=False)


def matrix(body: str, shape: str = "N,6", weights: str = "6,4") -> str:
    return f'graph @g(%x: f32[{shape}]) {{\n%w = const f32[{weights}] "w"\n{body}\nreturn %y\n}}'


def image(body: str, filters: str = "8,8,3,3") -> str:
    return f'graph @g(%x: f32[N,8,6,6]) {{\n%w = const f32[{filters}] "w"\n{body}\nreturn %y\n}}'


def test_weights_are_rounded_to_the_nearest() -> None:
    graph = rounded(matrix("%y = MatMul(%x, %w)"), w=W)
    assert names(graph) == ["RoundToBf16", "Bf16MatMul"]
    data = list(graph)[1].operands[1].data
    assert data is not None and data.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(data, W.astype(ml_dtypes.bfloat16))


def test_weights_beyond_the_greatest_bf16_are_infinities() -> None:
    data = list(rounded(matrix("%y = MatMul(%x, %w)"), w=np.full((6, 4), 3.4e38, np.float32)))[1].operands[1].data
    assert np.isposinf(data.astype(np.float32)).all()  # type: ignore[union-attr]


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize(("given", "more"), [("", []), (", alpha=0.5", ["Mul"]), (", beta=0.0", None),
                                             (", alpha=0.5, beta=3.0", ["Mul", "Mul"])])  # fmt: skip
def test_the_factors_of_gemm_are_of_f32(transposed: int, given: str, more: list[str] | None) -> None:
    c = "%c = const f32[4] [1, 2, 3, 4]\n"
    body = f"{c}%y = Gemm(%x, %w, %c) {{transB={transposed}{given}}}"
    text = matrix(body, weights="4,6" if transposed else "6,4")
    graph = rounded(text, w=W.T.copy() if transposed else W)
    assert names(graph) == ["RoundToBf16", "Bf16MatMul", *([] if more is None else [*more, "Add"])]
    np.testing.assert_array_equal(list(graph)[1].operands[1].data, W.astype(ml_dtypes.bfloat16))


def test_a_convolution_keeps_its_attributes_and_its_bias_in_f32() -> None:
    body = "%b = const f32[8] [1, 2, 3, 4, 5, 6, 7, 8]\n%y = Conv(%x, %w, %b) {pads=[1,1,1,1], strides=[2,2]}"
    graph = rounded(image(body), w=FILTERS)
    assert names(graph) == ["RoundToBf16", "Bf16Conv"]
    conv = list(graph)[1]
    assert conv.op.attributes()["strides"] == (2, 2) and conv.operands[2].tensor.dtype.name == "f32"
    assert conv.output.tensor.dtype.name == "f32"


def test_what_a_product_reads_is_kept_as_bf16_by_element_wise_readers_too() -> None:
    """A residual addition reads the rounded tensor; between convolutions nothing else is stored."""
    body = f"%1 = Relu(%x)\n%2 = {CONV.format(1)}\n%3 = Add(%2, %1)\n%4 = {CONV.format(3)}\n%y = Relu(%4)"
    graph = rounded(image(body), w=FILTERS)
    assert names(graph) == ["Relu", "RoundToBf16", "Bf16Conv", "Cast", "Add", "RoundToBf16", "Bf16Conv", "Relu"]
    relu, half, conv, wide, add, *_ = graph
    assert half.inputs == (relu.output,) or list(half.inputs) == [relu.output]
    assert conv.inputs[0] is half.output and wide.inputs[0] is half.output and add.inputs[1] is wide.output
    assert len(relu.output.uses) == 1


def test_an_input_is_there_in_f32_for_others() -> None:
    graph = rounded(image(f"%1 = {CONV.format('x')}\n%y = Add(%1, %x)"), w=FILTERS)
    assert names(graph) == ["RoundToBf16", "Bf16Conv", "Add"]


def test_several_products_of_a_tensor_round_it_once() -> None:
    graph = rounded(matrix("%1 = Relu(%x)\n%2 = MatMul(%1, %w)\n%3 = MatMul(%1, %w)\n%y = Add(%2, %3)"), w=W)
    assert names(graph).count("RoundToBf16") == 1


def test_an_output_and_what_others_than_element_wise_nodes_read_stay_in_f32() -> None:
    text = matrix("%1 = Relu(%x)\n%y = MatMul(%1, %w)\n%z = Add(%1, %1)").replace("return %y", "return %y, %1, %z")
    graph = rounded(text, w=W)
    assert next(node for node in graph if node.op.name == "Add").inputs[0].producer.op.name == "Relu"  # type: ignore[union-attr]
    text = matrix("%1 = Relu(%x)\n%2 = MatMul(%1, %w)\n%3 = Softmax(%1)\n%4 = Concat(%2, %3) {axis=1}\n%y = Relu(%4)")
    softmax = next(node for node in rounded(text, w=W) if node.op.name == "Softmax")
    assert softmax.inputs[0].producer.op.name == "Relu"  # type: ignore[union-attr]


def test_rounding_goes_above_views_and_maxima() -> None:
    pooled = f"%1 = Relu(%x)\n%2 = MaxPool(%1) {{kernel_shape=[2,2]}}\n%y = {CONV.format(2)}"
    assert kept(rounded(image(pooled), w=FILTERS))["MaxPool"] == "bf16"
    turned = matrix("%1 = Relu(%x)\n%2 = Transpose(%1) {perm=[1,0]}\n%y = MatMul(%2, %w)", shape="6,N")
    assert names(rounded(turned, w=W)) == ["Relu", "RoundToBf16", "Transpose", "Bf16MatMul"]
    both = f"%1 = Relu(%x)\n%2 = MaxPool(%1) {{kernel_shape=[2,2]}}\n%3 = {CONV.format(2)}\n%4 = MaxPool(%1) " \
           "{kernel_shape=[2,2]}\n%y = Add(%3, %4)"  # fmt: skip
    assert kept(rounded(image(both), w=FILTERS))["Relu"] == "f32"
    readers = f"%1 = Relu(%x)\n%2 = MaxPool(%1) {{kernel_shape=[2,2]}}\n%3 = {CONV.format(2)}\n%4 = {CONV.format(2)}\n"
    graph = rounded(image(f"{readers}%y = Add(%3, %4)"), w=FILTERS)
    assert names(graph) == ["Relu", "RoundToBf16", "MaxPool", "Bf16Conv", "Bf16Conv", "Add"]
    graph = rounded(image(f"{readers}%5 = Abs(%2)\n%6 = Add(%3, %4)\n%y = Add(%6, %5)"), w=FILTERS)
    assert kept(graph)["Relu"] == "f32" and kept(graph)["MaxPool"] == "f32"


@pytest.mark.parametrize(("text", "reason", "data"), [
    (matrix("%y = MatMul(%x, %x)", shape="6,6"), "without constant weights", {"w": W}),
    (matrix("%y = MatMul(%w, %x)", shape="4,6"), "without constant weights", {"w": W}),
    (matrix("%y = MatMul(%x, %w)", shape="6"), "not rows by one matrix", {"w": W}),
    (matrix("%y = Gemm(%x, %w) {transA=1}", shape="6,N"), "not rows by one matrix", {"w": W}),
    (matrix("%y = MatMul(%x, %w)", shape="2,N,6", weights="2,6,4"), "not rows by one matrix", {"w": np.stack([W, W])}),
    (matrix("%y = MatMul(%x, %w)", shape="N,1", weights="1,4"), "no sum", {"w": W[:1]}),
    (image("%y = Conv(%x, %w) {group=2}", "8,4,3,3"), "no whole pairs", {"w": FILTERS[:, :4].copy()}),
])  # fmt: skip
def test_what_is_left_alone(text: str, reason: str, data: dict[str, np.ndarray]) -> None:
    refused(text, reason, **data)


def test_a_computed_bias_and_other_types_are_left_alone() -> None:
    text = image("%b = Relu(%c)\n%y = Conv(%x, %w, %b)").replace("%x: f32[N,8,6,6]", "%x: f32[N,8,6,6], %c: f32[8]")
    refused(text, "its bias is computed", w=FILTERS)
    refused(matrix("%y = MatMul(%x, %w)").replace("f32", "f64"), "not f32", w=W.astype(np.float64))


def test_a_table_that_rows_are_looked_up_in_takes_half_the_bytes() -> None:
    text = """graph @g(%i: i64[N]) {\n%t = const f32[64,6] "t"\n%w = const f32[6,4] "w"\n%1 = Gather(%t, %i)
    %y = MatMul(%1, %w)\nreturn %y\n}"""
    table = np.random.default_rng(2).standard_normal((64, 6)).astype(np.float32)
    graph = rounded(text, t=table, w=W)
    gather = next(node for node in graph if node.op.name == "Gather")
    np.testing.assert_array_equal(gather.operands[0].data, table.astype(ml_dtypes.bfloat16))
    assert names(graph) == ["Gather", "Bf16MatMul"]
    whole = rounded(text, t=np.arange(384, dtype=np.float32).reshape(64, 6), w=W)
    assert next(node for node in whole if node.op.name == "Gather").operands[0].tensor.dtype.name == "f32"
    few = rounded(text.replace("[64,6]", "[63,6]"), t=table[:63].copy(), w=W)
    assert next(node for node in few if node.op.name == "Gather").operands[0].tensor.dtype.name == "f32"


ATTENTION = """graph @g(%x: f32[N,9,6], %past: f32[N,9,6]) {
    %w = const f32[6,4] "w"\n%q = Mul(%x, %x)\n%k = Neg(%x)\n%kt = Transpose(KEYS) {perm=[0,2,1]}
    %1 = parax::DotProductAttention(%q, %kt, %k) {scale=0.5}\n%y = MatMul(%1, %w)\nreturn %y\n}"""


def test_attention_to_what_is_computed_multiplies_bf16() -> None:
    graph = rounded(ATTENTION.replace("KEYS", "%k"), w=W)
    assert sorted(names(graph)) == sorted([*["RoundToBf16"] * 2, "Mul", "Neg", "Transpose", "Bf16Attention", "Bf16MatMul"])
    made = next(node for node in graph if node.op.name == "Bf16Attention")
    assert made.op.attributes()["scale"] == 0.5 and made.output.tensor.dtype.name == "bf16"
    assert next(node for node in graph if node.op.name == "Bf16MatMul").inputs[0] is made.output


def test_attention_to_what_calls_before_have_left_is_not_rounded_again() -> None:
    graph = rounded(ATTENTION.replace("KEYS", "%past"), w=W)
    assert "DotProductAttention" in names(graph)


def test_a_depthwise_convolution_of_what_is_computed_reads_bf16() -> None:
    filters = np.random.default_rng(3).standard_normal((8, 1, 3, 3)).astype(np.float32)
    text = image("%1 = Relu(%x)\n%y = Conv(%1, %w) {group=8}", "8,1,3,3")
    assert names(rounded(text, w=filters)) == ["Relu", "RoundToBf16", "Bf16Conv"]
    refused(image("%y = Conv(%x, %w) {group=8}", "8,1,3,3"), "no whole pairs of one group", w=filters)


def test_what_is_joined_and_pooled_is_rounded_where_it_is_made() -> None:
    text = image(f"""%1 = Relu(%x)\n%2 = Neg(%x)\n%3 = Concat(%2, %1) {{axis=1}}\n%4 = Conv(%3, %w)
    %5 = MaxPool(%1) {{kernel_shape=[2,2]}}\n%8 = MaxPool(%2) {{kernel_shape=[2,2]}}
    %6 = Concat(%5, %8) {{axis=1}}\n%7 = {CONV.format(6)}
    %y = ReduceSum(%4)\n%z = ReduceSum(%7)""", "8,16,3,3").replace("return %y", "return %y, %z")
    filters = np.random.default_rng(4).standard_normal((8, 16, 3, 3)).astype(np.float32)
    graph = rounded(text, w=filters)
    rounds = [node for node in graph if node.op.name == "RoundToBf16"]
    assert sorted(node.inputs[0].producer.op.name for node in rounds) == ["Neg", "Relu"]  # type: ignore[union-attr]
    assert all(t == "bf16" for name, t in kept(graph).items() if name in ("Concat", "MaxPool"))


def of_a_step(text: str) -> Graph:
    """The graph behind the pass as a training step has it, which a second run leaves alone."""
    graph = parse_graph(text, {})
    assert RoundProducts(rounds_computed=True).run(graph, Rewriter(graph))
    verify(graph)
    DeadCode().run(graph, Rewriter(graph))
    before = len(graph)
    assert not RoundProducts(rounds_computed=True).run(graph, Rewriter(graph)) and len(graph) == before
    return graph


STEP = """graph @g(%x: f32[N,6], %w: f32[4,6], %dy: f32[N,4]) {
  %r = Relu(%x)
  %y = Gemm(%r, %w) {transB=1}
  %dx = Gemm(%dy, %w)
  %dw = Gemm(%dy, %r) {transA=1, alpha=0.5}
  return %y, %dx, %dw
}"""


def test_products_by_what_is_computed_round_both_operands_once() -> None:
    graph = of_a_step(STEP.replace("N", "9"))
    assert sorted(names(graph)) == sorted(["Relu", *["RoundToBf16"] * 3, "Transpose", "Bf16MatMul", "Bf16MatMul", "Transpose",
                                           "Bf16MatMul", "Mul"])  # fmt: skip
    assert [v.tensor.dtype.name for v in graph.outputs] == ["f32"] * 3


def test_sums_over_open_rows_stay_in_f32() -> None:
    assert names(of_a_step(STEP)).count("Bf16MatMul") == 2 and "Gemm" in names(of_a_step(STEP))


def test_a_weight_is_rounded_once_in_whichever_order_it_is_read() -> None:
    text = """graph @g(%x: f32[9,6], %w: f32[6,6]) {{
      %t = Transpose(%w) {{perm=[1,0]}}
      %y = MatMul(%x, %{})
      %z = MatMul(%y, %{})
      return %z
    }}"""
    for order in (("w", "t"), ("t", "w")):
        graph = of_a_step(text.format(*order))
        rounded_w = [n for n in graph if n.op.name == "RoundToBf16" and n.inputs[0] is graph.inputs[1]]
        assert len(rounded_w) == 1 and names(graph).count("Bf16MatMul") == 2


def test_a_convolution_by_computed_filters_keeps_its_computed_bias() -> None:
    text = """graph @g(%x: f32[2,8,6,6], %w: f32[8,8,3,3], %b: f32[8]) {
      %c = Relu(%b)
      %y = Conv(%x, %w, %c) {pads=[1,1,1,1]}
      return %y
    }"""
    graph = of_a_step(text)
    conv = next(node for node in graph if node.op.name == "Bf16Conv")
    assert conv.operands[2].tensor.dtype.name == "f32" and conv.operands[1].tensor.dtype.name == "bf16"


def test_batches_of_products_are_rounded_in_a_step_alone() -> None:
    text = "graph @g(%q: f32[2,9,6], %k: f32[2,6,9]) {\n%y = MatMul(%q, %k)\nreturn %y\n}"
    assert names(of_a_step(text)) == ["RoundToBf16", "RoundToBf16", "Bf16MatMul"]
    refused(text, "without constant weights")


@pytest.mark.parametrize(("filters", "attributes", "rounds"), [
    ("16,16,3,3", "pads=[1,1,1,1]", False), ("16,16,3,3", "strides=[2,2]", True), ("16,16,1,1", "", True),
    ("40,16,3,3", "", True), ("16,16,3,3", "dilations=[2,2]", True),
])  # fmt: skip
def test_filters_that_winograds_algorithm_serves_stay_in_f32(filters: str, attributes: str, rounds: bool) -> None:
    text = f"graph @g(%x: f32[2,16,9,9], %w: f32[{filters}]) {{\n%y = Conv(%x, %w) {{{attributes}}}\nreturn %y\n}}"
    graph, others = parse_graph(text, {}), [resolve_target("x86-64-v3")]
    targets = [resolve_target("x86-64-v4+avx512bf16")]
    made = RoundProducts(rounds_computed=True, gains_by_halves=gains_by_halves(targets))
    assert made.run(graph, Rewriter(graph)) == rounds
    graph = parse_graph(text, {})
    on_others = RoundProducts(rounds_computed=True, gains_by_halves=gains_by_halves(others))
    assert not on_others.run(graph, Rewriter(graph))


@pytest.mark.parametrize(("filters", "attributes", "rounds"), [
    ("8,8,2,2", "strides=[2,2]", True), ("8,8,3,3", "group=1, output_padding=[1,1], strides=[2,2]", True),
    ("8,7,2,2", "strides=[2,2]", False), ("8,16,2,2", "group=2, strides=[2,2]", False),
])  # fmt: skip
def test_transposed_convolutions_of_whole_pairs_and_enough_outputs_are_rounded(filters: str, attributes: str,
                                                                                rounds: bool) -> None:  # fmt: skip
    """Where targets multiply pairs in vectors; by computed filters, and elsewhere, they stay in f32."""
    shape = [*map(int, filters.split(","))]
    w = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    channels = shape[1] * (2 if "group=2" in attributes else 1)
    bias = f"%b = const f32[{channels}] {[1] * channels}"
    text = image(f"{bias}\n%1 = Relu(%x)\n%y = ConvTranspose(%1, %w, %b) {{{attributes}}}", filters)
    if not rounds:
        refused(text, "of few channels", w=w)
        return
    graph = rounded(text, w=w)
    assert names(graph) == ["Relu", "RoundToBf16", "Bf16ConvTranspose"]
    *_, convolution = graph
    assert [v.tensor.dtype.name for v in (*convolution.operands, convolution.output)] == ["bf16", "bf16", "f32", "f32"]
    for target, gains in (("x86-64-v4+avx512bf16", True), ("x86-64-v3", False), ("x86-64-v4+amx-bf16+amx-tile", False)):
        made = RoundProducts(gains_by_halves=gains_by_halves([resolve_target(target)]))
        graph = parse_graph(text, {"w": w})
        assert made.run(graph, Rewriter(graph)) == gains


@pytest.mark.parametrize(("width", "filters", "attributes", "rounds"), [
    ("8", "8,8,2,2", "strides=[2,2]", True), ("8", "8,9,2,3", "strides=[2,3]", True),
    ("7", "8,8,2,2", "strides=[2,2]", False), ("W", "8,8,2,2", "strides=[2,2]", False),
    ("8", "8,8,3,3", "strides=[2,2]", False), ("8", "8,8,2,2", "pads=[1,0,0,0], strides=[2,2]", False),
    ("8", "8,8,2,2", "output_padding=[1,0], strides=[2,2]", False), ("8", "8,8,2,2", "", False),
])  # fmt: skip
def test_matrix_registers_take_transposed_convolutions_whose_filters_do_not_overlap(
    width: str, filters: str, attributes: str, rounds: bool
) -> None:
    text = f'graph @g(%x: f32[N,8,6,{width}]) {{\n%w = const f32[{filters}] "w"\n%y = ConvTranspose(%x, %w) {{{attributes}}}'
    graph = parse_graph(f"{text}\nreturn %y\n}}", {"w": np.ones([*map(int, filters.split(","))], np.float32)})
    made = RoundProducts(gains_by_halves=gains_by_halves([resolve_target("x86-64-v4+amx-bf16+amx-tile")]))
    assert made.run(graph, Rewriter(graph)) == rounds


def test_a_transposed_convolution_by_computed_filters_stays_in_f32() -> None:
    text = """graph @g(%x: f32[2,8,6,6], %w: f32[8,8,2,2]) {
      %y = ConvTranspose(%x, %w) {strides=[2,2]}
      return %y
    }"""
    graph = parse_graph(text, {})
    assert not RoundProducts(rounds_computed=True).run(graph, Rewriter(graph))


@pytest.mark.parametrize(("shape", "filters", "attributes", "pairs", "matrices"), [
    ("N,3,224,224", "64,3,7,7", "pads=[3,3,3,3], strides=[2,2]", True, True),
    ("N,3,224,224", "64,3,7,7", "strides=[2,2]", True, False),  # 109 pixels a row
    ("N,3,224,224", "768,3,16,16", "strides=[16,16]", True, True), ("N,1,H,W", "64,1,5,5", "", True, False),
    ("N,3,224,224", "32,3,3,3", "pads=[1,1,1,1], strides=[2,2]", False, True),
    ("N,3,224,224", "96,3,4,4", "strides=[4,4]", False, True),
    ("N,3,32,32", "64,3,7,7", "dilations=[1,2]", False, False), ("N,3,320", "64,3,16", "", False, False),
    ("N,3,32,32", "63,1,7,7", "group=3", False, False), ("N,3,32,32", "15,3,3,3", "pads=[1,1,1,1]", False, False),
])  # fmt: skip
def test_convolutions_of_few_channels_are_rounded_where_that_saves_enough(
    shape: str, filters: str, attributes: str, pairs: bool, matrices: bool
) -> None:
    text = f'graph @g(%x: f32[{shape}]) {{\n%w = const f32[{filters}] "w"\n%y = Conv(%x, %w) {{{attributes}}}\nreturn %y\n}}'
    w = np.ones([*map(int, filters.split(","))], np.float32)
    able = {"x86-64-v4+avx512bf16": pairs, "x86-64-v3": False, "x86-64-v4+amx-bf16+amx-tile": matrices}
    for target, rounds in able.items():
        graph = parse_graph(text, {"w": w})
        made = RoundProducts(gains_by_halves=gains_by_halves([resolve_target(target)]))
        assert made.run(graph, Rewriter(graph)) == rounds
        assert not rounds or names(graph) == ["RoundToBf16", "Bf16Conv"]
