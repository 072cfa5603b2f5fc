"""ResultNodes: what passes a Result and what passes by; results of the graph stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parax.compiler.frontend.evaluate import evaluate_graph
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops.internal import Result
from parax.compiler.ir.schedule import Branch, Layer, Mode, Schedule, Stage
from parax.compiler.ir.text import parse_graph, print_graph
from parax.compiler.ir.types import F32, TensorType
from parax.compiler.ir.verify import verify
from parax.compiler.ir.views import roots, view_source
from parax.compiler.passes.partition.result_nodes import ResultNodes
from parax.compiler.passes.rewrite import Rewriter
from parax.errors import InternalError, InvalidModel
from passes.check import check_pass


def stages(*layers: str, mode: Mode = "pipelined") -> Schedule:
    """A schedule of the nodes of these layers; of a pipeline, each text is a stage whose layers `|` parts."""
    made = [Stage(tuple(Layer((Branch(i, 1, tuple(names.split())),)) for names in text.split("|")), i, 1)
            for i, text in enumerate(layers)]  # fmt: skip
    return Schedule(mode, len(layers), tuple(made))


def layered(*layers: str) -> Schedule:
    return stages(" | ".join(layers), mode="layered")


CHAIN = """graph @g(%x: f32[4]) {
  %w = const f32[4] [1.0, 2.0, 3.0, 4.0]
  %1 = Relu(%x) : f32[4]
  %2 = Mul(%1, %w) : f32[4]
  %3 = Neg(%2) : f32[4]
  return %3
}"""


def test_a_layer_ends_in_a_result() -> None:
    check_pass(ResultNodes(layered("1", "2 3")), before=CHAIN, after="""graph @g(%x: f32[4]) {
      %w = const f32[4] [1.0, 2.0, 3.0, 4.0]
      %1 = Relu(%x) : f32[4]
      %2 = parax::Result(%1) {layer=0} : f32[4]
      %3 = Mul(%2, %w) : f32[4]
      %4 = Neg(%3) : f32[4]
      return %4 as "3"
    }""")


def test_a_value_used_late_passes_every_result_and_inputs_and_constants_pass_by() -> None:
    before = """graph @g(%x: f32[4]) {
      %w = const f32[4] [1.0, 2.0, 3.0, 4.0]
      %1 = Relu(%x) : f32[4]
      %2 = Neg(%1) : f32[4]
      %3 = Add(%1, %2) : f32[4]
      %4 = Add(%3, %x) : f32[4]
      %5 = Mul(%4, %w) : f32[4]
      return %5, %2
    }"""
    check_pass(ResultNodes(stages("1 | 2", "3 | 4 5")), before=before, after="""graph @g(%x: f32[4]) {
      %w = const f32[4] [1.0, 2.0, 3.0, 4.0]
      %1 = Relu(%x) : f32[4]
      %2 = parax::Result(%1) {layer=0} : f32[4]
      %3 = Neg(%2) : f32[4]
      %4, %5 = parax::Result(%2, %3) {layer=1, stage=0} : f32[4], f32[4]
      %6 = Add(%4, %5) : f32[4]
      %7 = parax::Result(%6) {layer=2} : f32[4]
      %8 = Add(%7, %x) : f32[4]
      %9 = Mul(%8, %w) : f32[4]
      return %9 as "5", %3 as "2"
    }""")


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [(None, "one node runs after the other"), (stages("1 2 3", mode="sequential"), "one node runs after the other")],
)
def test_nothing_to_do(schedule: Schedule | None, reason: str) -> None:
    check_pass(ResultNodes(schedule), before=CHAIN, after=None, refuses=reason)


APART = """graph @g(%x: f32[4]) {
  %1 = Relu(%x) : f32[4]
  %2 = Neg(%x) : f32[4]
  return %1, %2
}"""


def test_layers_of_which_later_ones_use_nothing_end_without_a_result() -> None:
    check_pass(ResultNodes(layered("1", "2")), before=APART, after=None, refuses="nothing crosses from layer 0")


def test_nodes_come_in_the_order_of_the_schedule() -> None:
    check_pass(ResultNodes(layered("2 1")), before=APART, after="""graph @g(%x: f32[4]) {
      %1 = Neg(%x) : f32[4]
      %2 = Relu(%x) : f32[4]
      return %2 as "1", %1 as "2"
    }""")


@pytest.mark.parametrize(
    ("schedule", "message"),
    [(layered("1", "2"), "every node once"), (layered("1", "2 3 4"), "a schedule of another graph; .* node %4")],
)
def test_a_schedule_of_another_graph_is_refused(schedule: Schedule, message: str) -> None:
    graph = parse_graph(CHAIN)
    with pytest.raises(InternalError, match=message):
        ResultNodes(schedule).run(graph, Rewriter(graph))


def test_a_partitioned_graph_is_left_alone() -> None:
    partitioned = CHAIN.replace("%2 = Mul(%1", "%r = parax::Result(%1) {layer=0} : f32[4]\n  %2 = Mul(%r")
    check_pass(ResultNodes(layered("1", "2 3")), before=partitioned, after=None, refuses="already")


def test_results_are_views_of_their_inputs_and_keep_layouts_and_known_sizes() -> None:
    text = """graph @g(%x: f32[N,8,4,4]{0,2,3,1}) {
  %1 = Relu(%x) : f32[N,8,4,4]{0,2,3,1}
  %2 = Shape(%x) : i64[4]
  %3, %4 = parax::Result(%1, %2) {layer=0, stage=0} : f32[N,8,4,4]{0,2,3,1}, i64[4]
  %5 = Neg(%3) : f32[N,8,4,4]{0,2,3,1}
  return %5, %4
}
"""
    graph = parse_graph(text)
    verify(graph)
    assert print_graph(graph) == text
    node = graph.value("3").producer
    assert node is not None and [view_source(node, i) for i in range(2)] == list(node.inputs)
    assert roots(graph)[graph.value("4")] is graph.value("2")
    assert roots(graph)[graph.value("3")] is graph.value("1")
    assert list(graph.value("4").known) == list(graph.value("2").known)  # type: ignore[arg-type]


def test_a_result_has_as_many_outputs_as_inputs() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(F32, (4,)))
    with pytest.raises(InvalidModel, match="as many outputs as inputs"):
        graph.add_node(Result(layer=0), [x], n_outputs=2)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_random_graphs_keep_their_results_and_every_crossing_value_passes_each_result(data: st.DataObject) -> None:
    graph = Graph()
    values = [graph.add_input("x", TensorType(F32, (5,)))]
    g = GraphBuilder(graph)
    for _ in range(data.draw(st.integers(2, 12))):
        a, b = (data.draw(st.sampled_from(values)) for _ in range(2))
        values.append(g.Mul(g.Sin(a), b) if data.draw(st.booleans()) else g.Sub(a, b))
    graph.set_outputs(list(dict.fromkeys([values[-1], data.draw(st.sampled_from(values[1:]))])))
    feeds = {"x": np.random.default_rng(0).standard_normal(5).astype(np.float32)}
    wanted = evaluate_graph(graph, feeds)
    cuts = tuple(sorted(data.draw(st.sets(st.integers(1, len(graph)), min_size=1, max_size=4))))
    parts = [graph.nodes_in_order()[a:b] for a, b in zip((0, *cuts), (*cuts, None))]
    ResultNodes(layered(*(" ".join(node.output.name for node in part) for part in parts if part))).run(
        graph, Rewriter(graph)
    )
    verify(graph)
    found = evaluate_graph(graph, feeds)
    assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted)
    layer, layer_of = 0, {}
    plain = 0
    for node in graph:
        layer = sum(cut <= plain for cut in cuts) if not isinstance(node.op, Result) else node.op.layer
        plain += not isinstance(node.op, Result)
        layer_of[node] = layer
    for node in graph:
        for v in node.operands:
            if v.producer is not None:
                handed_on = layer_of[node] - 1 if isinstance(v.producer.op, Result) else layer_of[node]
                assert layer_of[v.producer] == handed_on
