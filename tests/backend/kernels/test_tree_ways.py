"""Ways through an ensemble: each gives the bits of plain walks; which is taken; what tops of trees are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Program, host_targets
from backend.harness import op as operator
from backend.kernels import test_tree_ensemble as lists_of_5
from backend.kernels.test_trees import MODES, features, forest, walked
from parax.compiler.backend.kernels.trees.ensemble import lower_walk_trees
from parax.compiler.backend.kernels.trees.tops import EXITS, GROUP, shape_of, tops_of
from parax.compiler.backend.lowering import Candidates, LowerContext, WeightStore
from parax.compiler.ir.graph import Graph, Node
from parax.compiler.ir.ops import tree_lists
from parax.compiler.ir.ops.base import Operator
from parax.compiler.ir.ops.tree_nodes import LESS, MISSING, unpacked
from parax.compiler.ir.ops.tree_walk import WalkTrees
from parax.compiler.ir.types import DType, TensorType
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

MIXED = "mixed"


class Chosen:
    """Takes a way by name, else the first; notes which there are."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.ways: list[str] = []

    def choose(self, ctx: LowerContext, node: Node, candidates: Candidates) -> str:
        self.ways = list(candidates)
        return self.name if self.name in candidates else self.ways[0]


def program(operator: Operator, x: np.ndarray, target: Target | None, chooser: Chosen) -> Program:
    graph = Graph("trees")
    value = graph.add_input("x", TensorType(DType.from_numpy(x.dtype), x.shape))
    graph.set_outputs(graph.add_node(operator, [value]).outputs)
    return Program(graph, target, chooser=chooser)


def by_every_way(operator: Operator, x: np.ndarray, target: Target | None = None) -> dict[str, np.ndarray]:
    """Its result by each of them."""
    found, names = {}, {"walks"}
    while names:
        name = names.pop()
        chooser = Chosen(name)
        (found[name],) = program(operator, x, target, chooser).run({"x": x}, {})
        names |= {*chooser.ways} - found.keys()
    return found


@thorough(30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(0, 7), st.sampled_from((1, 5, 16, 33, 64, 127, 346)),
       st.integers(1, 3), st.sampled_from(("SUM", "MIN", "MAX")), st.sampled_from((np.float32, np.float64)),
       st.sampled_from((*MODES, MIXED)), st.booleans(), st.sampled_from(host_targets()))  # fmt: skip
def test_every_way_gives_the_bits_of_plain_walks(
    seed: int, n_trees: int, depth: int, n_rows: int, n_targets: int, function: str, dtype: type, mode: str,
    missing: bool, target: Target,
) -> None:  # fmt: skip
    """Around the sizes of tiles, vectors and blocks; trees within and beyond what a mask has bits for."""
    rng = np.random.default_rng(seed)
    attrs = forest(rng, n_trees, depth, 21, "target", n_targets, MODES[0] if mode == MIXED else mode)
    if mode == MIXED:
        attrs["nodes_modes"] = [m if m == "LEAF" else str(rng.choice(MODES)) for m in attrs["nodes_modes"]]
    if not missing:
        attrs["nodes_missing_value_tracks_true"] = [0] * len(attrs["nodes_treeids"])
    x = features(rng, n_rows, 23).astype(dtype)
    attrs |= {"n_targets": n_targets, "aggregate_function": function}
    found = by_every_way(operator("TreeEnsembleRegressor", "ai.onnx.ml", **attrs), x, target)
    assert len(found) == (2 if depth else 1)
    for name, result in found.items():
        np.testing.assert_array_equal(result, found["walks"], name)
    of_first = [[w for t, w in votes.items() if t == 0] for votes in walked(x[:3], attrs, "target")]
    known = {"SUM": sum, "MIN": min, "MAX": max}[function]
    wanted = [known(weights[0]) if weights else 0 for weights in of_first]
    np.testing.assert_allclose(found["walks"][:3, 0], wanted, rtol=1e-4, atol=1e-4)


@thorough(15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(0, 6), st.sampled_from((np.float32, np.float64)),
       st.sampled_from(host_targets()))  # fmt: skip
def test_sets_of_members_end_a_top(seed: int, n_trees: int, depth: int, dtype: type, target: Target) -> None:
    """Trees of any form, some of whose nodes lead into another's branch."""
    rng = np.random.default_rng(seed)
    attrs = lists_of_5.random_trees(rng, n_trees, depth, 1, [0, 1, lists_of_5.MEMBER], dtype)
    x = lists_of_5.rows(rng, 77, dtype)
    x[rng.random(x.shape) < 0.1] = np.nan
    found = by_every_way(operator("TreeEnsemble", "ai.onnx.ml", **attrs), x, target)
    wanted = lists_of_5.walked(attrs | {"aggregate_function": 1}, x)
    for name, result in found.items():
        np.testing.assert_array_equal(result, found["walks"], name)
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


# -- which is taken ---------------------------------------------------------------------------------------------------
def ways(depth: int, n_features: int, n_targets: int = 1, target: Target = TARGETS["x86-64-v4"]) -> list[str]:
    rng = np.random.default_rng(depth)
    attrs = forest(rng, 10, depth, n_features, "target", 1) | {"n_targets": n_targets}
    one = {f"target_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}
    seen: set[tuple[int, int]] = set()
    for row in zip(*(attrs[key] for key in one), strict=True):
        if row[:2] not in seen:
            seen.add(row[:2])
            for key, value in zip(one, row, strict=True):
                one[key].append(value)
    attrs["nodes_featureids"] = [n_features - 1 if m != "LEAF" else 0 for m in attrs["nodes_modes"]]
    attrs["nodes_missing_value_tracks_true"] = [0] * len(attrs["nodes_treeids"])
    chooser = Chosen()
    program(operator("TreeEnsembleRegressor", "ai.onnx.ml", **(attrs | one)),
            np.zeros((300, n_features), np.float32), target, chooser)  # fmt: skip
    return chooser.ways


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_small_trees_are_compared_whole(target: Target) -> None:
    assert ways(3, 8, target=target) == ["bit-vectors", "walks"]


def test_large_trees_are_walked_from_exits() -> None:
    assert ways(9, 8) == ["tops", "walks"]


def test_votes_for_several_targets_are_added_row_by_row() -> None:
    assert ways(3, 8, n_targets=2) == ["tops", "walks"]


def test_rows_that_no_cache_holds_are_walked() -> None:
    assert ways(4, 513) == ["walks"]


def test_trees_of_a_leaf_are_walked() -> None:
    assert ways(0, 1) == ["walks"]


def test_nodes_that_only_a_run_knows_are_walked() -> None:
    graph = Graph("trees")
    kinds: list[tuple[Any, tuple[int, ...]]] = [
        (np.float32, (3, 2)), (np.int32, (6,)), (np.int32, (2,)), (np.int32, (3,)), (np.int32, (2,)), (np.float32, (2,))
    ]
    inputs = [graph.add_input(f"x{i}", TensorType(DType.from_numpy(np.dtype(t)), s)) for i, (t, s) in enumerate(kinds)]
    walk = WalkTrees(kind="SUM", n_targets=1, trees_per_part=1, test=LESS, missing=0, one_vote=1, short=1, features=1,
                     depth=1)  # fmt: skip
    call = lower_walk_trees(LowerContext(TARGETS["x86-64-v4"], (), WeightStore()), graph.add_node(walk, inputs))
    assert call.func.name.startswith("walk_trees")


# -- tops -------------------------------------------------------------------------------------------------------------
def made(attrs: dict[str, Any]) -> Any:
    return tree_lists.forest_of(operator("TreeEnsembleRegressor", "ai.onnx.ml", **attrs).lists("target"))


@thorough(40)
@given(st.integers(0, 10**6), st.integers(0, 5), st.sampled_from((np.float32, np.float64)), st.booleans(),
       st.sampled_from((*MODES, MIXED)), st.sampled_from((1, 4000, 15000)))  # fmt: skip
def test_unpacked_nodes_are_what_was_packed(
    seed: int, depth: int, dtype: type[np.floating], missing: bool, mode: str, apart: int
) -> None:
    rng = np.random.default_rng(seed)
    attrs = forest(rng, 4, depth, 5, "target", 1, MODES[0] if mode == MIXED else mode)
    attrs["nodes_featureids"] = [f * apart for f in attrs["nodes_featureids"]]
    if mode == MIXED:
        attrs["nodes_modes"] = [m if m == "LEAF" else str(rng.choice(MODES)) for m in attrs["nodes_modes"]]
    if not missing:
        attrs["nodes_missing_value_tracks_true"] = [0] * len(attrs["nodes_treeids"])
    forest_ = made(attrs)
    found = unpacked(forest_.packed(dtype), dtype, *forest_.tests)
    inner = forest_.steps != 0
    np.testing.assert_array_equal(found.steps, forest_.steps)
    np.testing.assert_array_equal(found.leaves, forest_.leaves)
    for name in ("features", "bits", "thresholds"):
        np.testing.assert_array_equal(getattr(found, name)[inner], getattr(forest_, name)[inner], name)


@thorough(40)
@given(st.integers(0, 10**6), st.integers(0, 8), st.sampled_from((0.0, 0.1, 0.3)))
def test_a_row_that_fails_any_tests_has_the_exit_that_it_walks_to(seed: int, depth: int, least_share: float) -> None:
    """Tests are drawn, not made of features: every way through a top."""
    rng = np.random.default_rng(seed)
    forest_ = made(forest(rng, 3, depth, 5, "target", 1))
    nodes = unpacked(forest_.packed(np.float32), np.float32, *forest_.tests)
    shape = shape_of(nodes, forest_.roots)
    assert shape is not None
    tops = tops_of(shape, nodes, forest_.roots, least_share)
    assert tops.whole or depth > 5 or least_share
    assert (np.diff(tops.firsts) < EXITS + GROUP).all() and (tops.counts <= EXITS).all()
    for tree in range(3):
        entries = slice(tops.firsts[tree], tops.firsts[tree + 1])
        passed = rng.random(len(nodes.steps)) < 0.5
        bits = (1 << EXITS) - 1
        for node, mask in zip(tops.nodes[entries], tops.masks[entries], strict=True):
            bits &= (1 << EXITS) - 1 if passed[node] else int(mask)
        at, tested = int(forest_.roots[tree]), set(tops.nodes[entries].tolist())
        while at in tested and nodes.steps[at]:
            at += int(nodes.steps[at]) + int(passed[at])
        assert tops.exits[tree, ((bits & -bits).bit_length() - 1) - 1] == at


def test_shares_and_steps_of_exits() -> None:
    """A full tree of three levels, cut below its first."""
    forest_ = made(forest(np.random.default_rng(0), 1, 3, 5, "target", 1))
    nodes = unpacked(forest_.packed(np.float32), np.float32, *forest_.tests)
    shape = shape_of(nodes, forest_.roots)
    assert shape is not None and shape.leaves[0] == 8 and shape.steps[0] == 24
    shares, steps = tops_of(shape, nodes, forest_.roots, 0.6).shares(shape)
    assert shares.tolist() == [0.5, 0.5] and steps.tolist() == [2, 2]


def test_roots_that_lead_in_circles_have_no_shape() -> None:
    forest_ = made(forest(np.random.default_rng(0), 1, 2, 5, "target", 1, MODES[1]))
    nodes = unpacked(forest_.packed(np.float32), np.float32, LESS, bool(MISSING))
    assert shape_of(nodes._replace(steps=np.where(nodes.steps > 0, -nodes.steps, 0)), forest_.roots) is None
