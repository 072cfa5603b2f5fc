"""`benchmarks.training`: peers compute the models that are trained, who is compared, who is left out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from benchmarks.training import compared, near
from benchmarks.training_cases import with_classifier
from benchmarks.training_peers import present
from benchmarks.training_portable import write_portable
from examples.models import build, feeds
from parax.errors import UsageError

PICTURES = ("resnet18", "vgg16", "mobilenet-v2", "unet")


@pytest.mark.parametrize("name", [*PICTURES, "word-lm", "gnmt", "bert-base", "ncf"])
def test_jax_computes_the_model(name: str) -> None:
    jax = pytest.importorskip("jax")
    from benchmarks.training_jax import Model

    model = build(name, batch=3, small=True, options={"norm": "fused"} if name == "bert-base" else None)
    if name == "bert-base":
        model = with_classifier(model)
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":  # as frameworks train; ONNX then has the statistics as results
            node.attribute.append(helper.make_attribute("training_mode", 1))
            node.output.extend([f"{node.name}/mean", f"{node.name}/variance"])
    inputs = feeds(name, 3, small=True)
    wanted = _reference(model, inputs)
    own = Model(model.graph)
    placed = {key: own.placed(value) for key, value in inputs.items()}
    result, after = jax.jit(own.__call__)(own.weights, own.statistics, placed)
    result = np.asarray(result)
    if name == "unet":
        result = result.transpose(0, 3, 1, 2)
    if name == "ncf":
        result = 1 / (1 + np.exp(-result))
    np.testing.assert_allclose(result, wanted, rtol=2e-3, atol=2e-4 * np.abs(wanted).max())
    assert len(after) == 2 * sum(node.op_type == "BatchNormalization" for node in model.graph.node)
    assert all(not np.array_equal(after[key], own.statistics[key]) for key in after)


def _reference(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The first output; ONNX Runtime has no batch normalisation that trains, onnx's evaluator no rows' lengths."""
    if any(node.op_type == "BatchNormalization" for node in model.graph.node):
        (found,) = ReferenceEvaluator(model).run(None, inputs)
        return np.asarray(found)
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, inputs)[0])


def test_the_fastest_peer_is_the_one_compared_with() -> None:
    found = compared({"torch": [4.0, 4.0, 8.0], "jax": [3.0, 2.0, 2.0], "parax": [1.0, 1.0, 2.0]}, batch=8)
    assert found["peer"] == "jax" and found["ratio"] == 2.0 and found["rounds"] == [1.5, 2.5]
    assert found["rates"] == {"torch": 2.0, "jax": 4.0, "parax": 8.0}


def test_a_far_slower_peer_is_not_timed_further() -> None:
    assert near({"torch": 1.0, "jax": 4.5, "mxnet": 3.9, "parax": 9.0}, 4.0) == ["torch", "mxnet", "parax"]


def test_a_peer_that_is_not_there_is_left_out_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="no peer is installed"):
        present(["mxnet"], None)
    assert "without mxnet: give --mxnet PYTHON" in capsys.readouterr().err


def test_an_interpreter_without_mxnet_is_refused(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named mxnet' >&2; exit 1\n")
    python.chmod(0o755)
    with pytest.raises(UsageError, match="No module named mxnet"):
        present(["mxnet"], str(python))
    with pytest.raises(UsageError, match="cannot be started"):
        present(["mxnet"], str(tmp_path / "nothing"))


def test_a_training_is_written_for_another_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = type("Small", (), {"data": lambda self, name: {**feeds(name, 2, small=True), "labels": np.array([0, 1])},
                              "loss": None})()  # fmt: skip
    monkeypatch.setattr("benchmarks.training_portable.CASES", {"mobilenet-v2": case})
    model, path = build("mobilenet-v2", small=True), tmp_path / "training.npz"
    onnx.save(model, tmp_path / "model.onnx")
    write_portable(tmp_path / "model.onnx", "mobilenet-v2", path)
    with np.load(path) as filed:
        about = json.loads(str(filed["about"]))
        arrays = {key: filed[key] for key in filed.files}
    assert len(about["nodes"]) == sum(node.op_type != "Constant" for node in model.graph.node)
    assert not any("running" in key for key in about["trained"])
    assert set(np.float32([0.0, 6.0])) == {float(a) for a in arrays.values() if a.dtype == np.float32 and not a.ndim}
    for weight in model.graph.initializer:
        np.testing.assert_array_equal(arrays[f"weight:{weight.name}"], onnx.numpy_helper.to_array(weight))
    np.testing.assert_array_equal(arrays["data:labels"], [0, 1])
