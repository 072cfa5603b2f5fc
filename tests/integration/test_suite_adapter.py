"""The adapter for conformance runners: order of outputs, omitted inputs, and errors that keep their kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import parax
from benchmarks.suite_adapter import load, run


def _save(path: Path, nodes: list[onnx.NodeProto], outputs: list[str], **weights: np.ndarray) -> str:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", *outputs)]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "adapter", info[:1], info[1:], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("nowhere", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return str(path)


def test_outputs_come_in_the_order_of_the_graph(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["minus"]), helper.make_node("Add", ["x", "one"], ["more"])]
    path = _save(tmp_path / "m.onnx", nodes, ["more", "minus"], one=np.ones(1, np.float32))
    more, minus = run(path, [np.array([1, 2], np.float32)])
    np.testing.assert_array_equal(more, [2, 3])
    np.testing.assert_array_equal(minus, [-1, -2])


def test_an_omitted_required_input_is_named(tmp_path: Path) -> None:
    path = _save(tmp_path / "m.onnx", [helper.make_node("Neg", ["x"], ["y"])], ["y"])
    with pytest.raises(parax.InvalidInput, match="x"):
        run(path, [None])


def test_too_many_inputs_are_refused(tmp_path: Path) -> None:
    path = _save(tmp_path / "m.onnx", [helper.make_node("Neg", ["x"], ["y"])], ["y"])
    with pytest.raises(parax.InvalidInput, match="too many inputs"):
        run(path, [np.ones(1, np.float32)] * 2)


def test_unknown_operators_stay_unsupported(tmp_path: Path) -> None:
    path = _save(tmp_path / "m.onnx", [helper.make_node("Strange", ["x"], ["y"], domain="nowhere")], ["y"])
    for call in (lambda: run(path, [np.ones(1, np.float32)]), lambda: load(path)):
        with pytest.raises(parax.UnsupportedOp, match="Strange"):
            call()


def test_garbage_is_an_invalid_model(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\xff\x00 no protobuf")
    with pytest.raises(parax.InvalidModel):
        run(str(tmp_path / "m.onnx"), [])
