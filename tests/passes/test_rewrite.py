"""The rewriter keeps what a graph means to its readers."""

from __future__ import annotations

import pytest

from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.rewrite import Rewriter
from parax.errors import InternalError

TEXT = "graph @g(%x: f32[2,3], %i: i64[2,3], %n: f32[2,4]) {{\n %1 = {}\n %2 = Relu(%x)\n return %2\n}}"


@pytest.mark.parametrize("other", ["Relu(%n)", "Abs(%i)", "Unsqueeze(%x, %a)", "Transpose(%x)"])
def test_nothing_takes_the_place_of_another_type(other: str) -> None:
    graph = parse_graph(TEXT.format(other).replace("%1 =", "%a = const i64[1] [0]\n %1 ="))
    made, replaced = graph.nodes_in_order()
    with pytest.raises(InternalError, match="changes a result's type"):
        Rewriter(graph).replace(replaced, made.output)


def test_another_layout_is_no_other_type() -> None:
    graph = parse_graph(TEXT.format("parax::Relayout(%x) {layout=[1,0]}"))
    made, replaced = list(graph.nodes_in_order())
    Rewriter(graph).replace(replaced, made.output)
    assert graph.outputs[0].producer is made
