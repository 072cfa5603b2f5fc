"""Blocks of several results: what joins, what would close a circle, and the same results."""

from __future__ import annotations

import pytest

from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.verify import verify
from parax.compiler.passes.block.fuse_results import FuseResults
from parax.compiler.passes.rewrite import Rewriter
from passes.check import assert_equivalent, check_pass

ANY_SIZE = FuseResults(least_elements=1)
HEAD = "graph @g(%a: f32[40], %b: f32[40], %c: f32[40], %s: f32[]) {\n"


def fused(text: str, kind: FuseResults = ANY_SIZE) -> list[str]:
    """The operators of each node after the pass, members joined by +; results are compared, too."""
    graph, expected = parse_graph(text), parse_graph(text)
    kind.run(graph, Rewriter(graph))
    verify(graph)
    assert not kind.run(graph, Rewriter(graph))
    assert_equivalent(expected, graph, {}, 0.25, 2.0)
    return names(graph)


def names(graph: Graph) -> list[str]:
    return ["+".join(m.op.name for m in n.body) if n.body is not None else n.op.name for n in graph]


def test_two_outputs_are_one_block() -> None:
    check_pass(ANY_SIZE, "graph @g(%a: f32[9], %b: f32[9]) {\n %1 = Add(%a, %b)\n %2 = Mul(%1, %a)\n return %1, %2\n}",
               """graph @g(%a: f32[9], %b: f32[9]) {
        %1, %2 = fused<Add>(%a, %b) : f32[9], f32[9]
          body(%a: f32[9], %b: f32[9]) {
            %1 = Add(%a, %b)\n %2 = Mul(%1, %a)\n return %1, %2
          }
        return %1, %2\n}""")


@pytest.mark.parametrize(("body", "expected"), [
    # what is read besides is computed inside, if nobody else wants it
    ("%1 = Mul(%b, %s)\n %2 = Add(%a, %1)\n %3 = Sub(%c, %2)\n return %2, %3", ["Mul+Add+Sub"]),
    # siblings that share an operand only
    ("%1 = Exp(%a)\n %2 = Neg(%a)\n return %1, %2", ["Exp+Neg"]),
    # the norm reads a result, which then leaves the block as a third one
    ("%1 = Add(%a, %b)\n %n = ReduceSum(%1) {keepdims=0}\n %2 = Mul(%1, %c)\n %3 = Sub(%2, %c)\n return %2, %3, %n",
     ["Add+Mul+Sub", "ReduceSum"]),
    # what the norm scales comes after it, and with it what only that reads
    ("%1 = Add(%a, %b)\n %k = Mul(%c, %s)\n %n = ReduceSum(%1) {keepdims=0}\n %2 = Mul(%1, %n)\n %3 = Add(%k, %2)\n "
     "return %2, %3", ["Add", "ReduceSum", "Mul+Mul+Add"]),
    # one on each side of the norm
    ("%1 = Add(%a, %b)\n %n = ReduceSum(%1) {keepdims=0}\n %2 = Mul(%1, %n)\n return %1, %2", ["Add", "ReduceSum", "Mul"]),
    # a reader that stands before the last member
    ("%1 = Exp(%a)\n %r = ReduceSum(%1) {keepdims=0}\n %q = Neg(%r)\n %2 = Neg(%a)\n return %q, %1, %2",
     ["Exp+Neg", "ReduceSum", "Neg"]),
    ("%1 = Exp(%a)\n %2 = Exp(%s)\n return %1, %2", ["Exp", "Exp"]),  # another shape
])  # fmt: skip
def test_what_joins(body: str, expected: list[str]) -> None:
    assert fused(HEAD + body + "\n}") == expected


@pytest.mark.parametrize("kind", [FuseResults(), FuseResults(least_elements=1, max_nodes=1),
                                  FuseResults(least_elements=1, max_operands=1)])  # fmt: skip
def test_limits(kind: FuseResults) -> None:
    assert fused(HEAD + "%1 = Add(%a, %b)\n %2 = Mul(%1, %c)\n return %1, %2\n}", kind) == ["Add", "Mul"]


def test_two_lengths_that_read_each_other() -> None:
    text = """graph @g(%a: f32[40], %b: f32[2,20]) {
        %1 = Exp(%a)\n %n = ReduceSum(%1) {keepdims=0}\n %2 = Mul(%b, %n)\n %3 = Neg(%2)
        %m = ReduceSum(%3) {keepdims=0}\n %4 = Mul(%a, %m)\n %5 = Neg(%4)\n return %1, %2, %3, %4, %5\n}"""
    assert fused(text) == ["Exp", "ReduceSum", "Mul+Neg", "ReduceSum", "Mul+Neg"]
