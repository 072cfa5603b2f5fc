"""Channels-last inside, transposes and reshapes as views, and a Relayout only where something must move."""

from __future__ import annotations

import pytest

from parax.compiler.ir.axis_orders import reshape_order
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import TensorType, parse_type
from parax.compiler.ir.verify import verify
from parax.compiler.ir.views import view_source
from parax.compiler.passes.dataflow.assign_layouts import AssignLayouts
from parax.compiler.passes.rewrite import Rewriter
from passes.check import assert_equivalent, check_pass


def assigned(text: str) -> Graph:
    """The graph after the pass: verified, equivalent, stable."""
    graph = parse_graph(text)
    AssignLayouts().run(graph, Rewriter(graph))
    verify(graph)
    assert_equivalent(parse_graph(text), graph, {})
    assert not AssignLayouts().run(graph, Rewriter(graph))
    return graph


def moved(graph: Graph) -> list[str]:
    """The transposes, reshapes and relayouts that are no views."""
    kinds = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Relayout")
    return [n.op.name for n in graph if n.op.name in kinds and view_source(n) is None]


def test_a_convolution_is_channels_last_between_plain_ends() -> None:
    check_pass(AssignLayouts(), """graph @g(%x: f32[N,8,6,6]) {
        %w = const f32[4,8,3,3] "w"\n %1 = Conv(%x, %w)\n %2 = Relu(%1)\n return %2 as "y"\n}""",
        """graph @g(%x: f32[N,8,6,6]) {
        %w = const f32[4,8,3,3] "w"\n %0 = parax::Relayout(%x) {layout=[0,2,3,1]}
        %1 = Conv(%0, %w) : f32[N,4,4,4]{0,2,3,1}\n %2 = Relu(%1) : f32[N,4,4,4]{0,2,3,1}
        %3 = parax::Relayout(%2)\n return %3 as "y"\n}""")


def test_few_channels_are_read_as_they_come() -> None:
    graph = assigned("""graph @g(%x: f32[N,3,6,6]) {
        %w = const f32[4,3,3,3] "w"\n %1 = Conv(%x, %w)\n %2 = GlobalAveragePool(%1)\n %3 = Flatten(%2)\n return %3\n}""")
    assert moved(graph) == []


def test_nothing_without_convolutions_changes() -> None:
    check_pass(AssignLayouts(), "graph @g(%x: f32[N,3,6,6]) {\n%1 = Relu(%x)\n %2 = Softmax(%1)\n return %2\n}", None)


ATTENTION = """graph @g(%q: f32[N,5,8], %k: f32[N,5,8], %v: f32[N,5,8]) {
    %s = const i64[4] [0, 0, 2, 4]\n %m = const i64[3] [0, 0, 8]
    %1 = Reshape(%q, %s)\n %2 = Transpose(%1) {perm=[0,2,1,3]}\n %3 = Reshape(%k, %s)\n %4 = Transpose(%3) {perm=[0,2,3,1]}
    %5 = Reshape(%v, %s)\n %6 = Transpose(%5) {perm=[0,2,1,3]}\n %7 = MatMul(%2, %4)\n %8 = Softmax(%7)
    %9 = MatMul(%8, %6)\n %10 = Transpose(%9) {perm=[0,2,1,3]}\n %11 = Reshape(%10, %m)\n return %11\n}"""

STILL = {
    "attention": ATTENTION,
    "patches to tokens": """graph @g(%x: f32[N,3,8,8], %p: f32[1,16,4]) {
        %w = const f32[4,3,2,2] "w"\n %s = const i64[3] [0, 4, 16]\n %1 = Conv(%x, %w) {strides=[2,2]}
        %2 = Reshape(%1, %s)\n %3 = Transpose(%2) {perm=[0,2,1]}\n %4 = Add(%3, %p)\n return %4\n}""",
    "time first and back": """graph @g(%x: f32[N,5,4]) {
        %w = const f32[1,24,4] "w"\n %r = const f32[1,24,6] "r"\n %a = const i64[1] [1]\n %s = const i64[2] [-1, 6]
        %1 = Transpose(%x) {perm=[1,0,2]}\n %2 = LSTM(%1, %w, %r) {hidden_size=6}\n %3 = Squeeze(%2, %a)
        %4 = Transpose(%3) {perm=[1,0,2]}\n %5 = Reshape(%4, %s)\n return %5\n}""",
    "embedding turned": """graph @g(%x: i64[N,5]) {
        %t = const f32[4,8] "t"\n %s = const i64[2] [5, -1]\n %1 = Gather(%t, %x)\n %2 = Transpose(%1) {perm=[1,0,2]}
        %3 = Reshape(%2, %s)\n return %3\n}""",
}  # fmt: skip


@pytest.mark.parametrize("name", STILL)
def test_nothing_moves(name: str) -> None:
    assert moved(assigned(STILL[name])) == []


def test_a_channel_shuffle_moves_once() -> None:
    graph = assigned("""graph @g(%x: f32[N,3,4,4]) {
        %w = const f32[8,3,1,1] "w"\n %v = const f32[8,8,1,1] "v"\n %s = const i64[5] [-1, 2, 4, 4, 4]\n %t = const i64[4] [-1, 8, 4, 4]
        %1 = Conv(%x, %w)\n %2 = Reshape(%1, %s)\n %3 = Transpose(%2) {perm=[0,2,1,3,4]}\n %4 = Reshape(%3, %t)
        %5 = Conv(%4, %v)\n %6 = GlobalAveragePool(%5)\n return %6\n}""")
    assert moved(graph) in (["Relayout"], ["Relayout", "Relayout"])


def test_the_smaller_side_of_an_addition_gives_way() -> None:
    graph = assigned("""graph @g(%x: f32[N,3,6,6], %y: f32[N,4,6,6]) {
        %w = const f32[4,3,1,1] "w"\n %1 = Conv(%x, %w)\n %2 = Add(%y, %1)\n %3 = Conv(%2, %z)
        %4 = GlobalAveragePool(%3)\n return %4\n}""".replace("%1 = Conv", '%z = const f32[4,4,1,1] "z"\n %1 = Conv'))
    assert moved(graph) == ["Relayout"]


def test_computed_weights_are_written_as_the_kernel_reads_them() -> None:
    graph = assigned("""graph @g(%x: f32[N,8,6,6], %v: f32[8,4,3,3]) {
        %b = const i64[2] [-1, -1]\n %e = const i64[2] [-9, -9]\n %i = const i64[2] [2, 3]
        %1 = Transpose(%v) {perm=[1,0,2,3]}\n %2 = Slice(%1, %b, %e, %i, %b)\n %3 = Conv(%x, %2)
        %4 = GlobalAveragePool(%3)\n return %4\n}""")
    weights = next(n for n in graph if n.op.name == "Conv").operands[1]
    assert weights.producer is not None and weights.producer.op.name == "Slice" and weights.tensor.layout is None


@pytest.mark.parametrize(("source", "target", "order"), [
    ("f32[N,768,14,14]{0,2,3,1}", "f32[N,768,196]", (0, 2, 1)),  # merges neighbours in memory
    ("f32[N,8,4,4]{0,2,3,1}", "f32[N,2,4,4,4]", (0, 3, 4, 1, 2)),  # splits
    ("f32[N,8,4,4]{0,2,3,1}", "f32[N,128]", None),  # merges what lies apart
    ("f32[N,8,1,1]{0,2,3,1}", "f32[N,8]", (0, 1)),
    ("f32[N,12]", "f32[N,3,1,4]", (0, 1, 2, 3)),
    ("f32[5,N,6]{1,0,2}", "f32[5,1,N,6]", (2, 0, 1, 3)),
    ("f32[5,N,6]{1,0,2}", "f32[5*N,6]", None),
    ("f32[N,S,6]", "f32[N*S,6]", (0, 1)),
    ("f32[4,6]", "f32[6,4]", (0, 1)),
    ("f32[4,6]{1,0}", "f32[6,4]", None),
])  # fmt: skip
def test_which_reshapes_are_views(source: str, target: str, order: tuple[int, ...] | None) -> None:
    x, y = parse_type(source), parse_type(target)
    assert isinstance(x, TensorType) and isinstance(y, TensorType)
    assert reshape_order(x, y.dims) == order
