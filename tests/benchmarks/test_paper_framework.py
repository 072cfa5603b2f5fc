"""What the simulated framework runs and moves, on models small enough to count by hand."""

from __future__ import annotations

import pytest

from benchmarks.paper_framework import ENGINE, OPERATOR_SECONDS, Operation, framework_works, operations
from examples.models import build
from parax.compiler.driver import import_graph
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.parser import parse_graph
from parax.compiler.options import CompileOptions
from parax.compiler.planner.partition.simulate import Sequential, simulate
from parax.compiler.targets.machine import Machine

SMALL = Machine("box", 4, 1e10, 1e10, 2e10, n_sockets=2, l2_nbytes=1 << 20, l3_nbytes=1 << 20, kernel_seconds=0.0)
CHAIN = """graph @g(%x: f32[N,64,8,8]) {
  %a = Relu(%x) : f32[N,64,8,8]
  %b = Relu(%a) : f32[N,64,8,8]
  return %b
}"""


@pytest.fixture(scope="module")
def cifar() -> Graph:
    return import_graph(build("cifar-resnet20", small=True), CompileOptions())


def of_phase(found: list[Operation], phase: str) -> list[Operation]:
    return [operation for operation in found if operation.phase == phase]


def test_training_goes_back_through_every_operator(cifar: Graph) -> None:
    forward = operations(cifar, {"N": 2}, False)
    found = operations(cifar, {"N": 2}, True, beside=4)
    assert [o.op for o in of_phase(found, "forward")] == [o.op for o in forward]
    convs = [o for o in forward if o.op == "Conv"]
    back = [o for o in of_phase(found, "backward") if o.op == "Conv"]
    assert len(back) == 2 * len(convs) - 1, "two gradients each, but none of the model's input"
    assert sum(o.flops for o in back) == 2 * sum(o.flops for o in convs) - convs[0].flops
    assert [o.op for o in of_phase(found, "update")] == ["GradientServer", "Update"]


def test_one_instance_needs_no_server(cifar: Graph) -> None:
    assert [o.op for o in operations(cifar, {"N": 2}, True) if o.phase == "update"] == ["Update"]


def test_activations_are_in_place() -> None:
    first, second = operations(parse_graph(CHAIN), {"N": 4}, False)
    assert [t.how for t in first.touches] == ["read", "write"], "the model's input is not overwritten"
    assert [t.how for t in second.touches] == ["in place"]


def test_caches_serve_what_fits() -> None:
    graph = parse_graph(CHAIN)
    few, many = (framework_works(operations(graph, {"N": n}, False), SMALL, 1, beside=4) for n in (4, 4000))
    assert sum(work.cost.far_nbytes for work in few) == 0
    assert sum(work.cost.far_nbytes for work in many) == 5 * 4000 * 64 * 64 * 4, "x, a twice, and a once more each way"


def test_instances_side_by_side_share_the_last_cache() -> None:
    found = operations(parse_graph(CHAIN), {"N": 64}, False)
    alone, beside = (framework_works(found, SMALL, 1, beside=k) for k in (1, 4))
    assert sum(w.cost.far_nbytes for w in alone) < sum(w.cost.far_nbytes for w in beside)


def test_the_engine_takes_its_time_for_each_operator() -> None:
    works = framework_works(operations(parse_graph(CHAIN), {"N": 4}, False), SMALL, 4)
    assert [work.name for work in works] == [ENGINE, "Relu", ENGINE, "Relu"]
    timeline = simulate(works, SMALL, Sequential(4))
    engine = [s.end - s.start for s in timeline.spans if works[s.work].name == ENGINE]
    assert engine == pytest.approx([OPERATOR_SECONDS] * 2)


def test_a_recurrent_layer_goes_step_by_step() -> None:
    graph = import_graph(build("word-lm", small=True), CompileOptions())
    layers = [node for node in graph if node.op.name == "LSTM"]
    steps = sum(int(node.operands[0].tensor.shape[0]) for node in layers)
    found = operations(graph, {"N": 2}, True)
    inside = of_phase(found, "step")
    assert sum(o.op == "Cells" for o in inside) == 2 * steps + len(layers), "forward, backward, and the biases"
    assert sum(o.op == "Gemm" for o in inside) == 3 * steps + 3 * len(layers)
