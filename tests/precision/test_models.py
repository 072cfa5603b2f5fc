"""Trained models in 8 bits and bf16: the budget holds on data that neither ranges nor the gate have seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import parax
from parax import CompileOptions
from parax.compiler.frontend.oracle import best_kind, oracle
from parax.compiler.precision import gates
from parax.compiler.precision.metrics import MeanSquare
from parax.compiler.precision.samples import Request
from parax.compiler.precision.speed import Gain

BUDGET = 0.005
MODELS = ["mujoco-policies/g1", "libonnx/mnist_8", "marabou/traffic_sign", "qonnx/espcn_subpixel", "dtln/model_1",
          "magika/fast_v2_1"]  # fmt: skip


def inputs(model: onnx.ModelProto, n: int, seed: int) -> dict[str, np.ndarray]:
    """`n` whole requests, stacked: smooth noise for floats, bytes for integers."""
    rng, made = np.random.default_rng(seed), {}
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in (v for v in model.graph.input if v.name not in constants):
        t = value.type.tensor_type
        shape = [n, *(d.dim_value or 2 for d in t.shape.dim)]
        if t.elem_type == onnx.TensorProto.FLOAT:
            x = rng.standard_normal(shape)
            made[value.name] = (np.cumsum(x, -1) / np.sqrt(shape[-1])).astype(np.float32)
        else:
            made[value.name] = rng.integers(0, 256, shape).astype(onnx.helper.tensor_dtype_to_np_dtype(t.elem_type))
    return made


@pytest.mark.parametrize("name", MODELS)
def test_the_budget_holds_on_other_data(name: str, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "measured_gain", lambda *_: Gain(1.5, 1.4, 1.6, 1.5, 7))
    path = models / name / "model.onnx"
    if not path.is_file():
        pytest.skip(f"no {name} here")
    model = onnx.load(path)
    options = CompileOptions(precision="auto", calibration=inputs(model, 24, 0), max_accuracy_drop=BUDGET)
    found = gates.decided(path, options)
    assert found.record.taken == "int8" and found.record.n_quantized >= found.record.n_layers / 2
    stacked, run = inputs(model, 24, 1), oracle(path, best_kind())
    requests = [Request({k: v[i] for k, v in stacked.items()}, {}, 1) for i in range(24)]
    with found.plan.session() as session:
        got = [session.run(request.inputs) for request in requests]
    drop = MeanSquare().drop([run(request.inputs) for request in requests], got, requests)
    assert 0 < drop <= BUDGET


@pytest.mark.parametrize("name", MODELS)
def test_bf16_keeps_the_budget_without_any_data(name: str, models: Path) -> None:
    path = models / name / "model.onnx"
    if not path.is_file():
        pytest.skip(f"no {name} here")
    stacked, run = inputs(onnx.load(path), 12, 2), oracle(path, best_kind())
    requests = [Request({k: v[i] for k, v in stacked.items()}, {}, 1) for i in range(12)]
    plan, exact = (parax.compile(path, options=CompileOptions(precision=each)) for each in ("bf16", "fp32"))
    with plan.session() as session, exact.session() as unrounded:
        got = [session.run(request.inputs) for request in requests]
        exactly = [unrounded.run(request.inputs) for request in requests]
    assert any(not np.array_equal(a[name], b[name]) for a, b in zip(got, exactly, strict=True) for name in a)
    assert MeanSquare().drop([run(request.inputs) for request in requests], got, requests) <= BUDGET
    if name != "dtln/model_1":  # most of whose weights are an LSTM's
        assert len(plan.weights) <= 0.55 * len(exact.weights)
