"""Decision-tree ensembles of ai.onnx.ml: all rows walk all trees together, one level a step.

Semantics follow onnx.reference; where it is silent (one score for two classes, post transforms of the regressor),
ONNX Runtime's tree_ensemble_aggregator.h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import InvalidInput, UnsupportedOp
from .base import Attributes, HostOp, prepared_host_op

_ML = "ai.onnx.ml"
_RULES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
    "BRANCH_NEQ": np.not_equal,
}


def _numbers(attributes: Attributes, name: str) -> np.ndarray | None:
    """A list of floats, given as f32 or as a tensor of doubles."""
    if attributes.get(name + "_as_tensor"):
        return np.asarray(attributes[name + "_as_tensor"], np.float64).reshape(-1)
    return np.asarray(attributes[name], np.float32).reshape(-1) if attributes.get(name) else None


class Forest:
    """The nodes of all trees in flat arrays; children are positions in them, a leaf is its own child."""

    def __init__(self, attributes: Attributes, leaf_prefix: str) -> None:
        """Read ONNX's lists.

        Args:
            attributes: of the operator.
            leaf_prefix: "class" or "target", what the leaves' lists are called.
        """
        trees, nodes = (np.asarray(attributes[f"nodes_{k}"], np.int64) for k in ("treeids", "nodeids"))
        position = {pair: i for i, pair in enumerate(zip(trees.tolist(), nodes.tolist(), strict=True))}
        self.n_trees = len(set(trees.tolist()))
        self.roots = np.array([np.flatnonzero(trees == t)[0] for t in sorted(set(trees.tolist()))], np.int64)
        self.feature = np.asarray(attributes["nodes_featureids"], np.int64)
        values = _numbers(attributes, "nodes_values")
        self.threshold = np.zeros(len(trees), np.float32) if values is None else values
        missing = attributes.get("nodes_missing_value_tracks_true") or [0] * len(trees)
        self.missing_is_true = np.asarray(missing, bool)
        modes = np.asarray(attributes["nodes_modes"])
        self.is_leaf = modes == "LEAF"
        unknown = set(modes.tolist()) - {"LEAF", *_RULES}
        if unknown:
            raise UnsupportedOp("unknown node mode in a tree ensemble", found=", ".join(sorted(unknown)))
        self.rules = [(rule, modes == name) for name, rule in _RULES.items() if (modes == name).any()]
        self.yes, self.no = (self._children(attributes, k, trees, position) for k in ("true", "false"))
        self._read_leaves(attributes, leaf_prefix, position)

    def _children(self, attributes: Attributes, kind: str, trees: np.ndarray, position: dict) -> np.ndarray:
        ids = attributes[f"nodes_{kind}nodeids"]
        return np.array(
            [
                i if leaf else position[t, n]
                for i, (leaf, t, n) in enumerate(zip(self.is_leaf, trees.tolist(), ids, strict=True))
            ],
            np.int64,
        )

    def _read_leaves(self, attributes: Attributes, prefix: str, position: dict) -> None:
        ids = zip(attributes[f"{prefix}_treeids"], attributes[f"{prefix}_nodeids"], strict=True)
        where = np.array([position[pair] for pair in ids], np.int64)
        order = np.argsort(where, kind="stable")
        weights = _numbers(attributes, f"{prefix}_weights")
        self.leaf_weight = (np.zeros(0, np.float32) if weights is None else weights)[order]
        self.leaf_target = np.asarray(attributes[f"{prefix}_ids"], np.int64)[order]
        self.leaf_first = np.searchsorted(where[order], np.arange(len(self.feature)))
        self.leaf_last = np.searchsorted(where[order], np.arange(len(self.feature)), side="right")

    def leaves(self, x: np.ndarray) -> np.ndarray:
        """i64[rows, trees]: the leaf that each row reaches in each tree.

        Raises:
            InvalidInput: rows with too few features.
        """
        if not self.is_leaf.all() and x.shape[1] <= self.feature[~self.is_leaf].max():
            needed = int(self.feature[~self.is_leaf].max()) + 1
            raise InvalidInput("too few features for the trees", expected=f"at least {needed}", found=x.shape[1])
        at = np.broadcast_to(self.roots, (x.shape[0], self.n_trees)).copy()
        for _ in range(len(self.feature)):  # no path is longer than all nodes together
            active = ~self.is_leaf[at]
            if not active.any():
                break
            node, row = at[active], np.nonzero(active)[0]
            value, threshold = x[row, self.feature[node]], self.threshold[node]
            taken = np.zeros(len(node), bool)
            for rule, members in self.rules:
                of_rule = members[node]
                taken[of_rule] = rule(value[of_rule], threshold[of_rule])
            taken = np.where(np.isnan(value), self.missing_is_true[node], taken)
            at[active] = np.where(taken, self.yes[node], self.no[node])
        return at

    def votes(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row, target and weight of every vote."""
        leaves = self.leaves(x)
        first, last = self.leaf_first[leaves].ravel(), self.leaf_last[leaves].ravel()
        counts = last - first
        starts = np.repeat(first - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        vote = starts + np.arange(counts.sum())
        row = np.repeat(np.repeat(np.arange(x.shape[0]), leaves.shape[1]), counts)
        return row, self.leaf_target[vote], self.leaf_weight[vote]


def _logistic(x: np.ndarray) -> np.ndarray:
    v = 1 / (1 + np.exp(-np.abs(x)))
    return np.where(x < 0, 1 - v, v)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _softmax_zero(x: np.ndarray) -> np.ndarray:
    """Softmax in which zero scores keep no probability."""
    top = x.max(axis=1, keepdims=True)
    e = np.where(np.abs(x) > 1e-7, np.exp(x - top), x * np.exp(-top))
    total = e.sum(axis=1, keepdims=True)
    return np.where(total == 0, 0.5, e / np.where(total == 0, 1, total))


def _probit(x: np.ndarray) -> np.ndarray:
    """Inverse of the normal distribution by Winitzki's approximation, as ONNX Runtime."""
    y = 2 * x - 1
    log = np.log(np.maximum((1 - y) * (1 + y), np.finfo(np.float32).tiny))
    v = 2 / (np.pi * 0.147) + 0.5 * log
    return np.float32(1.41421356) * np.where(y < 0, -1, 1) * np.sqrt(np.sqrt(v * v - log / 0.147) - v)


_TRANSFORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "NONE": lambda x: x,
    "LOGISTIC": _logistic,
    "SOFTMAX": _softmax,
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}


def _transform(attributes: Attributes) -> Callable[[np.ndarray], np.ndarray]:
    name = attributes.get("post_transform") or "NONE"
    if name not in _TRANSFORMS:
        raise UnsupportedOp("unknown post transform of a tree ensemble", found=name)
    return _TRANSFORMS[name]


def _rows(x: Any) -> np.ndarray:
    rows = np.asarray(x)
    rows = rows if rows.dtype == np.float64 else rows.astype(np.float32)
    return rows.reshape(1, -1) if rows.ndim == 1 else rows


@prepared_host_op("TreeEnsembleRegressor", _ML)
def tree_ensemble_regressor(attributes: Attributes) -> HostOp:
    """f32[rows, targets]: votes summed, averaged, or their least or greatest; base values added after."""
    forest, transform = Forest(attributes, "target"), _transform(attributes)
    n_targets = int(attributes.get("n_targets", 1))
    function = attributes.get("aggregate_function") or "SUM"
    base = _numbers(attributes, "base_values")
    folds = {"MIN": (np.minimum, np.inf), "MAX": (np.maximum, -np.inf)}
    if function not in ("SUM", "AVERAGE", *folds):
        raise UnsupportedOp("unknown aggregate function of a tree ensemble", found=function)

    def run(inputs: list[Any]) -> list[Any]:
        x = _rows(inputs[0])
        row, target, weight = forest.votes(x)
        fold, start = folds.get(function, (np.add, 0.0))
        total = np.full((x.shape[0], n_targets), start, np.float64)
        fold.at(total, (row, target), weight)
        voted = np.zeros(total.shape, bool)
        voted[row, target] = True
        total[~voted] = 0
        if function == "AVERAGE":
            total /= forest.n_trees
        if base is not None:
            total += base
        return [transform(total).astype(np.float32)]

    return run


@prepared_host_op("TreeEnsembleClassifier", _ML)
def tree_ensemble_classifier(attributes: Attributes) -> HostOp:
    """The label of each row, and f32[rows, classes] scores after the post transform."""
    forest, transform = Forest(attributes, "class"), _transform(attributes)
    base = _numbers(attributes, "base_values")
    strings = attributes.get("classlabels_strings")
    labels = np.array(strings, object) if strings else np.asarray(attributes["classlabels_int64s"], np.int64)
    one_score = len(set(attributes["class_ids"])) == 1 and len(labels) <= 2
    complement = (attributes.get("post_transform") or "NONE") in ("NONE", "PROBIT")

    def run(inputs: list[Any]) -> list[Any]:
        x = _rows(inputs[0])
        row, target, weight = forest.votes(x)
        scores = np.zeros((x.shape[0], max(2 if one_score else 1, len(labels))), np.float64)
        if one_score:  # votes for one class of two: the other's score follows from it
            np.add.at(scores, (row, np.ones_like(target)), weight)
            scores[:, 1] += 0 if base is None else base[-1]
            scores[:, 0] = 1 - scores[:, 1] if complement else -scores[:, 1]
        else:
            np.add.at(scores, (row, target), weight)
            scores += 0 if base is None else base
        probabilities = transform(scores)
        best = probabilities.argmax(axis=1)
        label = best if len(labels) == 1 else labels[best]  # the one label is 1
        return [label, probabilities.astype(np.float32)]

    return run
