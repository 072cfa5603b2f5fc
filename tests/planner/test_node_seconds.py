"""Seconds of single nodes: how spans become nodes' times, what a traced plan yields, and layers planned by them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from parax.compiler.driver import compile_model
from parax.compiler.ir.text import parse_graph
from parax.compiler.options import CompileOptions
from parax.compiler.planner.node_seconds import native_calls, node_seconds, slots
from parax.compiler.planner.partition.schedules import has_branches
from parax.compiler.planner.partition.works import BESIDE, WAITING, Measured
from parax.compiler.planner.predict import Predictor
from parax.compiler.targets.machine import Machine
from parax.runtime.profiling.notes import notes_of
from parax.runtime.profiling.recorder import KernelSpan
from parax.runtime.topology import choose_cores

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,512] x) => (float[N,512] y)
{ a = MatMul (x, w)  b = Relu (a)  c = Softmax (b)  y = MatMul (c, w) }"""
SIDE_BY_SIDE = """graph @g(%x: f32[N,4096]) {
  %a = Exp(%x) : f32[N,4096]
  %b = Sin(%x) : f32[N,4096]
  %c = Add(%a, %b) : f32[N,4096]
  return %c
}"""
MACHINE = Machine("two", 2, 1e9, 1e9, 2e9)


def test_a_node_lasts_until_the_next_one_starts() -> None:
    spans = [KernelSpan(0, 0, 0, 1.0, 2.0), KernelSpan(0, 1, 0, 1.5, 2.5), KernelSpan(0, 0, 1, 3.0, 4.0),
             KernelSpan(0, 0, 2, 4.5, 6.0), KernelSpan(0, 1, 2, 4.25, 7.0)]  # fmt: skip
    seconds, total = slots(spans, ["conv", "conv", "pool"])
    assert seconds == {"conv": 3.25, "pool": 2.75} and total == 6.0


def test_native_calls_are_told_apart_though_one_instance_serves_two() -> None:
    spans = [KernelSpan(0, 0, 0, 1.0, 2.0), KernelSpan(1, 1, 0, 1.5, 2.5), KernelSpan(0, 0, 1, 2.0, 4.0),
             KernelSpan(0, 0, 0, 4.5, 6.0), KernelSpan(0, 0, 1, 6.0, 7.0)]  # fmt: skip
    calls = native_calls(spans)
    assert [(number, [span.start for span in own]) for number, own in calls] == [
        (0, [1.0, 2.0]), (0, [1.5]), (1, [4.5, 6.0]),
    ]  # fmt: skip
    assert slots(calls[2][1], ["conv", "pool"]) == ({"conv": 1.5, "pool": 1.0}, 2.5)


def test_every_node_of_a_traced_plan_has_its_time() -> None:
    proto = onnx.parser.parse_model(MODEL)
    weight = np.eye(512, dtype=np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    plan = compile_model(proto.SerializeToString(), CompileOptions(mode="sequential"), trace=True)
    cores = tuple(choose_cores(None))[:2]
    counts = range(1, len(cores) + 1)
    found = node_seconds(plan, {"x": np.ones((4, 512), np.float32)}, 4, cores, counts)
    assert set(found) == set(notes_of(plan.manifest).values) and len(found) >= 2
    assert all(set(seconds) == set(counts) and min(seconds.values()) > 0 for seconds in found.values())


def test_only_traced_plans_say_whose_kernels_they_record() -> None:
    proto = onnx.parser.parse_model(MODEL)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(512, dtype=np.float32), "w"))
    assert "profile" not in compile_model(proto.SerializeToString(), CompileOptions()).manifest.provenance


@pytest.mark.parametrize(
    ("on_two", "cores", "seconds"),
    [(0.5, range(2), 3 * 0.5 * (1 - WAITING) + 2 * WAITING * 0.5), (0.9, range(1), BESIDE * 1.0 + 0.9)],
)
def test_layers_are_planned_by_what_nodes_took(on_two: float, cores: range, seconds: float) -> None:
    asked = []

    def measured(cores: int, rows: int) -> Measured:
        asked.append((cores, rows))
        return {name: {1: 1.0, 2: on_two} for name in "abc"}

    predictor = Predictor(parse_graph(SIDE_BY_SIDE), MACHINE, "N", measured=measured)
    found = predictor.layered(2, 1)
    assert set(asked) == {(2, 1)}
    assert found is not None
    assert next(found.schedule.layers).branches[0].cores == cores
    assert found.timeline.total_seconds == pytest.approx(seconds, rel=1e-3)


def test_a_chain_has_no_branches() -> None:
    assert has_branches(parse_graph(SIDE_BY_SIDE))
    assert not has_branches(parse_graph("graph @g(%x: f32[8]) {\n  %1 = Exp(%x) : f32[8]\n  return %1\n}"))
