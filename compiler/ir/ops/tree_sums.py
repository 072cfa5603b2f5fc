"""Votes of trees put together: a walk in parts, whose results are added up or compared, and averages."""

from __future__ import annotations

from typing import Any as PyAny

import numpy as np

from ..types import F32, F64, I32, DType
from .base import InferContext, lookup
from .ml_scores import row_type
from .tree_nodes import Forest
from .tree_walk import WalkTrees

_PARTS = 8  # at most: that many cores can share a row
_TREES = 16  # of a part, at least
_MOST_TARGETS = 1 << 20


def compared_in(x: DType, forest: Forest) -> DType:
    """What features of a type are compared in: f64 where they, thresholds or weights are, or leaves are too many."""
    return F32 if x != F64 and forest.fits_f32 else F64


def check_votes(ctx: InferContext, forest: Forest, n_targets: int, kind: str) -> None:
    """Votes for targets that there are, numbers where they are compared, and no more features than x has."""
    if not 1 <= n_targets < _MOST_TARGETS or any(not 0 <= t < n_targets for t in np.unique(forest.targets)):
        ctx.fail("votes are for targets or classes that there are not", expected=f"0 to {n_targets - 1}")
    if kind in ("MIN", "MAX") and np.isnan(forest.weights).any():
        ctx.unsupported(f"{kind} of leaves that are NaN: which of them wins, nothing says")
    columns = row_type(ctx)[1]
    if isinstance(columns, int) and columns < forest.n_features:
        ctx.fail("too few features for the trees", expected=f"at least {forest.n_features}", found=columns)


def put_together(g: PyAny, rows: PyAny, forest: Forest, n_targets: int, kind: str) -> PyAny:
    """[rows, targets] of rows' votes: their sum, their average over all trees, least or greatest; 0 without a vote.

    Args:
        rows: [rows, features] in f32 or f64, which all is computed in.
    """
    dtype = rows.type.dtype
    n_trees = forest.n_trees
    per_part = max(_TREES, -(-n_trees // _PARTS))
    test, missing = forest.tests
    packed = forest.packed(dtype.numpy)
    attributes = {
        "kind": kind if kind in ("MIN", "MAX") else "SUM", "n_targets": n_targets, "trees_per_part": per_part,
        "test": test, "missing": int(missing), "one_vote": int(forest.one_vote), "features": forest.n_features,
        "depth": forest.depth, "short": int(packed.short),
    }  # fmt: skip
    constants = [g.const(a, None if a.dtype == np.int32 else dtype) for a in (
        packed.words, forest.roots, forest.firsts, forest.targets, forest.weights)]
    walk = lookup("parax", WalkTrees.name).from_attributes(attributes, g.name)
    parts = g.add(walk, [rows, *constants])
    if kind in ("SUM", "AVERAGE"):
        total = g.ReduceSum(parts, [0], keepdims=0) if n_trees > per_part else g.Squeeze(parts, [0])
        return total if kind == "SUM" else g.Div(total, float(n_trees))
    neutral = g.const(np.inf if kind == "MIN" else -np.inf, dtype)
    silent = g.IsNaN(parts)
    best = (g.ReduceMin if kind == "MIN" else g.ReduceMax)(g.Where(silent, neutral, parts), [0], keepdims=0)
    voted = g.ReduceMax(g.Cast(g.Not(silent), to=I32), [0], keepdims=0)
    return g.Where(g.Greater(voted, 0), best, g.const(0.0, dtype))
