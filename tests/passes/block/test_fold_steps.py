"""What lies before a rounding becomes one factor a tensor: the graph, the numbers, and what is left alone."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.verify import verify
from parax.compiler.passes.block.fold_steps import FoldSteps
from parax.compiler.passes.rewrite import Rewriter
from passes.check import check_pass

CONSTANTS = """%s = const f32[] 0.5
%t = const f32[] 0.3
%big = const f32[] 100000.0
%z = const f32[] 100
%to = const u8[] 100
%other = const u8[] 7
"""
A = "%1 = Cast(%a) {to=f32}\n%2 = Sub(%1, %z)\n%3 = Mul(%2, %s)\n"
B = "%4 = Cast(%b) {to=f32}\n%5 = Mul(%4, %t)\n"


def graph(body: str) -> str:
    return f"graph @g(%a: u8[N,6], %b: u8[N,6], %x: f32[N,6]) {{\n{CONSTANTS}{body}\nreturn %y\n}}"


def rewritten(body: str) -> list[str]:
    """The operators that are left behind the pass."""
    g = parse_graph(graph(body), {})
    assert FoldSteps().run(g, Rewriter(g))
    verify(g)
    needed, pending = set(), [v.producer for v in g.outputs]
    while pending:
        node = pending.pop()
        if node is not None and node not in needed:
            needed.add(node)
            pending += [v.producer for v in node.operands]
    return [n.op.name for n in g if n in needed]


def refused(body: str, reason: str) -> None:
    check_pass(FoldSteps(), graph(body), None, refuses=reason, evaluate=False)


def test_an_addition_of_two_steps() -> None:
    body = A + B + "%6 = Add(%3, %5)\n%7 = Div(%6, %t)\n%y = parax::RoundTo(%7, %to) {to=u8}"
    assert sorted(rewritten(body)) == ["Add", "Add", "Cast", "Cast", "Mul", "RoundTo"]  # b's factor is 1


def test_a_relu_stays_before_the_rounding() -> None:
    body = A + "%6 = Relu(%3)\n%7 = Div(%6, %t)\n%y = parax::RoundTo(%7) {to=u8}"
    assert rewritten(body) == ["Cast", "Mul", "Add", "Relu", "RoundTo"]


def test_the_same_step_and_zero_point_change_nothing() -> None:
    assert rewritten(A + "%7 = Div(%3, %s)\n%y = parax::RoundTo(%7, %to) {to=u8}") == []


@pytest.mark.parametrize("body, last", [
    (A + "%7 = Div(%3, %s)\n%y = parax::RoundTo(%7, %other) {to=u8}", "RoundTo"),
    (A + "%6 = Relu(%3)\n%7 = Div(%6, %s)\n%y = parax::RoundTo(%7, %to) {to=u8}", "RoundTo"),
    (A + "%7 = Div(%3, %t)\n%y = parax::RoundTo(%7, %to) {to=u8}", "RoundTo"),
])  # fmt: skip
def test_another_step_zero_point_or_function_is_rounded(body: str, last: str) -> None:
    assert rewritten(body)[-1] == last


@pytest.mark.parametrize("body, reason", [
    ("%7 = Div(%x, %t)\n%y = parax::RoundTo(%7, %to) {to=u8}", "not a few whole numbers"),
    (A + "%6 = Mul(%3, %big)\n%y = parax::RoundTo(%6, %to) {to=u8}", "takes the constant's digits"),
    ("%4 = Cast(%b) {to=f32}\n%5 = Mul(%4, %t)\n%y = parax::RoundTo(%5, %to) {to=u8}", "nothing to fold"),
])  # fmt: skip
def test_what_is_left_alone(body: str, reason: str) -> None:
    refused(body, reason)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("columns", [1, 7, 65])
def test_sums_of_quantised_tensors_are_within_a_step(dtype: type, columns: int) -> None:
    rng = np.random.default_rng(columns)
    low = 128 if dtype is np.int8 else 0
    numbers = {"s": np.float32(0.0231), "z": dtype(131 - low), "t": np.float32(0.0417), "w": dtype(77 - low),
               "o": np.float32(0.0293), "p": dtype(90 - low), "c": rng.standard_normal(columns).astype(np.float32)}
    of = TensorProto.INT8 if low else TensorProto.UINT8
    nodes = [helper.make_node("DequantizeLinear", ["a", "s", "z"], ["1"]),
             helper.make_node("DequantizeLinear", ["b", "t", "w"], ["2"]),
             helper.make_node("Add", ["1", "2"], ["3"]), helper.make_node("Add", ["3", "c"], ["4"]),
             helper.make_node("Relu", ["4"], ["5"]), helper.make_node("QuantizeLinear", ["5", "o", "p"], ["y"])]
    made = helper.make_graph(nodes, "sum", [helper.make_tensor_value_info(n, of, [5, columns]) for n in "ab"],
                             [helper.make_tensor_value_info("y", of, [5, columns])],
                             [numpy_helper.from_array(np.asarray(v), n) for n, v in numbers.items()])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    info = np.iinfo(dtype)
    x = {n: rng.integers(info.min, info.max + 1, (5, columns)).astype(dtype) for n in "ab"}
    with parax.compile(model, options=parax.CompileOptions(cache=False, calibrate=False)).session() as session:
        (y,) = session.run(x).values()
    (wanted,) = onnx.reference.ReferenceEvaluator(model).run(None, x)
    off = np.abs(y.astype(int) - wanted.astype(int))
    assert off.max() <= 1 and (off == 0).mean() > 0.98
