"""Weights alone in 4 and 8 bits: how they are rounded, what the plan computes and says, what ONNX Runtime gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from commanding import run_here
from parax import CompileOptions
from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.ir.ops.block_products import unpacked
from parax.compiler.passes.quantize.quantize_weights import QuantizeWeights, rounded_blocks
from parax.compiler.precision import weights_only
from parax.compiler.precision.gates import decided
from parax.compiler.precision.record import KEY, told
from parax.compiler.precision.speed import Gain
from passes.check import check_pass
from precision.small_models import relu

DEPTH, HIDDEN, CLASSES = 96, 130, 7


def perceptron(seed: int = 0) -> onnx.ModelProto:
    """y = Gemm(relu(x w + b), v, c), v transposed; x [N, 96]."""
    rng = np.random.default_rng(seed)
    weights = {
        "w": rng.standard_normal((DEPTH, HIDDEN)) * 0.1, "b": rng.standard_normal(HIDDEN),
        "v": rng.standard_normal((CLASSES, HIDDEN)) * 0.1, "c": rng.standard_normal(CLASSES),
    }  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "first"), helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Gemm", ["r", "v", "c"], ["y"], "head", transB=1),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", DEPTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def vectors(rows: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, DEPTH)).astype(np.float32)


@pytest.fixture(autouse=True)
def gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_only, "measured_gain", lambda *_: Gain(1.5, 1.4, 1.6, 1.5, 7))


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("depth", (1, 32, 45))
def test_weights_are_rounded_to_the_nearest(bits: int, depth: int) -> None:
    w = np.random.default_rng(depth).standard_normal((5, depth)).astype(np.float32)
    w[2], w[3, 0] = 0, 1e-42
    packed, scales = rounded_blocks(w, bits, 32)
    half = 1 << bits - 1
    q = unpacked(packed, bits, 32).astype(np.float64) - half
    found = (q * scales[..., None].astype(np.float64)).reshape(5, -1)[:, :depth]
    blocks = np.repeat(np.abs(scales), 32, 1)[:, :depth].astype(np.float64)
    edge = np.abs(w) > (half - 1) * blocks  # on the other side of zero than the farthest: the largest number is less
    assert np.all(np.abs(found - w)[~edge] <= blocks[~edge] * 0.5 * (1 + 1e-6))
    assert np.all(np.abs(found - w)[edge] <= blocks[edge] * (1 + 1e-6))
    assert np.all(found[2] == 0)
    far = np.abs(w[0]).argmax()
    assert found[0, far] == pytest.approx(w[0, far], rel=1e-6)


def test_the_pass() -> None:
    before = """graph @g(%x: f32[N,3]) {
      %w = const f32[3,2] [8, 0, -4, 1, 2.4, 7]
      %b = const f32[2] [1, 2]
      %y = Gemm(%x, %w, %b) : f32[N,2]
      return %y\n}"""
    after = """graph @g(%x: f32[N,3]) {
      %q = const u8[2,1,8] [192, 134, 136, 136, 136, 136, 136, 136, 120, 128, 136, 136, 136, 136, 136, 136]
      %s = const f32[2,1] [-1, -0.875]\n      %b = const f32[2] [1, 2]
      %1 = com.microsoft::MatMulNBits(%x, %q, %s) {K=3, N=2, block_size=16} : f32[N,2]
      %y = Add(%1, %b) : f32[N,2]
      return %y\n}"""
    graph = check_pass(QuantizeWeights(4, 16), before, after, evaluate=False)
    q = next(v for v in graph.constants if v.tensor.dtype.name == "u8").data
    assert q is not None and unpacked(q, 4, 3)[:, 0].tolist() == [[0, 12, 6], [8, 7, 0]]
    check_pass(QuantizeWeights(4, 16, frozenset({"y"})), before, None, refuses="no product to quantise")


@pytest.mark.parametrize(("precision", "share"), (("int4-weights", 0.2), ("int8-weights", 0.32)))
def test_the_plan_and_the_model_that_is_written(precision: str, share: float, tmp_path: Path) -> None:
    found = decided(perceptron(), CompileOptions(precision=precision))
    ort = pytest.importorskip("onnxruntime")
    written = to_onnx(found.graph).SerializeToString()
    theirs = ort.InferenceSession(written, providers=["CPUExecutionProvider"])
    exact = ort.InferenceSession(perceptron().SerializeToString(), providers=["CPUExecutionProvider"])
    for rows in (1, 20):
        x = vectors(rows)
        y = found.plan.session().run({"x": x})["y"]
        np.testing.assert_allclose(y, theirs.run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)
        true = exact.run(None, {"x": x})[0]
        assert 0 < np.mean((y - true) ** 2) < (0.02 if precision.startswith("int4") else 1e-4) * np.mean(true**2)
    again = parax.compile(onnx.load_model_from_string(written)).session().run({"x": x})["y"]
    np.testing.assert_array_equal(again, y)
    found.plan.save(tmp_path / "small.bin")
    parax.compile(perceptron()).save(tmp_path / "f32.bin")
    assert found.record.drop is None and found.record.n_layers == 2


def test_a_large_plan_is_small() -> None:
    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.standard_normal((1024, 1024)).astype(np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1024])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1024])], [w])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    full = parax.compile(model).manifest.weights.size
    for precision, most in (("int4-weights", 0.16), ("int8-weights", 0.29)):
        plan = parax.compile(model, options=CompileOptions(precision=precision))
        assert plan.manifest.weights.size <= most * full


def test_what_is_lost_is_measured_where_there_is_data() -> None:
    options = CompileOptions(precision="int4-weights", calibration={"x": vectors(64)}, max_accuracy_drop=0.05)
    plan = parax.compile(perceptron(), options=options)
    record = plan.manifest.provenance[KEY]
    assert 0 < record["drop"] < 0.02 and record["block_size"] == 32 and record["n_held_back"] == 32
    lines = told(plan.manifest.provenance)
    assert "precision int4-weights: the weights of 2 of 2 layers in 4 bits, a scale for each 32" in lines
    assert any("1.50 × f32's speed" in line for line in lines) and not any("ranges" in line for line in lines)
    finer = CompileOptions(precision="int4-weights", calibration={"x": vectors(64)}, max_accuracy_drop=0.05,
                           weight_block=16)  # fmt: skip
    assert parax.compile(perceptron(), options=finer).manifest.provenance[KEY]["drop"] < record["drop"]


def test_what_loses_too_much_blames_layers() -> None:
    options = CompileOptions(precision="int4-weights", calibration={"x": vectors(64)}, max_accuracy_drop=1e-6)
    with pytest.raises(parax.AccuracyMismatch, match="int4-weights loses too much") as caught:
        parax.compile(perceptron(), options=options)
    assert caught.value.exit_code == 5
    assert all(f'"{name}"' in str(caught.value) for name in ("first", "head"))


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(parax.UsageError, match="nothing to quantise"):
        parax.compile(relu(), options=CompileOptions(precision="int4-weights"))
    bytes_ = CompileOptions(precision="int8", calibration={"x": vectors(8)}, max_accuracy_drop=1)
    rounded = decided(perceptron(), bytes_)
    with pytest.raises(parax.UsageError, match="quantised already"):
        parax.compile(to_onnx(rounded.graph), options=CompileOptions(precision="int4-weights"))
    with pytest.raises(parax.UsageError, match="weight_block"):
        CompileOptions(precision="int4-weights", weight_block=48)
    onnx.save(perceptron(), tmp_path / "m.onnx")
    done = run_here("paraxc", [str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m4.onnx"), "--emit", "onnx",
                               "--precision", "int4-weights", "--weight-block", "64"])  # fmt: skip
    assert done.returncode == 0, done.stderr
    kinds = [node.op_type for node in onnx.load(tmp_path / "m4.onnx").graph.node]
    assert kinds.count("MatMulNBits") == 2
