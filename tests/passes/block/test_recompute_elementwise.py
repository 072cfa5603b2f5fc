"""What is computed again for late readers, and what is kept."""

from __future__ import annotations

import pytest

from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.verify import verify
from parax.compiler.passes.block.recompute_elementwise import RecomputeElementwise
from parax.compiler.passes.rewrite import Rewriter
from passes.check import assert_equivalent, check_pass

PASS = RecomputeElementwise(least_nbytes=16, distance=3)


def test_a_late_reader_gets_its_own_copy() -> None:
    check_pass(PASS, """graph @g(%x: f32[4,8], %m: f32[1,1]) {
        %1 = Softmax(%x)\n %2 = Sub(%1, %m)\n %3 = Mul(%2, %2)\n %4 = Exp(%3)\n %5 = Exp(%4)\n %6 = Add(%2, %5)
        %7 = Add(%6, %1)\n return %7\n}""",
        """graph @g(%x: f32[4,8], %m: f32[1,1]) {
        %1 = Softmax(%x)\n %2 = Sub(%1, %m)\n %3 = Mul(%2, %2)\n %4 = Exp(%3)\n %5 = Exp(%4)\n %8 = Sub(%1, %m)
        %6 = Add(%8, %5)\n %7 = Add(%6, %1)\n return %7\n}""")


CHAIN = "%5 = Exp(%4)\n %6 = Exp(%5)\n %7 = Exp(%6)\n"


@pytest.mark.parametrize(("body", "n_copies"), [
    ("%2 = Sub(%x, %m)\n %3 = Mul(%2, %s)\n %4 = Exp(%3)\n" + CHAIN + "%8 = Mul(%3, %7)\n return %8", 2),  # and %2
    ("%2 = Sub(%x, %m)\n %4 = Exp(%2)\n" + CHAIN + "%8 = Mul(%2, %7)\n return %8", 1),  # inputs live anyway
    ("%1 = Softmax(%x)\n %2 = Sub(%1, %m)\n %4 = Exp(%2)\n" + CHAIN + "%8 = Mul(%2, %7)\n return %8", 0),  # keeps %1
    ("%2 = Erf(%x)\n %4 = Exp(%2)\n" + CHAIN + "%8 = Mul(%2, %7)\n return %8", 1),  # as long as moving it
    ("%1 = Exp(%x)\n %2 = Erf(%1)\n %4 = Exp(%2)\n" + CHAIN + "%8 = Mul(%2, %7)\n return %8", 0),  # two functions
    ("%2 = Softmax(%x)\n %4 = Exp(%2)\n" + CHAIN + "%8 = Mul(%2, %7)\n return %8", 0),  # not element by element
    ("%2 = Sub(%x, %m)\n %4 = Exp(%2)\n" + CHAIN + "%8 = Mul(%2, %7)\n return %8, %2", 0),  # is there anyway
    ("%2 = Sub(%x, %m)\n %4 = Exp(%2)\n" + CHAIN + "%8 = ReduceSum(%2)\n %9 = Add(%8, %7)\n return %9", 0),
    ("%2 = Sub(%x, %y)\n %4 = Exp(%2)\n" + CHAIN + "%8 = Mul(%2, %7)\n return %8", 0),  # two tensors for one
    ("%2 = Sub(%x, %y)\n %4 = Exp(%2)\n" + CHAIN + "%8 = Mul(%2, %y)\n %9 = Add(%8, %7)\n return %9", 1),
    ("%2 = Sub(%x, %m)\n %3 = Exp(%2)\n %8 = Mul(%2, %3)\n return %8", 0),  # not late
    ("%2 = Sub(%x, %m)\n %4 = Exp(%2)\n" + CHAIN + "%8 = Mul(%2, %7)\n %9 = Sub(%8, %2)\n return %9", 2),
])  # fmt: skip
def test_what_is_copied(body: str, n_copies: int) -> None:
    text = f"graph @g(%x: f32[4,8], %y: f32[4,8], %m: f32[1,1], %s: f32[1,1]) {{\n{body}\n}}"
    graph, expected = parse_graph(text), parse_graph(text)
    before = len(graph)
    assert PASS.run(graph, Rewriter(graph)) == bool(n_copies)
    verify(graph)
    assert len(graph) - before == n_copies
    assert_equivalent(expected, graph, {}, 0.25, 2.0)


def test_small_tensors_and_open_sizes_are_left_alone() -> None:
    body = "%2 = Sub(%x, 1.0)\n %4 = Exp(%2)\n" + CHAIN + "%8 = Mul(%2, %7)\n return %8"
    for shape in ("4,8", "N,8192,4"):
        text = f"graph @g(%x: f32[{shape}]) {{\n%one = const f32[] 1.0\n{body.replace('1.0', '%one')}\n}}"
        graph = parse_graph(text)
        assert not RecomputeElementwise(distance=3).run(graph, Rewriter(graph))
