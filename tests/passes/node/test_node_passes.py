"""Passes that look at one node: no-ops, constants, empty tensors, neutral operands."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.frontend.evaluate import evaluate_node
from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.node.constant_folding import ConstantFolding
from parax.compiler.passes.node.no_op_elimination import NoOpElimination
from parax.compiler.passes.node.omit_neutral_operands import OmitNeutralOperands
from parax.compiler.passes.node.zero_size_elimination import ZeroSizeElimination
from parax.compiler.passes.rewrite import Rewriter
from passes.check import check_pass


def graph(body: str, operand: str = "%1") -> str:
    return f"graph @g(%x: f32[N,4]) {{\n{body}\n %2 = Exp({operand})\n return %2\n}}"


@pytest.mark.parametrize("body", [
    "%1 = Identity(%x)",
    "%1 = Cast(%x) {to=f32}",
    "%p = const i64[4] [0, 0, 0, 0]\n %1 = Pad(%x, %p)",
    "%r = const i64[2] [1, 1]\n %1 = Tile(%x, %r)",
    "%1 = Concat(%x) {axis=0}",
    "%1 = Sum(%x)",
    "%1 = Transpose(%x) {perm=[0,1]}",
    "%s = const i64[2] [-1, 4]\n %1 = Reshape(%x, %s)",
    "%b = const i64[1] [0]\n %e = const i64[1] [99]\n %a = const i64[1] [1]\n %1 = Slice(%x, %b, %e, %a)",
])  # fmt: skip
def test_what_changes_nothing_goes(body: str) -> None:
    check_pass(NoOpElimination(), graph(body), graph("", "%x"))


@pytest.mark.parametrize("body", [
    "%1 = Cast(%x) {to=f64}",
    "%p = const i64[4] [0, 1, 0, -1]\n %1 = Pad(%x, %p)",
    "%r = const i64[2] [1, 2]\n %1 = Tile(%x, %r)",
    "%1 = Concat(%x, %x) {axis=1}",
    "%1 = Sum(%x, %x)",
    "%1 = Transpose(%x)",
    "%b = const i64[1] [-1]\n %e = const i64[1] [-99]\n %a = const i64[1] [1]\n %1 = Slice(%x, %b, %e, %a, %b)",
])  # fmt: skip
def test_what_does_something_stays(body: str) -> None:
    check_pass(NoOpElimination(), graph(body), None, refuses="does something")


def test_a_transpose_of_equal_dimensions_stays() -> None:
    check_pass(NoOpElimination(), "graph @g(%x: f32[4,4]) {\n%1 = Transpose(%x)\n return %1\n}", None)


def test_operators_on_constants_are_computed() -> None:
    check_pass(ConstantFolding(evaluate_node), """graph @g(%x: f32[N,2]) {
        %c = const f32[2] [4, 9]\n %1 = Sqrt(%c)\n %2 = Neg(%1)\n %3 = Add(%x, %2)\n return %3\n}""",
        "graph @g(%x: f32[N,2]) {\n%2 = const f32[2] [-2, -3]\n %3 = Add(%x, %2)\n return %3\n}")


def test_known_shapes_are_constants() -> None:
    check_pass(ConstantFolding(), """graph @g(%x: f32[N,6]) {
        %i = const i64[1] [1]\n %1 = Shape(%x)\n %2 = Gather(%1, %i)\n %3 = Mul(%2, %2)\n return %3\n}""",
        "graph @g(%x: f32[N,6]) {\n%1 = Shape(%x)\n %3 = const i64[1] [36]\n return %3\n}")


@pytest.mark.parametrize(("body", "reason"), [
    ("%1 = Sqrt(%x)", "not constant"),
    ("%c = const i64[1] [9999999]\n %1 = ConstantOfShape(%c)", "byte budget"),
    ("%1 = Shape(%x)", "not constant"),  # symbolic content is known, but no constant
])  # fmt: skip
def test_what_is_not_computed_now(body: str, reason: str) -> None:
    check_pass(ConstantFolding(evaluate_node), f"graph @g(%x: f32[N,2]) {{\n{body}\nreturn %1\n}}", None, refuses=reason)


def test_joins_leave_out_what_is_empty() -> None:
    check_pass(ZeroSizeElimination(), """graph @g(%x: f32[3,4], %e: f32[0,4]) {
        %1 = Exp(%e)\n %2 = Concat(%1, %x) {axis=0}\n %3 = Concat(%x, %e, %x) {axis=0}\n %4 = Relu(%2)
        return %4, %3 as "y"\n}""", """graph @g(%x: f32[3,4], %e: f32[0,4]) {
        %3 = Concat(%x, %x) {axis=0}\n %4 = Relu(%x)\n return %4, %3 as "y"\n}""")


def test_joins_keep_what_is_empty_along_another_axis() -> None:
    check_pass(ZeroSizeElimination(), """graph @g(%x: f32[3,S,0]) {
        %c = const f32[3,32,0] []\n %1 = Concat(%x, %c) {axis=1}\n return %1\n}""", None, refuses="has elements")


def test_empty_results_are_constants() -> None:
    check_pass(ZeroSizeElimination(), "graph @g(%x: f32[0,4]) {\n%1 = Relu(%x)\n return %1\n}",
               "graph @g(%x: f32[0,4]) {\n%1 = const f32[0,4] []\n return %1\n}")


def test_a_sum_over_nothing_is_computed() -> None:
    check_pass(ZeroSizeElimination(), "graph @g(%x: f32[0,4]) {\n%1 = ReduceSum(%x)\n return %1\n}", None,
               refuses="has elements")


LSTM = 'graph @g(%x: f32[5,N,4]) {\n%w = const f32[1,24,4] "w"\n %r = const f32[1,24,6] "r"\n'


def test_states_of_zeros_are_omitted() -> None:
    check_pass(OmitNeutralOperands(), LSTM + """%i = const i64[1] [1]\n %o = const i64[1] [1]\n %h = const i64[1] [6]
        %1 = Shape(%x)\n %2 = Gather(%1, %i)\n %3 = Concat(%o, %2, %h) {axis=0}\n %4 = ConstantOfShape(%3)
        %5 = LSTM(%x, %w, %r, _, _, %4, %4) {hidden_size=6}\n return %5\n}""",
        LSTM + "%5 = LSTM(%x, %w, %r) {hidden_size=6}\n return %5\n}")


def test_a_bias_of_zeros_is_omitted_and_another_is_not() -> None:
    text = 'graph @g(%x: f32[N,3,6,6]) {{\n%w = const f32[2,3,3,3] "w"\n %b = const f32[2] {}\n %1 = Conv(%x, %w{})\n return %1\n}}'
    check_pass(OmitNeutralOperands(), text.format([0, 0], ", %b"), text.format([0, 0], ""))
    check_pass(OmitNeutralOperands(), text.format([0, 1], ", %b"), None, refuses="not known to be zeros")


def test_folding_keeps_element_types() -> None:
    source = parse_graph("graph @g() {\n%c = const i32[2] [1, 2]\n %1 = Cast(%c) {to=f16}\n return %1\n}")
    assert ConstantFolding(evaluate_node).run(source, Rewriter(source))
    (result,) = source.outputs
    assert result.data is not None and result.data.dtype == np.float16
