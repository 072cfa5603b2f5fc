"""Models as ONNX Runtime's quantisation tools and its transformer optimiser write them, against ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import parax

pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

RNG = np.random.default_rng(31)


class Net:
    """A model that is written node by node."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """A constant of random numbers; of the size that keeps what it multiplies as large as it is."""
        spread = scale or 1 / np.sqrt(np.prod(shape[1:] if len(shape) > 2 else shape[:1]))
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(RNG.normal(0, spread, shape).astype(np.float32), name))
        return name

    def constant(self, values: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def add(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{len(self.nodes)}", domain=domain, **attributes))
        return name

    def model(self, x: list[Any], y: str, path: Path) -> Path:
        inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x)]
        outputs = [helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "net", inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
        return path


def images(folder: Path) -> Path:
    """A residual block, branches that are joined, pools, and a classifier."""
    net = Net()
    x = net.add("Relu", net.add("Conv", "x", net.weight(16, 3, 3, 3), net.weight(16, scale=0.1), pads=[1] * 4))
    y = net.add("Conv", x, net.weight(16, 16, 3, 3), net.weight(16, scale=0.1), pads=[1] * 4)
    x = net.add("LeakyRelu", net.add("Add", x, y), alpha=0.1)
    x = net.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    gate = net.add("Sigmoid", net.add("Conv", x, net.weight(16, 16, 1, 1)))
    x = net.add("Concat", net.add("Mul", x, gate), x, axis=1)
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    x = net.add("Gemm", x, net.weight(32, 10), net.weight(10, scale=0.1))
    return net.model(["N", 3, 16, 16], net.add("Softmax", x), folder / "images.onnx")


def heads_apart(net: Net) -> str:
    """Attention of 4 heads of 8, as exporters write it."""

    def heads(x: str, perm: list[int]) -> str:
        y = net.add("Add", net.add("MatMul", x, net.weight(32, 32)), net.weight(32, scale=0.1))
        return net.add("Transpose", net.add("Reshape", y, net.constant([0, 0, 4, 8])), perm=perm)

    q, v = (heads("x", [0, 2, 1, 3]) for _ in range(2))
    scores = net.add("MatMul", q, heads("x", [0, 2, 3, 1]))
    scores = net.add("Mul", scores, net.constant(np.float32(8**-0.5)))
    mixed = net.add("Transpose", net.add("MatMul", net.add("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    return net.add("Reshape", mixed, net.constant([0, 0, 32]))


def tokens(folder: Path, *, fused: bool = False) -> Path:
    """A block of a transformer; `fused`: with ONNX Runtime's Attention, which sees no later token."""
    net = Net()
    if fused:
        mixed = net.add("Attention", "x", net.weight(32, 96), net.weight(96, scale=0.1), domain="com.microsoft",
                        num_heads=4, unidirectional=1)  # fmt: skip
    else:
        mixed = heads_apart(net)
    mixed = net.add("MatMul", mixed, net.weight(32, 32))
    x = net.add("LayerNormalization", net.add("Add", mixed, "x"), net.weight(32), net.weight(32, scale=0.1))
    y = net.add("Add", net.add("MatMul", x, net.weight(32, 64)), net.weight(64, scale=0.1))
    y = net.add("MatMul", net.add("FastGelu", y, domain="com.microsoft"), net.weight(64, 32))
    y = net.add("SkipLayerNormalization", y, x, net.weight(32), net.weight(32, scale=0.1), domain="com.microsoft")
    return net.model(["N", "S", 32], y, folder / "tokens.onnx")


def by_both(path: Path, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What parax and ONNX Runtime make of x."""
    import onnxruntime

    with parax.compile(path).session() as session:
        (found,) = session.run({"x": x}).values()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return found, session.run(None, {"x": x})[0]


def written(path: Path) -> Counter[str]:
    """The operators of a model."""
    return Counter(node.op_type for node in onnx.load(path).graph.node)


class Samples(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
    """A few random inputs."""

    def __init__(self, *shape: int) -> None:
        self.rest = [{"x": RNG.normal(0, 1, shape).astype(np.float32)} for _ in range(8)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.rest.pop() if self.rest else None


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
def test_a_classifier_in_quantised_operators(tmp_path: Path, kind: str, per_channel: bool) -> None:
    """Probabilities are quantised in steps of 1/256."""
    path, quantised = images(tmp_path), tmp_path / "quantised.onnx"
    activations = getattr(quantization.QuantType, kind)
    quantization.quantize_static(path, quantised, Samples(4, 3, 16, 16), per_channel=per_channel,
                                 quant_format=quantization.QuantFormat.QOperator, activation_type=activations,
                                 weight_type=quantization.QuantType.QInt8)  # fmt: skip
    assert {"QLinearConv", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearAveragePool",
            "QLinearConcat", "QLinearGlobalAveragePool", "QGemm", "QLinearSoftmax"} <= written(quantised).keys()
    found, wanted = by_both(quantised, RNG.normal(0, 1, (32, 3, 16, 16)).astype(np.float32))
    assert np.abs(found - wanted).max() <= 3 / 256
    assert np.abs(found - wanted).mean() <= 0.5 / 256


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_a_transformer_that_is_quantised_as_it_runs(tmp_path: Path, fused: bool, per_channel: bool) -> None:
    path, quantised = tokens(tmp_path, fused=fused), tmp_path / "quantised.onnx"
    extra = {"DefaultTensorType": onnx.TensorProto.FLOAT}
    quantization.quantize_dynamic(path, quantised, per_channel=per_channel, extra_options=extra)
    assert written(quantised)["MatMulInteger"] == (3 if fused else 6) and written(quantised)["QAttention"] == fused
    found, wanted = by_both(quantised, RNG.normal(0, 1, (3, 7, 32)).astype(np.float32))
    np.testing.assert_allclose(found, wanted, 0, 0.05)
    assert np.abs(found - wanted).mean() <= 2e-3


def test_a_transformer_that_is_fused(tmp_path: Path) -> None:
    """As ONNX Runtime writes the model that it has optimised itself."""
    import onnxruntime

    path, fused = tokens(tmp_path), tmp_path / "fused.onnx"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(fused), 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    assert {"FusedMatMul", "SkipLayerNormalization"} <= written(fused).keys()
    found, wanted = by_both(fused, RNG.normal(0, 1, (3, 7, 32)).astype(np.float32))
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


def decoder(folder: Path) -> Path:
    """Grouped attention whose lengths are computed of the mask of all tokens, as exporters of decoders write it."""
    net = Net()
    count = net.add("ReduceSum", "mask", net.constant(np.array([1])), keepdims=0)
    lengths = net.add("Cast", net.add("Sub", count, net.constant(np.int64(1))), to=onnx.TensorProto.INT32)
    total = net.add("Gather", net.add("Shape", "mask"), net.constant(np.int64(1)))
    total = net.add("Cast", total, to=onnx.TensorProto.INT32)
    tables = [net.weight(16, 8) for _ in range(2)]
    given = [net.add("MatMul", "x", net.weight(32, 128)), "", "", "key", "value", lengths, total, *tables]
    net.nodes.append(helper.make_node("GroupQueryAttention", given, ["y", "new_key", "new_value"], name="gqa",
                                      domain="com.microsoft", num_heads=4, kv_num_heads=2, do_rotary=1))  # fmt: skip
    f32, cache = onnx.TensorProto.FLOAT, ["N", 2, "P", 16]
    inputs = [helper.make_tensor_value_info("x", f32, ["N", "S", 32]),
              helper.make_tensor_value_info("mask", onnx.TensorProto.INT64, ["N", "T"]),
              *(helper.make_tensor_value_info(name, f32, cache) for name in ("key", "value"))]  # fmt: skip
    outputs = [helper.make_tensor_value_info(name, f32, None) for name in ("y", "new_key", "new_value")]
    graph = helper.make_graph(net.nodes, "net", inputs, outputs, net.weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "decoder.onnx")
    return folder / "decoder.onnx"


@pytest.mark.parametrize("state", [{}, {"key": "new_key", "value": "new_value"}], ids=["handed on", "kept"])
def test_a_decoder_whose_lengths_are_computed_of_a_mask(tmp_path: Path, state: dict[str, str]) -> None:
    """A prompt, then tokens one after another, of two rows the second of which is shorter; its cache may be state."""
    import onnxruntime

    path = decoder(tmp_path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    cache = np.zeros((2, 2, 0, 16), np.float32)
    feeds, mask = {"key": cache, "value": cache}, np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    with parax.compile(path, state=state or None).session() as session:
        for tokens_given in (4, 1, 1, 1):
            if tokens_given == 1:
                mask = np.concatenate([np.ones((2, 1), np.int64), mask], 1)
            feeds |= {"x": RNG.normal(0, 1, (2, tokens_given, 32)).astype(np.float32), "mask": mask}
            wanted = dict(zip(("y", "new_key", "new_value"), theirs.run(None, feeds), strict=True))
            found = session.run({name: array for name, array in feeds.items() if name not in state})
            assert found.keys() == wanted.keys() - set(state.values())
            for name, array in found.items():
                np.testing.assert_allclose(array, wanted[name], 1e-4, 1e-5)
            feeds |= {"key": wanted["new_key"], "value": wanted["new_value"]}
