"""The arena of a scheduled graph: what may live at the same time, on any cores and for any micro-batch, lies apart."""

from __future__ import annotations

from random import Random

import networkx as nx
import pytest

from parax.compiler.ir.graph import Graph, Node, Value
from parax.compiler.ir.schedule import Branch, Layer, Schedule, Stage, node_of
from parax.compiler.ir.text import parse_graph, print_graph
from parax.compiler.ir.types import evaluate
from parax.compiler.ir.views import Home, MemoryPlan, computes, homes
from parax.compiler.passes.dataflow.memory_planning import plan_memory
from parax.compiler.passes.dataflow.separate_outputs import SeparateOutputs
from parax.compiler.passes.dataflow.write_in_place import WriteInPlace
from parax.compiler.passes.rewrite import Rewriter
from parax.errors import InternalError
from passes.dataflow.test_memory_planning import graphs
from sampling import thorough
from schedules import random_schedule, written

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies
SIZES = {"N": 3}
Event = tuple[Node | str, int]  # a node, or a barrier, and the micro-batch


def happens_before(graph: Graph, schedule: Schedule, n_pieces: int) -> nx.DiGraph:
    """Which event is over before which begins, for certain: program order, barriers and the pipeline's hand-over."""
    order = nx.DiGraph()
    last = len(schedule.stages) - 1
    for b in range(n_pieces):
        for s, stage in enumerate(schedule.stages):
            nx.add_path(order, [(f"begin{s}", b), (f"end{s}", b), (f"begin{s}", b + 1)])
            if s:
                order.add_edge((f"end{s - 1}", b), (f"begin{s}", b))
            if s < last:
                order.add_edge((f"end{s + 1}", b), (f"begin{s}", b + 2))
            start: Event = (f"begin{s}", b)
            for i, layer in enumerate(stage.layers):
                end: Event = (f"barrier{s}.{i}", b)
                for branch in layer.branches:
                    nodes = [node_of(graph, name) for name in branch.nodes]
                    nx.add_path(order, [start, *((n, b) for n in nodes if computes(n)), end])
                nx.add_path(order, [start, end])
                start = end
            order.add_edge(start, (f"end{s}", b))
    return order


def check_apart(graph: Graph, schedule: Schedule, plan: MemoryPlan, n_pieces: int) -> None:
    """Every two buffers of any micro-batches share no byte, unless one is read for the last time before, for certain.

    An element-wise node may overwrite its own operand; a buffer of windows has several writers.
    """
    closure = nx.transitive_closure_dag(happens_before(graph, schedule, n_pieces))
    home_of = homes(graph)
    events: dict[tuple[Value, int], tuple[list[Event], list[Event], int, int]] = {}
    for v, offset in plan.offsets.items():
        computing = [node for node in graph if computes(node)]
        readers = [node for node in computing if any(home_of.get(o, Home(o)).value is v for o in node.operands)]
        writers = [node for node in computing if any(home_of[o].value is v for o in node.outputs)]
        for b in range(n_pieces):
            turn = plan.copies.get(v)
            start = evaluate(offset, SIZES) + (b % turn.count * evaluate(turn.stride, SIZES) if turn else 0)
            end = start + evaluate(v.tensor.nbytes, SIZES)
            assert start % 64 == 0 and end <= evaluate(plan.total, SIZES)
            assert writers
            events[v, b] = [(node, b) for node in writers], [(node, b) for node in readers], start, end
    pairs = [(x, y) for x in events.values() for y in events.values() if x is not y and x[2] < y[3] and y[2] < x[3]]
    for (born, ends, start, _), (other, others, begin, _) in pairs:
        in_place = start == begin and (set(other) <= set(ends) or set(born) <= set(others))
        free = all(closure.has_edge(e, w) or (e == w and in_place) for e in [*born, *ends] for w in other)
        used = all(closure.has_edge(e, w) or (e == w and in_place) for e in [*other, *others] for w in born)
        assert free or used, f"{born} and {other} overlap"


@thorough(150, derandomize=True)
@hypothesis.given(graphs(), st.integers(0, 2**32), st.integers(2, 4), st.integers(0, 4), st.booleans())
def test_what_may_live_at_once_lies_apart(
    graph: Graph, seed: int, n_cores: int, n_stages: int, in_place: bool
) -> None:  # fmt: skip
    SeparateOutputs().run(graph, Rewriter(graph))
    if in_place:
        WriteInPlace().run(graph, Rewriter(graph))
    schedule = written(graph, random_schedule(graph, Random(seed), n_cores, min(n_stages, n_cores), 3))
    check_apart(graph, schedule, plan_memory(graph, schedule), 5 if n_stages else 1)


TWO_BRANCHES = """graph @g(%x: f32[64]) {
  %1 = Softmax(%x)
  %2 = Relu(%1)
  %3 = Exp(%1)
  %4 = Softmax(%2)
  %5 = Neg(%3)
  %6 = Add(%4, %5)
  return %6
}"""


def scheduled(*names: str) -> Schedule:
    """One layer on two cores, the branches given by their nodes' outputs."""
    branches = [Branch(i, 1, tuple(text.split())) for i, text in enumerate(names)]
    return Schedule("layered", 2, (Stage((Layer(tuple(branches)),), 0, 2),))


def test_no_branch_takes_an_operand_that_another_reads() -> None:
    text = TWO_BRANCHES.replace("%1 = Softmax(%x)\n", "").replace("%1", "%x").replace("return %6", "return %4, %5")
    graph = parse_graph(text.replace("  %6 = Add(%4, %5)\n", ""))
    plan = plan_memory(graph, scheduled("2 4", "3 5"))
    assert plan.offsets[graph.value("2")] != plan.offsets[graph.value("3")]
    assert plan.total == 2 * 256


def test_branches_write_windows_of_one_buffer_side_by_side() -> None:
    """Nobody else's memory is in the buffer while either branch may run."""
    graph = parse_graph("""graph @g(%x: f32[4,16]) {
        %0 = Softmax(%x)
        %1 = Softmax(%0)\n %2 = Softmax(%1)\n %3 = Relu(%2) : f32[4,16|32]
        %4 = Softmax(%0)\n %5 = Softmax(%4)\n %6 = Exp(%5) : f32[4,16|32]
        %7 = Concat(%3, %6) {axis=1}\n %8 = Softmax(%7)\n return %8\n}""")
    random = Random(0)
    for _ in range(20):
        copy = parse_graph(print_graph(graph))
        schedule = written(copy, random_schedule(copy, random, 2))
        plan = plan_memory(copy, schedule)
        assert {"3", "6"}.isdisjoint(v.name for v in plan.offsets)
        check_apart(copy, schedule, plan, 1)


def test_branches_reuse_their_own_memory() -> None:
    graph = parse_graph("""graph @g(%x: f32[64]) {
        %1 = Softmax(%x)\n %2 = Softmax(%1)\n %3 = Softmax(%2)\n %4 = Softmax(%3)\n %5 = Softmax(%4)
        %6 = Softmax(%x)\n %7 = Softmax(%6)\n %8 = Softmax(%7)\n %9 = Softmax(%8)\n return %5, %9\n}""")
    assert plan_memory(graph).total == 2 * 256
    assert plan_memory(graph, scheduled("1 2 3 4 5", "6 7 8 9")).total == 4 * 256


def test_branches_that_depend_on_each_other_are_refused() -> None:
    graph = parse_graph(TWO_BRANCHES)
    with pytest.raises(InternalError, match="does not reach its user") as caught:
        plan_memory(graph, scheduled("1 2 4 6", "3 5"))
    if hasattr(caught.value, "__notes__"):
        assert "schedule layered on 2 cores {" in caught.value.__notes__[0]


def test_an_order_against_the_data_is_refused() -> None:
    graph = parse_graph(TWO_BRANCHES)
    whole = Branch(0, 2, ("1", "3", "5", "2", "6", "4"))
    with pytest.raises(InternalError, match="may begin it before"):
        plan_memory(graph, Schedule("layered", 2, (Stage((Layer((whole,)),), 0, 2),)))


def test_what_crosses_a_stage_has_two_buffers_and_what_crosses_two_has_four() -> None:
    graph = parse_graph("""graph @g(%x: f32[N,16]) {
        %1 = Softmax(%x)\n %2 = Exp(%1)\n %3 = Softmax(%2)\n %4 = Add(%3, %1)\n return %4\n}""")
    random_schedule_of_three = written(graph, random_schedule(graph, Random(1), 3, 3, 4))
    plan = plan_memory(graph, random_schedule_of_three)
    counts = {v.name: turns.count for v, turns in plan.copies.items()}
    stage_of = {name: i for i, stage in enumerate(random_schedule_of_three.stages) for layer in stage.layers
                for name in layer.nodes}  # fmt: skip
    first, last = stage_of["1"], stage_of[graph.outputs[0].name]
    assert counts["1"] == 2 * (last - first)
    check_apart(graph, random_schedule_of_three, plan, 6)
