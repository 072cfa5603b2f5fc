"""Ranges of activations against those of numpy on what ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import pytest

from parax import CompileOptions
from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.oracle import best_kind, oracle
from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.quantize.affine import ValueRange
from parax.compiler.precision.ranges import KEPT_SHARE, METHODS, N_BINS, Histogram, Observations
from parax.compiler.precision.samples import Request
from parax.errors import InvalidData

TEXT = """graph @g(%x: f32[N,7]) {
  %w = const f32[7,9] "w"\n  %u = const f32[9,3] "u"
  %y = MatMul(%x, %w) : f32[N,9]
  %v = Tanh(%y) : f32[N,9]
  %z = MatMul(%v, %u) : f32[N,3]
  return %z\n}"""


def observed(x: list[np.ndarray]) -> tuple[Observations, dict[str, np.ndarray]]:
    """What is observed on some requests, and what it is of, by the oracle."""
    graph = parse_graph(TEXT)
    found = Observations(graph, [Request({"x": each}, {}, len(each)) for each in x], CompileOptions())
    graph.set_outputs([graph.value("v")])
    run = oracle(to_onnx(graph), best_kind())
    return found, {"x": np.concatenate(x), "v": np.concatenate([run({"x": each})["v"] for each in x])}


def test_least_and_greatest_over_all_requests() -> None:
    rng = np.random.default_rng(0)
    found, values = observed([rng.standard_normal((n, 7)).astype(np.float32) for n in (1, 5, 0, 3)])
    ranges = found.ranges("minmax")
    assert set(ranges) == {"x", "v"} and not found.constant
    for name, array in values.items():
        found_range = [ranges[name].low, ranges[name].high]
        np.testing.assert_allclose(found_range, [array.min(), array.max()], rtol=1e-5, atol=1e-6)


def test_the_percentile_leaves_out_what_is_rare() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (40_000, 7)).astype(np.float32)
    x[3, 2] = 1000.0
    found, _ = observed([x[:10_000], x[10_000:]])
    cut, whole = found.ranges("percentile")["x"], found.ranges("minmax")["x"]
    tail = (1 - KEPT_SHARE) / 2
    want, bin_width = np.quantile(x, [tail, 1 - tail]), 1001 / N_BINS
    assert whole.high == 1000 and abs(cut.low - want[0]) <= bin_width and abs(cut.high - want[1]) <= bin_width


def test_entropy_gives_up_an_outlier_but_no_flat_distribution() -> None:
    edges = np.linspace(-4, 4, N_BINS + 1)
    flat = Histogram(ValueRange(-4, 4), np.full(N_BINS, 100))
    kept = METHODS["entropy"](flat)
    assert kept.high == pytest.approx(4, rel=0.05)
    bell = np.rint(1e6 * np.exp(-((edges[:-1] * 4) ** 2))).astype(np.int64)
    bell[-1] = 1
    cut = METHODS["entropy"](Histogram(ValueRange(-4, 4), bell))
    assert 1.0 < cut.high < 3.5 and cut.low == -cut.high


def test_nan_is_an_error_and_a_constant_is_noted() -> None:
    found, _ = observed([np.zeros((4, 7), np.float32)])
    assert sorted(found.constant) == ["v", "x"] and found.ranges("minmax") == {}
    with pytest.raises(InvalidData, match=r"value x: .*NaN or infinite"):
        observed([np.full((2, 7), np.inf, np.float32)])
