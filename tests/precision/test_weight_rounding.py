"""Weights rounded as activations say: what that loses beside the nearest numbers, and when it is done."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import parax
from parax import CompileOptions
from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.oracle import oracle
from parax.compiler.ir.ops.block_products import unpacked
from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.quantize.compensated import compensated_steps
from parax.compiler.passes.quantize.quantize_weights import QuantizeWeights, rounded_blocks
from parax.compiler.passes.rewrite import Rewriter
from parax.compiler.precision import weight_rounding, weights_only
from parax.compiler.precision.gates import decided
from parax.compiler.precision.speed import Gain

DEPTH = 64
TEXT = """graph @g(%x: f32[N,64]) {
  %g = const f32[64] "g"\n  %b = const f32[64] "b"\n  %w = const f32[64,48] "w"\n  %v = const f32[48,7] "v"
  %n = LayerNormalization(%x, %g, %b) : f32[N,64]
  %p = MatMul(%n, %w) : f32[N,48]  # first
  %r = Relu(%p) : f32[N,48]
  %y = Gemm(%r, %v) : f32[N,7]  # head
  return %y\n}"""
ONE = TEXT.split("  %r")[0].replace("%p", "%y") + "  return %y\n}"


def model(text: str = TEXT, far: float = 1.0) -> onnx.ModelProto:
    """far: how much further two columns of the normalised lines reach, at weights like the others'."""
    rng = np.random.default_rng(0)
    gain = np.where(np.arange(DEPTH) % 32 == 7, far, 1.0)
    data = {"g": gain, "b": rng.standard_normal(DEPTH) * 0.1, "w": rng.standard_normal((DEPTH, 48)) * 0.2,
            "v": rng.standard_normal((48, 7)) * 0.2}  # fmt: skip
    return to_onnx(parse_graph(text, {name: array.astype(np.float32) for name, array in data.items()}))


def lines(rows: int, seed: int, depth: int = DEPTH, rank: int = 6) -> np.ndarray:
    """Activations that hang together: mixtures of a few directions, and some noise."""
    mix = np.random.default_rng(99).standard_normal((rank, depth))
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, rank)) @ mix + 0.1 * rng.standard_normal((rows, depth))).astype(np.float32)


def loss(x: np.ndarray, w: np.ndarray, found: np.ndarray) -> float:
    off = x.astype(np.float64) @ (w.astype(np.float64) - found).T
    return float(np.mean(off**2) / np.mean((x.astype(np.float64) @ w.T.astype(np.float64)) ** 2))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("depth", "size"), [(5, 16), (64, 16), (133, 32), (300, 256)])
def test_compensated_steps_lose_less(bits: int, depth: int, size: int) -> None:
    w = np.random.default_rng(depth).standard_normal((9, depth)).astype(np.float32)
    w[3] = 0
    seen, other = lines(400, 1, depth), lines(400, 2, depth)
    steps, scales = compensated_steps(w, seen.T @ seen / len(seen), bits, size)
    half = 1 << bits - 1
    assert steps.shape == (9, scales.shape[1] * size) and np.all(steps[:, depth:] == 0)
    assert np.all((steps >= -half) & (steps < half) & (steps == np.rint(steps)))
    found = (steps * np.repeat(scales, size, 1).astype(np.float64))[:, :depth]
    assert np.all(found[3] == 0)
    packed, plain = rounded_blocks(w, bits, size)
    q = unpacked(packed, bits, size).astype(np.int64)
    nearest = ((q - half) * plain[..., None].astype(np.float64)).reshape(9, -1)[:, :depth]
    if depth > 5:
        assert loss(other, w, found) < 0.5 * loss(other, w, nearest)


def test_moments_that_say_nothing_give_the_nearest_numbers() -> None:
    w = np.random.default_rng(1).standard_normal((3, 20)).astype(np.float32)
    for moments in (np.eye(20, dtype=np.float32), np.zeros((20, 20), np.float32)):
        steps, scales = compensated_steps(w, moments, 4, 32)
        packed, nearest = rounded_blocks(w, 4, 32)
        np.testing.assert_array_equal(scales, nearest)
        np.testing.assert_array_equal(steps[:, ::2] + 8, packed[:, 0] & 15)


def test_the_pass_takes_moments_of_what_a_product_reads() -> None:
    x = lines(400, 1)
    shapes = {"g": (DEPTH,), "b": (DEPTH,), "w": (DEPTH, 48), "v": (48, 7)}
    data = {name: np.random.default_rng(0).standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    graphs = [parse_graph(TEXT, data) for _ in range(2)]
    for graph, moments in zip(graphs, ({}, {"n": x.T @ x}), strict=True):
        assert QuantizeWeights(4, 32, moments=moments).run(graph, Rewriter(graph))
    first, second = ([v.data for v in graph.constants if v.tensor.dtype.name == "u8"] for graph in graphs)
    assert not all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert sum(np.array_equal(a, b) for a, b in zip(first, second, strict=True)) == 1, "only one has moments"


@pytest.mark.parametrize("way", ["GPTQ", "AWQ"])
def test_a_budget_that_the_nearest_numbers_miss(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_only, "measured_gain", lambda *_: Gain(1.5, 1.4, 1.6, 1.5, 7))
    plain = weight_rounding._informed
    monkeypatch.setattr(weight_rounding, "_informed",
                        lambda *given: [each for each in plain(*given) if each.how == way])  # fmt: skip
    source = model(ONE, 40.0) if way == "AWQ" else model()
    data = lines(256, 3) if way == "GPTQ" else np.random.default_rng(3).standard_normal((256, DEPTH)).astype(np.float32)
    given = {"precision": "int4-weights", "calibration": {"x": data}}
    with pytest.raises(parax.AccuracyMismatch) as caught:
        monkeypatch.setattr(weights_only, "best_rounding", lambda graph, *_: weights_only.Rounding("nearest", graph))
        decided(source, CompileOptions(**given, max_accuracy_drop=1e-9))
    nearest = float(str(caught.value).split("found ")[1].split(" %")[0]) / 100
    monkeypatch.setattr(weights_only, "best_rounding", weight_rounding.best_rounding)
    budget = 0.6 * nearest
    found = decided(source, CompileOptions(**given, max_accuracy_drop=budget))
    assert found.record.rounding == way and any(f"rounded by {way}" in line for line in found.record.lines())
    x = lines(200, 8) if way == "GPTQ" else np.random.default_rng(8).standard_normal((200, DEPTH)).astype(np.float32)
    with found.plan.session() as session:
        got = session.run({"x": x})["y"].astype(np.float64)
    exact = oracle(source, "reference")({"x": x})["y"].astype(np.float64)
    assert 0 < ((got - exact) ** 2).sum() / (exact**2).sum() < 0.8 * nearest
    ort = pytest.importorskip("onnxruntime")
    theirs = ort.InferenceSession(to_onnx(found.graph).SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(got, theirs.run(None, {"x": x})[0], rtol=1e-3, atol=1e-3 * np.abs(exact).max())
