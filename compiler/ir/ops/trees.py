"""Decision trees of ai.onnx.ml: walked by a kernel (`tree_walk.py`), then put together, transformed and labelled.

Semantics follow onnx.reference; where it is silent, and for the scores of two classes that one number decides, ONNX
Runtime's tree_ensemble_aggregator.h. ONNX Runtime leaves LOGISTIC and SOFTMAX of one target or score out, against the
specification, and sends a missing value to the true branch of BRANCH_NEQ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F32, TensorType, Type
from .base import Attr, Floats, In, InferContext, Ints, Out, Strs, op
from .casting import cast_to
from .ml_scores import (
    DOMAIN,
    TRANSFORMS,
    Features,
    Model,
    as_rows,
    best_label,
    check_choice,
    label_type,
    of_two_classes,
    row_type,
    transformed,
)
from .tree_lists import Lists, check_sizes, forest_of, malformed, numbers
from .tree_nodes import Fail, Forest
from .tree_sums import check_votes, compared_in, put_together

_AGGREGATES = ("SUM", "AVERAGE", "MIN", "MAX")


class _Ensemble(Model):
    """The lists that describe the nodes of all trees, one entry per node."""

    x: In[Features]
    nodes_treeids: Attr[Ints] = ()
    nodes_nodeids: Attr[Ints] = ()
    nodes_featureids: Attr[Ints] = ()
    nodes_values: Attr[Floats] = ()
    nodes_values_as_tensor: Attr[np.ndarray | None] = None
    nodes_hitrates: Attr[Floats] = ()
    nodes_hitrates_as_tensor: Attr[np.ndarray | None] = None
    nodes_modes: Attr[Strs] = ()
    nodes_truenodeids: Attr[Ints] = ()
    nodes_falsenodeids: Attr[Ints] = ()
    nodes_missing_value_tracks_true: Attr[Ints] = ()
    base_values: Attr[Floats] = ()
    base_values_as_tensor: Attr[np.ndarray | None] = None
    post_transform: Attr[str] = "NONE"

    @property
    def base(self) -> np.ndarray:
        """base_values of either attribute; none: no elements."""
        return numbers(self.base_values, self.base_values_as_tensor)

    def checked_forest(self, ctx: InferContext, lists: Lists) -> Forest:
        """The trees, of lists that are checked first."""
        check_choice(ctx, "post_transform", self.post_transform, TRANSFORMS)
        check_sizes(ctx, lists)
        return self.forest(lists, ctx.fail)

    def forest(self, lists: Lists, fail: Fail = malformed) -> Forest:
        """The trees, made once for all who ask: there may be millions of nodes."""
        found: Forest | None = self.__dict__.get("_forest")
        if found is None:
            found = forest_of(lists, fail)
            object.__setattr__(self, "_forest", found)
        return found

    def lists(self, leaf: str) -> Lists:
        """The attributes that make trees; `leaf` is what leaves' lists are called."""
        trees, nodes, ids, weights, tensor = (
            getattr(self, f"{leaf}_{k}") for k in ("treeids", "nodeids", "ids", "weights", "weights_as_tensor")
        )
        return Lists(
            self.nodes_treeids, self.nodes_nodeids, self.nodes_featureids, self.nodes_modes, self.nodes_truenodeids,
            self.nodes_falsenodeids, self.nodes_missing_value_tracks_true,
            numbers(self.nodes_values, self.nodes_values_as_tensor), trees, nodes, ids, numbers(weights, tensor),
        )  # fmt: skip

    def check_base(self, ctx: InferContext, *lengths: int) -> None:
        """base_values of one of these lengths, or none."""
        if self.base.size not in (0, *lengths):
            ctx.fail("base_values has the wrong length", expected=" or ".join(map(str, lengths)), found=self.base.size)


@op(since=1, domain=DOMAIN)
class TreeEnsembleRegressor(_Ensemble):
    """f32[rows, n_targets]: what the leaves that a row reaches say, put together, plus base values, transformed."""

    target_treeids: Attr[Ints] = ()
    target_nodeids: Attr[Ints] = ()
    target_ids: Attr[Ints] = ()
    target_weights: Attr[Floats] = ()
    target_weights_as_tensor: Attr[np.ndarray | None] = None
    aggregate_function: Attr[str] = "SUM"
    n_targets: Attr[int] = 1

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        check_choice(ctx, "aggregate_function", self.aggregate_function, _AGGREGATES)
        forest = self.checked_forest(ctx, self.lists("target"))
        check_votes(ctx, forest, self.n_targets, self.aggregate_function)
        self.check_base(ctx, self.n_targets)
        return [TensorType(F32, (row_type(ctx)[0], self.n_targets))]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        forest = self.forest(self.lists("target"))
        rows = as_rows(g, x, compared_in(x.type.dtype, forest))
        scores = put_together(g, rows, forest, self.n_targets, self.aggregate_function)
        if self.base.any():
            scores = g.Add(scores, g.const(self.base, rows.type.dtype))
        return cast_to(g, transformed(g, scores, self.post_transform), F32)


@op(since=1, domain=DOMAIN)
class TreeEnsembleClassifier(_Ensemble):
    """The label of each row, and f32[rows, classes] scores: sums of the votes, plus base values, transformed.

    Votes for one class of two are its score s. The first class's is 1 - s where no weight is negative and no transform
    follows, as ONNX Runtime has it, otherwise -s.
    """

    label: Out
    scores: Out
    class_treeids: Attr[Ints] = ()
    class_nodeids: Attr[Ints] = ()
    class_ids: Attr[Ints] = ()
    class_weights: Attr[Floats] = ()
    class_weights_as_tensor: Attr[np.ndarray | None] = None
    classlabels_strings: Attr[Strs] = ()
    classlabels_int64s: Attr[Ints] = ()

    @property
    def _labels(self) -> int:
        return len(self.classlabels_strings) or len(self.classlabels_int64s)

    @property
    def _one_score(self) -> bool:
        """Whether all votes are for one class of two."""
        return len(set(self.class_ids)) == 1 and self._labels <= 2

    @property
    def _classes(self) -> int:
        return max(2 if self._one_score else 1, self._labels)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if self._labels < 1 or (self.classlabels_strings and self.classlabels_int64s):
            ctx.fail("labels are needed, either integers or strings", found=self._labels)
        if self._labels == 1 and self.classlabels_int64s != (1,):
            ctx.unsupported("one label other than 1: what the other class is called, nothing says")
        check_votes(ctx, self.checked_forest(ctx, self.lists("class")), self._classes, "SUM")
        self.check_base(ctx, 1 if self._one_score else self._classes)
        rows, _ = row_type(ctx)
        return [label_type(self.classlabels_strings, rows), TensorType(F32, (rows, self._classes))]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        forest = self.forest(self.lists("class"))
        rows = as_rows(g, x, compared_in(x.type.dtype, forest))
        if self._one_score:
            forest = forest.of_one_target()
        scores = put_together(g, rows, forest, 1 if self._one_score else self._classes, "SUM")
        if self.base.any():
            scores = g.Add(scores, g.const(self.base, rows.type.dtype))
        if self._one_score:
            positive = not (forest.weights < 0).any()
            complement = self.post_transform == "PROBIT" or (positive and self.post_transform == "NONE")
            scores = of_two_classes(g, scores, complement=complement)
        ints = self.classlabels_int64s if self._labels > 1 else (0, 1)
        label = best_label(g, scores, self.classlabels_strings, ints)
        return [label, cast_to(g, transformed(g, scores, self.post_transform), F32)]
