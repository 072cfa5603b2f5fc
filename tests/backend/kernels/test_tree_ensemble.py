"""TreeEnsemble of ai.onnx.ml 5 against a plain walk, and against ONNX Runtime where that takes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from backend.harness import op, run_node
from parax.errors import InvalidModel
from sampling import thorough

TESTS = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
MEMBER = len(TESTS)
NEQ = 5
AGGREGATES = (lambda votes, n: sum(votes) / n, lambda votes, n: sum(votes), lambda votes, n: min(votes),
              lambda votes, n: max(votes))  # fmt: skip
Attributes = dict[str, Any]


def random_trees(
    rng: np.random.Generator, n_trees: int, depth: int, n_targets: int, modes: list[int], dtype: type
) -> Attributes:
    """Trees of random forms, the modes of whose nodes are some of these; members in the order of their nodes."""
    lists: Attributes = {f"nodes_{k}": [] for k in (
        "featureids", "modes", "splits", "trueleafs", "truenodeids", "falseleafs", "falsenodeids",
        "missing_value_tracks_true")}  # fmt: skip
    leaves: list[tuple[int, float]] = []
    members: list[float] = []

    def grow(left: int) -> int:
        node = len(lists["nodes_modes"])
        mode = int(rng.choice(modes))
        for key, value in (("featureids", int(rng.integers(4))), ("modes", mode), ("splits", rng.integers(-4, 5) / 2),
                           ("missing_value_tracks_true", int(rng.integers(2)))):  # fmt: skip
            lists[f"nodes_{key}"].append(value)
        if mode == MEMBER:
            members.extend([*sorted({*(rng.integers(-4, 5, rng.integers(1, 5)) / 2).tolist()}), np.nan])
        for side in ("true", "false"):
            lists[f"nodes_{side}leafs"].append(0)
            lists[f"nodes_{side}nodeids"].append(0)
        for side in ("true", "false"):
            ends = left == 0 or rng.random() < 0.15
            lists[f"nodes_{side}leafs"][node] = int(ends)
            if ends:
                leaves.append((int(rng.integers(n_targets)), float(rng.normal())))
            lists[f"nodes_{side}nodeids"][node] = len(leaves) - 1 if ends else grow(left - 1)
        return node

    lists["tree_roots"] = [grow(depth) for _ in range(n_trees)]
    lists["nodes_modes"] = np.array(lists["nodes_modes"], np.uint8)
    lists["nodes_splits"] = np.array(lists["nodes_splits"], dtype)
    if members:
        lists["membership_values"] = np.array(members, dtype)
    return {**lists, "leaf_targetids": [t for t, _ in leaves], "leaf_weights": np.array([w for _, w in leaves], dtype),
            "n_targets": n_targets}  # fmt: skip


def walked(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Each row down each tree, node by node."""
    sets: list[set[float]] = [set()]
    for value in attrs.get("membership_values", ()):
        sets.append(set()) if np.isnan(value) else sets[-1].add(float(value))
    of_node = dict(zip(np.flatnonzero(attrs["nodes_modes"] == MEMBER).tolist(), sets))
    y = np.zeros((len(x), attrs["n_targets"]))
    for i, row in enumerate(x):
        votes: dict[int, list[float]] = {}
        for at in attrs["tree_roots"]:
            ends = False
            while not ends:
                value, mode = row[attrs["nodes_featureids"][at]], attrs["nodes_modes"][at]
                if np.isnan(value):
                    taken = bool(attrs["nodes_missing_value_tracks_true"][at])
                elif mode == MEMBER:
                    taken = float(value) in of_node[at]
                else:
                    taken = bool(TESTS[mode](value, attrs["nodes_splits"][at]))
                side = "true" if taken else "false"
                ends, at = attrs[f"nodes_{side}leafs"][at], attrs[f"nodes_{side}nodeids"][at]
            votes.setdefault(attrs["leaf_targetids"][at], []).append(float(attrs["leaf_weights"][at]))
        for target, own in votes.items():
            y[i, target] = AGGREGATES[attrs["aggregate_function"]](own, len(attrs["tree_roots"]))
    return y


def rows(rng: np.random.Generator, n: int, dtype: type) -> np.ndarray:
    return (rng.integers(-5, 6, (n, 4)) / 2).astype(dtype)


@thorough(20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(0, 4), st.integers(1, 3), st.integers(0, 3),
       st.sampled_from((np.float32, np.float64, np.float16)))  # fmt: skip
def test_a_plain_walk_agrees(
    seed: int, n_trees: int, depth: int, n_targets: int, aggregate: int, dtype: type
) -> None:
    rng = np.random.default_rng(seed)
    attrs = random_trees(rng, n_trees, depth, n_targets, list(range(7)), dtype)
    attrs["aggregate_function"] = aggregate
    x = rows(rng, 19, dtype)
    x[rng.random(x.shape) < 0.1] = np.nan
    (found,) = run_node(op("TreeEnsemble", "ai.onnx.ml", **attrs), [x])
    assert found.dtype == dtype
    tolerance = 2e-3 if dtype == np.float16 else 1e-5
    np.testing.assert_allclose(found, walked(attrs, x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("transform", range(4))  # PROBIT is of one score each: catalogue/cases_ml_models.py
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_onnx_runtime_agrees(transform: int, dtype: type) -> None:
    """It has SOFTMAX and LOGISTIC the other way round, and sends what is missing to the true branch of BRANCH_NEQ."""
    rng = np.random.default_rng(transform)
    attrs = random_trees(rng, 9, 4, 3, list(range(6)), dtype) | {"post_transform": transform, "aggregate_function": 1}
    x = rows(rng, 40, dtype)
    given_ = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in attrs.items()}
    given_["post_transform"] = (0, 2, 1, 3)[transform]
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph([helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **given_)], "g",
                              [helper.make_tensor_value_info("x", kind, [None, 4])],
                              [helper.make_tensor_value_info("y", kind, None)])  # fmt: skip
    opsets = [helper.make_opsetid("ai.onnx.ml", 5), helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = run_node(op("TreeEnsemble", "ai.onnx.ml", **attrs), [x])
    np.testing.assert_allclose(found, session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)


STUMP: Attributes = {
    "tree_roots": [0], "nodes_featureids": [0], "nodes_modes": np.zeros(1, np.uint8), "nodes_splits": np.zeros(1),
    "nodes_trueleafs": [1], "nodes_truenodeids": [0], "nodes_falseleafs": [1], "nodes_falsenodeids": [1],
    "leaf_targetids": [0, 0], "leaf_weights": np.array([1.0, 2.0]),
}  # fmt: skip


def test_both_sides_may_be_one_leaf() -> None:
    attrs = STUMP | {"nodes_falsenodeids": [0]}
    assert run_node(op("TreeEnsemble", "ai.onnx.ml", **attrs), [np.ones((2, 1))])[0].tolist() == [[1], [1]]


@pytest.mark.parametrize("wrong, match", [
    ({"nodes_falsenodeids": [2]}, "child"), ({"nodes_truenodeids": [-1]}, "child"), ({"tree_roots": [1]}, "tree_roots"),
    ({"tree_roots": []}, "tree_roots"), ({"nodes_modes": np.full(1, 7, np.uint8)}, "mode"),
    ({"nodes_modes": np.full(1, 6, np.uint8)}, "membership"), ({"leaf_targetids": [0, 1]}, "votes"),
    ({"membership_values": np.ones(2)}, "membership"), ({"leaf_targetids": [0]}, "leaf_weights"),
    ({"leaf_weights": np.ones(3)}, "leaf_weights"), ({"nodes_trueleafs": [0]}, "parents|ancestor|trees"),
    ({"aggregate_function": 4}, "aggregate_function"), ({"post_transform": -1}, "post_transform"),
    ({"tree_roots": [0, 0]}, "two trees"), ({"nodes_featureids": [-1]}, "features"),
    ({"nodes_featureids": [1]}, "too few features"), ({"nodes_missing_value_tracks_true": [1, 1]}, "missing"),
])  # fmt: skip
def test_what_is_refused(wrong: Attributes, match: str) -> None:
    with pytest.raises(InvalidModel, match=match):
        run_node(op("TreeEnsemble", "ai.onnx.ml", **(STUMP | wrong)), [np.ones((2, 1))])
