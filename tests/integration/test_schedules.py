"""Scheduled programs compute bit for bit what the sequential one computes: random graphs and schedules, real models."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from examples.models import build
from parax import CompileOptions, InvalidInput
from parax.compiler import driver, samples, sizes
from parax.compiler.compilation import Compilation
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.runtime import Plan
from parax.runtime.session import Session
from parax.runtime.topology import machine
from sampling import sampled
from schedules import random_schedule

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies
CORES = machine().default_cores()
OPTIONS = CompileOptions(cache=False)


@pytest.fixture(autouse=True)
def even_small_calls_are_divided_while_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small models show what large ones rely on."""
    monkeypatch.setattr("parax.compiler.backend.link_waves.LEAST_NANOSECONDS", 0)


def compiled(graph: Graph, **schedule: Any) -> Plan:
    """The graph's plan with a random schedule."""
    run = Compilation(OPTIONS, lambda name, fraction: None, scheduler=partial(random_schedule, **schedule))
    driver.optimise(graph, run)
    return driver.build_plan(graph, run)


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets sessions have so many threads, however few cores there are."""

    def allow(n: int) -> None:
        chosen = tuple(CORES[i % len(CORES)] for i in range(n))
        monkeypatch.setattr("parax.runtime.session.choose_cores", lambda cores: chosen)

    return allow


def feeds(plan: Plan, rows: int = 1) -> dict[str, np.ndarray]:
    """Random inputs."""
    found = sizes.symbol_sizes(plan.manifest, {}, rows)
    return samples.random_inputs(plan.inputs, found, np.random.default_rng(rows))


def assert_same(plan: Plan, rows: tuple[int, ...], times: int = 3) -> None:
    """The plan's mode gives the bits of its sequential program, again and again."""
    assert plan.manifest.scheduled is not None
    n = plan.manifest.scheduled.n_cores
    with plan.session(instances=1, cores_per_instance=1, mode="sequential") as plain, plan.session() as session:
        assert session.mode == plan.manifest.scheduled.mode and len(session.core_groups[0]) == n
        for count in rows:
            inputs = feeds(plan, count)
            expected = plain.run(inputs)
            for _ in range(times):
                for name, array in session.run(inputs).items():
                    assert array.tobytes() == expected[name].tobytes(), f"{name}, {count} rows"


@st.composite
def models(draw: st.DrawFn) -> Graph:
    """Small DAGs of products, softmaxes, element-wise operators, transposes, concatenations; some with a batch."""
    rows = draw(st.sampled_from(["6", "N"]))
    lines, widths = [f"graph @g(%0: f32[{rows},8], %1: f32[{rows},8]) {{"], {0: 8, 1: 8}
    n = draw(st.integers(4, 24))
    for i in range(2, n):
        a = draw(st.integers(max(0, i - 7), i - 1))
        kind = draw(st.sampled_from(["Relu", "Exp", "Add", "Softmax", "MatMul", "MatMul", "Concat", "Twice"]))
        same = [j for j in widths if widths[j] == widths[a]]
        widths[i] = widths[a]
        if kind == "MatMul":
            widths[i] = draw(st.sampled_from([4, 8, 24]))
            weights = np.random.default_rng(i).standard_normal((widths[a], widths[i])) / widths[a]
            content = [float(np.float32(x)) for x in weights.ravel()]
            lines.append(f"%w{i} = const f32[{widths[a]},{widths[i]}] {content}\n %{i} = MatMul(%{a}, %w{i})")
        elif kind == "Add":
            lines.append(f"%{i} = Add(%{a}, %{draw(st.sampled_from(same))})")
        elif kind == "Concat":
            b = draw(st.sampled_from(list(widths)[-8:-1]))
            widths[i] = widths[a] + widths[b]
            lines.append(f"%{i} = Concat(%{a}, %{b}) {{axis=1}}")
        elif kind == "Twice":
            lines.append(f"%t{i} = Transpose(%{a}) {{perm=[1,0]}}\n %{i} = Transpose(%t{i}) {{perm=[1,0]}}")
        else:
            lines.append(f"%{i} = Tanh(%{a})" if kind == "Exp" else f"%{i} = {kind}(%{a})")
    used = "".join(line.split("=", 1)[1] for line in lines[1:])
    loose = [i for i in range(2, n) if f"%{i}," not in used and f"%{i})" not in used]
    lines.append("return " + ", ".join(f"%{i}" for i in loose or [n - 1]) + "\n}")
    return parse_graph("\n".join(lines))


@pytest.mark.slow
@hypothesis.settings(derandomize=True, max_examples=20, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(models(), st.integers(0, 2**32), st.integers(2, 5), st.integers(0, 4), st.integers(1, 7))
def test_random_graphs_on_random_schedules(
    many_cores: Callable[[int], None], graph: Graph, seed: int, n_cores: int, n_stages: int, micro_batches: int
) -> None:
    many_cores(n_cores)
    stages = min(n_stages, n_cores) if "N" in str(graph.inputs[0].type) else 0
    plan = compiled(graph, random=Random(seed), n_cores=n_cores, n_stages=stages, micro_batches=micro_batches)
    assert_same(plan, (1, 2, 5, 16) if stages else (1,))


CHAIN = f"""graph @chain(%x: f32[N,16], %index: i64[N]) {{
  %table = const f32[4,16] {[i / 64 for i in range(64)]}
  %1 = Softmax(%x)
  %2 = Gather(%table, %index)
  %3 = Add(%1, %2)
  %4 = Softmax(%3)
  %5 = Mul(%4, %1)
  %6 = Softmax(%5)
  %7 = Add(%6, %2)
  %8 = Softmax(%7)
  return %8, %4
}}"""


def chain(**schedule: Any) -> Plan:
    return compiled(parse_graph(CHAIN), **schedule)


def chain_feeds(rows: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(rows)
    return {"x": random.standard_normal((rows, 16), np.float32), "index": random.integers(0, 4, rows)}


@pytest.mark.parametrize("n_stages", sampled([2, 1, 3, 4], 4))
def test_pipelines_under_stress(many_cores: Callable[[int], None], n_stages: int) -> None:
    """1 to 7 micro-batches of all sizes, ragged ones too; more threads than cores."""
    many_cores(n_stages + 1)
    for micro_batches in range(1, 8):
        plan = chain(random=Random(micro_batches), n_cores=n_stages + 1, n_stages=n_stages, micro_batches=micro_batches)
        with plan.session(mode="sequential") as plain, plan.session() as session:
            assert session.mode == "pipelined"
            for rows in (2, 3, 7, 8, 13, 29, 64, 13):
                inputs = chain_feeds(rows)
                expected = plain.run(inputs)
                for _ in range(5):
                    for name, array in session.run(inputs).items():
                        assert array.tobytes() == expected[name].tobytes()


@pytest.mark.parametrize("n_stages", [0, 3])
def test_an_error_in_one_stage_ends_the_request_and_nothing_else(
    many_cores: Callable[[int], None], n_stages: int
) -> None:
    many_cores(3)
    plan = chain(random=Random(5), n_cores=3, n_stages=n_stages, micro_batches=4)
    with plan.session() as session:
        for rows in (1, 9, 40):
            good = chain_feeds(rows)
            expected = session.run(good)
            for wrong in (0, rows // 2, rows - 1):
                bad = {**good, "index": good["index"].copy()}
                bad["index"][wrong] = 99
                with pytest.raises(InvalidInput, match="Gather"):
                    session.run(bad)
                again = session.run(good)
                assert all(again[name].tobytes() == expected[name].tobytes() for name in expected)


def test_several_callers_and_instances_share_a_pipelined_plan(many_cores: Callable[[int], None]) -> None:
    many_cores(4)
    plan = chain(random=Random(3), n_cores=2, n_stages=2, micro_batches=3)
    inputs = [chain_feeds(rows) for rows in (5, 16, 31)]
    with plan.session(mode="sequential", instances=1) as plain:
        expected = [plain.run(x) for x in inputs]
    wrong: list[object] = []

    def caller(session: Session, i: int) -> None:
        for _ in range(20):
            results = session.run(inputs[i])
            wrong.extend(n for n in results if results[n].tobytes() != expected[i][n].tobytes())

    with plan.session() as session:
        assert (session.instances, session.mode) == (2, "pipelined")
        threads = [threading.Thread(target=caller, args=(session, i)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


LISTED = ("inception-v3", "inception-bn", "nasnet", "resnext50", "resnext50-paths", "gnmt")
QUICK = (("inception-bn", 0),)


@pytest.mark.parametrize(("name", "n_stages"), [
    pytest.param(name, n, marks=() if (name, n) in QUICK else pytest.mark.slow) for name in LISTED for n in (0, 2)
])  # fmt: skip
def test_the_model_list(many_cores: Callable[[int], None], name: str, n_stages: int) -> None:
    many_cores(3)
    scheduler = partial(random_schedule, random=Random(1), n_cores=3, n_stages=n_stages, micro_batches=3)
    plan = driver.compile_model(build(name, small=True), OPTIONS, scheduler=scheduler)
    assert_same(plan, (1, 5) if n_stages else (1,))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ultraface/rfb320_nopost", "yunet/yunet_n_320_320", "blazeface/front128"])
def test_real_models(models: Path, many_cores: Callable[[int], None], name: str) -> None:
    many_cores(2)
    scheduler = partial(random_schedule, random=Random(1), n_cores=2)
    plan = driver.compile_model(models / name / "model.onnx", OPTIONS, scheduler=scheduler)
    assert_same(plan, (1,))
