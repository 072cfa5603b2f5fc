"""Models compiled in bf16, with data that judges them and without: what is decided, computed, stored and said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import parax
from commanding import run_here
from examples.models import build, feeds
from parax import CompileOptions
from parax.compiler.compilation import Compilation
from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import BF16
from parax.compiler.optimisation import prepared
from parax.compiler.precision import gates
from parax.compiler.precision.gates import decided
from parax.compiler.precision.halves_alone import losses_alone
from parax.compiler.precision.metrics import MeanSquare
from parax.compiler.precision.record import KEY, told
from parax.compiler.precision.samples import Request
from parax.compiler.precision.speed import Gain
from precision.small_models import classifier, images

FASTER, SLOWER, FASTEST = (Gain(x, x, x, x, 7 if x > 1 else 0) for x in (1.5, 0.5, 2.0))
U = 2.0**-8  # of bf16

NET = """graph @net(%x: f32[N,8,12,12]) {
  %w = const f32[16,8,3,3] "w"\n  %u = const f32[16,16,3,3] "u"\n  %v = const f32[576,10] "v"\n  %b = const f32[16] "b"
  %a = Conv(%x, %w, %b) {pads=[1,1,1,1]} : f32[N,16,12,12]  # first
  %r = Relu(%a) : f32[N,16,12,12]
  %c = Conv(%r, %u, %b) {pads=[1,1,1,1]} : f32[N,16,12,12]  # second
  %s = Add(%c, %r) : f32[N,16,12,12]  # residual
  %t = Relu(%s) : f32[N,16,12,12]
  %p = MaxPool(%t) {kernel_shape=[2,2], strides=[2,2]} : f32[N,16,6,6]
  %f = Flatten(%p) : f32[N,576]
  %y = MatMul(%f, %v) : f32[N,10]  # head
  return %y\n}"""
SHAPES = {"w": (16, 8, 3, 3), "u": (16, 16, 3, 3), "v": (576, 10), "b": (16,)}


def net() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    data = {name: (rng.standard_normal(shape) * (2 / max(1, np.prod(shape[1:]))) ** 0.5).astype(np.float32)
            for name, shape in SHAPES.items()}  # fmt: skip
    return to_onnx(parse_graph(NET, data))


def pictures(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, 8, 12, 12)).astype(np.float32)


def run(plan: parax.Plan, x: np.ndarray) -> np.ndarray:
    with plan.session() as session:
        return next(iter(session.run({"x": x}).values())).astype(np.float64)


@pytest.fixture
def gain(monkeypatch: pytest.MonkeyPatch) -> list[Gain]:
    """What the speed gate measures, in turn: of 8 bits first where both are asked for."""
    gains = [FASTER]
    monkeypatch.setattr(gates, "slower_nodes", lambda *_: set())
    monkeypatch.setattr(gates, "measured_gain", lambda *_: gains.pop(0) if len(gains) > 1 else gains[0])
    return gains


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("rows", [1, 5])
def test_no_data_is_needed_and_results_stay_near_those_of_f32(rows: int, level: int) -> None:
    """Three products one after the other round their operands: each moves the result by some roundings of bf16."""
    x = pictures(rows)
    exact, found = (run(parax.compile(net(), options=CompileOptions(precision=p, opt_level=level)), x)
                    for p in ("fp32", "bf16"))  # fmt: skip
    error = np.sqrt(((found - exact) ** 2).mean() / (exact**2).mean())
    assert 0 < error < 3 * 2 * U
    assert np.mean(found.argmax(1) == exact.argmax(1)) == 1


def test_two_instances_give_what_one_gives() -> None:
    x = pictures(6)
    found = [run(parax.compile(net(), options=CompileOptions(precision="bf16", instances=n)), x) for n in (1, 2)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("name", ["bert-base", "vit"])
def test_transformers_stay_near_f32(name: str) -> None:
    """Softmax, normalisations and products of two activations are of f32; a layer's errors are not those of all."""
    model = build(name, small=True)
    given = feeds(name, 2, small=True)
    full, half = (parax.compile(model, options=CompileOptions(precision=p)) for p in ("fp32", "bf16"))
    with full.session() as a, half.session() as b:
        exact, found = a.run(given), b.run(given)
    assert half.manifest.provenance["products"] == "bf16"
    for key, y in exact.items():
        assert 0 < np.sqrt(np.mean((found[key] - y) ** 2) / np.mean(y**2)) < 4 * U
        assert np.mean(found[key].argmax(-1) == y.argmax(-1)) > 0.95


def test_weights_take_half_the_bytes() -> None:
    text = """graph @g(%x: f32[N,512]) {
      %w = const f32[512,512] "w"
      %y = MatMul(%x, %w) : f32[N,512]
      return %y\n}"""
    model = to_onnx(parse_graph(text, {"w": np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)}))
    full, half = (len(parax.compile(model, options=CompileOptions(precision=p)).weights) for p in ("fp32", "bf16"))
    assert half < 0.55 * full


def test_a_model_in_f64_keeps_its_products() -> None:
    text = """graph @g(%x: f64[N,4]) {
      %w = const f64[4,4] "w"
      %y = MatMul(%x, %w) : f64[N,4]
      return %y\n}"""
    model = to_onnx(parse_graph(text, {"w": np.eye(4)}))
    x = np.random.default_rng(0).standard_normal((3, 4))
    np.testing.assert_array_equal(run(parax.compile(model, options=CompileOptions(precision="bf16")), x), x)


def options(precision: str, **more: object) -> CompileOptions:
    given = {"calibration": {"x": pictures(32)}, "max_accuracy_drop": 0.05, **more}
    return CompileOptions(precision=precision, **given)  # type: ignore[arg-type]


def test_bf16_under_its_gate_says_what_it_loses_and_gains(gain: list[Gain]) -> None:
    plan = parax.compile(net(), options=options("bf16"))
    record = plan.manifest.provenance[KEY]
    assert (record["asked"], record["taken"], record["n_layers"], record["n_quantized"]) == ("bf16", "bf16", 3, 3)
    assert 0 < record["drop"] < 1e-3 and record["n_held_back"] == 16
    lines = told(plan.manifest.provenance)
    assert lines[0] == "precision bf16: 3 of 3 layers of bf16" and any("speed: 1.50" in line for line in lines)
    assert not any("ranges" in line for line in lines)
    x = pictures(4)
    np.testing.assert_array_equal(
        run(plan, x), run(parax.compile(net(), options=CompileOptions(precision="bf16")), x))  # fmt: skip


def test_bf16_that_loses_too_much_is_an_error(gain: list[Gain]) -> None:
    with pytest.raises(parax.AccuracyMismatch, match="products of bf16 lose too much") as caught:
        decided(net(), options("bf16", max_accuracy_drop=1e-9))
    assert caught.value.exit_code == 5
    assert all(f'"{name}" (' in str(caught.value) for name in ("first", "second", "head"))


def test_what_each_product_loses_alone_is_what_rounding_its_operands_loses() -> None:
    graph, x = prepared(net(), Compilation(CompileOptions(), lambda *_: None)), pictures(9)
    drops = losses_alone(graph, MeanSquare(), [Request({"x": x}, {}, 9)], CompileOptions())
    assert {each.layer for each in drops} == {"a", "c", "y"}
    assert [each.drop for each in drops] == sorted((each.drop for each in drops), reverse=True) and drops[-1].drop > 0
    data = {v.name: v.data for v in graph.constants}
    head = next(node for node in graph if node.output.name == "y")
    copy = graph.clone()
    copy.set_outputs([copy.value(head.operands[0].name)], ["f"])
    f = run(parax.compile(to_onnx(copy)), x)
    v = np.asarray(data[head.operands[1].name], np.float64)
    half = lambda array: array.astype(np.float32).astype(BF16.numpy).astype(np.float64)  # noqa: E731
    want = np.sum((half(f) @ half(v) - f @ v) ** 2) / np.sum((f @ v) ** 2)
    assert next(each.drop for each in drops if each.layer == "y") == pytest.approx(want, rel=0.02)


def test_auto_takes_what_is_fastest(gain: list[Gain]) -> None:
    for gains, taken, beside in (
        ([FASTER, FASTEST], "bf16", "int8: 1.50"), ([FASTEST, FASTER], "int8", "bf16: "),
        ([SLOWER, FASTER], "bf16", "8 bits are not faster here: 0.50"),
        ([SLOWER, SLOWER], "fp32", "0.50 × f32's speed"),
    ):  # fmt: skip
        gain[:] = gains
        record = decided(net(), options("auto")).record
        assert record.taken == taken and len(record.beside) == 1 and beside in record.beside[0]
        assert any(line == f"tried besides: {record.beside[0]}" for line in record.lines())


def test_auto_leaves_bf16_that_loses_too_much(gain: list[Gain]) -> None:
    gain[:] = [SLOWER, FASTER]
    record = decided(net(), options("auto", max_accuracy_drop=1e-9)).record
    assert record.taken == "fp32" and record.beside[0].startswith("bf16: ")


def test_a_model_that_is_written_as_onnx_has_no_bf16(gain: list[Gain]) -> None:
    gain[:] = [SLOWER, FASTER]
    assert decided(net(), options("auto"), writes_onnx=True).record.taken == "fp32"


def test_the_command_line(tmp_path: Path) -> None:
    onnx.save(net(), tmp_path / "m.onnx")
    base = ["compile", str(tmp_path / "m.onnx"), "--precision", "bf16"]
    done = run_here("main", [*base, "-o", str(tmp_path / "m.bin"), "--format", "json"])
    assert done.returncode == 0, done.stderr
    assert "precision" not in json.loads(done.stdout)
    strict = run_here("main", [*base, "-o", str(tmp_path / "n.bin"), "--fp", "strict"])
    assert strict.returncode == 2 and "precision and strict_fp" in strict.stderr
    written = run_here("main", [*base, "-o", str(tmp_path / "n.onnx"), "--emit", "onnx"])
    assert written.returncode == 2 and "no products of bf16" in written.stderr
    planned = run_here("main", ["plan", *base[1:]])
    assert planned.returncode == 0, planned.stderr


def test_without_pairs_of_channels_only_the_head_is_rounded(gain: list[Gain]) -> None:
    given = {"calibration": {"x": images(16)}, "max_accuracy_drop": 0.05}
    record = decided(classifier(), CompileOptions(precision="bf16", **given)).record  # type: ignore[arg-type]
    assert (record.n_layers, record.n_quantized) == (3, 1)
