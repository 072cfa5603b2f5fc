"""EqualiseChannels: f32 results stay what they are, channels come to reach as far, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.oracle import best_kind, oracle
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.verify import verify
from parax.compiler.passes.quantize.equalise_channels import EqualiseChannels
from parax.compiler.passes.rewrite import Rewriter

UNEVEN = np.array([1.0, 32.0, 0.5, 1.0])
CONV = """graph @g(%x: f32[N,3,7,7]) {
  %w = const f32[4,3,3,3] "w"\n  %b = const f32[4] "b"\n  %v = const f32[5,4,1,1] "v"
  %a = Conv(%x, %w, %b) : f32[N,4,5,5]
  %r = Relu(%a) : f32[N,4,5,5]
  %p = MaxPool(%r) {kernel_shape=[2,2]} : f32[N,4,4,4]
  %y = Conv(%p, %v) : f32[N,5,4,4]
  return %y\n}"""
DEPTHWISE = CONV.replace("[5,4,1,1]", "[4,1,1,1]").replace("Conv(%p, %v)", "Conv(%p, %v) {group=4}").replace(
    "%y = Conv(%p, %v) {group=4} : f32[N,5,4,4]", "%y = Conv(%p, %v) {group=4} : f32[N,4,4,4]")  # fmt: skip
LINES = """graph @g(%x: f32[N,6,4]) {
  %g = const f32[4] "gain"\n  %b = const f32[4] "b"\n  %v = const f32[4,5] "v"\n  %u = const f32[4,2] "u"
  %p = LayerNormalization(%x, %g, %b) : f32[N,6,4]
  %y = MatMul(%p, %v) : f32[N,6,5]
  %z = MatMul(%p, %u) : f32[N,6,2]
  return %y, %z\n}"""
SHIFTED = """graph @g(%x: f32[N,3]) {
  %w = const f32[3,4] "w"\n  %b = const f32[4] "b"\n  %v = const f32[5,4] "v"\n  %c = const f32[] 2
  %a = MatMul(%x, %w) : f32[N,4]
  %s = Add(%a, %b) : f32[N,4]
  %p = LeakyRelu(%s) : f32[N,4]
  %y = Gemm(%p, %v, %c) {transB=1} : f32[N,5]
  return %y\n}"""
READ_TWICE = CONV.replace("return %y", "return %y, %p")
TANH = CONV.replace("Relu", "Tanh")


def graph_of(text: str) -> Graph:
    """Weights whose output channels reach as UNEVEN says, and those behind them evenly."""
    rng = np.random.default_rng(3)
    made = {key: rng.standard_normal(shape).astype(np.float32) for key, shape in
            {"b": 4, "gain": 4, "u": (4, 2)}.items()}  # fmt: skip
    shapes = {"w": (3, 4) if "MatMul(%x" in text else (4, 3, 3, 3),
              "v": next(tuple(map(int, s.split("]")[0].split(","))) for s in text.split("%v = const f32[")[1:])}
    made |= {key: rng.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
    uneven = UNEVEN.astype(np.float32)
    made["w"] *= uneven if made["w"].ndim == 2 else uneven[:, None, None, None]
    made["b"], made["gain"] = made["b"] * uneven, made["gain"] * uneven
    return parse_graph(text, made)


def outputs(graph: Graph, x: np.ndarray) -> dict[str, np.ndarray]:
    return oracle(to_onnx(graph), best_kind())({"x": x})


def reach_of(graph: Graph, name: str, x: np.ndarray, axis: int) -> np.ndarray:
    copy = graph.clone()
    copy.set_outputs([copy.value(name)], ["seen"])
    by_channel = np.moveaxis(outputs(copy, x)["seen"], axis, -1)
    return np.abs(by_channel.reshape(-1, by_channel.shape[-1])).max(0).astype(np.float64)


@pytest.mark.parametrize(("text", "inserts", "n_nodes"), [
    (CONV, False, 0), (CONV, True, 0), (DEPTHWISE, False, 0), (LINES, False, 0), (SHIFTED, False, 0),
    (READ_TWICE, True, 1), (TANH, True, 1),
], ids=["conv", "conv-inserts", "depthwise", "lines", "shifted", "read-twice", "tanh"])  # fmt: skip
@pytest.mark.parametrize("rows", [1, 3])
def test_results_stay_and_channels_come_closer(text: str, inserts: bool, n_nodes: int, rows: int) -> None:
    graph = graph_of(text)
    shape = [rows if dim == "N" else int(dim) for dim in map(str, graph.inputs[0].tensor.dims)]
    x = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    axis = 1 if "Conv(%p" in text else -1
    before, reach, n = outputs(graph, x), reach_of(graph, "p", x, axis), len(graph)
    given = reach if "Tanh" not in text else UNEVEN  # a tanh's channels are alike: as if they were not
    assert EqualiseChannels({"p": given}, inserts).run(graph, Rewriter(graph))
    verify(graph)
    assert len(graph) == n + n_nodes
    after = outputs(graph, x)
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=2e-6, atol=2e-6 * np.abs(before[name]).max())
    if not n_nodes:
        found = reach_of(graph, "p", x, axis)
        spread = found.max() / found.min(), reach.max() / reach.min()
        assert spread[0] < (2.1 if text is DEPTHWISE else spread[1] / 3)


def test_what_is_left_alone() -> None:
    for text, reason in ((READ_TWICE, "no constants before"), (TANH, "no constants before")):
        graph = graph_of(text)
        rw = Rewriter(graph)
        assert not EqualiseChannels({"p": UNEVEN}).run(graph, rw) and any(reason in miss for miss in rw.misses)
    graph = graph_of(DEPTHWISE)
    rw = Rewriter(graph)
    assert not EqualiseChannels({"p": np.ones(4)}).run(graph, rw) and any("alike" in miss for miss in rw.misses)
    assert not EqualiseChannels({"p": np.zeros(4)}).run(graph, rw), "dead channels say nothing"
    assert not EqualiseChannels({}).run(graph, rw)


def test_a_slight_difference_is_no_reason_for_a_node() -> None:
    graph = graph_of(TANH.replace("[5,4,1,1]", "[4,1,1,1]").replace("Conv(%p, %v) : f32[N,5", "Conv(%p, %v) {group=4} : f32[N,4"))
    assert not EqualiseChannels({"p": np.array([1.0, 2.0, 1.0, 1.0])}, True).run(graph, Rewriter(graph))
