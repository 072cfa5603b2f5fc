"""Tree ensembles against ONNX Runtime and onnx.reference, on random forests and on the real models."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from parax.compiler.frontend.importer import import_model
from parax.errors import InvalidInput, InvalidModel, UnsupportedOp
from parax.runtime.host_ops import HOST_OPS

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def forest(
    rng: np.random.Generator, n_trees: int, depth: int, n_features: int, prefix: str, n_ids: int, mode: str = MODES[0]
) -> dict[str, Any]:
    """Attributes of a random forest of full trees; leaves vote for one to three ids."""
    nodes: dict[str, list[Any]] = {
        f"nodes_{k}": []
        for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids", "hitrates",
                  "missing_value_tracks_true")
    }  # fmt: skip
    leaves: dict[str, list[Any]] = {f"{prefix}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(n_trees):
        for node in range(2 ** (depth + 1) - 1):
            leaf = node >= 2**depth - 1
            row = {
                "treeids": tree,
                "nodeids": node,
                "featureids": 0 if leaf else int(rng.integers(n_features)),
                "values": 0.0 if leaf else float(np.float32(rng.integers(-4, 5) / 2)),
                "modes": "LEAF" if leaf else mode,
                "truenodeids": 0 if leaf else 2 * node + 1,
                "falsenodeids": 0 if leaf else 2 * node + 2,
                "hitrates": 1.0,
                "missing_value_tracks_true": 0 if leaf else int(rng.integers(2)),
            }
            for key, value in row.items():
                nodes[f"nodes_{key}"].append(value)
            votes = rng.choice(n_ids, int(rng.integers(1, min(3, n_ids) + 1)), replace=False) if leaf else []
            for which in sorted(votes):
                for key, value in (("treeids", tree), ("nodeids", node), ("ids", int(which))):
                    leaves[f"{prefix}_{key}"].append(value)
                leaves[f"{prefix}_weights"].append(float(np.float32(rng.normal())))
    return {**nodes, **leaves}


def features(rng: np.random.Generator, n: int, n_features: int) -> np.ndarray:
    """Values that often hit a threshold exactly, and some that are missing."""
    x = (rng.integers(-5, 6, (n, n_features)) / 2).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


def onnx_runtime(op: str, x: np.ndarray, attrs: dict[str, Any], n_outputs: int, label: int = 7) -> list[Any]:
    outs = ["label", "scores"][-n_outputs:]
    kinds = [label, 1][-n_outputs:]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, ["x"], outs, domain="ai.onnx.ml", **attrs)],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [None, x.shape[1]])],
        [onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in zip(outs, kinds, strict=True)],
    )
    opsets = [onnx.helper.make_opsetid("ai.onnx.ml", 3), onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x}))


def ours(op: str, x: np.ndarray, attrs: dict[str, Any]) -> list[Any]:
    return HOST_OPS["ai.onnx.ml", op](attrs)([x])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("function", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regressor(seed: int, function: str) -> None:
    rng = np.random.default_rng(seed)
    mode = MODES[seed % len(MODES)]
    attrs = forest(rng, 5, 4, 6, "target", 1 + seed % 3, mode)
    attrs |= {"n_targets": 1 + seed % 3, "aggregate_function": function, "post_transform": "NONE"}
    if seed % 2:
        attrs["base_values"] = [0.5] * attrs["n_targets"]
    x = features(rng, 40, 6)
    if mode == "BRANCH_NEQ":  # ONNX Runtime sends a missing value to the true branch here, against the specification
        x = np.nan_to_num(x)
    expected = onnx_runtime("TreeEnsembleRegressor", x, attrs, 1)[0]
    np.testing.assert_allclose(ours("TreeEnsembleRegressor", x, attrs)[0], expected, rtol=1e-5, atol=1e-6)


TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]


@pytest.mark.parametrize(("transform", "n_classes", "seed"), list(itertools.product(TRANSFORMS, (3, 5), (0, 1))))
def test_classifier(transform: str, n_classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    attrs = forest(rng, 6, 3, 4, "class", n_classes)
    attrs |= {"classlabels_int64s": [10 + i for i in range(n_classes)], "post_transform": transform}
    if seed:
        attrs["base_values"] = [0.1 * i for i in range(n_classes)]
    x = features(rng, 40, 4)
    label, scores = onnx_runtime("TreeEnsembleClassifier", x, attrs, 2)
    found = ours("TreeEnsembleClassifier", x, attrs)
    np.testing.assert_allclose(found[1], scores, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[0], label)


def test_classifier_with_string_labels() -> None:
    rng = np.random.default_rng(3)
    attrs = forest(rng, 4, 3, 4, "class", 3)
    attrs |= {"classlabels_strings": ["a", "b", "c"], "post_transform": "SOFTMAX"}
    x = features(rng, 20, 4)
    label, scores = onnx_runtime("TreeEnsembleClassifier", x, attrs, 2, label=8)
    found = ours("TreeEnsembleClassifier", x, attrs)
    assert found[0].tolist() == list(label)
    np.testing.assert_allclose(found[1], scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_classifier_with_one_score_for_two_classes(transform: str) -> None:
    rng = np.random.default_rng(5)
    attrs = forest(rng, 4, 3, 4, "class", 1)
    attrs["class_weights"] = [abs(w) / 8 if transform == "NONE" else w for w in attrs["class_weights"]]
    attrs |= {"classlabels_int64s": [0, 1], "post_transform": transform}
    x = features(rng, 30, 4)
    label, scores = onnx_runtime("TreeEnsembleClassifier", x, attrs, 2)
    found = ours("TreeEnsembleClassifier", x, attrs)
    np.testing.assert_allclose(found[1], scores, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[0], label)


def test_what_is_refused() -> None:
    rng = np.random.default_rng(0)
    attrs = {**forest(rng, 2, 2, 4, "target", 1), "n_targets": 1}
    with pytest.raises(InvalidInput, match="too few features"):
        ours("TreeEnsembleRegressor", np.zeros((3, 1), np.float32), {**attrs, "nodes_featureids": [3] * 14})
    for wrong in ({"aggregate_function": "MEDIAN"}, {"post_transform": "CUBE"}, {"nodes_modes": ["BRANCH_MAYBE"] * 14}):
        with pytest.raises(UnsupportedOp):
            ours("TreeEnsembleRegressor", np.zeros((3, 4), np.float32), {**attrs, **wrong})


def test_one_row_without_a_batch_axis_and_doubles() -> None:
    rng = np.random.default_rng(1)
    attrs = {**forest(rng, 3, 3, 4, "target", 2), "n_targets": 2}
    x = features(rng, 1, 4)
    many = ours("TreeEnsembleRegressor", x, attrs)[0]
    for other in (x[0], x.astype(np.float64)):
        np.testing.assert_array_equal(ours("TreeEnsembleRegressor", other, attrs)[0], many)


STUMP: dict[str, Any] = {
    "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3, "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
}  # fmt: skip


def stump(prefix: str, **more: Any) -> dict[str, Any]:
    leaves = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 0], "weights": [1.0, 2.0]}
    return STUMP | {f"{prefix}_{key}": value for key, value in leaves.items()} | more


@pytest.mark.parametrize("function", ["SUM", "MIN", "MAX"])
def test_leaves_may_be_infinite_and_targets_without_votes_are_zero(function: str) -> None:
    attrs = stump("target", target_weights=[np.inf, -np.inf], n_targets=2, aggregate_function=function)
    found = ours("TreeEnsembleRegressor", np.array([[0.0], [1.0]], np.float32), attrs)[0]
    assert found.tolist() == [[np.inf, 0], [-np.inf, 0]]


@pytest.mark.parametrize("op, attrs, error, match", [
    ("TreeEnsembleRegressor", stump("target", nodes_falsenodeids=[0, 0, 0]), InvalidModel, "own ancestor"),
    ("TreeEnsembleRegressor", stump("target", base_values=[1.0, 2.0]), InvalidModel, "base_values"),
    ("TreeEnsembleClassifier", stump("class", classlabels_int64s=[7, 9, 11], base_values=[1.0]), InvalidModel,
     "base_values"),
    ("TreeEnsembleClassifier", stump("class", classlabels_strings=["a"]), UnsupportedOp, "one label"),
    ("TreeEnsembleClassifier", stump("class", classlabels_int64s=[7]), UnsupportedOp, "one label"),
])  # fmt: skip
def test_what_the_compiler_refuses(op: str, attrs: dict[str, Any], error: type[Exception], match: str) -> None:
    results = ["y"] if op == "TreeEnsembleRegressor" else ["y", "z"]
    graph = onnx.helper.make_graph([onnx.helper.make_node(op, ["x"], results, domain="ai.onnx.ml", **attrs)], "g",
                                   [onnx.helper.make_tensor_value_info("x", 1, [2, 1])],
                                   [onnx.helper.make_empty_tensor_value_info(name) for name in results])  # fmt: skip
    opsets = [onnx.helper.make_opsetid("ai.onnx.ml", 3), onnx.helper.make_opsetid("", 17)]
    with pytest.raises(error, match=match):
        import_model(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))
