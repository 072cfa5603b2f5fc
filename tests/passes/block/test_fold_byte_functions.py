"""Functions of a byte become a table: which they are, what the table holds, and what is left alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from parax.compiler.ir.graph import Graph, Node
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.verify import verify
from parax.compiler.passes.block.fold_byte_functions import FoldByteFunctions
from parax.compiler.passes.rewrite import Rewriter
from passes.check import check_pass

CONSTANTS = """%s = const f32[] 0.03
%z = const f32[] 100
%to = const u8[] 17
%t = const f32[] 0.011
%shape = const i64[2] [64, 96]
"""
X = "%1 = Cast(%q) {to=f32}\n%2 = Sub(%1, %z)\n%3 = Mul(%2, %s)\n"
GELU = """%4 = Erf(%3)
%5 = Mul(%3, %4)
%6 = Div(%5, %t)
%y = parax::RoundTo(%6, %to) {to=u8}"""


def graph(body: str, q: str = "u8[64,96]") -> str:
    return f"graph @g(%q: {q}, %x: f32[64,96]) {{\n{CONSTANTS}{body}\nreturn %y\n}}"


def table_of(text: str) -> tuple[Graph, Node]:
    g = parse_graph(text, {})
    assert FoldByteFunctions().run(g, Rewriter(g))
    verify(g)
    (node,) = (n for n in g if n.op.name == "ByteTable")
    return g, node


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_function_of_a_byte_is_looked_up(dtype: type) -> None:
    g, node = table_of(graph(X + GELU, "i8[64,96]" if dtype is np.int8 else "u8[64,96]"))
    assert [n.op.name for n in g] == ["ByteTable"]
    x = (np.arange(256).astype(np.uint8).view(dtype).astype(np.float64) - 100) * 0.03
    wanted = np.clip(np.rint(x * np.vectorize(math.erf)(x) / 0.011) + 17, 0, 255)
    table = node.operands[1].data
    assert table is not None and table.dtype == np.uint8
    assert np.abs(table.astype(int) - wanted).max() <= 1 and (table == wanted).mean() > 0.98


def test_roundings_between_are_part_of_the_function() -> None:
    body = X + "%a = Erf(%3)\n%b = Div(%a, %t)\n%c = parax::RoundTo(%b, %to) {to=u8}\n%d = Cast(%c) {to=f32}\n"
    g, node = table_of(graph(body + "%e = Mul(%d, %3)\n%y = parax::RoundTo(%e) {to=i8}"))
    assert len(list(g)) == 1 and node.output.tensor.dtype.name == "i8"


def test_a_view_between_moves_behind_the_table() -> None:
    text = graph(X + "%v = Reshape(%3, %shape)\n" + GELU.replace("%3", "%v"), "u8[96,64]")
    g, _ = table_of(text)
    assert [n.op.name for n in g] == ["ByteTable", "Reshape"]


@pytest.mark.parametrize("body", [
    X + "%6 = Div(%3, %t)\n%y = parax::RoundTo(%6, %to) {to=u8}",  # cheap
    "%4 = Erf(%x)\n%6 = Div(%4, %t)\n%y = parax::RoundTo(%6, %to) {to=u8}",  # of no byte
    X + "%7 = Erf(%3)\n%8 = Mul(%7, %x)\n%y = parax::RoundTo(%8) {to=u8}",  # of another tensor, too
    (X + GELU).replace("return", "").replace("%y =", "%w =") + "\n%8 = Cast(%w) {to=f32}\n%y = Add(%8, %4)",  # read twice
])  # fmt: skip
def test_what_is_left_alone(body: str) -> None:
    check_pass(FoldByteFunctions(), graph(body), None, refuses="no costly function of one byte", evaluate=False)


def test_few_elements_stay() -> None:
    text = graph(X + GELU, "u8[4,6]").replace("f32[64,96]", "f32[4,6]")
    check_pass(FoldByteFunctions(), text, None, refuses="too few elements", evaluate=False)
