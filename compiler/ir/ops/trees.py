"""Decision trees of ai.onnx.ml, run by the runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..types import F32, I64, STR, Dim, TensorType, Type
from . import row_rules
from .base import Attr, Floats, Host, In, InferContext, Ints, Numeric, Out, Rows, Strs, op

_RULES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "LEAF")
_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")


class _Ensemble(Host):
    """The lists that describe the nodes of all trees, one entry per node, and the checks that they fit together."""

    x: In[Numeric]
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

    def rows(self, ctx: InferContext) -> Dim:
        """Rows of x; a vector is one row."""
        rank = ctx.rank(0)
        if rank not in (1, 2):
            ctx.fail("x must have one or two axes", found=ctx.types[0])
        return ctx.shape(0)[0] if rank == 2 else 1

    def check(self, ctx: InferContext, leaf: str) -> None:
        """Equal lengths, known rules, every child and every leaf there, no node its own ancestor."""
        n = len(self.nodes_treeids)
        for name in ("nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_truenodeids", "nodes_falsenodeids"):
            if len(getattr(self, name)) != n:
                ctx.fail(f"{name} has the wrong length", expected=n, found=len(getattr(self, name)))
        for name in ("nodes_values", "nodes_missing_value_tracks_true"):
            if len(getattr(self, name)) not in (0, n):
                ctx.fail(f"{name} has the wrong length", expected=n, found=len(getattr(self, name)))
        if n == 0 or min(self.nodes_featureids) < 0:
            ctx.fail("an ensemble needs nodes, and features that are not negative")
        unknown = set(self.nodes_modes) - set(_RULES)
        if unknown or self.post_transform not in _TRANSFORMS:
            ctx.fail("unknown rule or transform", found=", ".join([*sorted(unknown), self.post_transform])[:200])
        position = {pair: i for i, pair in enumerate(zip(self.nodes_treeids, self.nodes_nodeids))}
        if len(position) != n:
            ctx.fail("two nodes of one number")
        self._check_children(ctx, position)
        trees, nodes, ids = (getattr(self, f"{leaf}_{k}") for k in ("treeids", "nodeids", "ids"))
        weights = getattr(self, f"{leaf}_weights")
        tensor = getattr(self, f"{leaf}_weights_as_tensor")
        n_weights = len(weights) if tensor is None else tensor.size
        if not len(trees) == len(nodes) == len(ids) == n_weights:
            ctx.fail("the lists of leaves have different lengths", found=(len(trees), len(nodes), len(ids), n_weights))
        missing = [pair for pair in zip(trees, nodes) if pair not in position]
        if missing:
            ctx.fail("a leaf is no node", found=missing[0])

    def _check_children(self, ctx: InferContext, position: dict[tuple[int, int], int]) -> None:
        parents: dict[tuple[int, int], tuple[int, int]] = {}
        rows = zip(position, self.nodes_modes, self.nodes_truenodeids, self.nodes_falsenodeids)
        for (tree, node), mode, yes, no in rows:
            if mode == "LEAF":
                continue
            for child in {(tree, yes), (tree, no)}:
                if child not in position:
                    ctx.fail("a child is no node", found=child)
                if child in parents:
                    ctx.fail("a node has two parents", found=child)
                parents[child] = (tree, node)
        rooted: set[tuple[int, int]] = set()
        for at in parents:
            path = set()
            while at in parents and at not in rooted:
                if at in path:
                    ctx.fail("a node is its own ancestor", found=at)
                path.add(at)
                at = parents[at]
            rooted |= path

    def check_base(self, ctx: InferContext, *lengths: int) -> None:
        """base_values of one of these lengths, or none."""
        tensor = self.base_values_as_tensor
        found = len(self.base_values) if tensor is None else tensor.size
        if found not in (0, *lengths):
            ctx.fail("base_values has the wrong length", expected=" or ".join(map(str, lengths)), found=found)


@op(since=1, domain="ai.onnx.ml")
class TreeEnsembleRegressor(_Ensemble):
    """f32[rows, n_targets]: what the leaves that a row reaches say, put together."""

    target_treeids: Attr[Ints] = ()
    target_nodeids: Attr[Ints] = ()
    target_ids: Attr[Ints] = ()
    target_weights: Attr[Floats] = ()
    target_weights_as_tensor: Attr[np.ndarray | None] = None
    aggregate_function: Attr[str] = "SUM"
    n_targets: Attr[int] = 1
    row_axis = row_rules.batch_first

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        self.check(ctx, "target")
        if self.aggregate_function not in ("SUM", "AVERAGE", "MIN", "MAX"):
            ctx.fail("unknown aggregate_function", found=self.aggregate_function[:60])
        if not 1 <= self.n_targets < 1 << 20 or any(not 0 <= t < self.n_targets for t in self.target_ids):
            ctx.fail("target_ids beyond n_targets", expected=self.n_targets)
        self.check_base(ctx, self.n_targets)
        return [TensorType(F32, (self.rows(ctx), self.n_targets))]


@op(since=1, domain="ai.onnx.ml")
class TreeEnsembleClassifier(_Ensemble):
    """The label of each row, and f32[rows, classes] scores."""

    label: Out
    scores: Out
    class_treeids: Attr[Ints] = ()
    class_nodeids: Attr[Ints] = ()
    class_ids: Attr[Ints] = ()
    class_weights: Attr[Floats] = ()
    class_weights_as_tensor: Attr[np.ndarray | None] = None
    classlabels_strings: Attr[Strs] = ()
    classlabels_int64s: Attr[Ints] = ()

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        self.check(ctx, "class")
        labels = len(self.classlabels_strings) or len(self.classlabels_int64s)
        one_score = len(set(self.class_ids)) == 1 and labels <= 2
        classes = max(2 if one_score else 1, labels)
        if labels < 1 or any(not 0 <= c < classes for c in self.class_ids):
            ctx.fail("class_ids beyond the labels", expected=labels)
        if labels == 1 and self.classlabels_int64s != (1,):
            ctx.unsupported("one label other than 1: what the other class is called, nothing says")
        self.check_base(ctx, *((1, 2) if one_score else (classes,)))
        rows = self.rows(ctx)
        return [TensorType(STR if self.classlabels_strings else I64, (rows,)), TensorType(F32, (rows, classes))]

    def row_axis(self, rows: Rows) -> int:
        """Labels and scores of each row of X."""
        if rows.given != [0]:
            raise rows.interact("rows are not on axis 0")
        return 0
