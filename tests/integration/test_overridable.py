"""Initializers that are inputs too: constants unless asked otherwise, else inputs with a default."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax

W = np.arange(6, dtype=np.float32).reshape(2, 3)
X = np.ones((2, 2), np.float32)


def model(w_type: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """y = x w + b, w and b inputs with initializers."""
    make = helper.make_tensor_value_info
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])]
    inputs = [make("x", 1, ["N", 2]), make("w", w_type, [2, "K"]), make("b", 1, [3])]
    initializers = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(np.ones(3, np.float32), "b")]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_by_default_they_are_constants_and_the_error_says_how_to_change_that() -> None:
    plan = parax.compile(model())
    assert [spec.name for spec in plan.inputs] == ["x"]
    with plan.session(instances=1) as s:
        np.testing.assert_array_equal(s.run({"x": X})["y"], X @ W + 1)
        with pytest.raises(parax.InvalidInput, match="compile with --override w"):
            s.run({"x": X, "w": W})


def test_a_request_may_give_them_or_not(tmp_path: Path) -> None:
    parax.compile(model(), overridable=["w"]).save(tmp_path / "plan.bin")
    with parax.load(tmp_path / "plan.bin").session(instances=1) as s:
        for _ in range(2):
            np.testing.assert_array_equal(s.run({"x": X})["y"], X @ W + 1)
            np.testing.assert_array_equal(s.run({"x": X, "w": 10 * W})["y"], X @ (10 * W) + 1)
        with pytest.raises(parax.InvalidInput, match="do not fit together"):
            s.run({"x": X, "w": np.ones((2, 4), np.float32)})
        with pytest.raises(parax.InvalidInput, match="--override b"):
            s.run({"x": X, "b": np.zeros(3, np.float32)})


def test_what_is_no_such_initializer_is_refused() -> None:
    with pytest.raises(parax.UsageError, match="expected w, b"):
        parax.compile(model(), overridable=["x"])
    with pytest.raises(parax.InvalidModel, match="another type"):
        parax.compile(model(TensorProto.DOUBLE), overridable=["w"])
