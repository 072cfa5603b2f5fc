"""Small networks for pictures that the benchmarks of training train from scratch."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def convolutions(
    channels: int, widths: tuple[int, ...], size: int, classes: int, seed: int = 0
) -> onnx.ModelProto:
    """x f32[N, C, size, size] → 3×3 Conv and Relu each, 2×2 MaxPool behind each, mean of the places, Gemm: scores.

    Args:
        channels: of the picture. widths: channels behind each convolution. classes: of the scores. seed: of the
            weights, drawn as He et al., 2015.
    """
    rng, nodes, arrays, last = np.random.default_rng(seed), [], {}, "x"
    for i, (before, width) in enumerate(zip((channels, *widths), widths), 1):
        arrays[f"conv{i}.weight"] = rng.standard_normal((width, before, 3, 3)) * np.sqrt(2 / (9 * before))
        arrays[f"conv{i}.bias"] = np.zeros(width)
        operands = [last, f"conv{i}.weight", f"conv{i}.bias"]
        nodes += [
            helper.make_node("Conv", operands, [f"c{i}"], pads=[1] * 4),
            helper.make_node("Relu", [f"c{i}"], [f"r{i}"]),
            helper.make_node("MaxPool", [f"r{i}"], [f"p{i}"], kernel_shape=[2, 2], strides=[2, 2]),
        ]
        last = f"p{i}"
    arrays["head.weight"] = rng.standard_normal((classes, widths[-1])) * np.sqrt(1 / widths[-1])
    arrays["head.bias"] = np.zeros(classes)
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["mean"]), helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Gemm", ["flat", "head.weight", "head.bias"], ["y"], transB=1),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "convolutions", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", channels, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", classes])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
