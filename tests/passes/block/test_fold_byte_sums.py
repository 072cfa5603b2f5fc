"""Scales around sums of bytes become a factor each: the graph, all 65,536 results, and what is left alone."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import parax
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.verify import verify
from parax.compiler.passes.block import fold_byte_sums
from parax.compiler.passes.block.fold_byte_sums import FoldByteSums
from parax.compiler.passes.rewrite import Rewriter
from passes.check import check_pass

CONSTANTS = """%s = const f32[] 0.513
%t = const f32[] 0.2971
%u = const f32[] 0.6983
%minus = const f32[] -0.2971
%many = const f32[6] [1, 2, 3, 4, 5, 6]
%z = const f32[] 100
%h = const f32[] 0.25
%to = const u8[] 100
%none = const u8[] 0
"""
A = "%1 = Cast(%a) {to=f32}\n%2 = Sub(%1, %z)\n%3 = Mul(%2, %s)\n"
B = "%4 = Cast(%b) {to=f32}\n%5 = Mul(%4, %t)\n"
SUM = A + B + "%6 = Add(%3, %5)\n"
END = "%y = parax::RoundTo(%8, %to) {to=u8}"


def graph(body: str, of: str = "u8") -> str:
    return f"graph @g(%a: {of}[N,6], %b: {of}[N,6], %x: f32[N,6]) {{\n{CONSTANTS}{body}\nreturn %y\n}}"


def operators(body: str) -> list[str]:
    """Those that are left behind the pass."""
    g = parse_graph(graph(body), {})
    assert FoldByteSums().run(g, Rewriter(g))
    verify(g)
    needed, pending = set(), [v.producer for v in g.outputs]
    while pending:
        node = pending.pop()
        if node is not None and node not in needed:
            needed.add(node)
            pending += [v.producer for v in node.operands]
    return sorted(n.op.name for n in g if n in needed)


FOLDED = ["Add", "Cast", "Cast", "Mul", "Mul", "RoundTo", "Sub"]


@pytest.mark.parametrize("body, left", [
    (SUM + "%8 = Div(%6, %u)\n" + END, FOLDED),
    (SUM + "%7 = Mul(%6, %t)\n%8 = Div(%7, %u)\n" + END, FOLDED),
    (SUM + "%7 = Relu(%6)\n%8 = Div(%7, %u)\n" + END, sorted([*FOLDED, "Relu"])),
    (SUM + "%7 = Relu(%6)\n%8 = Div(%7, %u)\n" + END.replace("%to", "%none"), FOLDED),
    (SUM + "%8 = Relu(%6)\n" + END.replace("%to", "%none"), FOLDED),
    (A + "%8 = Div(%3, %u)\n" + END, ["Cast", "Mul", "RoundTo", "Sub"]),
    ("%4 = Cast(%b) {to=f32}\n%8 = Div(%4, %u)\n" + END, ["Cast", "Mul", "RoundTo"]),
    (SUM.replace("%t)", "%minus)") + "%8 = Div(%6, %u)\n" + END, FOLDED),
])  # fmt: skip
def test_scales_become_a_factor_of_each_byte(body: str, left: list[str]) -> None:
    assert operators(body) == left


@pytest.mark.parametrize("body, reason", [
    (SUM + "%y = parax::RoundTo(%6, %to) {to=u8}", "no sum of one or two scaled bytes"),
    ("%8 = Div(%x, %u)\n" + END, "no sum of one or two scaled bytes"),
    (SUM + "%7 = Add(%6, %x)\n%8 = Div(%7, %u)\n" + END, "no sum of one or two scaled bytes"),
    (SUM + "%8 = Div(%6, %many)\n" + END, "no sum of one or two scaled bytes"),
    (SUM.replace("%z", "%h") + "%8 = Div(%6, %u)\n" + END, "no sum of one or two scaled bytes"),
    (SUM + "%7 = Mul(%6, %minus)\n%8 = Relu(%7)\n" + END, "no sum of one or two scaled bytes"),
])  # fmt: skip
def test_what_is_left_alone(body: str, reason: str) -> None:
    check_pass(FoldByteSums(), graph(body), None, refuses=reason, evaluate=False)


def test_broadcast_bytes_are_left_alone() -> None:
    text = graph(SUM + "%8 = Div(%6, %u)\n" + END).replace("%b: u8[N,6]", "%b: u8[1,6]")
    check_pass(FoldByteSums(), text, None, refuses="repeated along an axis", evaluate=False)


def test_where_no_factor_nearby_gives_the_same_the_model_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_byte_sums, "_neighbours", lambda factors: iter([[np.float32(2 * f) for f in factors]]))
    text = graph(SUM + "%8 = Div(%6, %u)\n" + END)
    check_pass(FoldByteSums(), text, None, refuses="every factor nearby", evaluate=False)


SCALES = st.floats(2.0**-10, 2.0**4, width=32)


@given(SCALES, SCALES, SCALES, st.integers(0, 255), st.integers(0, 255), st.booleans(), st.booleans())
def test_every_pair_of_bytes_gives_what_the_model_gives(
    s: float, t: float, u: float, zero: int, of: int, relu: bool, signed: bool
) -> None:
    """All 65,536, the operators one by one in f32; where the pass finds no factors it changes nothing."""
    low, kind = (128, "i8") if signed else (0, "u8")
    body = (SUM + ("%7 = Relu(%6)\n%8 = Div(%7, %u)\n" if relu else "%8 = Div(%6, %u)\n") + END).replace("u8", kind)
    text = graph(body, kind).replace("0.513", repr(s)).replace("] 0.2971", f"] {t!r}").replace("0.6983", repr(u))
    text = text.replace("%to = const u8[] 100", f"%to = const {kind}[] {zero - low}").replace("f32[] 100", f"f32[] {of - low}")
    g = parse_graph(text.replace("%none = const u8[] 0\n", ""), {})
    before, y = g.clone(), np.float32
    if not FoldByteSums().run(g, Rewriter(g)):
        return
    a, b = np.meshgrid(*[np.arange(-low, 256 - low).astype(y)] * 2, indexing="ij")
    sums = (a - y(of - low)) * y(s) + b * y(t)
    wanted = np.rint((np.maximum(sums, y(0)) if relu else sums) / y(u)) + y(zero - low)
    found = _evaluated(g.outputs[0].producer.operands[0], a, b)
    assert before is not g
    wanted, found = (np.clip(v, -low, 255 - low) for v in (wanted, np.rint(found) + y(zero - low)))
    np.testing.assert_array_equal(found, wanted)


def _evaluated(v: object, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A value of f32 made of the two bytes."""
    if v.data is not None:  # type: ignore[attr-defined]
        return np.float32(v.data)  # type: ignore[attr-defined]
    node = v.producer  # type: ignore[attr-defined]
    if node.op.name == "Cast":
        return a if node.operands[0].name == "a" else b
    given = [_evaluated(operand, a, b) for operand in node.operands]
    kinds = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Relu": lambda x: np.maximum(x, np.float32(0))}
    return kinds[node.op.name](*given)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_compiled_sum_gives_every_number_of_the_models(dtype: type) -> None:
    """All pairs of bytes, beside onnx.reference."""
    low = 128 if dtype is np.int8 else 0
    numbers = {"s": np.float32(0.0231), "z": dtype(131 - low), "t": np.float32(0.0417), "w": dtype(77 - low),
               "o": np.float32(0.0293), "p": dtype(90 - low)}
    of = TensorProto.INT8 if low else TensorProto.UINT8
    nodes = [helper.make_node("DequantizeLinear", ["a", "s", "z"], ["1"]),
             helper.make_node("DequantizeLinear", ["b", "t", "w"], ["2"]), helper.make_node("Add", ["1", "2"], ["3"]),
             helper.make_node("Relu", ["3"], ["4"]), helper.make_node("QuantizeLinear", ["4", "o", "p"], ["y"])]
    made = helper.make_graph(nodes, "sum", [helper.make_tensor_value_info(n, of, [256, 256]) for n in "ab"],
                             [helper.make_tensor_value_info("y", of, [256, 256])],
                             [numpy_helper.from_array(np.asarray(v), n) for n, v in numbers.items()])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    a, b = np.meshgrid(*[np.arange(-low, 256 - low).astype(dtype)] * 2, indexing="ij")
    x = {"a": np.ascontiguousarray(a), "b": np.ascontiguousarray(b)}
    with parax.compile(model, options=parax.CompileOptions(cache=False, calibrate=False)).session() as session:
        (y,) = session.run(x).values()
    (wanted,) = onnx.reference.ReferenceEvaluator(model).run(None, x)
    np.testing.assert_array_equal(y, wanted)
