"""Losses in whole models: labels that no class has, and the gradient that training starts from."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import parax
from parax.errors import ParaxError

TRAINING = "ai.onnx.preview.training"


def session() -> parax.Session:
    """SoftmaxCrossEntropyLoss of f32[N,5] scores, and its gradient."""
    nodes = [helper.make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["loss"], ignore_index=-100),
             helper.make_node("Gradient", ["x", "labels"], ["dx"], domain=TRAINING, xs=["x"], zs=["labels"], y="loss")]
    graph = helper.make_graph(
        nodes, "loss",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 5]),
         helper.make_tensor_value_info("labels", TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info("loss", TensorProto.FLOAT, []),
         helper.make_tensor_value_info("dx", TensorProto.FLOAT, ["N", 5])],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(TRAINING, 1)]
    return parax.compile(helper.make_model(graph, opset_imports=imports, ir_version=9)).session()


def test_the_gradient_is_probabilities_less_labels() -> None:
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    labels = np.array([0, -100, 4, 2])
    found = session().run({"x": x, "labels": labels})
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    kept = labels >= 0
    expected = (p - np.eye(5)[np.maximum(labels, 0)]) * kept[:, None] / kept.sum()
    np.testing.assert_allclose(found["dx"], expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["loss"], -np.log(p[kept, labels[kept]]).mean(), rtol=1e-5)


@pytest.mark.parametrize("label", [5, -1, 1 << 40])
def test_labels_that_no_class_has(label: int) -> None:
    with session() as ours, pytest.raises(ParaxError):
        ours.run({"x": np.zeros((2, 5), np.float32), "labels": np.array([1, label])})
