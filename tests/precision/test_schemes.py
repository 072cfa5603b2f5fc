"""Models whose channels reach unevenly: equalised, they keep a budget in 8 bits that they miss as they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import parax
from parax import CompileOptions
from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.oracle import oracle
from parax.compiler.ir.text import parse_graph
from parax.compiler.precision import gates
from parax.compiler.precision.gates import decided
from parax.compiler.precision.schemes import Scheme
from parax.compiler.precision.speed import Gain

CONVOLUTIONS = """graph @uneven(%x: f32[N,3,8,8]) {
  %w = const f32[16,3,3,3] "w"\n  %b = const f32[16] "b"\n  %v = const f32[8,16,3,3] "v"
  %a = Conv(%x, %w, %b) : f32[N,16,6,6]  # first
  %r = Relu(%a) : f32[N,16,6,6]
  %y = Conv(%r, %v) : f32[N,8,4,4]  # second
  return %y\n}"""
TRANSFORMER = """graph @outliers(%x: f32[N,5,24]) {
  %g = const f32[24] "g"\n  %b = const f32[24] "b"
  %w = const f32[24,96] "w"\n  %c = const f32[96] "c"\n  %v = const f32[96,24] "v"
  %n = LayerNormalization(%x, %g, %b) : f32[N,5,24]
  %p = MatMul(%n, %w) : f32[N,5,96]  # up
  %q = Add(%p, %c) : f32[N,5,96]
  %r = Gelu(%q) : f32[N,5,96]
  %d = MatMul(%r, %v) : f32[N,5,24]  # down
  %y = Add(%d, %x) : f32[N,5,24]
  return %y\n}"""
SHARED = TRANSFORMER.replace("Add(%d, %x)", "Add(%d, %n)")
"""As a block that normalises behind: what the product reads is read by the residual addition, too."""


def convolutions() -> onnx.ModelProto:
    """A quarter of the first layer's channels reach 50 times as far, and count 50 times less behind."""
    rng = np.random.default_rng(0)
    far = np.where(np.arange(16) % 4 == 0, 50.0, 1.0)
    data = {"w": 0.3 * rng.standard_normal((16, 3, 3, 3)) * far[:, None, None, None],
            "b": rng.standard_normal(16) * far,
            "v": rng.standard_normal((8, 16, 3, 3)) / far[:, None, None]}  # fmt: skip
    return to_onnx(parse_graph(CONVOLUTIONS, {name: array.astype(np.float32) for name, array in data.items()}))


def transformer(text: str = TRANSFORMER) -> onnx.ModelProto:
    """Two columns of the normalised lines are outliers, with small weights, as large language models have them."""
    rng = np.random.default_rng(1)
    far = np.where(np.arange(24) % 12 == 5, 60.0, 1.0)
    data = {"g": far * rng.uniform(0.8, 1.2, 24), "b": 0.1 * far * rng.standard_normal(24),
            "w": 0.3 * rng.standard_normal((24, 96)) / far[:, None], "c": 0.1 * rng.standard_normal(96),
            "v": 0.3 * rng.standard_normal((96, 24))}  # fmt: skip
    return to_onnx(parse_graph(text, {name: array.astype(np.float32) for name, array in data.items()}))


def signals(*shape: int, seed: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


CASES = [(convolutions(), (64, 3, 8, 8)), (transformer(), (64, 5, 24)), (transformer(SHARED), (64, 5, 24))]


@pytest.fixture(autouse=True)
def gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "measured_gain", lambda *_: Gain(1.5, 1.4, 1.6, 1.5, 7))


@pytest.mark.parametrize(("model", "shape"), CASES, ids=["convolutions", "transformer", "shared"])
def test_a_budget_that_only_even_channels_keep(
    model: onnx.ModelProto, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = 0.001
    options = CompileOptions(precision="int8", calibration={"x": signals(*shape)}, max_accuracy_drop=budget)
    found = decided(model, options)
    assert found.record.n_equalised and found.record.n_quantized == 2
    assert any("channels equalised" in line for line in found.record.lines())
    x = signals(*shape, seed=9)
    with found.plan.session() as session:
        got = session.run({"x": x})["y"].astype(np.float64)
    exact = oracle(model, "reference")({"x": x})["y"].astype(np.float64)
    assert 0 < ((got - exact) ** 2).sum() / (exact**2).sum() < 1.5 * budget
    written = oracle(to_onnx(found.graph), "reference")({"x": x})["y"]
    assert np.mean((got - written) ** 2) < 1e-3 * np.mean((written - exact) ** 2) + 1e-12
    monkeypatch.setattr(Scheme, "equalised", lambda *_: None)
    with pytest.raises(parax.AccuracyMismatch, match="lose too much"):
        decided(model, options)


def test_even_channels_are_left_as_they_are() -> None:
    options = CompileOptions(precision="int8", calibration={"x": signals(64, 3, 8, 8)}, max_accuracy_drop=1.0)
    assert decided(convolutions(), options).record.n_equalised == 0
