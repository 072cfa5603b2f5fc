"""Pipelines: order, reports, repetition, and that every level keeps a network's meaning and removes what it should."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from parax.compiler.frontend.evaluate import evaluate_node
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.views import view_source
from parax.compiler.passes.base import Pass, PassReport, Pipeline
from parax.compiler.passes.block.decompose_composites import DecomposeComposites
from parax.compiler.passes.block.fuse_elementwise import FuseElementwise
from parax.compiler.passes.node.no_op_elimination import NoOpElimination
from parax.compiler.passes.pipelines import pipeline
from parax.compiler.passes.rewrite import Rewriter
from parax.compiler.passes.surroundings import Surroundings
from parax.errors import InternalError
from passes.check import assert_equivalent, check_pass

NETWORK = """graph @g(%x: f32[N,3,8,8]) {
    %w = const f32[8,3,3,3] "w"\n %s = const f32[8] [1, 2, 3, 4, 5, 6, 7, 8]\n %z = const f32[8] [0, 0, 0, 1, 0, 0, 0, 0]
    %f = const f32[288,4] "f"\n %b = const f32[4] [1, 2, 3, 4]\n %half = const f32[] 0.5
    %1 = Conv(%x, %w)\n %2 = BatchNormalization(%1, %s, %z, %z, %s)\n %3 = Relu(%2)\n %4 = Identity(%3)
    %5 = Mul(%4, %half)\n %6 = Flatten(%5)\n %7 = Gemm(%6, %f, %b)\n %8 = Softmax(%7)\n return %8 as "y"\n}"""


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_every_level_keeps_the_meaning(level: int) -> None:
    graph = parse_graph(NETWORK)
    run = pipeline(level, Surroundings(evaluate=evaluate_node))
    run.verify = True
    run.run(graph)
    assert_equivalent(parse_graph(NETWORK), graph, {})
    assert run.reports and all(r.seconds >= 0 for r in run.reports)


def test_the_whole_pipeline_leaves_kernels_only() -> None:
    graph = parse_graph(NETWORK)
    pipeline(2, Surroundings(evaluate=evaluate_node)).run(graph)
    kernels = [n for n in graph if view_source(n) is None]
    names = ["+".join(m.op.name for m in n.body) if n.body is not None else n.op.name for n in kernels]
    assert names == ["Conv+Relu+Mul", "Gemm", "Softmax"]


def test_names_come_from_classes() -> None:
    assert FuseElementwise.pass_name() == "fuse-elementwise"
    assert NoOpElimination.pass_name() == "no-op-elimination"


@dataclass(frozen=True)
class RemoveOneRelu(Pass):
    def run(self, graph: Graph, rw: Rewriter) -> bool:
        for node in graph.nodes_in_order():
            if node.op.name == "Relu":
                rw.replace(node, node.operands[0])
                return True
        return rw.no_match("no Relu left")


@dataclass(frozen=True)
class BreakUses(Pass):
    def run(self, graph: Graph, rw: Rewriter) -> bool:
        next(iter(graph)).operands[0].uses.clear()
        return True


RELUS = "graph @g(%x: f32[4]) {\n%1 = Relu(%x)\n %2 = Relu(%1)\n %3 = Relu(%2)\n %4 = Exp(%3)\n return %4\n}"


def test_a_nested_list_repeats_until_nothing_changes() -> None:
    graph, seen = parse_graph(RELUS), []

    def after(number: int, report: PassReport, graph: Graph, misses: object) -> None:
        seen.append((number, report.name, report.changed, report.n_nodes, list(misses)))  # type: ignore[call-overload]

    Pipeline([[RemoveOneRelu()]], after=after).run(graph)
    name = "remove-one-relu"
    assert seen == [(1, name, True, 3, []), (2, name, True, 2, []), (3, name, True, 1, []),
                    (4, name, False, 1, ["no Relu left"])]  # fmt: skip


def test_repetition_has_an_end() -> None:
    graph = parse_graph(RELUS)
    run = Pipeline([[RemoveOneRelu()]], max_rounds=2)
    run.run(graph)
    assert len(run.reports) == 2 and len(graph) == 2


def test_a_broken_graph_is_reported_with_the_name_of_the_pass() -> None:
    with pytest.raises(InternalError) as caught:
        Pipeline([BreakUses()], verify=True).run(parse_graph(RELUS))
    notes = getattr(caught.value, "__notes__", None)
    assert notes is None or any("break-uses" in note for note in notes)


def test_composites_without_a_kernel_are_expanded() -> None:
    check_pass(DecomposeComposites(), "graph @g(%x: f32[N,4], %y: f64[2]) {\n%1 = CastLike(%x, %y)\n return %1 as \"o\"\n}",
               "graph @g(%x: f32[N,4], %y: f64[2]) {\n%1 = Cast(%x) {to=f64}\n return %1 as \"o\"\n}")


def test_composites_with_a_kernel_stay() -> None:
    check_pass(DecomposeComposites(lambda op: True), "graph @g(%x: f32[N,4], %y: f64[2]) {\n%1 = CastLike(%x, %y)\n return %1\n}",
               None, refuses="kernel of its own")
