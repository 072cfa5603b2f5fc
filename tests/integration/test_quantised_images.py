"""First layers of quantised models: few channels of bytes, which targets that add quads of them pad to whole ones."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax

STEP = 0.05


def model(channels: int, kernel: int, stride: int, pad: int, zero: np.ndarray) -> onnx.ModelProto:
    """QuantizeLinear of an image, and one convolution in QDQ."""
    rng = np.random.default_rng(channels * kernel + stride)
    arrays = {
        "s": np.float32(0.0173), "z": zero,
        "w": rng.integers(-127, 128, (24, channels, kernel, kernel)).astype(np.int8),
        "ws": rng.uniform(0.001, 0.01, 24).astype(np.float32), "wz": np.zeros(24, np.int8),
        "b": rng.standard_normal(24).astype(np.float32), "ys": np.float32(STEP), "yz": np.uint8(3),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["dw"], axis=0),
        helper.make_node("Conv", ["d", "dw", "b"], ["c"], pads=[pad, pad, 0, pad], strides=[stride] * 2),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["qy"]),
        helper.make_node("DequantizeLinear", ["qy", "ys", "yz"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", channels, 20, 17])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(a, name) for name, a in arrays.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("zero", [np.uint8(114), np.uint8(0), np.int8(-5)], ids=repr)
@pytest.mark.parametrize("channels, kernel, stride, pad", [
    (3, 7, 2, 3), (3, 3, 2, 1), (4, 3, 1, 1), (3, 3, 1, 0), (2, 5, 1, 2), (5, 3, 1, 1), (6, 1, 1, 0), (15, 3, 1, 1),
    (3, 1, 1, 0), (1, 7, 2, 3)])  # fmt: skip
def test_an_image(channels: int, kernel: int, stride: int, pad: int, zero: np.ndarray) -> None:
    made = model(channels, kernel, stride, pad, zero)
    x = np.random.default_rng(1).standard_normal((2, channels, 20, 17)).astype(np.float32)
    with parax.compile(made).session() as session:
        y = session.run({"x": x})["y"]
    peer = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    steps = abs(y - peer.run(None, {"x": x})[0]) / STEP
    assert steps.max() < 1.5 and (steps > 0.5).mean() < 5e-3  # sums between two steps: f32 rounds them elsewhere
