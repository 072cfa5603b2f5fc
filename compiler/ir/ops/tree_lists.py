"""What TreeEnsembleRegressor and TreeEnsembleClassifier list of their trees, checked and made flat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ....errors import InvalidModel
from .base import InferContext
from .tree_nodes import (
    LESS,
    MISSING,
    MODES,
    MOST_FEATURES,
    Branches,
    Fail,
    Forest,
    Votes,
    flattened,
    positions_of,
    settled,
)

_CODES = {**MODES, "LEAF": -1}


@dataclass(frozen=True)
class Lists:
    """Entries of nodes: tree, number, feature, mode, children, missing, value; of votes: tree, node, target, weight."""

    trees: Sequence[int]
    nodes: Sequence[int]
    features: Sequence[int]
    modes: Sequence[str]
    yes: Sequence[int]
    no: Sequence[int]
    missing: Sequence[int]
    values: np.ndarray
    vote_trees: Sequence[int]
    vote_nodes: Sequence[int]
    vote_targets: Sequence[int]
    vote_weights: np.ndarray


def numbers(floats: Sequence[float], tensor: np.ndarray | None) -> np.ndarray:
    """f64 of a list of floats, given as f32 or as a tensor of doubles."""
    return np.asarray(floats if tensor is None else tensor, np.float64).reshape(-1)


def check_sizes(ctx: InferContext, lists: Lists) -> None:
    """Equal lengths, known modes, features that x can have."""
    n = len(lists.trees)
    needed = {"nodes_nodeids": lists.nodes, "nodes_featureids": lists.features, "nodes_modes": lists.modes,
              "nodes_truenodeids": lists.yes, "nodes_falsenodeids": lists.no}  # fmt: skip
    for name, found in needed.items():
        if len(found) != n:
            ctx.fail(f"{name} has the wrong length", expected=n, found=len(found))
    for name, sized in {"nodes_values": lists.values, "nodes_missing_value_tracks_true": lists.missing}.items():
        if len(sized) not in (0, n):
            ctx.fail(f"{name} has the wrong length", expected=n, found=len(sized))
    if n == 0 or not 0 <= min(lists.features) <= max(lists.features) < MOST_FEATURES:
        ctx.fail("an ensemble needs nodes, and features that are not negative", expected=f"0 to {MOST_FEATURES - 1}")
    unknown = set(lists.modes) - {*MODES, "LEAF"}
    if unknown:
        ctx.fail("unknown mode of a node", found=", ".join(sorted(unknown))[:200])
    votes = [len(votes) for votes in (lists.vote_trees, lists.vote_nodes, lists.vote_targets, lists.vote_weights)]
    if len(set(votes)) > 1:
        ctx.fail("the lists of leaves have different lengths", found=votes)


def malformed(message: str, found: object = None) -> NoReturn:
    """Fails outside of inference."""
    raise InvalidModel(message, where="tree ensemble", found=found)


def forest_of(lists: Lists, fail: Fail = malformed) -> Forest:
    """The trees as a kernel walks them. A tree's root is the first of its nodes in the lists.

    Fails where a child or a leaf is no node, and as `flattened`.
    """
    find = positions_of(lists.trees, lists.nodes, fail)
    trees, codes = np.asarray(lists.trees, np.int64), np.array([_CODES[mode] for mode in lists.modes])
    is_leaf = codes < 0
    children = []
    for ids in (lists.yes, lists.no):
        child = find(trees, ids)
        lost = np.flatnonzero(~is_leaf & (child < 0))
        if lost.size:
            fail("a child is no node", found=f"tree {trees[lost[0]]}, node {ids[lost[0]]}")
        children.append(np.where(is_leaf, -1, child))
    missing = np.asarray(lists.missing or [0] * len(trees), np.int64) != 0
    bits = np.where(is_leaf, LESS, codes) | np.where(missing, MISSING, 0)
    values = lists.values if lists.values.size else np.zeros(len(trees))
    bits, threshold, yes, no = settled(bits, values, *children)
    leaf = find(lists.vote_trees, lists.vote_nodes)
    if (leaf < 0).any():
        at = int(np.flatnonzero(leaf < 0)[0])
        fail("a leaf is no node", found=f"tree {lists.vote_trees[at]}, node {lists.vote_nodes[at]}")
    branches = Branches(np.asarray(lists.features, np.int64), threshold, bits, yes, np.where(yes == no, -1, no),
                        np.zeros(len(trees), bool), np.unique(trees, return_index=True)[1])  # fmt: skip
    votes = Votes(leaf, np.asarray(lists.vote_targets, np.int64), lists.vote_weights)
    return flattened(branches, votes, fail)
