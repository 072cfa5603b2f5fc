"""Cheaper arithmetic with the same results, and where it must stay as it is."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.oracle import oracle
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, DType
from parax.compiler.passes.block.algebraic_simplification import AlgebraicSimplification, holds_all
from passes.check import check_pass

FIRES = {
    "x + -0": ("%c = const f32[] -0.0\n %1 = Add(%x, %c)", "x", ""),
    "0 + x turns around": ("%c = const f32[4] [1, 2, 3, 4]\n %1 = Add(%c, %x)", "1",
                           "%c = const f32[4] [1, 2, 3, 4]\n %1 = Add(%x, %c)"),
    "x · 1": ("%c = const f32[4] [1, 1, 1, 1]\n %1 = Mul(%x, %c)", "x", ""),
    "x - 0": ("%c = const f32[] 0.0\n %1 = Sub(%x, %c)", "x", ""),
    "x / 1": ("%c = const f32[] 1.0\n %1 = Div(%x, %c)", "x", ""),
    "x / c": ("%c = const f32[] 8.0\n %1 = Div(%x, %c)", "1", "%c = const f32[] 0.125\n %1 = Mul(%x, %c)"),
    "x / c for whole numbers": ("%c = const f32[] 8.0\n %1 = Div(%x, %c)\n %2 = Round(%1)", "2",
                                "%c = const f32[] 0.125\n %1 = Mul(%x, %c)\n %2 = Round(%1)"),
    "x / c whose error sums drown": (
        '%c = const f32[] 5.0\n %w = const f32[4,4] "w"\n %1 = Div(%x, %c)\n %3 = MatMul(%1, %w)\n %2 = Floor(%3)', "2",
        '%c = const f32[] 0.2\n %w = const f32[4,4] "w"\n %1 = Mul(%x, %c)\n %3 = MatMul(%1, %w)\n %2 = Floor(%3)'),
    "constants meet": (
        "%a = const f32[] 3.0\n %b = const f32[4] [1, 2, 3, 4]\n %1 = Mul(%x, %a)\n %3 = Mul(%1, %b)\n %2 = Softmax(%3)",
        "2", "%c = const f32[4] [3, 6, 9, 12]\n %3 = Mul(%x, %c)\n %2 = Softmax(%3)"),
    "sums meet": (
        "%a = const f32[] 3.0\n %b = const f32[4] [1, 2, 3, 4]\n %1 = Add(%x, %a)\n %3 = Add(%1, %b)\n %2 = Softmax(%3)",
        "2", "%c = const f32[4] [4, 5, 6, 7]\n %3 = Add(%x, %c)\n %2 = Softmax(%3)"),
    "square": ("%c = const f32[] 2.0\n %1 = Pow(%x, %c)", "1", "%1 = Mul(%x, %x)"),
    "root": ("%c = const f32[] 0.5\n %1 = Abs(%x)\n %2 = Pow(%1, %c)", "2", "%1 = Abs(%x)\n %2 = Sqrt(%1)"),
    "deviation": ("%c = const f32[] -0.5\n %e = const f32[] 0.1\n %1 = Mul(%x, %x)\n %3 = Add(%1, %e)\n %2 = Pow(%3, %c)",
                  "2", """%e = const f32[] 0.1\n %1 = Mul(%x, %x)\n %3 = Add(%1, %e)\n %4 = Sqrt(%3)
                  %2 = Reciprocal(%4)"""),
    "minus minus": ("%1 = Neg(%x)\n %2 = Neg(%1)", "x", ""),
    "relu of relu": ("%1 = Relu(%x)\n %2 = Relu(%1)", "1", "%1 = Relu(%x)"),
    "always true": ("%c = const bool[] true\n %y = Exp(%x)\n %1 = Where(%c, %x, %y)", "x", ""),
    "there and back": ("%1 = Cast(%x) {to=f64}\n %2 = Cast(%1) {to=f32}", "x", ""),
    "wider on the way": ("%1 = Cast(%x) {to=f64}\n %2 = Cast(%1) {to=i32}", "2", "%2 = Cast(%x) {to=i32}"),
}  # fmt: skip


@pytest.mark.parametrize("name", FIRES)
def test_cheaper_arithmetic(name: str) -> None:
    body, result, after = FIRES[name]
    last = "2" if "%2 =" in body else "1"
    shape = "%x: f32[3,4]"
    graph = check_pass(
        AlgebraicSimplification(),
        f'graph @g({shape}) {{\n{body}\nreturn %{last} as "y"\n}}',
        f'graph @g({shape}) {{\n{after}\nreturn %{result} as "y"\n}}',
        low=0.25,
    )
    assert len(graph.outputs) == 1


SPECIAL = np.float32([[-np.inf, -3e38, -2.5, -0.0], [0.0, 1e-45, 1e-38, 2.5], [3e38, np.inf, np.nan, -1e-45]])


def _on_special_values(body: str, result: str) -> np.ndarray:
    if result == "x":
        return SPECIAL
    graph = parse_graph(f'graph @g(%x: f32[3,4]) {{\n{body}\nreturn %{result} as "y"\n}}')
    with np.errstate(all="ignore"):
        return np.asarray(oracle(to_onnx(graph), "reference")({"x": SPECIAL})["y"])


@pytest.mark.parametrize("name", sorted({*FIRES} - {"there and back", "wider on the way"}))  # no integers of infinities
def test_special_values_stay(name: str) -> None:
    """Infinities, NaN and the smallest numbers; of zeros the sign too."""
    body, result, after = FIRES[name]
    want, got = _on_special_values(body, "2" if "%2 =" in body else "1"), _on_special_values(after, result)
    np.testing.assert_array_equal(got, want)
    signed = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[signed]), np.signbit(want[signed]))


@pytest.mark.parametrize("body", [
    "%c = const f32[2,1,1] [0, 0]\n %1 = Add(%x, %c)",  # the result is larger
    "%c = const f32[] 0.0\n %1 = Add(%x, %c)",  # makes 0 of -0
    "%c = const f32[] -0.0\n %1 = Sub(%x, %c)",
    "%c = const f32[] 0.0\n %1 = Sub(%c, %x)",
    "%c = const f32[] 0.0\n %1 = Mul(%x, %c)",  # NaN · 0 is NaN
    "%c = const f32[] 0.0\n %1 = Div(%x, %c)",
    "%c = const f32[] 1e-42\n %1 = Div(%x, %c)",  # its reciprocal is infinite
    "%c = const f32[] 255.0\n %a = Div(%x, %c)\n %b = Exp(%a)\n %1 = Round(%b)",  # another integer may come of it
    "%c = const f32[] 41.0\n %a = Div(%x, %c)\n %b = Transpose(%a)\n %1 = Floor(%b)",  # also behind movements
    "%c = const f32[] 41.0\n %a = Div(%x, %c)\n %i = const i64[1] [1]\n %b = ReduceMax(%a, %i)\n %1 = Ceil(%b)",
    "%c = const f32[] 41.0\n %a = Div(%x, %c)\n %d = const f32[] 2.0\n %1 = Equal(%a, %d)",
    "%c = const f32[] 41.0\n %a = Div(%x, %c)\n %1 = ArgMax(%a) {axis=1}",
    "%c = const f32[] 0.3\n %a = Div(%x, %c)\n %1 = Cast(%a) {to=f16}",  # coarser: half-way points again
    "%c = const f32[] 5.0\n %1 = Div(%x, %c)",  # what is done with it nobody knows: a branch's result may be floored
    "%a = const f32[] 0.0\n %b = const f32[] 2.0\n %2 = Mul(%x, %a)\n %3 = Mul(%2, %b)\n %1 = Floor(%3)",
    "%a = const f32[] 0.1\n %b = const f32[] 30.0\n %2 = Mul(%x, %a)\n %3 = Mul(%2, %b)\n %1 = Floor(%3)",
    "%a = const f32[] 12582912.0\n %b = const f32[] -12582912.0\n %2 = Add(%x, %a)\n %1 = Add(%2, %b)",  # rounds
    "%a = const f32[] 1e30\n %b = const f32[] 1e-30\n %2 = Mul(%x, %a)\n %1 = Mul(%2, %b)",  # saturates
    "%c = const f32[] 2.5\n %1 = Pow(%x, %c)",
    "%c = const f32[] 0.5\n %1 = Pow(%x, %c)",
    "%c = const f32[] -0.5\n %y = Relu(%x)\n %1 = Pow(%y, %c)",
    "%a = const f32[] 1e-30\n %b = const f32[] 1e-20\n %2 = Mul(%x, %a)\n %1 = Mul(%2, %b)",  # the constants give 0
    "%1 = Exp(%x)",
    "%c = const bool[4] [true, false, true, true]\n %y = Exp(%x)\n %1 = Where(%c, %x, %y)",
    "%a = Cast(%x) {to=i32}\n %1 = Cast(%a) {to=f32}",  # loses the fraction
    "%a = Cast(%x) {to=f16}\n %1 = Cast(%a) {to=f32}",
])  # fmt: skip
def test_arithmetic_that_stays(body: str) -> None:
    check_pass(AlgebraicSimplification(), f"graph @g(%x: f32[3,4]) {{\n{body}\nreturn %1\n}}", None)


@pytest.mark.parametrize("to", ["i8", "u8", "u32"])
def test_integers_through_floats_saturate_where_they_narrow(to: str) -> None:
    check_pass(AlgebraicSimplification(), f"""graph @g(%x: i32[4]) {{
        %1 = Cast(%x) {{to=f64}}\n %2 = Cast(%1) {{to={to}}}\n return %2\n}}""", None, evaluate=False)


def test_the_quotient_of_a_quantisation_stays() -> None:
    check_pass(AlgebraicSimplification(), """graph @g(%x: f32[3,4]) {
        %c = const f32[] 0.3\n %a = Div(%x, %c)\n %1 = parax::RoundTo(%a) {to=i8}\n return %1\n}""", None, evaluate=False)


def test_a_constant_between_two_readers_stays() -> None:
    check_pass(AlgebraicSimplification(), """graph @g(%x: f32[4]) {
        %c = const f32[] 3.0\n %1 = Mul(%x, %c)\n %2 = Mul(%1, %c)\n return %1, %2\n}""", None, refuses="constants meet")


def test_expanded_operands_broadcast_by_themselves() -> None:
    check_pass(AlgebraicSimplification(), """graph @g(%x: f32[3,4], %b: f32[4]) {
        %s = const i64[2] [3, 4]\n %1 = Expand(%b, %s)\n %2 = Add(%x, %1)\n return %2\n}""",
        """graph @g(%x: f32[3,4], %b: f32[4]) {
        %2 = Add(%x, %b)\n return %2\n}""")


def test_an_expansion_that_gives_the_result_its_shape_stays() -> None:
    check_pass(AlgebraicSimplification(), """graph @g(%x: f32[4], %b: f32[4]) {
        %s = const i64[2] [3, 4]\n %1 = Expand(%b, %s)\n %2 = Add(%x, %1)\n return %2\n}""", None)


@pytest.mark.parametrize(("wide", "narrow", "holds"), [
    (F32, F16, True), (F32, BF16, True), (F64, F32, True), (F16, BF16, False), (F32, I32, False), (F64, I32, True),
    (I64, I32, True), (I32, I64, False), (I8, U8, False), (F16, I8, True), (I8, BOOL, True), (F32, F32, True),
    (BF16, U8, True), (I64, F32, False),
])  # fmt: skip
def test_which_types_hold_all_values_of_which(wide: DType, narrow: DType, holds: bool) -> None:
    assert holds_all(wide, narrow) is holds
