"""Tree ensembles through their kernel against ONNX Runtime, and against a plain walk, on random forests."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

import parax
from backend.harness import op as operator
from backend.harness import run_node
from parax.compiler.frontend.importer import import_model
from parax.compiler.ir.ops import tree_lists, tree_nodes
from parax.compiler.ir.ops.tree_nodes import positions_of
from parax.compiler.ir.ops.tree_sums import compared_in
from parax.compiler.ir.ops.tree_walk import ROWS
from parax.compiler.ir.types import F32, F64
from parax.errors import InvalidInput, InvalidModel, UnsupportedOp
from sampling import thorough

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


def model(op: str, attrs: dict[str, Any], n_features: int | str, outs: list[str]) -> onnx.ModelProto:
    """One node, on rows of so many features."""
    attrs = {k: onnx.numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in attrs.items()}
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, ["x"], outs, domain="ai.onnx.ml", **attrs)],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, ["N", n_features])],
        [onnx.helper.make_empty_tensor_value_info(name) for name in outs],
    )
    opsets = [onnx.helper.make_opsetid("ai.onnx.ml", 3), onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def onnx_runtime(op: str, x: np.ndarray, attrs: dict[str, Any], n_outputs: int, label: int = 7) -> list[Any]:
    outs = ["label", "scores"][-n_outputs:]
    kinds = [label, 1][-n_outputs:]
    made = model(op, attrs, x.shape[1], outs)
    for value, kind in zip(made.graph.output, kinds, strict=True):
        value.type.tensor_type.elem_type = kind
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x}))


def ours(op: str, x: np.ndarray, attrs: dict[str, Any], symbols: dict[str, int] | None = None) -> list[Any]:
    n_outputs = 1 if op == "TreeEnsembleRegressor" else 2
    return run_node(operator(op, "ai.onnx.ml", **attrs), [x], outputs=n_outputs, symbols=symbols)


def walked(x: np.ndarray, attrs: dict[str, Any], prefix: str) -> list[dict[int, list[float]]]:
    """Of each row, target → the weights that its leaves vote with, tree by tree: a plain walk over ONNX's lists."""
    numbers = {pair: i for i, pair in enumerate(zip(attrs["nodes_treeids"], attrs["nodes_nodeids"]))}
    votes: dict[int, list[tuple[int, float]]] = {}
    for tree, node, target, weight in zip(*(attrs[f"{prefix}_{k}"] for k in ("treeids", "nodeids", "ids", "weights"))):
        votes.setdefault(numbers[tree, node], []).append((target, weight))
    found: list[dict[int, list[float]]] = []
    for row in x:
        found.append({})
        for tree in sorted(set(attrs["nodes_treeids"])):
            at = attrs["nodes_treeids"].index(tree)
            while attrs["nodes_modes"][at] != "LEAF":
                value = row[attrs["nodes_featureids"][at]]
                taken = (attrs["nodes_missing_value_tracks_true"][at] if np.isnan(value)
                         else TESTS[attrs["nodes_modes"][at]](value, np.float32(attrs["nodes_values"][at])))
                at = numbers[tree, attrs[f"nodes_{'true' if taken else 'false'}nodeids"][at]]
            for target, weight in votes.get(at, []):
                found[-1].setdefault(target, []).append(weight)
    return found


TESTS = dict(zip(MODES, (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)))
AGGREGATES = {"SUM": sum, "MIN": min, "MAX": max}


@thorough(25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(0, 5), st.sampled_from((1, 7, 15, 16, 33, ROWS + 9)),
       st.integers(1, 3), st.sampled_from(sorted(AGGREGATES)), st.sampled_from((np.float32, np.float64)))  # fmt: skip
def test_a_plain_walk_agrees(
    seed: int, n_trees: int, depth: int, n_rows: int, n_targets: int, function: str, dtype: type
) -> None:
    """Every node its own mode; sizes around the walks side by side, the block of rows and the parts of the trees."""
    rng = np.random.default_rng(seed)
    attrs = forest(rng, n_trees, depth, 5, "target", n_targets)
    attrs["nodes_modes"] = [m if m == "LEAF" else str(rng.choice(MODES)) for m in attrs["nodes_modes"]]
    attrs |= {"n_targets": n_targets, "aggregate_function": function}
    x = features(rng, n_rows, 5).astype(dtype)
    (found,) = ours("TreeEnsembleRegressor", x, attrs)
    wanted = np.zeros((n_rows, n_targets))
    for row, votes in enumerate(walked(x, attrs, "target")):
        for target, weights in votes.items():
            wanted[row, target] = AGGREGATES[function](weights)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_GT", None])
@pytest.mark.parametrize("apart", [1, 1800, 4000, 15000])
@pytest.mark.parametrize("missing", [0, 1])
def test_features_fit_a_node_whatever_their_number(apart: int, mode: str | None, dtype: type, missing: int) -> None:
    """With and without bits of a node's own, in one word with the step and in a word of their own."""
    rng = np.random.default_rng(apart)
    attrs = forest(rng, 3, 4, 5, "target", 1, mode or MODES[0])
    attrs["nodes_featureids"] = [f * apart for f in attrs["nodes_featureids"]]
    if not mode:
        attrs["nodes_modes"] = [m if m == "LEAF" else str(rng.choice(MODES)) for m in attrs["nodes_modes"]]
    if not missing:
        attrs["nodes_missing_value_tracks_true"] = [0] * len(attrs["nodes_treeids"])
    x = features(rng, 19, 4 * apart + 1).astype(dtype)
    wanted = [sum(votes[0]) for votes in walked(x, attrs, "target")]
    np.testing.assert_allclose(ours("TreeEnsembleRegressor", x, attrs)[0][:, 0], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_tree_whose_steps_need_a_word(dtype: type) -> None:
    rng, depth = np.random.default_rng(2), 17
    n_inner, n = 2**depth - 1, 2 ** (depth + 1) - 1
    inner, feature = np.arange(n) < n_inner, rng.integers(0, 5, n)
    threshold = rng.normal(size=n).astype(np.float32)
    leaves = np.arange(n_inner, n)
    attrs = {
        "nodes_treeids": [0] * n, "nodes_nodeids": range(n), "nodes_featureids": feature.tolist(),
        "nodes_modes": np.where(inner, "BRANCH_LEQ", "LEAF").tolist(), "nodes_values": threshold.tolist(),
        "nodes_truenodeids": (inner * (2 * np.arange(n) + 1)).tolist(),
        "nodes_falsenodeids": (inner * (2 * np.arange(n) + 2)).tolist(), "target_treeids": [0] * len(leaves),
        "target_nodeids": leaves.tolist(), "target_ids": [0] * len(leaves), "target_weights": leaves.tolist(),
    }  # fmt: skip
    x = rng.normal(size=(90, 5)).astype(np.float32)
    at = np.zeros(len(x), np.int64)
    for _ in range(depth):
        at = 2 * at + 1 + (x[np.arange(len(x)), feature[at]] > threshold[at])
    np.testing.assert_array_equal(ours("TreeEnsembleRegressor", x.astype(dtype), attrs)[0][:, 0], at)


def test_more_leaves_than_a_threshold_can_number_are_compared_in_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_nodes, "LEAF_BITS", 3)
    rng = np.random.default_rng(4)
    for depth in (3, 4):
        attrs = forest(rng, 1, depth, 5, "target", 1)
        x = features(rng, 40, 5)
        made = tree_lists.forest_of(operator("TreeEnsembleRegressor", "ai.onnx.ml", **attrs).lists("target"))
        assert compared_in(F32, made) == (F32 if depth == 3 else F64)
        wanted = [sum(votes[0]) for votes in walked(x, attrs, "target")]
        np.testing.assert_allclose(ours("TreeEnsembleRegressor", x, attrs)[0][:, 0], wanted, rtol=1e-5, atol=1e-5)


def test_a_walk_into_the_larger_branch_goes_straight_on() -> None:
    """Children lie side by side, in the order no, yes; what is below the larger one follows them. A chain."""
    yes, no = (np.array(a) for a in ([1, -1, 3, -1, 5, -1, -1], [2, -1, 4, -1, 6, -1, -1]))
    every = np.full(7, tree_nodes.LESS)
    votes = tree_nodes.Votes(np.array([1, 3, 5, 6]), np.zeros(4, int), np.arange(4.0))
    zeros = np.zeros(7, int)
    branches = tree_nodes.Branches(zeros, np.arange(7.0), every, yes, no, zeros > 0, zeros[:1])
    made = tree_nodes.flattened(branches, votes, pytest.fail)
    assert made.thresholds.tolist() == [0, 2, 1, 4, 3, 6, 5]
    assert made.steps.tolist() == [1, 2, 0, 2, 0, 0, 0]
    assert made.roots.tolist() == [0, 7] and made.weights.tolist() == [0, 1, 3, 2]


def test_a_row_has_the_same_bits_alone_and_among_others() -> None:
    rng = np.random.default_rng(9)
    attrs = {**forest(rng, 43, 5, 6, "target", 2), "n_targets": 2}
    x = features(rng, ROWS + 13, 6)
    (together,) = ours("TreeEnsembleRegressor", x, attrs, {"N": 0})
    for row in (0, 5, 8, ROWS - 1, ROWS, ROWS + 12):
        (alone,) = ours("TreeEnsembleRegressor", x[row : row + 1], attrs, {"N": 0})
        np.testing.assert_array_equal(alone[0], together[row])


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


def test_classifier_with_string_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    attrs = forest(rng, 4, 3, 4, "class", 3)
    attrs |= {"classlabels_strings": ["a", "b", "c"], "post_transform": "SOFTMAX"}
    x = features(rng, 20, 4)
    label, scores = onnx_runtime("TreeEnsembleClassifier", x, attrs, 2, label=8)
    onnx.save(model("TreeEnsembleClassifier", attrs, 4, ["label", "scores"]), tmp_path / "m.onnx")
    with parax.compile(tmp_path / "m.onnx").session() as session:
        found = session.run({"x": x})
    assert found["label"].tolist() == list(label)
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [True, False])
def test_classifier_with_one_score_for_two_classes(transform: str, positive: bool) -> None:
    rng = np.random.default_rng(5)
    attrs = forest(rng, 4, 3, 4, "class", 1)
    if positive and transform == "NONE":  # ONNX Runtime labels by s > 0.5 where LOGISTIC follows, too
        attrs["class_weights"] = [abs(w) / 8 for w in attrs["class_weights"]]
    attrs |= {"classlabels_int64s": [0, 1], "post_transform": transform}
    x = features(rng, 30, 4)
    label, scores = onnx_runtime("TreeEnsembleClassifier", x, attrs, 2)
    found = ours("TreeEnsembleClassifier", x, attrs)
    np.testing.assert_allclose(found[1], scores, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[0], label)


def test_too_few_features_of_an_open_number(tmp_path: Path) -> None:
    made = model("TreeEnsembleRegressor", stump("target", nodes_featureids=[3] * 3), "F", ["y"])
    onnx.save(made, tmp_path / "m.onnx")
    with parax.compile(tmp_path / "m.onnx").session() as session:
        assert session.run({"x": np.zeros((2, 4), np.float32)})["y"].tolist() == [[1], [1]]
        with pytest.raises(InvalidInput, match="too few features"):
            session.run({"x": np.zeros((2, 3), np.float32)})


def test_thresholds_of_doubles_are_compared_as_such() -> None:
    between = np.nextafter(np.float32(0.5), np.float32(1)).astype(np.float64) - 1e-12
    attrs = {**stump("target"), "nodes_values_as_tensor": np.array([between, 0, 0])}
    del attrs["nodes_values"]
    x = np.array([[0.5], [np.nextafter(np.float32(0.5), np.float32(1))]], np.float32)
    assert ours("TreeEnsembleRegressor", x, attrs)[0].tolist() == [[1], [2]]


def test_a_node_may_lead_to_one_child_in_any_case() -> None:
    attrs = stump("target", nodes_falsenodeids=[1, 0, 0])
    assert ours("TreeEnsembleRegressor", np.array([[0.0], [1.0]], np.float32), attrs)[0].tolist() == [[1], [1]]


@pytest.mark.parametrize("mode", MODES)
def test_thresholds_that_are_no_numbers(mode: str) -> None:
    attrs = stump("target", nodes_values=[np.nan, 0.0, 0.0], nodes_modes=[mode, "LEAF", "LEAF"])
    found = ours("TreeEnsembleRegressor", np.array([[0.0], [np.inf], [np.nan]], np.float32), attrs)[0]
    assert found.ravel().tolist() == ([1, 1, 2] if mode == "BRANCH_NEQ" else [2, 2, 2])


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
    ("TreeEnsembleRegressor", stump("target", nodes_featureids=[3] * 3), InvalidModel, "too few features"),
    ("TreeEnsembleRegressor", stump("target", aggregate_function="MEDIAN"), InvalidModel, "aggregate_function"),
    ("TreeEnsembleRegressor", stump("target", post_transform="CUBE"), InvalidModel, "post_transform"),
    ("TreeEnsembleRegressor", stump("target", nodes_modes=["BRANCH_MAYBE"] * 3), InvalidModel, "unknown mode"),
    ("TreeEnsembleRegressor", stump("target", nodes_falsenodeids=[1, 1, 0], nodes_modes=["BRANCH_LT"] * 2 + ["LEAF"]),
     InvalidModel, "two parents"),
    ("TreeEnsembleRegressor", stump("target", target_ids=[0, 1]), InvalidModel, "votes"),
    ("TreeEnsembleRegressor", stump("target", target_weights=[1.0]), InvalidModel, "different lengths"),
    ("TreeEnsembleRegressor", stump("target", target_nodeids=[1, 5]), InvalidModel, "leaf is no node"),
    ("TreeEnsembleRegressor", stump("target", nodes_truenodeids=[9, 0, 0]), InvalidModel, "child is no node"),
    ("TreeEnsembleRegressor", stump("target", nodes_nodeids=[0, 1, 1]), InvalidModel, "two nodes"),
    ("TreeEnsembleRegressor", stump("target", target_weights=[np.nan, 1.0], aggregate_function="MIN"), UnsupportedOp,
     "NaN"),
    ("TreeEnsembleClassifier", stump("class", classlabels_strings=["a"]), UnsupportedOp, "one label"),
    ("TreeEnsembleClassifier", stump("class", classlabels_int64s=[7]), UnsupportedOp, "one label"),
])  # fmt: skip
def test_what_the_compiler_refuses(op: str, attrs: dict[str, Any], error: type[Exception], match: str) -> None:
    results = ["y"] if op == "TreeEnsembleRegressor" else ["y", "z"]
    with pytest.raises(error, match=match):
        import_model(model(op, attrs, 1, results))


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-9, 9) | st.integers(-(2**63), 2**63 - 1)), min_size=1,
                unique=True))  # fmt: skip
def test_nodes_are_found_by_their_numbers(keys: list[tuple[int, int]]) -> None:
    """Whether the numbers are dense or far apart."""
    trees, nodes = zip(*keys, strict=True)
    asked = [*keys, (0, 0), (5, 1), (min(trees), max(nodes)), (1, 2**63 - 1)]
    found = positions_of(trees, nodes, pytest.fail)(*zip(*asked, strict=True))
    assert found.tolist() == [keys.index(key) if key in keys else -1 for key in asked]
