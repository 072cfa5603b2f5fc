"""The build that records its kernels: every call once, on every core, in order; other builds carry nothing of it."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import parax
from inside import executor_of
from parax.compiler.driver import compile_model
from parax.errors import IncompatiblePlan
from parax.runtime.plan import Plan
from parax.runtime.profiling.recorder import Recorder, total_seconds
from parax.runtime.topology import choose_cores

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,64] x) => (float[N,8] y) { h = MatMul (x, a)  s = Softmax (h)  y = MatMul (s, b) }"""


def plan(trace: bool) -> Plan:
    model = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(0)
    for name, shape in (("a", (64, 32)), ("b", (32, 8))):
        weight = onnx.numpy_helper.from_array(rng.standard_normal(shape, np.float32), name)
        model.graph.initializer.append(weight)
    return compile_model(model, parax.CompileOptions(), trace=trace)


@pytest.mark.parametrize("width", [1, 2])
def test_every_call_is_recorded_on_every_core(width: int) -> None:
    if len(choose_cores(None)) < width:
        pytest.skip("needs more cores")
    traced = plan(True)
    labels = traced.manifest.provenance["kernels"]
    x = np.ones((40, 64), np.float32)
    with traced.session(instances=1, cores_per_instance=width, micro_batch=64) as session:
        expected = session.run({"x": x})["y"]
        recorder = Recorder(session)
        for _ in range(2):  # logs start empty each time
            recorder.start()
            found = session.run({"x": x})["y"]
            spans = recorder.stop()
            np.testing.assert_array_equal(found, expected)
            assert len(spans) == width * len(labels)
            for core in session.core_groups[0]:
                own = [span for span in spans if span.core == core]
                assert [span.call for span in own] == list(range(len(labels)))
                assert all(0 <= a.start <= a.end <= b.start for a, b in zip(own, own[1:], strict=False))
            assert 0 < total_seconds(spans) < 1.0
        session.run({"x": x})  # nothing is recorded any more
        recorder.start()
        assert recorder.stop() == []


def test_pieces_of_a_batch_are_recorded_on_their_instances() -> None:
    traced = plan(True)
    with traced.session(instances=1, cores_per_instance=1, micro_batch=2) as session:
        recorder = Recorder(session)
        recorder.start()
        session.run({"x": np.ones((8, 64), np.float32)})
        spans = recorder.stop()
    assert len(spans) == 4 * len(traced.manifest.provenance["kernels"])


def test_recording_goes_on_after_a_request_that_failed() -> None:
    with plan(True).session(instances=1, cores_per_instance=1) as session:
        recorder = Recorder(session)
        recorder.start()
        executor_of(session).instances[0].clear_failure()
        session.run({"x": np.ones((1, 64), np.float32)})
        assert recorder.stop()


def test_a_log_that_is_full_is_an_error() -> None:
    with plan(True).session(instances=1, cores_per_instance=1) as session:
        recorder = Recorder(session, capacity=3)
        recorder.start()
        session.run({"x": np.ones((1, 64), np.float32)})
        with pytest.raises(IncompatiblePlan, match="more kernels ran"):
            recorder.stop()


def test_other_plans_are_not_traced() -> None:
    with plan(False).session(instances=1, cores_per_instance=1) as session, pytest.raises(IncompatiblePlan):
        Recorder(session)
