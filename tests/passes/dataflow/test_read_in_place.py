"""ReadInPlace: what a Slice or Split takes becomes a view, where all readers can work on a window."""

from __future__ import annotations

from importlib import import_module

import pytest

from parax.compiler.backend.lowering import takes_window
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.views import Home, computes, homes
from parax.compiler.passes.dataflow.memory_planning import plan_memory
from parax.compiler.passes.dataflow.read_in_place import ReadInPlace
from passes.check import check_pass

import_module("parax.compiler.backend.lower")  # the kernels register what windows they take

BOUNDS = "%b = const i64[1] [1]\n %e = const i64[1] [3]\n %a = const i64[1] [0]\n"


def test_a_slice_is_read_where_it_lies() -> None:
    graph = check_pass(
        ReadInPlace(),
        before=f"graph @g(%x: f32[4,8,16]) {{\n{BOUNDS} %0 = Neg(%x)\n %1 = Slice(%0, %b, %e, %b)\n %2 = Exp(%1)\n return %2\n}}",
        after="graph @g(%x: f32[4,8,16]) {\n%0 = Neg(%x)\n"
        "%1 = parax::Part(%0) {axes=[1], starts=[1], ends=[3]} : f32[4,2|8,16]\n %2 = Exp(%1)\n return %2\n}",
    )
    (part,) = [node for node in graph if node.op.name == "Part"]
    whole = part.operands[0]
    assert not computes(part) and homes(graph)[part.output] == Home(whole, 4 * 16)
    assert part.output not in plan_memory(graph).offsets


def test_all_parts_of_a_split() -> None:
    check_pass(
        ReadInPlace(),
        before="graph @g(%x: f32[N,48,5]{0,2,1}) {\n%s = const i64[3] [16, 16, 16]\n %1, %2, %3 = Split(%x, %s) {axis=1}\n"
        "%4 = Add(%1, %3)\n return %4\n}",
        after="graph @g(%x: f32[N,48,5]{0,2,1}) {\n"
        "%1 = parax::Part(%x) {axes=[1], starts=[0], ends=[16]} : f32[N,16|48,5]{0,2,1}\n"
        "%3 = parax::Part(%x) {axes=[1], starts=[32], ends=[48]} : f32[N,16|48,5]{0,2,1}\n"
        "%4 = Add(%1, %3) : f32[N,16,5]{0,2,1}\n return %4\n}",
    )


def test_a_part_of_a_part_and_of_a_window() -> None:
    graph = parse_graph(
        """graph @g(%x: f32[4,32], %y: f32[4,8]) {
        %0 = Neg(%x) : f32[4,32|40]\n %9 = Neg(%y) : f32[4,8|40]
        %1 = parax::Part(%0) {axes=[0, 1], starts=[1, 8], ends=[4, 32]} : f32[3|4,24|40]
        %2 = parax::Part(%1) {axes=[1], starts=[4], ends=[24]} : f32[3|4,20|40]
        %3 = Exp(%2)\n %4 = Concat(%9, %0) {axis=1}\n return %3, %4\n}"""
    )
    whole = graph.outputs[1]
    assert homes(graph)[graph.value("2")] == Home(whole, 4 * (8 + 40 + 8 + 4))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%s = const i64[1] [2]\n %1 = Slice(%x, %b, %e, %a, %s)\n %2 = Exp(%1)\n return %2", "steps"),
        ("%1 = Slice(%x, %b, %e, %a)\n return %1", "returned"),
        ("%1 = Slice(%x, %b, %e, %b)\n %2 = Exp(%1)\n return %2", "short runs"),
        ("%1 = Slice(%x, %b, %e, %a)\n %2 = Concat(%1, %x) {axis=0}\n return %2", "joined"),
        ("%p = const i64[1] [-1]\n %1 = Slice(%x, %b, %e, %a)\n %2 = Reshape(%1, %p)\n %3 = Exp(%2)\n return %3",
         "another shape"),
        ("%s = const i64[2] [16, 16]\n %1, %2 = Split(%x, %s) {axis=1}\n %3 = Exp(%1)\n %4 = TopK(%2, %b)\n return %3, %4",
         "no window for TopK"),
    ],
)  # fmt: skip
def test_must_not_fire(text: str, reason: str) -> None:
    text = text.replace("%4 = TopK", "%4, %5 = TopK")
    check_pass(ReadInPlace(takes_window), f"graph @g(%x: f32[4,32]) {{\n{BOUNDS}{text}\n}}", None, refuses=reason)
