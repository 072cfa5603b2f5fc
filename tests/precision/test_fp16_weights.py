"""Weights alone in fp16: what is rounded, what the plan computes, keeps and says, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import parax
from commanding import run_here
from parax import CompileOptions
from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.passes.quantize.round_weights import RoundWeights
from parax.compiler.precision import weights_only
from parax.compiler.precision.gates import decided
from parax.compiler.precision.record import KEY, told
from parax.compiler.precision.speed import Gain
from passes.check import check_pass
from precision.small_models import relu
from precision.test_weights_only import CLASSES, perceptron, vectors


@pytest.fixture(autouse=True)
def gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_only, "measured_gain", lambda *_: Gain(1.5, 1.4, 1.6, 1.5, 7))


def weights_of(model: onnx.ModelProto, scale: float, names: tuple[str, ...]) -> onnx.ModelProto:
    """A model some of whose weights are scaled."""
    for tensor in model.graph.initializer:
        if tensor.name in names:
            array = onnx.numpy_helper.to_array(tensor) * np.float32(scale)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return model


def rounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose matrices are numbers of fp16."""
    for tensor in model.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.ndim == 2:
            array = array.astype(np.float16).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return model


def test_the_pass() -> None:
    before = """graph @g(%x: f32[N,2]) {
      %w = const f32[2,2] [1, 2049, 1e-9, -65519]
      %y = MatMul(%x, %w) : f32[N,2]
      return %y\n}"""
    after = """graph @g(%x: f32[N,2]) {
      %w = const f16[2,2] [1, 2048, 0, -65504]
      %1 = Cast(%w) {to=f32} : f32[2,2]
      %y = MatMul(%x, %1) : f32[N,2]
      return %y\n}"""
    check_pass(RoundWeights(), before, after, evaluate=False)
    check_pass(RoundWeights(frozenset({"y"})), before, None, refuses="no product to round")
    far = before.replace("-65519", "-65520")  # which is as near to the next power of two
    check_pass(RoundWeights(), far, None, refuses="weights beyond the greatest fp16")


def test_the_plan_and_the_model_that_is_written() -> None:
    found = decided(perceptron(), CompileOptions(precision="fp16"))
    exact = parax.compile(rounded(perceptron())).session()
    again = parax.compile(to_onnx(found.graph)).session()
    for rows in (1, 20):
        x = vectors(rows)
        y = found.plan.session().run({"x": x})["y"]
        np.testing.assert_array_equal(y, exact.run({"x": x})["y"])
        np.testing.assert_array_equal(y, again.run({"x": x})["y"])
    assert found.record.drop is None and (found.record.n_quantized, found.record.n_layers) == (2, 2)
    assert told({KEY: found.record.to_json()}) == ["precision fp16: the weights of 2 of 2 layers rounded to fp16"]


def test_weights_that_fp16_has_no_numbers_near_stay() -> None:
    model = weights_of(perceptron(), 1e6, ("w",))
    found = decided(model, CompileOptions(precision="fp16"))
    assert told({KEY: found.record.to_json()}) == [
        "precision fp16: the weights of 1 of 2 layers rounded to fp16",
        "in fp32: 1 layers with weights that fp16 has no numbers near",
    ]
    y = found.plan.session().run({"x": vectors(3)})["y"]
    assert y.shape == (3, CLASSES) and np.isfinite(y).all()
    with pytest.raises(parax.UsageError, match="nothing to quantise") as caught:
        parax.compile(weights_of(perceptron(), 1e6, ("w", "v")), options=CompileOptions(precision="fp16"))
    assert "65,520" in str(caught.value)


def test_what_is_lost_is_measured_where_there_is_data() -> None:
    options = CompileOptions(precision="fp16", calibration={"x": vectors(64)}, max_accuracy_drop=1e-5)
    plan = parax.compile(perceptron(), options=options)
    record = plan.manifest.provenance[KEY]
    assert 0 < record["drop"] < 1e-6 and record["block_size"] == 0 and record["n_held_back"] == 32
    assert any("1.50 × f32's speed" in line for line in told(plan.manifest.provenance))
    with pytest.raises(parax.AccuracyMismatch, match="fp16 loses too much") as caught:
        parax.compile(perceptron(), options=CompileOptions(precision="fp16", calibration={"x": vectors(64)},
                                                           max_accuracy_drop=1e-12))  # fmt: skip
    assert all(f'"{name}"' in str(caught.value) for name in ("first", "head"))
    assert "weight-block" not in str(caught.value)


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(parax.UsageError, match="nothing to quantise"):
        parax.compile(relu(), options=CompileOptions(precision="fp16"))
    onnx.save(perceptron(), tmp_path / "m.onnx")
    done = run_here("paraxc", [str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m16.onnx"), "--emit", "onnx",
                               "--precision", "fp16"])  # fmt: skip
    assert done.returncode == 0, done.stderr
    kinds = {t.name: t.data_type for t in onnx.load(tmp_path / "m16.onnx").graph.initializer if len(t.dims) == 2}
    assert set(kinds.values()) == {onnx.TensorProto.FLOAT16}
