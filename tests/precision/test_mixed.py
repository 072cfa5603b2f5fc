"""Layers in 8 bits beside layers in bf16: what the plan computes, what it says, and when it is not taken."""

from __future__ import annotations

import numpy as np
import pytest

from parax import CompileOptions
from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.ir.text import parse_graph
from parax.compiler.precision import gates
from parax.compiler.precision.gates import decided
from parax.compiler.precision.speed import Gain

TEXT = """graph @g(%x: f32[N,32]) {
  %w = const f32[32,64] "w"\n  %v = const f32[64,48] "v"\n  %u = const f32[48,8] "u"
  %a = MatMul(%x, %w) : f32[N,64]  # one
  %r = Relu(%a) : f32[N,64]
  %b = MatMul(%r, %v) : f32[N,48]  # two
  %s = Tanh(%b) : f32[N,48]
  %y = MatMul(%s, %u) : f32[N,8]  # three
  return %y\n}"""
RNG = np.random.default_rng(0)
MODEL = to_onnx(parse_graph(TEXT, {name: (0.2 * RNG.standard_normal(shape)).astype(np.float32) for name, shape in
                                   {"w": (32, 64), "v": (64, 48), "u": (48, 8)}.items()}))  # fmt: skip


def rows(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, 32)).astype(np.float32)


def gains(*factors: float) -> list[Gain]:
    return [Gain(f, f, f, f, 7 if f > 1 else 0) for f in factors]


def options(budget: float = 0.05) -> CompileOptions:
    return CompileOptions(precision="auto", calibration={"x": rows(128, 1)}, max_accuracy_drop=budget)


@pytest.fixture(autouse=True)
def slow_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "slower_nodes", lambda *_: {"two"})


def measuring(monkeypatch: pytest.MonkeyPatch, *factors: float) -> None:
    """All in 8 bits, all but the slower layer, that one in bf16, all in bf16."""
    measured = gains(*factors)
    monkeypatch.setattr(gates, "measured_gain", lambda *_: measured.pop(0))


def test_the_layer_that_is_slower_in_bytes_is_of_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    measuring(monkeypatch, 1.2, 1.5, 1.8, 1.1)
    found = decided(MODEL, options())
    record = found.record
    assert (record.taken, record.n_quantized, record.n_halved, record.n_slower) == ("int8", 2, 1, 1)
    assert record.gain is not None and record.gain.middle == 1.8
    lines = list(record.lines())
    assert "in bf16: 1 layers beside those in 8 bits" in lines and "in bf16 for speed: 1 layers" in lines
    text = found.plan.graph or ""
    assert text.count("parax::Bf16MatMul(") == 1 and text.count("= const i8[") == 2
    x = rows(50, 2)
    with found.plan.session() as session:
        got = session.run({"x": x})["y"].astype(np.float64)
    monkeypatch.setattr(gates, "measured_gain", lambda *_: gains(1.5)[0])
    eights = decided(MODEL, options())
    with eights.plan.session() as session:
        plain = session.run({"x": x})["y"].astype(np.float64)
    assert eights.record.n_halved == 0
    assert 0 < np.mean((got - plain) ** 2) < 1e-4 * np.mean(plain**2), "bf16 rounds one layer, and only that differs"


def test_bf16_that_is_not_faster_beside_bytes_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    measuring(monkeypatch, 1.2, 1.5, 1.5, 1.1)
    record = decided(MODEL, options()).record
    assert record.n_halved == 0 and record.n_slower == 1
    assert any("the other layers in bf16" in line and "1.50 ×" in line for line in record.lines())


def test_all_in_bf16_is_taken_where_it_is_faster_than_both(monkeypatch: pytest.MonkeyPatch) -> None:
    measuring(monkeypatch, 1.2, 1.5, 1.8, 2.5)
    record = decided(MODEL, options()).record
    assert record.taken == "bf16" and record.n_quantized == 3
