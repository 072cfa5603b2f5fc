"""What weights take in a plan at a lower precision, by what they take in f32."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import parax
from parax import CompileOptions
from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.ir.text import parse_graph
from parax.compiler.precision import gates
from parax.compiler.precision.speed import Gain

CONVOLUTIONS = """graph @g(%x: f32[N,16,12,12]) {
  %w = const f32[64,16,3,3] "w"\n  %b = const f32[64] "b"\n  %v = const f32[64,64,1,1] "v"
  %u = const f32[96,64,3,3] "u"\n  %h = const f32[96,40] "h"
  %a = Conv(%x, %w, %b) {pads=[1,1,1,1]} : f32[N,64,12,12]\n  %r = Relu(%a) : f32[N,64,12,12]
  %c = Conv(%r, %v) : f32[N,64,12,12]\n  %s = Relu(%c) : f32[N,64,12,12]
  %d = Conv(%s, %u) {strides=[2,2]} : f32[N,96,5,5]\n  %t = Relu(%d) : f32[N,96,5,5]
  %g = GlobalAveragePool(%t) : f32[N,96,1,1]\n  %f = Flatten(%g) : f32[N,96]
  %y = MatMul(%f, %h) : f32[N,40]
  return %y\n}"""
LINES = """graph @g(%x: f32[N,7,192]) {
  %w = const f32[192,768] "w"\n  %b = const f32[768] "b"\n  %v = const f32[768,192] "v"
  %a = MatMul(%x, %w) : f32[N,7,768]\n  %c = Add(%a, %b) : f32[N,7,768]\n  %r = Gelu(%c) : f32[N,7,768]
  %d = MatMul(%r, %v) : f32[N,7,192]\n  %y = Add(%d, %x) : f32[N,7,192]
  return %y\n}"""
SHAPES = {"w": (64, 16, 3, 3), "b": (64,), "v": (64, 64, 1, 1), "u": (96, 64, 3, 3), "h": (96, 40)}
LINE_SHAPES = {"w": (192, 768), "b": (768,), "v": (768, 192)}


WINOGRAD = {"bf16": {"w": 16 / 9}}
"""By precision, what of these weights are kept as Winograd's transforms, and in how many points for a tap."""


def model(text: str, shapes: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    return to_onnx(parse_graph(text, {name: (0.1 * rng.standard_normal(shape)).astype(np.float32)
                                      for name, shape in shapes.items()}))  # fmt: skip


@pytest.mark.parametrize(("text", "shapes", "x", "precision", "most"), [
    (CONVOLUTIONS, SHAPES, (8, 16, 12, 12), "bf16", 0.55), (CONVOLUTIONS, SHAPES, (8, 16, 12, 12), "int8", 0.3),
    (LINES, LINE_SHAPES, (8, 7, 192), "bf16", 0.55), (LINES, LINE_SHAPES, (8, 7, 192), "int8", 0.3),
    (LINES, LINE_SHAPES, (8, 7, 192), "int4-weights", 0.2),
])  # fmt: skip
def test_shares_of_f32(text: str, shapes: dict[str, tuple[int, ...]], x: tuple[int, ...], precision: str, most: float,
                       monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """f32's own, but no more than its numbers, as far as the lower precision keeps these, and not their transforms:
    kernels that keep weights twice would flatter a share."""
    monkeypatch.setattr(gates, "measured_gain", lambda *_: Gain(1.5, 1.4, 1.6, 1.5, 7))
    data = {"x": np.random.default_rng(1).standard_normal(x).astype(np.float32)}
    source = model(text, shapes)
    points = WINOGRAD.get(precision, {}) if text == CONVOLUTIONS else {}
    numbers = 4 * sum(np.prod(shape) * points.get(name, 1) for name, shape in shapes.items())
    given = {} if precision == "int4-weights" else {"calibration": data}
    plan = parax.compile(source, options=CompileOptions(precision=precision, max_accuracy_drop=1.0, **given))
    f32 = min(numbers, parax.compile(source).manifest.weights.size)
    assert 0 < plan.manifest.weights.size <= most * f32
