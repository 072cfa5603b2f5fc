"""WriteInPlace: operands of a Concat become windows of its result, where everybody concerned can work on one."""

from __future__ import annotations

from importlib import import_module

import pytest

from parax.compiler.backend.lowering import takes_window
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.views import Home, computes, homes
from parax.compiler.passes.dataflow.write_in_place import WriteInPlace
from parax.compiler.passes.rewrite import Rewriter
from passes.check import check_pass

import_module("parax.compiler.backend.lower")  # the kernels register what windows they take


def test_producers_write_where_their_results_belong() -> None:
    graph = check_pass(
        WriteInPlace(),
        before="graph @g(%x: f32[4,8], %y: f32[4,5]) {\n%1 = Relu(%x)\n %2 = Exp(%y)\n"
        "%3 = Concat(%1, %2) {axis=1}\n %4 = Neg(%3)\n return %4\n}",
        after="graph @g(%x: f32[4,8], %y: f32[4,5]) {\n%1 = Relu(%x) : f32[4,8|13]\n %2 = Exp(%y) : f32[4,5|13]\n"
        "%3 = Concat(%1, %2) {axis=1}\n %4 = Neg(%3)\n return %4\n}",
    )
    whole = graph.value("3")
    assert not computes(whole.producer)  # type: ignore[arg-type]
    assert homes(graph)[graph.value("1")] == Home(whole) and homes(graph)[graph.value("2")] == Home(whole, 32)


def test_other_operands_are_copied_beside_them() -> None:
    graph = check_pass(
        WriteInPlace(),
        before="graph @g(%x: f32[4,8], %y: f32[4,5]) {\n%2 = Exp(%y)\n %3 = Concat(%x, %2) {axis=1}\n return %3\n}",
        after="graph @g(%x: f32[4,8], %y: f32[4,5]) {\n%2 = Exp(%y) : f32[4,5|13]\n %3 = Concat(%x, %2) {axis=1}\n"
        " return %3\n}",
    )
    assert computes(graph.value("3").producer)  # type: ignore[arg-type]


def test_a_concat_inside_another_lies_in_its_window() -> None:
    graph = check_pass(
        WriteInPlace(),
        before="graph @g(%x: f32[4,8]) {\n%1 = Relu(%x)\n %2 = Exp(%x)\n %3 = Concat(%1, %2) {axis=1}\n %4 = Neg(%3)\n"
        "%5 = Concat(%4, %3) {axis=1}\n return %5\n}",
        after="graph @g(%x: f32[4,8]) {\n%1 = Relu(%x) : f32[4,8|32]\n %2 = Exp(%x) : f32[4,8|32]\n"
        "%3 = Concat(%1, %2) {axis=1} : f32[4,16|32]\n %4 = Neg(%3) : f32[4,16|32]\n %5 = Concat(%4, %3) {axis=1}\n"
        " return %5\n}",
    )
    assert homes(graph)[graph.value("2")] == Home(graph.value("5"), 4 * (16 + 8))


def test_the_values_of_a_fused_body_follow_from_the_root_on() -> None:
    body = """fused<Conv>(%x, %w) : f32[N,{n},7,7]{{0,2,3,1}}
      body(%x: f32[N,6,7,7]{{0,2,3,1}}, %w: f32[5,6,1,1]) {{
        %1 = Conv(%x, %w) {{kernel_shape=[1,1]}} : f32[N,{n},7,7]{{0,2,3,1}}
        %2 = Relu(%1) : f32[N,{n},7,7]{{0,2,3,1}}
        return %2
      }}"""
    graph = """graph @g(%x: f32[N,6,7,7]{{0,2,3,1}}) {{
      %w = const f32[5,6,1,1] "w"
      %2 = {}
      %3 = Relu(%x) : f32[N,{},7,7]{{0,2,3,1}}
      %4 = Concat(%2, %3) {{axis=1}} : f32[N,11,7,7]{{0,2,3,1}}
      return %4
    }}"""
    check_pass(WriteInPlace(takes_window), graph.format(body.format(n="5"), "6"),
               graph.format(body.format(n="5|11"), "6|11"))  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%2 = Concat(%x, %y) {axis=1}\n return %2", "given from outside"),
        ("%1 = Relu(%x)\n %2 = Concat(%1, %y) {axis=1}\n return %2, %1", "returned"),
        ("%1 = Relu(%x)\n %2 = Concat(%1, %1) {axis=1}\n return %2", "two places"),
        ("%1 = Relu(%x)\n %2 = Concat(%1, %y) {axis=1}\n %3 = Concat(%y, %1) {axis=1}\n return %2, %3", "two places"),
        ("%s = const i64[1] [16]\n %1 = Relu(%x)\n %2 = Concat(%1, %y) {axis=1}\n %3 = Reshape(%1, %s)\n %4 = Softmax(%3)\n"
         " return %2, %4", "another shape"),
        ("%1 = Relu(%x) : f32[4,4]{1,0}\n %2 = Concat(%1, %y) {axis=1}\n return %2", "another order"),
        ("%1 = Softmax(%x)\n %2 = Concat(%1, %y) {axis=1}\n return %2", "no window for Softmax"),
        ("%1 = Relu(%x)\n %2 = Concat(%1, %y) {axis=1}\n %3 = Softmax(%1)\n return %2, %3", "no window for Softmax"),
    ],
)  # fmt: skip
def test_must_not_fire(text: str, reason: str) -> None:
    graph = f"graph @g(%x: f32[4,4], %y: f32[4,4]) {{\n{text}\n}}"
    check_pass(WriteInPlace(takes_window), graph, None, refuses=reason)


def kept(text: str) -> list[str]:
    """The types of a Concat's operands afterwards, by the real kernels' word."""
    graph: Graph = parse_graph(text)
    WriteInPlace(takes_window).run(graph, Rewriter(graph))
    return [str(v.type) for v in graph.outputs[0].producer.operands]  # type: ignore[union-attr]


def test_along_the_outermost_axis_every_kernel_can() -> None:
    text = "graph @g(%x: f32[4,4]) {\n%1 = Softmax(%x)\n %2 = Relu(%x)\n %3 = Concat(%1, %2) {axis=0}\n return %3\n}"
    assert kept(text) == ["f32[4|8,4]", "f32[4|8,4]"]


def test_convolutions_need_rows_one_pitch_apart() -> None:
    text = """graph @g(%x: f32[N,6,7,7]{0,2,3,1}) {
      %w = const f32[6,6,1,1] "w"
      %1 = Conv(%x, %w) {kernel_shape=[1,1]} : f32[N,6,7,7]{0,2,3,1}
      %2 = MaxPool(%x) {kernel_shape=[1,1]} : f32[N,6,7,7]{0,2,3,1}
      %3 = Concat(%1, %2) {axis=AXIS} : f32[N,SHAPE]{0,2,3,1}
      return %3
    }"""
    rows, lines = (kept(text.replace("AXIS", a).replace("SHAPE", s)) for a, s in (("1", "12,7,7"), ("2", "6,14,7")))
    assert rows == ["f32[N,6|12,7,7]{0,2,3,1}"] * 2
    assert lines == ["f32[N,6,7,7]{0,2,3,1}", "f32[N,6,7|14,7]{0,2,3,1}"]
