"""Files that ONNX Runtime's quantisers make of an LSTM, of a fused BERT's first layer and of an embedding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import parax
from integration.test_contrib_models import Net, written

ort = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

RNG = np.random.default_rng(43)
F32, I32, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32, onnx.TensorProto.INT64


def saved(net: Net, inputs: dict[str, tuple[int, list[Any]]], y: str, path: Path) -> Path:
    """The net as a model of these inputs."""
    given = [helper.make_tensor_value_info(name, *form) for name, form in inputs.items()]
    graph = helper.make_graph(net.nodes, "net", given, [helper.make_tensor_value_info(y, F32, None)], net.weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def by_both(path: Path, feeds: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """What parax and ONNX Runtime make of the feeds."""
    with parax.compile(path).session() as session:
        (found,) = session.run(feeds).values()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return found, ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


@pytest.mark.parametrize("kind", ["QInt8", "QUInt8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_an_lstm_that_is_quantised_dynamically(tmp_path: Path, per_channel: bool, kind: str) -> None:
    """Two layers; parax's results are nearer to the model in f32 than ONNX Runtime's."""
    net = Net()
    first, second = ["x", 16], ["", 64]
    for layer in (first, second):
        weights = net.weight(2, 128, layer[1], scale=0.1), net.weight(2, 128, 32, scale=0.1), net.weight(2, 256)
        y = net.add("LSTM", layer[0], *weights, hidden_size=32, direction="bidirectional")
        second[0] = net.add("Reshape", net.add("Transpose", y, perm=[0, 2, 1, 3]), net.constant([0, 0, 64]))
    path, quantised = tmp_path / "lstm.onnx", tmp_path / "quantised.onnx"
    saved(net, {"x": (F32, ["S", "N", 16])}, second[0], path)
    quantization.quantize_dynamic(path, quantised, per_channel=per_channel,
                                  weight_type=getattr(quantization.QuantType, kind))  # fmt: skip
    assert written(quantised)["DynamicQuantizeLSTM"] == 2
    feeds = {"x": RNG.normal(0, 1, (9, 3, 16)).astype(np.float32)}
    found, wanted = by_both(quantised, feeds)
    np.testing.assert_allclose(found, wanted, 0, 0.03)
    whole = by_both(path, feeds)[1]
    assert np.abs(found - whole).mean() <= np.abs(wanted - whole).mean()


@pytest.mark.parametrize("kind", ["QInt8", "QUInt8"])
def test_the_first_layer_of_a_fused_bert_that_is_quantised_dynamically(tmp_path: Path, kind: str) -> None:
    net = Net()
    tables = [net.weight(n, 32, scale=0.1) for n in (50, 16, 2)]
    net.nodes.append(helper.make_node("EmbedLayerNormalization", ["ids", "kinds", *tables, net.weight(32, scale=1),
                                                                  net.weight(32, scale=0.1), "mask"],
                                      ["embedded", "lengths"], name="embed", domain="com.microsoft"))  # fmt: skip
    y = net.add("MatMul", "embedded", net.weight(32, 8))
    path, quantised = tmp_path / "bert.onnx", tmp_path / "quantised.onnx"
    saved(net, {name: (I32, ["N", "S"]) for name in ("ids", "kinds", "mask")}, y, path)
    quantization.quantize_dynamic(path, quantised, weight_type=getattr(quantization.QuantType, kind),
                                  extra_options={"DefaultTensorType": F32})  # fmt: skip
    assert written(quantised)["QEmbedLayerNormalization"] == 1
    feeds = {name: RNG.integers(0, n, (2, 7)).astype(np.int32) for name, n in (("ids", 50), ("kinds", 2), ("mask", 2))}
    found, wanted = by_both(quantised, feeds)
    np.testing.assert_allclose(found, wanted, 1e-3, 1e-3)


@pytest.mark.parametrize("symmetric", [False, True])
def test_an_embedding_of_4_bits(tmp_path: Path, symmetric: bool) -> None:
    tool = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    net = Net()
    y = net.add("Gather", net.weight(100, 64, scale=1), "ids")
    path = saved(net, {"ids": (I64, ["N", "S"])}, y, tmp_path / "embedding.onnx")
    what = {"op_types_to_quantize": ("MatMul", "Gather"), "quant_axes": (("Gather", 1),)}
    how = tool.DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=symmetric, bits=4, **what)
    quantizer = tool.MatMulNBitsQuantizer(onnx.load(path), algo_config=how)
    quantizer.process()
    onnx.save(quantizer.model.model, path)
    assert written(path)["GatherBlockQuantized"] == 1
    found, wanted = by_both(path, {"ids": RNG.integers(0, 100, (2, 7))})
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", [0, 1])
def test_a_product_by_floats_of_4_bits(tmp_path: Path, kind: int) -> None:
    tool = pytest.importorskip("onnxruntime.quantization.matmul_bnb4_quantizer")
    net = Net()
    y = net.add("MatMul", "x", net.weight(48, 20))
    path = saved(net, {"x": (F32, ["N", 48])}, y, tmp_path / "product.onnx")
    quantizer = tool.MatMulBnb4Quantizer(onnx.load(path), kind, 32)
    quantizer.process()
    onnx.save(quantizer.model.model, path)
    assert written(path)["MatMulBnb4"] == 1
    found, wanted = by_both(path, {"x": RNG.normal(0, 1, (5, 48)).astype(np.float32)})
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
