"""Delayed start: who begins when, and that nothing else changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest

import parax
from fake_plans import ADD, add_manifest, fake_plan, object_code
from inside import delay_of
from parax.compiler.driver import compile_model
from parax.errors import IncompatiblePlan, InternalError, UsageError
from parax.runtime import Plan
from parax.runtime.delayed_start import start_delays
from parax.runtime.manifest import Delay
from parax.runtime.profiling.recorder import Recorder
from parax.runtime.topology import machine

Build = Callable[..., Plan]
CORES = machine().default_cores()[:2]
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two usable cores")
LATE, HANGS, TRIES = 0.03, 60.0, 50
MODEL = """<ir_version: 8, opset_import: ["": 17]>
m (float[N,40000] x) => (float[N,40000] y)
{ a = Softmax (x)  b = Softmax (a)  c = Softmax (b)  d = Softmax (c)  e = Softmax (d)  y = Softmax (e) }"""


def rows(n: int) -> np.ndarray:
    return np.arange(n * 4, dtype=np.float32).reshape(n, 4)


def test_groups_are_those_of_the_paper() -> None:
    """Group of instance j of p: ⌊j·n/p⌋, on each NUMA node for itself."""
    assert start_delays([0] * 5, Delay(3, 1.0)) == [0, 0, 10**9, 10**9, 2 * 10**9]
    assert start_delays([0, 0, 1, 1], Delay(2, 0.5)) == [0, 5 * 10**8, 0, 5 * 10**8]
    assert start_delays([0, 1, 0, 1], Delay(2, 0.5)) == [0, 0, 5 * 10**8, 5 * 10**8]
    assert start_delays([0], Delay(4, 0.5)) == [0]
    assert start_delays([0, 0], Delay(1, 0.5)) == [0, 0]


@needs_two_cores
@pytest.mark.alone
def test_the_second_group_begins_late_and_results_are_the_same() -> None:
    plan = compile_model(onnx.parser.parse_model(MODEL), parax.CompileOptions(), trace=True)
    x = np.random.default_rng(0).standard_normal((256, 40000)).astype(np.float32)

    def starts(**delay: Any) -> tuple[dict[int, float], np.ndarray]:
        with plan.session(instances=2, cores=CORES, micro_batch=1, **delay) as session:
            recorder = Recorder(session)
            session.run({"x": x})
            for _ in range(TRIES):  # on a busy machine the second may find no piece left
                recorder.start()
                y = session.run({"x": x})["y"]
                spans = recorder.stop()
                began = {i: min(s.start for s in spans if s.instance == i) for i in {s.instance for s in spans}}
                if len(began) == 2:
                    break
            return began, y

    _, at_once = starts()
    began, late = starts(delay=(2, 1e-3))
    assert np.array_equal(late, at_once)
    assert began[1] - began[0] >= 0.9e-3


@needs_two_cores
@pytest.mark.alone
def test_the_last_group_begins_so_much_later() -> None:
    slow = ADD.format(segment=0).replace("entry:\n", "entry:\n  call i32 @usleep(i32 60000)\n", 1)
    code = object_code("declare i32 @usleep(i32)\n" + slow)
    plan = fake_plan(add_manifest(), {"base": code}, np.array([1.0] * 16, np.float32), "graph @add {}")
    with plan.session(instances=2, cores=CORES, delay=(2, LATE)) as session:
        session.run({"x": rows(2)})
        began = time.perf_counter()
        session.run({"x": rows(2)})
        assert time.perf_counter() - began >= LATE + 0.06


@needs_two_cores
@pytest.mark.alone
def test_nobody_sleeps_on_when_all_is_done(add_plan: Build) -> None:
    with add_plan().session(instances=2, cores=CORES, delay=(2, HANGS)) as session:
        began = time.perf_counter()
        assert np.array_equal(session.run({"x": rows(9)})["y"], rows(9) + 1)
        assert time.perf_counter() - began < HANGS


def test_a_single_instance_never_waits(add_plan: Build) -> None:
    with add_plan(delay={"groups": 2, "seconds": 5.0}).session(instances=1) as session:
        session.run({"x": rows(9)})
        assert delay_of(session) is None


@needs_two_cores
def test_the_session_wins_over_the_plan_and_the_user_over_the_planner(add_plan: Build) -> None:
    arrangement = {"cores": 2, "instances": 2, "cores_each": 1, "delay": {"groups": 2, "seconds": 0.25}}
    plan = add_plan(arrangement=arrangement)
    for given, expected in (
        ({}, Delay(2, 0.25)),
        ({"delay": (2, 0.5)}, Delay(2, 0.5)),
        ({"delay": (1, 0.0)}, None),
        ({"instances": 2}, None),
    ):
        with plan.session(cores=CORES, **given) as session:
            assert delay_of(session) == expected
    with add_plan(arrangement=arrangement, delay={"groups": 1, "seconds": 0}).session(cores=CORES) as session:
        assert delay_of(session) is None


@needs_two_cores
def test_code_that_cannot_wait_is_refused(add_plan: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parax.runtime.delayed_start.LATE_START", "parax_of_tomorrow")
    with pytest.raises(IncompatiblePlan, match="at once"):
        add_plan().session(instances=2, cores=CORES, delay=(2, 0.1))


@pytest.mark.parametrize("delay", [(0, 0.1), (2, -1.0), (2, float("nan")), (2, 10**400), (10**5000, 1)])
def test_a_delay_that_is_none_is_refused(add_plan: Build, delay: tuple[int, float]) -> None:
    with pytest.raises(UsageError, match="delay"):
        add_plan().session(instances=1, delay=delay)


@pytest.mark.parametrize("delay", [{"groups": 0, "seconds": 1}, {"groups": 2, "seconds": -1}, {"groups": 2}, 3])
def test_a_manifest_with_no_such_delay_is_refused(add_plan: Build, delay: object) -> None:
    with pytest.raises(InternalError, match="delay"):
        add_plan(delay=delay)
