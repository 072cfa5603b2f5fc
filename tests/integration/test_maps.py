"""Maps: classifiers as scikit-learn's exporter ends them, and operators that read maps, against ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import parax
from commanding import run_here
from parax.errors import InvalidInput, InvalidModel

X = np.random.default_rng(0).normal(size=(37, 2)).astype(np.float32)
LABELS = {"classlabels_int64s": [7, 2, 5]}, {"classlabels_strings": ["no", "Yes", "ä"]}


def classifier(labels: dict[str, Any], folder: Path) -> Path:
    """LinearClassifier, Normalizer and ZipMap, as skl2onnx makes them of a logistic regression."""
    linear = {"classlabels_ints" if name == "classlabels_int64s" else name: value for name, value in labels.items()}
    nodes = [
        helper.make_node("LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", multi_class=1, **linear,
                         coefficients=[1.0, -1.0, 0.5, 2.0, -3.0, 0.25], intercepts=[0.1, 0.2, -0.3],
                         post_transform="LOGISTIC"),
        helper.make_node("Normalizer", ["scores"], ["shares"], domain="ai.onnx.ml", norm="L1"),
        helper.make_node("ZipMap", ["shares"], ["maps"], domain="ai.onnx.ml", **labels),
    ]  # fmt: skip
    key = TensorProto.INT64 if "classlabels_int64s" in labels else TensorProto.STRING
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(
        key, helper.make_tensor_type_proto(TensorProto.FLOAT, None)))  # fmt: skip
    results = [helper.make_tensor_value_info("label", key, [None]), helper.make_value_info("maps", maps)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])
    return saved(helper.make_graph(nodes, "g", [x], results), folder)


def saved(graph: onnx.GraphProto, folder: Path) -> Path:
    opsets = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "m.onnx")
    return folder / "m.onnx"


def command(*arguments: object) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of `parax …`."""
    done = run_here("main", [str(argument) for argument in arguments])
    return done.returncode, done.stdout, done.stderr


def assert_maps(found: Any, wanted: Any) -> None:
    assert [list(each) for each in found] == [list(each) for each in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert all(type(value) is float for value in ours.values())
        np.testing.assert_allclose(list(ours.values()), list(theirs.values()), rtol=1e-5)


@pytest.mark.parametrize("labels", LABELS, ids=["integers", "strings"])
@pytest.mark.parametrize("arrangement", [{}, {"instances": 2}, {"cores_per_instance": 2}], ids=str)
def test_a_classifier_ends_in_maps(labels: dict[str, Any], arrangement: dict[str, int], tmp_path: Path) -> None:
    path = classifier(labels, tmp_path)
    theirs = onnxruntime.InferenceSession(path)
    parax.compile(path).save(tmp_path / "plan.bin")
    plan = parax.load(tmp_path / "plan.bin")
    assert plan.outputs[1].dtype == f"seq(map({'str' if 'classlabels_strings' in labels else 'i64'},f32))"
    with plan.session(**arrangement) as session:
        for n in (1, 37, 0):
            label, maps = theirs.run(None, {"x": X[:n]})
            for found in (session.run({"x": X[:n]}), session.submit({"x": X[:n]}).result()):
                assert found["label"].tolist() == label.tolist()
                assert_maps(found["maps"], maps)
        assert list(session.run(["maps"], {"x": X[:1]})) == ["maps"]


def test_only_maps_are_made_in_python(tmp_path: Path) -> None:
    plan = parax.compile(classifier(LABELS[0], tmp_path))
    assert [getattr(step, "op", "native") for step in plan.manifest.steps] == ["native", "ZipMap"]


def test_verbs_show_maps(tmp_path: Path) -> None:
    path = classifier(LABELS[1], tmp_path)
    written = [f"maps=@{tmp_path / 'maps.json'}", f"label=@{tmp_path / 'label.npy'}"]
    code, out, _ = command("run", path, "--input", "x=[[1, 2]]", *(a for w in written for a in ("--output", w)))
    assert code == 0 and "'Yes':" in out
    assert list(json.loads((tmp_path / "maps.json").read_text())[0]) == ["Yes", "no", "ä"]
    code, out, _ = command("run", path, "--input", "x=[[1, 2]]", *(a for w in written for a in ("--expect", w)))
    assert code == 0 and out.count("same") == 2
    code, out, _ = command("run", path, "--input", "x=[[2, 2]]", "--expect", written[0])
    assert code == 5 and "DIFFERS" in out
    code, _, err = command("run", path, "--output", f"maps=@{tmp_path / 'maps.npy'}")
    assert code != 0 and "JSON" in err
    code, out, _ = command("verify", path)
    assert code == 0 and "maps" in out
    assert "seq(map(string,tensor(float)))" in command("inspect", path)[1]


def of_map(op: str, key: int, value: int, attrs: dict[str, Any], folder: Path) -> Path:
    given = helper.make_value_info("x", helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, [])))
    node = helper.make_node(op, ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    return saved(helper.make_graph([node], "g", [given], [helper.make_empty_tensor_value_info("y")]), folder)


I64, STR, F32, F64 = TensorProto.INT64, TensorProto.STRING, TensorProto.FLOAT, TensorProto.DOUBLE
NUMBERS = {5: 1.5, 2: -3.7, 0: 1e20, 9: 0.1, 3: float("nan"), 4: float("inf"), 7: -0.0, 8: 123456789.0}


@pytest.mark.parametrize("op, key, value, attrs, given", [
    *(("CastMap", I64, F32, {"cast_to": to, **form}, NUMBERS) for to in ("TO_FLOAT", "TO_STRING", "TO_INT64")
      for form in ({"map_form": "DENSE"}, {"map_form": "SPARSE", "max_map": 6}, {})),
    ("CastMap", I64, F32, {"map_form": "DENSE"}, {-4: 1.0, 7: 2.0}),
    ("DictVectorizer", STR, F32, {"string_vocabulary": ["z", "a", "b", "a"]}, {"a": 1.5, "q": 2.0}),
    ("DictVectorizer", I64, F32, {"int64_vocabulary": [3, 1, 2]}, {2: 1.5}),
])  # fmt: skip
def test_maps_as_inputs(op: str, key: int, value: int, attrs: dict[str, Any], given: Any, tmp_path: Path) -> None:
    path = of_map(op, key, value, attrs, tmp_path)
    (wanted,) = onnxruntime.InferenceSession(path).run(None, {"x": given})
    with parax.compile(path).session() as session:
        found = session.run({"x": given})["y"]
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert [str(v) for v in found.ravel()] == [str(v) for v in wanted.ravel()]


@pytest.mark.parametrize("op, key, value, attrs, given, wanted", [
    ("CastMap", I64, STR, {"cast_to": "TO_FLOAT", "map_form": "DENSE"}, {3: " 2.5", 1: "1e3"}, [[1000.0, 2.5]]),
    ("CastMap", I64, STR, {"cast_to": "TO_INT64", "map_form": "DENSE"}, {3: "25", 1: "-3"}, [[-3, 25]]),
    ("CastMap", I64, STR, {"cast_to": "TO_STRING", "map_form": "SPARSE", "max_map": 2}, {1: "x"}, [["0.f", "x"]]),
    ("CastMap", I64, F32, {"map_form": "DENSE"}, {}, [[]]),
    ("DictVectorizer", STR, I64, {"string_vocabulary": ["z", "a"]}, {"a": 7}, [[0, 7]]),
    ("DictVectorizer", STR, F64, {"string_vocabulary": ["z", "a"]}, {"a": 0.1}, [[0.0, 0.1]]),
    ("DictVectorizer", I64, F64, {"int64_vocabulary": [4, 1]}, {4: 0.1}, [[0.1, 0.0]]),
    ("DictVectorizer", I64, STR, {"int64_vocabulary": [4, 1]}, {4: "x"}, [["x", ""]]),
    ("DictVectorizer", I64, STR, {"int64_vocabulary": [4, 1]}, {}, [["", ""]]),
])  # fmt: skip
def test_maps_that_onnx_runtime_does_not_take_from_python(
    op: str, key: int, value: int, attrs: dict[str, Any], given: Any, wanted: Any, tmp_path: Path
) -> None:
    path = of_map(op, key, value, attrs, tmp_path)
    with parax.compile(path).session() as session:
        assert session.run({"x": given})["y"].tolist() == wanted
    assert command("run", path, "--input", f"x={json.dumps({str(k): v for k, v in given.items()})}")[0] == 0


@pytest.mark.parametrize("attrs, given, match", [
    ({"map_form": "SPARSE", "max_map": 3}, {-1: 1.0}, "no column"),
    ({"map_form": "DENSE"}, {"1": 1.0}, "a key"),
    ({"map_form": "DENSE"}, [1.0], "a dict of i64 to f32"),
])  # fmt: skip
def test_maps_that_are_refused(attrs: dict[str, Any], given: Any, match: str, tmp_path: Path) -> None:
    plan = parax.compile(of_map("CastMap", I64, F32, attrs, tmp_path))
    with plan.session() as session, pytest.raises(InvalidInput, match=match):
        session.run({"x": given})


@pytest.mark.parametrize("op, attrs, match", [
    ("CastMap", {"cast_to": "TO_BOOL"}, "cast_to"),
    ("CastMap", {"map_form": "LOOSE"}, "map_form"),
    ("CastMap", {"map_form": "SPARSE", "max_map": 0}, "positive"),
    ("DictVectorizer", {}, "vocabulary"),
    ("DictVectorizer", {"int64_vocabulary": [1], "string_vocabulary": ["a"]}, "vocabulary"),
    ("DictVectorizer", {"string_vocabulary": ["a"]}, "wrong type"),
])  # fmt: skip
def test_attributes_that_are_refused(op: str, attrs: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=match):
        parax.compile(of_map(op, I64, F32, attrs, tmp_path))


@pytest.mark.parametrize("attrs, shape, match", [
    ({}, [2, 3], "name the classes"),
    ({"classlabels_int64s": [1, 2, 3], "classlabels_strings": ["a", "b", "c"]}, [2, 3], "name the classes"),
    ({"classlabels_int64s": [1, 2, 1]}, [2, 3], "twice"),
    ({"classlabels_int64s": [1, 2]}, [2, 3], "as many scores"),
    ({"classlabels_int64s": [1, 2]}, [2, 2, 2], "rank"),
])  # fmt: skip
def test_labels_that_do_not_fit(attrs: dict[str, Any], shape: list[int], match: str, tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", F32, shape)
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    path = saved(helper.make_graph([node], "g", [x], [helper.make_empty_tensor_value_info("y")]), tmp_path)
    with pytest.raises(InvalidModel, match=match):
        parax.compile(path)


def test_one_row_of_scores_is_one_map(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", F32, [None])
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_strings=["b", "a"])
    path = saved(helper.make_graph([node], "g", [x], [helper.make_empty_tensor_value_info("y")]), tmp_path)
    with parax.compile(path).session() as session:
        assert session.run({"x": np.array([1.0, 2.0], np.float32)})["y"] == [{"a": 2.0, "b": 1.0}]
        with pytest.raises(InvalidInput):
            session.run({"x": np.zeros(3, np.float32)})
