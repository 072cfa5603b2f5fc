"""Element-wise tails: what joins a block, what does not."""

from __future__ import annotations

import time

import pytest

from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.verify import verify
from parax.compiler.passes.block.fuse_elementwise import FuseElementwise
from parax.compiler.passes.rewrite import Rewriter
from passes.check import assert_equivalent, check_pass


def fused(text: str, symbols: dict[str, int] | None = None) -> list[str]:
    """The operators of each node after the pass, blocks as `Root+Tail+Tail`; results are compared, too."""
    graph = parse_graph(text)
    expected = parse_graph(text)
    changed = FuseElementwise().run(graph, Rewriter(graph))
    verify(graph)
    assert changed == any(n.body is not None for n in graph)
    assert not FuseElementwise().run(graph, Rewriter(graph))
    assert_equivalent(expected, graph, symbols or {}, 0.25, 2.0)
    return names(graph)


def names(graph: Graph) -> list[str]:
    return ["+".join(m.op.name for m in n.body) if n.body is not None else n.op.name for n in graph]


def test_an_activation_joins_the_convolution() -> None:
    check_pass(FuseElementwise(), """graph @g(%x: f32[N,3,6,6]) {
        %w = const f32[4,3,3,3] "w"\n %1 = Conv(%x, %w)\n %2 = Relu(%1)\n return %2\n}""",
        """graph @g(%x: f32[N,3,6,6]) {
        %w = const f32[4,3,3,3] "w"
        %2 = fused<Conv>(%x, %w) : f32[N,4,4,4]
          body(%x: f32[N,3,6,6], %w: f32[4,3,3,3]) {
            %1 = Conv(%x, %w)\n %2 = Relu(%1)\n return %2
          }
        return %2\n}""")


CONV = 'graph @g(%x: f32[N,4,6,6], %r: f32[N,4,6,6]) {\n%w = const f32[4,4,1,1] "w"\n %1 = Conv(%x, %w)\n'


@pytest.mark.parametrize(("body", "expected"), [
    ("%2 = Add(%1, %r)\n %3 = Relu(%2)\n return %3", ["Conv+Add+Relu"]),  # residual
    ("%2 = Sigmoid(%1)\n %3 = Mul(%1, %2)\n return %3", ["Conv+Sigmoid+Mul"]),  # SiLU
    ("%2 = Softplus(%1)\n %3 = Tanh(%2)\n %4 = Mul(%1, %3)\n return %4", ["Conv+Softplus+Tanh+Mul"]),  # Mish
    ("%2 = GlobalAveragePool(%1)\n %3 = Sigmoid(%2)\n %4 = Mul(%1, %3)\n return %4",
     ["Conv", "GlobalAveragePool+Sigmoid", "Mul"]),  # squeeze and excite: the factor depends on the whole image
    ("%2 = Relu(%1)\n %3 = Exp(%1)\n return %2, %3", ["Conv", "Relu", "Exp"]),  # two results
    ("%2 = Relu(%1)\n %3 = Exp(%2)\n return %2, %3", ["Conv+Relu", "Exp"]),  # the first is wanted, too
    ("%2 = ReduceMean(%1)\n %3 = Add(%2, %1)\n return %3", ["Conv", "ReduceMean", "Add"]),
    ("%2 = Conv(%1, %w)\n %3 = Add(%1, %2)\n return %3", ["Conv", "Conv+Add"]),
    ("%c = const f32[5,1,4,1,1] \"c\"\n %2 = Add(%1, %c)\n return %2", ["Conv", "Add"]),  # the result is larger
])  # fmt: skip
def test_tails_of_a_convolution(body: str, expected: list[str]) -> None:
    assert fused(f"{CONV}{body}\n}}") == expected


@pytest.mark.parametrize(("body", "expected"), [
    ("%2 = Add(%r, 1.0)\n %3 = Mul(%2, %2)\n %4 = Exp(%2)\n %5 = Add(%1, %3)\n return %4, %5",
     ["Add", "Exp", "Conv+Mul+Add"]),  # %2 is there for others
    ("%2 = Sub(%r, 1.0)\n %3 = Mul(%2, %s)\n %4 = Add(%1, %3)\n return %4", ["Conv+Sub+Mul+Add"]),
    ("%2 = Mul(%r, %q)\n %4 = Add(%1, %2)\n return %4", ["Mul", "Conv+Add"]),  # would keep two for one
    ("%2 = Add(%1, %r)\n %3 = Mul(%r, %q)\n %4 = Add(%2, %3)\n return %4", ["Conv+Add+Mul+Add"]),  # reads %r anyway
    ("%c = Conv(%r, %w)\n %2 = Exp(%c)\n %4 = Add(%1, %2)\n return %4", ["Conv+Exp", "Conv+Add"]),
    ("%2 = Exp(%1)\n %3 = Sub(%2, %s)\n %4 = Neg(%2)\n %5 = Mul(%4, %3)\n return %5", ["Conv+Exp+Sub+Neg+Mul"]),
])  # fmt: skip
def test_what_only_a_tail_reads_comes_with_it(body: str, expected: list[str]) -> None:
    given = "graph @g(%x: f32[N,4,6,6], %r: f32[N,4,6,6], %q: f32[N,4,6,6], %s: f32[4,1,1]) {"
    body = body.replace("1.0", "%one")
    text = f'{given}\n%w = const f32[4,4,1,1] "w"\n %one = const f32[] 1.0\n %1 = Conv(%x, %w)\n{body}\n}}'
    assert fused(text) == expected


def test_element_wise_operators_form_blocks_of_their_own() -> None:
    assert fused("""graph @g(%x: f32[N,4], %c: f32[4], %s: f32[]) {
        %1 = Mul(%x, %c)\n %2 = Add(%1, %s)\n %3 = Exp(%2)\n return %3\n}""") == ["Mul+Add+Exp"]


def test_one_element_constants_are_written_into_the_block() -> None:
    graph = parse_graph("graph @g(%x: f32[N,4]) {\n%c = const f32[] 3.0\n %1 = Mul(%x, %c)\n %2 = Exp(%1)\n return %2\n}")
    FuseElementwise().run(graph, Rewriter(graph))
    verify(graph)
    (node,) = graph
    assert len(node.inputs) == 1 and node.body is not None and len(node.body.constants) == 1


def test_a_block_has_limits() -> None:
    chain = "\n".join(f"%{i} = Exp(%{i - 1})" for i in range(1, 101))
    text = f"graph @g(%0: f32[4]) {{\n{chain}\nreturn %100\n}}"
    graph = parse_graph(text)
    FuseElementwise(max_nodes=30).run(graph, Rewriter(graph))
    assert [len(n.body) for n in graph if n.body] == [30, 30, 30, 10]


def test_a_block_needs_two_operators() -> None:
    check_pass(FuseElementwise(), "graph @g(%x: f32[4]) {\n%1 = Relu(%x)\n %2 = Softmax(%1)\n return %2\n}", None,
               refuses="not element-wise")


def test_long_chains_and_wide_fans_take_seconds_at_most() -> None:
    chain = "\n".join(f"%{i} = {'Exp' if i % 2 else 'Neg'}(%{i - 1})" for i in range(1, 8001))
    fan = "\n".join(f"%a{i} = Add(%8000, %{i})" for i in range(1, 3000))
    join = "\n".join(f"%b{i} = Mul(%{'b' + str(i - 1) if i > 1 else 'x'}, %a{i})" for i in range(1, 3000))
    graph = parse_graph(f"graph @g(%0: f32[4], %x: f32[4]) {{\n{chain}\n{fan}\n{join}\nreturn %b2999\n}}")
    start = time.perf_counter()
    FuseElementwise().run(graph, Rewriter(graph))
    assert time.perf_counter() - start < 20
    verify(graph)
