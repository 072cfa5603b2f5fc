"""Small models to train."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, HIDDEN, CLASSES = 6, 8, 3


def classifier(batch: int | str = "N") -> onnx.ModelProto:
    """x → Gemm → Relu → Gemm → Softmax; the second weight goes through a Transpose."""
    rng = np.random.default_rng(7)
    weights = {"w1": (WIDTH, HIDDEN), "b1": (HIDDEN,), "w2": (CLASSES, HIDDEN), "b2": (CLASSES,)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) / 2 for name, shape in weights.items()}
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Transpose", ["w2"], ["t2"], perm=[1, 0]),
        helper.make_node("Gemm", ["r", "t2", "b2"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, CLASSES])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def rows(seed: int, n: int) -> dict[str, np.ndarray]:
    """Random data for the classifier."""
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((n, WIDTH)).astype(np.float32), "labels": rng.integers(0, CLASSES, n)}
