"""The onnx.backend interface."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

import parax

X = np.array([[-1.0, 2.0], [3.0, -4.0]], np.float32)


def model() -> object:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["not a python name"])],
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in ("y", "not a python name")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made


def test_prepare_then_run_by_order_by_name_and_alone() -> None:
    rep = parax.onnx_backend.prepare(model())
    for inputs in ([X], {"x": X}, X):
        y, negated = rep.run(inputs)
        np.testing.assert_array_equal(y, np.maximum(X, 0))
        np.testing.assert_array_equal(negated, -X)
    assert rep.run(X).y is not None
    with pytest.raises(parax.UsageError):
        rep.run([X, X])


def test_run_model_and_node() -> None:
    np.testing.assert_array_equal(parax.onnx_backend.run_model(model(), [X])[0], np.maximum(X, 0))
    (y,) = parax.onnx_backend.run_node(helper.make_node("Add", ["a", "b"], ["c"]), [X, X])
    np.testing.assert_array_equal(y, X + X)


def test_devices() -> None:
    assert parax.onnx_backend.supports_device("CPU")
    assert parax.onnx_backend.supports_device("CPU:0")
    assert not parax.onnx_backend.supports_device("CUDA")
    assert parax.onnx_backend.is_compatible(model())
    with pytest.raises(parax.UsageError):
        parax.onnx_backend.prepare(model(), "CUDA")


@pytest.mark.parametrize(
    "statement",
    ["import parax.onnx_backend as found", "from parax.onnx_backend import prepare\nimport parax.onnx_backend as found",
     "import parax\nfound = parax.onnx_backend", "from parax import onnx_backend as found"],
)  # fmt: skip
def test_every_way_to_import_it_gives_one_module(statement: str) -> None:
    script = f"{statement}\nimport parax, parax.compiler.onnx_backend as own\nassert found is own is parax.onnx_backend"
    subprocess.run([sys.executable, "-c", script], check=True, cwd="/")


def test_sessions_have_a_public_name() -> None:
    with parax.compile(model()).session(instances=1) as session:
        assert isinstance(session, parax.Session)
        np.testing.assert_array_equal(session.run({"x": X})["y"], np.maximum(X, 0))
    with parax.Session(parax.compile(model()), instances=1) as session:
        assert session.instances == 1
