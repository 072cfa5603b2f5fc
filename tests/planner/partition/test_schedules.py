"""plan_layers and plan_pipeline on graphs: schedules that hold, results that stay, bounds on the search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parax.compiler.costs.cost import Cost
from parax.compiler.frontend.evaluate import evaluate_graph
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.ir.ops.internal import Result
from parax.compiler.ir.schedule import Schedule, check_schedule, print_schedule
from parax.compiler.ir.text import parse_graph, print_graph
from parax.compiler.ir.types import F32, TensorType
from parax.compiler.ir.verify import verify
from parax.compiler.planner.partition.branches import Arrangement, Branches
from parax.compiler.planner.partition.dag import contract_views
from parax.compiler.planner.partition.layers import LayerOptions
from parax.compiler.planner.partition.merging import merge_where_it_pays
from parax.compiler.planner.partition.micro_batches import micro_batch_sizes
from parax.compiler.planner.partition.schedules import (
    device_batch,
    plan_layers,
    plan_pipeline,
    policy_of,
    scheduled_graph,
)
from parax.compiler.planner.partition.simulate import Sequential, simulate
from parax.compiler.planner.partition.works import Work, graph_works
from parax.compiler.targets.machine import Machine

SLOW = Machine("slow", cores_per_socket=4, flops_per_core=1e6, bandwidth_per_core=1e6, bandwidth_per_socket=4e6,
               l2_bandwidth_per_core=1e6, l3_bandwidth_per_core=1e6, barrier_seconds=1e-6)  # fmt: skip
"""So slow that barriers cost nothing: whatever can run side by side does."""

TWO_CHAINS = """graph @g(%x: f32[N,8]) {
  %w = const f32[8] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
  %v = Reshape(%x, %shape) : f32[N,8]
  %a = Exp(%v) : f32[N,8]
  %b = Exp(%a) : f32[N,8]
  %c = Mul(%v, %w) : f32[N,8]
  %d = Exp(%c) : f32[N,8]
  %e = Exp(%d) : f32[N,8]
  %f = Add(%b, %e) : f32[N,8]
  return %f
}""".replace("  %v =", "  %shape = const i64[2] [-1, 8]\n  %v =")


def test_two_chains_run_side_by_side() -> None:
    graph = parse_graph(TWO_CHAINS)
    before = print_graph(graph)
    schedule = plan_layers(graph, SLOW, 2, {"N": 1})
    assert print_graph(graph) == before
    graph = scheduled_graph(graph, schedule)
    verify(graph)
    check_schedule(graph, schedule)
    assert print_schedule(schedule, graph) == """\
schedule layered on 2 cores {
  stage 0 on cores 0-1 {
    layer 0 {
      cores 0-1: %v %c
      result: %1 %2
    }
    layer 1 {
      core 0: %a %b
      core 1: %d %e
      result: %3 %4
    }
    layer 2 {
      cores 0-1: %f
    }
  }
}
"""


def test_a_chain_stays_sequential_and_as_it_is() -> None:
    graph = parse_graph("graph @g(%x: f32[8]) {\n  %1 = Exp(%x) : f32[8]\n  %2 = Neg(%1) : f32[8]\n  return %2\n}")
    schedule = plan_layers(graph, SLOW, 2, {})
    assert schedule.mode == "sequential" and len(graph) == 2
    assert isinstance(policy_of(graph, schedule), Sequential)


def test_a_view_of_several_results_waits_for_all_of_them() -> None:
    cost, view = Cost(1.0, 0.0, 0.0, 0.0, 1, "conv"), Cost(0.0, 0.0, 0.0, 0.0, 1, "view")
    views = [Work("of a", view, (0,)), Work("of a, b", view, (2, 1)), Work("of x", view)]
    works = [Work("a", cost), Work("b", cost), *views]
    dag, groups, free = contract_views(works)
    assert groups == [[0, 2], [1], [3]] and free == [4]
    assert dag.before == [0, 0, 0b11]


def test_convolutions_are_merged_only_where_calls_cost_more_than_copies() -> None:
    data = {name: np.ones((16, 8, 1, 1), np.float32) for name in "abc"}
    text = """graph @g(%x: f32[1,8,16,16]) {
      %a = const f32[16,8,1,1] "a"
      %b = const f32[16,8,1,1] "b"
      %c = const f32[16,8,1,1] "c"
      %1 = Conv(%x, %a) : f32[1,16,16,16]
      %2 = Conv(%x, %b) : f32[1,16,16,16]
      %3 = Conv(%x, %c) : f32[1,16,16,16]
      return %1, %2, %3
    }"""

    def convolutions(kernel_seconds: float) -> int:
        graph = parse_graph(text, data)
        machine = Machine("m", 1, 1e9, 1e9, 1e9, l2_bandwidth_per_core=1e9, l3_bandwidth_per_core=1e9,
                          kernel_seconds=kernel_seconds)  # fmt: skip
        assert merge_where_it_pays(graph, machine, 1, {}) == (kernel_seconds > 1e-6)
        verify(graph)
        return sum(node.op.name == "Conv" for node in graph)

    assert convolutions(1e-3) == 1
    assert convolutions(1e-9) == 3


def test_measured_seconds_decide_over_predicted_ones() -> None:
    alone = {name: {1: 1.0, 2: 0.5} for name in "abcdef"}  # two cores help as much as they can
    schedule = plan_layers(parse_graph(TWO_CHAINS), SLOW, 2, {"N": 1}, measured=alone)
    assert all(branch.cores == range(2) for layer in schedule.layers for branch in layer.branches)
    assert [len(layer.branches) for layer in schedule.layers] == [2, 2, 1] and next(schedule.layers).shared
    slow = {name: {1: 1.0, 2: 0.9} for name in "abcdef"}
    schedule = plan_layers(parse_graph(TWO_CHAINS), SLOW, 2, {"N": 1}, measured=slow)
    assert [len(layer.branches) for layer in schedule.layers] == [1, 2, 1]  # c first: then both chains have two


def test_a_pipeline_has_a_stage_for_each_core_group() -> None:
    graph = parse_graph(TWO_CHAINS)
    schedule = plan_pipeline(graph, SLOW, 2, 64)
    graph = scheduled_graph(graph, schedule)
    verify(graph)
    check_schedule(graph, schedule)
    assert schedule.mode == "pipelined" and len(schedule.stages) == 2
    assert [stage.cores for stage in schedule.stages] == [range(1), range(1, 2)]
    ends = [node.op.stage for node in graph if isinstance(node.op, Result)]
    assert ends == [0]
    assert schedule.micro_batches is not None and sum(micro_batch_sizes(64, schedule.micro_batches)) == 64
    simulated = simulate(graph_works(graph, {"N": 64 // schedule.micro_batches}), SLOW, policy_of(graph, schedule))
    assert simulated.total_seconds > 0


def test_a_single_core_has_no_pipeline() -> None:
    graph = parse_graph(TWO_CHAINS)
    assert plan_pipeline(graph, SLOW, 1, 64).mode == "sequential"


def test_the_device_batch_grows_with_what_a_call_costs() -> None:
    def full(call_seconds: float) -> int:
        return device_batch(lambda rows: call_seconds + rows * 1e-6, 256)

    assert [full(0.0), full(1e-7), full(1e-6), full(1.0)] == [1, 2, 32, 256]


def random_graph(data: st.DataObject) -> Graph:
    graph = Graph()
    values: list[Value] = [graph.add_input("x", TensorType(F32, (3, 64)))]
    g = GraphBuilder(graph)
    for _ in range(data.draw(st.integers(2, 14))):
        kind = data.draw(st.sampled_from(["Sin", "Sub", "Relu", "Concat", "Reshape"]))
        a, b = (data.draw(st.sampled_from(values)) for _ in range(2))
        if kind == "Concat":
            values.append(g.Slice(g.Concat(a, b, axis=1), [5], [69], [1]))
        elif kind == "Reshape":
            values.append(g.Reshape(g.Reshape(a, [64, 3]), [3, 64]))
        else:
            values.append(g.Sub(a, b) if kind == "Sub" else getattr(g, kind)(a))
    graph.set_outputs(list(dict.fromkeys([values[-1], data.draw(st.sampled_from(values[1:]))])))
    return graph


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(2, 4), st.booleans())
def test_random_graphs_keep_their_results_bit_for_bit(data: st.DataObject, n_cores: int, piped: bool) -> None:
    graph = random_graph(data)
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)}
    wanted = evaluate_graph(graph, feeds)
    n_before = len(graph)
    schedule: Schedule = plan_pipeline(graph, SLOW, n_cores, 32) if piped else plan_layers(graph, SLOW, n_cores, {})
    sequential = simulate(graph_works(graph, {}), SLOW, Sequential(n_cores)).total_seconds
    graph = scheduled_graph(graph, schedule)
    verify(graph)
    check_schedule(graph, schedule)
    found = evaluate_graph(graph, feeds)
    assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted)
    assert sum(len(branch.nodes) for layer in schedule.layers for branch in layer.branches) == n_before
    if schedule.mode == "layered":
        after = simulate(graph_works(graph, {}), SLOW, policy_of(graph, schedule)).total_seconds
        assert after <= sequential * 1.001
    if schedule.mode == "pipelined":
        assert sum(stage.n_cores for stage in schedule.stages) <= n_cores


@pytest.mark.parametrize("n_cores", [2, 8])
def test_a_graph_of_wide_cells_is_planned_by_a_bounded_search(n_cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted are sets that are arranged, nearly all of the time: seconds are the machine's and its load's."""
    arranged: list[int] = []
    arrange = Branches.arrange

    def counted(branches: Branches, part: int) -> Arrangement:
        arranged.append(part)
        return arrange(branches, part)

    monkeypatch.setattr(Branches, "arrange", counted)
    graph = Graph()
    g = GraphBuilder(graph)
    previous = current = graph.add_input("x", TensorType(F32, (8, 64)))
    for _ in range(12):  # NASNet's shape: each cell sees the two before it
        sums = [g.Add(g.Exp(g.Sin(current)), g.Exp(g.Sin(previous))) for _ in range(5)]
        previous, current = current, g.Slice(g.Concat(*sums, previous, axis=1), [0], [64], [1])
    graph.set_outputs([current])
    schedule = plan_layers(graph, replace(SLOW, cores_per_socket=8, barrier_seconds=0.02), n_cores, {})
    assert len(arranged) <= LayerOptions().most_evaluations + len(set(arranged)) // 100
    assert schedule.mode == "layered" and len(scheduled_graph(graph, schedule)) > 300
