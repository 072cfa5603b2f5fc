"""Labels and categories of ai.onnx.ml that are strings, through whole plans, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import parax
from parax.errors import InvalidInput, InvalidModel

WORDS = np.array([["a"], ["b"], ["zz"]], object)
NUMBERS = np.array([0, 1, 5])


def run(op: str, x: np.ndarray, attrs: dict[str, Any], version: int, folder: Path, outs: tuple[str, ...]) -> list[Any]:
    """The results of a model of one node, compiled from a file."""
    kind = onnx.TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph([helper.make_node(op, ["x"], outs, domain="ai.onnx.ml", **attrs)], "g",
                              [helper.make_tensor_value_info("x", kind, ["N", *x.shape[1:]])],
                              [helper.make_empty_tensor_value_info(name) for name in outs])  # fmt: skip
    opsets = [helper.make_opsetid("ai.onnx.ml", version), helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "m.onnx")
    with parax.compile(folder / "m.onnx").session() as session:
        found = session.run({"x": x})
    return [found[name] for name in outs]


@pytest.mark.parametrize("op, version, x, attrs", [
    ("LabelEncoder", 2, WORDS, {"keys_strings": ["a", "zz"], "values_int64s": [4, 5]}),
    ("LabelEncoder", 2, WORDS, {"keys_strings": ["a", "zz"], "values_floats": [4.0, 5.0], "default_float": 0.5}),
    ("LabelEncoder", 2, WORDS, {"keys_strings": ["a", "zz"], "values_strings": ["x", "y"], "default_string": "?"}),
    ("LabelEncoder", 2, NUMBERS, {"keys_int64s": [1, 5], "values_strings": ["x", "y"]}),
    ("LabelEncoder", 1, WORDS, {"classes_strings": ["zz", "b"], "default_int64": -7}),
    ("LabelEncoder", 1, NUMBERS, {"classes_strings": ["zz", "b"]}),
    ("OneHotEncoder", 1, WORDS, {"cats_strings": ["zz", "a"]}),
    ("LinearClassifier", 1, np.array([[1.0, 2.0], [-1.0, 3.0]], np.float32),
     {"coefficients": [1.0, -1.0], "intercepts": [0.25], "classlabels_strings": ["no", "yes"],
      "post_transform": "LOGISTIC"}),
])  # fmt: skip
def test_onnx_runtime_agrees(op: str, version: int, x: np.ndarray, attrs: dict[str, Any], tmp_path: Path) -> None:
    outs = ("y", "z") if op == "LinearClassifier" else ("y",)
    found = run(op, x, attrs, version, tmp_path, outs)
    wanted = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == np.shape(theirs)
        if ours.dtype == np.float32:
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        else:
            assert ours.tolist() == np.asarray(theirs).tolist()


@pytest.mark.parametrize("x, attrs", [(NUMBERS, {"cats_int64s": [0, 1]}), (WORDS, {"cats_strings": ["a", "b"]})])
def test_what_is_no_category_is_an_error_without_zeros(x: np.ndarray, attrs: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="out of range"):
        run("OneHotEncoder", x, {**attrs, "zeros": 0}, 1, tmp_path, ("y",))


@pytest.mark.parametrize("op, attrs, match", [
    ("LabelEncoder", {"keys_int64s": [1, 1], "values_int64s": [1, 2]}, "twice"),
    ("LabelEncoder", {"keys_int64s": [1], "values_int64s": [1, 2]}, "as many"),
    ("LabelEncoder", {"keys_floats": [1.0], "values_int64s": [1]}, "element type"),
    ("LabelEncoder", {"keys_int64s": [1]}, "one list"),
    ("OneHotEncoder", {"cats_strings": ["a"]}, "categories"),
    ("OneHotEncoder", {"cats_int64s": [1, 1]}, "twice"),
])  # fmt: skip
def test_what_is_refused(op: str, attrs: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=match):
        run(op, NUMBERS, attrs, 2 if op == "LabelEncoder" else 1, tmp_path, ("y",))

