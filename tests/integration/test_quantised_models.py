"""Models of quantised tensors, as exporters write them: results within a step of ONNX's, weights of bytes."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax

CHANNELS, SIZE = 48, 9


class Maker:
    """A model that is quantised everywhere: a tensor is (name, scale, zero point)."""

    def __init__(self, signed: bool) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(0)
        self.dtype = np.int8 if signed else np.uint8

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def through(self, x: str, scale: float, zero: int) -> str:
        """x quantised and dequantised."""
        numbers = self.constant(np.float32(scale)), self.constant(self.dtype(zero))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *numbers), *numbers)

    def weights(self, *shape: int, axis: int = 0) -> str:
        """Weights with a scale for each index of an axis."""
        w = self.rng.integers(-127, 128, shape).astype(np.int8)
        scales = self.rng.uniform(5e-4, 2e-3, shape[axis]).astype(np.float32)
        zeros = np.zeros(shape[axis], np.int8)
        return self.node("DequantizeLinear", *map(self.constant, (w, scales, zeros)), axis=axis)

    def model(self, y: str, rows: int | str) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, CHANNELS, SIZE, SIZE])
        out = helper.make_tensor_value_info(y, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "quantised", [x], [out], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def residual(rows: int | str, signed: bool = False) -> tuple[onnx.ModelProto, float]:
    """Convolutions of both kinds, a residual, a pool and a classifier; the model and its output's step."""
    m = Maker(signed)
    shift = -128 if signed else 0
    x = m.through("x", 0.0313, 117 + shift)  # 3/4 of the sum's step would leave every fourth sum between two of them
    a = m.node("Conv", x, m.weights(64, CHANNELS, 3, 3), m.constant(m.rng.standard_normal(64).astype(np.float32)),
               pads=[1, 1, 1, 1])  # fmt: skip
    a = m.through(m.node("Relu", a), 0.05, shift)
    b = m.through(m.node("Conv", a, m.weights(CHANNELS, 64, 1, 1)), 0.04, 128 + shift)
    b = m.through(m.node("Relu", m.node("Add", b, x)), 0.04, shift)
    b = m.through(m.node("GlobalAveragePool", b), 0.02, shift)
    y = m.node("Gemm", m.node("Flatten", b), m.weights(40, CHANNELS), transB=1)
    return m.model(m.through(y, STEP, 120 + shift), rows), STEP


STEP = 0.004


def options(level: int = 2) -> parax.CompileOptions:
    return parax.CompileOptions(cache=False, calibrate=False, opt_level=level)


def image(rows: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((rows, CHANNELS, SIZE, SIZE)).astype(np.float32)


def check(y: np.ndarray, model: onnx.ModelProto, x: np.ndarray, step: float) -> None:
    (wanted,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    off = np.abs(np.rint((y - wanted) / step))
    assert len(np.unique(wanted)) > 20, "an output of few values would prove little"
    assert off.max() <= 1 and (off == 0).mean() > 0.95


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_results_are_within_a_step(level: int, signed: bool) -> None:
    model, step = residual(3, signed)
    with parax.compile(model, options=options(level)).session() as session:
        (y,) = session.run({"x": image(3)}).values()
    check(y, model, image(3), step)


@pytest.mark.parametrize("instances", [1, 2])
def test_rows_are_what_they_are_alone(instances: int) -> None:
    model, step = residual("N")
    plan = parax.compile(model, options=options())
    with plan.session(instances=instances, cores_per_instance=1) as session:
        (y,) = session.run({"x": image(5)}).values()
        alone = [next(iter(session.run({"x": image(5)[i : i + 1]}).values())) for i in range(5)]
    check(y, model, image(5), step)
    np.testing.assert_array_equal(y, np.concatenate(alone))


def test_weights_are_a_byte_each(tmp_path: Path) -> None:
    model, _ = residual(1)
    parax.compile(model, options=options()).save(tmp_path / "plan.bin")
    with zipfile.ZipFile(tmp_path / "plan.bin") as plan:
        nbytes = plan.getinfo("weights.bin").file_size
        text = plan.read("graph.txt").decode()
    products = 64 * CHANNELS * 9 + 64 * CHANNELS + 40 * CHANNELS
    found = [sum(text.count(f"{kind}{op}(") for kind in ("Widening", "Byte")) for op in ("Conv", "MatMul")]
    assert found == [2, 1]  # of i16, or of bytes where the CPU has products of them
    assert products <= nbytes < 1.3 * products + 4096


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [0, 1, 100, 255])
def test_zero_points_of_requests_are_met_by_products_of_bytes(dtype: type, zero: int) -> None:
    """Weights are light, so that bytes are multiplied on all of x86-64."""
    rng = np.random.default_rng(2)
    b = rng.integers(-64, 65, (37, 20)).astype(np.int8)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [helper.make_tensor_value_info("a", kind, ["N", 37]), helper.make_tensor_value_info("z", kind, [])]
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b", "z"], ["y"])], "dynamic", inputs,
                              [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
                              [numpy_helper.from_array(b, "b")])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    a, z = rng.integers(0, 256, (9, 37)).astype(np.uint8).view(dtype), np.array(zero, np.uint8).view(dtype)
    with parax.compile(model, options=options()).session() as session:
        (y,) = session.run({"a": a, "z": z}).values()
    np.testing.assert_array_equal(y, (a.astype(np.int64) - z.astype(np.int64)) @ b)


@pytest.mark.parametrize("zero", [0, 131])
def test_a_depthwise_convolution_between_quantised_tensors(zero: int, tmp_path: Path) -> None:
    m = Maker(False)
    x = m.through("x", 0.0313, 117)
    a = m.through(m.node("Conv", x, m.weights(64, CHANNELS, 1, 1)), 0.05, zero)
    a = m.through(m.node("Conv", a, m.weights(64, 1, 3, 3), group=64, pads=[1, 1, 1, 1]), 0.0217, 128)
    y = m.node("Gemm", m.node("Flatten", m.node("GlobalAveragePool", a)), m.weights(40, 64), transB=1)
    model = m.model(m.through(y, 0.0011, 120), 3)
    plan = parax.compile(model, options=options())
    plan.save(tmp_path / "p.bin")
    with zipfile.ZipFile(tmp_path / "p.bin") as saved:
        text = saved.read("graph.txt").decode()
    assert text.count("ByteConv(") + text.count("WideningConv(") == 2, text
    with plan.session() as session:
        (found,) = session.run({"x": image(3)}).values()
    check(found, model, image(3), 0.0011)
