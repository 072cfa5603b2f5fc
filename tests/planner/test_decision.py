"""What a compilation does with the planner's choice, what the plan keeps of it, and that sessions follow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import parax
from parax.compiler import driver, optimisation
from parax.compiler.backend.costs import node_cost
from parax.compiler.compilation import Compilation
from parax.compiler.driver import compile_model, import_graph, optimise
from parax.compiler.frontend.importer import import_model
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.schedule import check_schedule
from parax.compiler.ir.text import print_graph
from parax.compiler.ir.views import is_window
from parax.compiler.planner import predict
from parax.compiler.planner.candidate import LAYERED, PIPELINED, Candidate, Load
from parax.compiler.planner.decide import Decision, decide, options_load, rows_a_call
from parax.compiler.planner.partition.schedules import scheduled_graph
from parax.compiler.planner.planner import Planner
from parax.compiler.planner.timeline import recorded_spans
from parax.compiler.planning import study_of
from parax.compiler.targets.machine import Machine
from parax.compiler.written import written
from parax.errors import CorruptPlan
from parax.runtime.interface import interface_digests
from parax.runtime.plan import Plan
from parax.runtime.topology import choose_cores

Cli = Callable[..., "CompletedProcess[str]"]
TWO = Machine("two", 2, 100e9, 15e9, 25e9)
N_CORES = len(choose_cores(None))
needs_two_cores = pytest.mark.skipif(N_CORES < 2, reason="needs two cores")
BRANCHES = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,16,14,14] x) => (float[N,64,14,14] y)
{ a = Conv <kernel_shape = [1,1]> (x, w0)  b = Conv <kernel_shape = [1,1]> (x, w1)
  c = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (a, v0)  d = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (b, v1)
  y = Concat <axis = 1> (c, d) }"""


def branchy(text: str = BRANCHES) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(3)
    for name, shape in (("w", (16, 16, 1, 1)), ("v", (32, 16, 3, 3))):
        for i in "01":
            weight = rng.standard_normal(shape, np.float32) / 8
            model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name + i))
    return model


def joined() -> onnx.ModelProto:
    """The branches with an operator after the Concat."""
    text = BRANCHES.replace("[N,64,14,14] y)", "[N,8,14,14] z)")
    model = branchy(text.replace("(c, d) }", "(c, d)  z = Conv (y, u) }"))
    weight = np.ones((8, 64, 1, 1), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "u"))
    return model


def graph_of(model: onnx.ModelProto, options: parax.CompileOptions) -> Graph:
    graph = import_graph(model, options)
    optimise(graph, Compilation(options, lambda what, done: None))
    return graph


def decided(machine: Machine = TWO, **options: Any) -> Decision:
    chosen = parax.CompileOptions(**options)
    return decide(graph_of(branchy(), chosen), chosen, machine, machine.n_cores)


def shape(decision: Decision) -> tuple[int, int, int]:
    """Cores, instances and cores of each."""
    found = decision.arrangement()
    assert found is not None
    return found["cores"], found["instances"], found["cores_each"]


def test_throughput_gives_every_core_an_instance_and_latency_all_cores_to_one() -> None:
    assert shape(decided()) == (2, 2, 1)
    slow = replace(TWO, flops_per_core=1e9)  # where nothing is lost to barriers
    assert shape(decided(slow, hint="latency")) == (2, 1, 2)


def test_barriers_dearer_than_the_work_leave_a_request_to_one_core() -> None:
    slow_to_meet = replace(TWO, barrier_seconds=1e-3)
    assert shape(decided(slow_to_meet, hint="latency", opt_level=1)) == (2, 2, 1)


@pytest.mark.parametrize("hint", ("throughput", "latency"))
@pytest.mark.parametrize("opt_level", (2, 3))
def test_a_batch_fixed_to_no_rows_can_be_planned(hint: Any, opt_level: int) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> m (float[0, 3] x) => (float[0, 3] y) { y = Softmax(x) }'
    )
    options = parax.CompileOptions(hint=hint, opt_level=opt_level)
    with parax.compile(model, options=options).session() as session:
        assert session.run({"x": np.zeros((0, 3), np.float32)})["y"].shape == (0, 3)


def test_cheap_layers_are_chosen_for_branches_and_written_into_the_graph() -> None:
    machine = replace(TWO, flops_per_core=1e9, barrier_seconds=1e-4)
    decision = decided(machine, hint="latency")
    assert decision.choice is not None and decision.choice.candidate.mode == LAYERED
    assert decision.schedule is not None
    assert any(len(layer.branches) > 1 for layer in decision.schedule.layers)
    graph = graph_of(branchy(), parax.CompileOptions(hint="latency"))
    check_schedule(scheduled_graph(graph, decision.schedule), decision.schedule)
    assert decided(machine, hint="latency", opt_level=1).schedule is None


@pytest.mark.parametrize("mode", [LAYERED, PIPELINED])
def test_the_schedule_that_decided_is_the_one_that_is_written(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    machine = replace(TWO, flops_per_core=1e9, barrier_seconds=1e-4)
    planner = Planner(graph_of(branchy(), parax.CompileOptions(hint="latency")), machine, 2, "latency")
    before = print_graph(planner.graph)
    load = Load(1 if mode == LAYERED else 64)
    rows = planner.scheduled(load, planner.rows(load))
    candidate = next(row.candidate for row in rows if row.candidate.mode == mode)
    for name in ("plan_layers", "plan_pipeline"):
        monkeypatch.setattr(predict, name, lambda *_, **__: pytest.fail("searched twice"))
    schedule = planner.schedule(candidate, load)
    assert schedule is not None and schedule.mode == mode
    check_schedule(scheduled_graph(planner.graph, schedule), schedule)
    assert print_graph(planner.graph) == before


def test_layered_instances_share_the_memory() -> None:
    eight = Machine("eight", 8, 100e9, 2e9, 4e9, l2_nbytes=1 << 16, l3_nbytes=1 << 19, l3_bandwidth_per_core=200e9)
    planner = Planner(graph_of(branchy(), parax.CompileOptions()), eight, 8, "throughput")
    alone, beside = (planner.predictor.layered(2, 4, n) for n in (1, 4))
    assert alone is not None and beside is not None
    assert beside.timeline.total_seconds > 1.2 * alone.timeline.total_seconds


@pytest.mark.parametrize("opt_level", [1, 2])
def test_copies_that_will_not_be_made_are_not_planned(monkeypatch: pytest.MonkeyPatch, opt_level: int) -> None:
    planned: list[Graph] = []

    def spy(graph: Graph, *rest: Any) -> Decision:
        planned.append(graph.clone())
        return decide(graph, *rest)

    monkeypatch.setattr(driver, "decide", spy)
    options, model = parax.CompileOptions(opt_level=opt_level, cache=False), joined()
    compile_model(model, options)
    planned.append(study_of(model, options, "xeon-8280-2s").planner.graph)
    for graph in planned:
        (concat,) = (node for node in graph if node.op.name == "Concat")
        assert all(map(is_window, concat.operands)) == (opt_level == 2)
        assert (node_cost(concat, {"N": 1}).kind == "view") == (opt_level == 2)


def test_instances_that_the_user_asks_for_are_kept() -> None:
    decision = decided(Machine("four", 4, 100e9, 15e9, 40e9), instances=2)
    assert decision.arrangement() == {"cores": 4, "instances": 2, "cores_each": 2}


def test_rows_a_call_follow_weights_and_caches() -> None:
    small = replace(TWO, l2_nbytes=1 << 16, l3_nbytes=1 << 17)
    heavy = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]>\ng (float[N,512] x) => (float[N,512] y) { y = MatMul (x, w) }'
    )
    heavy.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((512, 512), np.float32), "w"))
    found = [
        rows_a_call(Planner(graph_of(m, parax.CompileOptions()), small, 2, "throughput"), Candidate(2, 1))
        for m in (heavy, branchy())
    ]
    assert found[0] is not None and found[0] >= 8, "weights are read once for many rows"
    assert found[1] is not None and found[1] <= 2, "activations must stay in the caches"


def test_the_load_stays_within_the_bounds_of_the_batch() -> None:
    for dims, expected in (({"N": (1, 8)}, 8), ({"N": (100, 200)}, 100), ({}, 64)):
        options = parax.CompileOptions(dims=dims)
        planner = Planner(graph_of(branchy(), options), TWO, 2, "throughput")
        assert options_load(planner, options) == Load(expected, saturated=True)


def compiled(decision: Decision) -> Plan:
    return compile_model(branchy(), parax.CompileOptions(hint="latency"), decision=decision)


def test_a_plan_keeps_the_choice_and_gives_it_back(tmp_path: Path) -> None:
    decision = decided()
    assert decision.choice is not None
    compiled(decision).save(tmp_path / "plan.bin")
    manifest = parax.load(tmp_path / "plan.bin").manifest
    assert manifest.choice == json.loads(json.dumps(decision.choice.to_json()))
    assert manifest.arrangement is not None
    stored = {**manifest.arrangement._asdict(), "for_rows": [rule._asdict() for rule in manifest.arrangement.for_rows]}
    assert {"delay": None, "for_rows": [], **(decision.arrangement() or {})} == stored
    assert manifest.micro_batch == decision.rows


@needs_two_cores
@pytest.mark.parametrize("size", [(2, 1), (1, 2), (1, 1)])
def test_a_session_follows_the_choice_on_as_many_cores(size: tuple[int, int]) -> None:
    decision = decided()
    assert decision.choice is not None
    chosen = replace(decision.choice.chosen, candidate=Candidate(*size))
    rows = (chosen, *decision.choice.rows)
    plan = compiled(replace(decision, choice=replace(decision.choice, chosen=chosen, rows=rows)))
    cores = choose_cores(None)[:2]
    with plan.session(cores=cores) as session:
        assert (session.instances, len(session.core_groups[0])) == size
    with plan.session(cores=cores[:1]) as session:
        assert session.core_groups == (cores[:1],)
    with plan.session(cores=cores, instances=2) as session:
        assert session.instances == 2


@pytest.mark.parametrize("damage", [{"cores": 0}, {"cores": 2, "instances": 2, "cores_each": 2}, {"cores": "x"}, 3])
def test_a_damaged_arrangement_is_found(damage: Any) -> None:
    plan = compiled(decided())
    raw = plan.json() | {"arrangement": damage}
    with pytest.raises(CorruptPlan, match="arrangement"):
        Plan(raw, plan._members)


@needs_two_cores
@pytest.mark.slow
def test_the_slow_level_runs_candidates_and_the_rows_agree(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(branchy(), path)
    done = cli("compile", str(path), "-O", "3", "--hint", "latency", "-o", str(tmp_path / "plan.bin"))
    assert done.returncode == 0, done.stderr
    plan = parax.load(tmp_path / "plan.bin")
    choice = plan.manifest.choice
    assert choice is not None
    assert "measured" in choice["candidates"][choice["chosen"]]
    shown = cli("inspect", str(tmp_path / "plan.bin"))
    assert "planned for g, 1 row a request, one request at a time" in shown.stdout
    assert "measured: " in shown.stdout
    x = np.random.default_rng(0).standard_normal((3, 16, 14, 14), np.float32)
    with plan.session() as session, compiled(decided()).session(instances=1) as other:
        np.testing.assert_allclose(session.run({"x": x})["y"], other.run({"x": x})["y"], rtol=1e-4, atol=1e-5)


@needs_two_cores
def test_candidates_are_lowered_from_the_graph_that_was_imported_and_optimised_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imports: list[object] = []
    plans: list[Plan] = []

    def counted(*args: Any, **given: Any) -> Graph:
        imports.append(args[0])
        return import_model(*args, **given)

    def kept(graph: Graph, *rest: Any) -> Plan:
        plans.append(written(graph, *rest))
        return plans[-1]

    monkeypatch.setattr(optimisation, "import_model", counted)
    monkeypatch.setattr(driver, "written", kept)
    monkeypatch.setattr(driver, "BUDGET_SECONDS", 0.2)
    options = parax.CompileOptions(opt_level=3, hint="latency", tune_seconds=0.1, cache=False)
    plan = parax.compile(branchy(), options=options)
    assert len(imports) == 1 and len(plans) > 1 and plans[-1].json() == plan.json()
    assert plan.manifest.choice is not None
    usual = parax.compile(branchy(), options=parax.CompileOptions(hint="latency", mode="sequential"))
    x = {"x": np.random.default_rng(0).standard_normal((3, 16, 14, 14), np.float32)}
    expected = usual.session(instances=1).run(x)["y"]
    for made in plans:
        np.testing.assert_allclose(made.session(instances=1).run(x)["y"], expected, rtol=1e-4, atol=1e-5)


@needs_two_cores
@pytest.mark.parametrize("mode", [LAYERED, PIPELINED])
def test_candidates_of_every_mode_run_and_are_recorded(mode: str) -> None:
    study = study_of(branchy(), parax.CompileOptions(hint="latency"))
    study.cores = study.cores[:2]
    study.planner = Planner(study.planner.graph, replace(TWO, flops_per_core=1e9, barrier_seconds=1e-4), 2, "latency")
    load = Load(8)
    rows = study.planner.rows(load)
    (row,) = (row for row in study.planner.scheduled(load, rows) if row.candidate.mode == mode)
    (found,) = study.measured([row], load, 0.05)
    assert found.measured is not None and found.measured.seconds > 0
    traced = study.plan_of(row.candidate, load, trace=True)
    spans = recorded_spans(traced, row.candidate, study.cores, study.inputs(8))
    assert {span.core for span in spans} == set(study.cores)
    labels = traced.manifest.provenance["kernels"]
    assert {span.call % (1 << 20) for span in spans} == set(range(len(labels)))


def test_a_model_whose_inputs_cannot_be_made_up_is_planned_by_prediction() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]>\ng (float[N,4] x, int64[N] i) => (float[N,4] y) { y = Gather (w, i) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 4), np.float32), "w"))
    study = study_of(model, parax.CompileOptions())
    choice = study.choice(2, 2, 0.05)
    assert choice.reasons


def test_what_sessions_do_with_a_plan_is_shown(tmp_path: Path, cli: Cli) -> None:
    plan = compiled(decided())
    arrangement = {
        "cores": 2, "instances": 2, "cores_each": 1, "delay": {"groups": 2, "seconds": 0.004},
        "for_rows": [{"least": n, "most": m, "instances": 1, "cores_each": 2} for n, m in ((1, 1), (3, 4), (9, None))],
    }  # fmt: skip
    edited = plan.json() | {"arrangement": arrangement}
    members = {**plan._members}
    for target, fields in zip(plan.manifest.targets, edited["targets"], strict=True):  # as if compiled so
        code = bytes(plan.code(target)).replace(
            plan.interface(target), interface_digests(edited, target.name, len(plan.weights))
        )
        members[target.code], fields["digest"] = code, hashlib.sha256(code).hexdigest()
    Plan(edited, members).save(tmp_path / "plan.bin")
    shown = cli("inspect", str(tmp_path / "plan.bin"))
    assert "on 2 cores: 2 × 1; 1, 3 to 4, 9 or more rows: 1 × 2; starts in 2 groups, 4 ms apart" in shown.stdout


def test_the_users_delay_is_kept(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(branchy(), path)
    out = str(tmp_path / "plan.bin")
    done = cli("compile", str(path), "-o", out, "-O", "1", "--delay-groups", "2", "--delay-ms", "3")
    assert done.returncode == 0, done.stderr
    delay = parax.load(out).manifest.delay
    assert delay is not None and (delay.groups, delay.seconds) == (2, 0.003)
    refused = cli("compile", str(path), "-o", out, "--delay-groups", "2")
    assert refused.returncode == 2 and "only together" in refused.stderr
    x = f"{parax.load(out).inputs[0].name}=random"
    ran = cli("run", out, "--input", x, "--dim", "N=4", "--instances", "1", "--delay-groups", "1")
    assert ran.returncode == 0, ran.stderr
