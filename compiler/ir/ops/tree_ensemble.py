"""TreeEnsemble of ai.onnx.ml 5: branches and leaves in lists of their own, children by their places in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny
from typing import NoReturn

import numpy as np

from ....errors import InvalidModel
from ..types import F16, F32, F64, TensorType, Type
from .base import Attr, In, InferContext, Ints, TypeGroup, op
from .casting import cast_to
from .ml_scores import DOMAIN, Model, as_rows, row_type, transformed
from .tree_nodes import EQUAL, MISSING, MODES, MOST_FEATURES, Branches, Fail, Forest, Votes, flattened, settled
from .tree_sums import check_votes, compared_in, put_together

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_MEMBER = len(MODES)  # its mode's number; those of the others are their places in MODES


class _Inputs(TypeGroup):
    """What TreeEnsemble takes and gives."""

    dtypes = frozenset({F16, F32, F64})


def _malformed(message: str, found: object = None) -> NoReturn:
    raise InvalidModel(message, where="TreeEnsemble", found=found)


@op(since=5, domain=DOMAIN)
class TreeEnsemble(Model):
    """[rows, n_targets] in X's type: what the leaves that a row reaches say, put together and transformed.

    ONNX Runtime takes post_transform 1 for LOGISTIC and 2 for SOFTMAX, against the specification.
    """

    x: In[_Inputs]
    aggregate_function: Attr[int] = 1
    leaf_targetids: Attr[Ints]
    leaf_weights: Attr[np.ndarray]
    membership_values: Attr[np.ndarray | None] = None
    n_targets: Attr[int] = 1
    nodes_falseleafs: Attr[Ints]
    nodes_falsenodeids: Attr[Ints]
    nodes_featureids: Attr[Ints]
    nodes_hitrates: Attr[np.ndarray | None] = None
    nodes_missing_value_tracks_true: Attr[Ints] = ()
    nodes_modes: Attr[np.ndarray]
    nodes_splits: Attr[np.ndarray]
    nodes_trueleafs: Attr[Ints]
    nodes_truenodeids: Attr[Ints]
    post_transform: Attr[int] = 0
    tree_roots: Attr[Ints]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        self._check_lists(ctx)
        kind = _AGGREGATES[self.aggregate_function]
        check_votes(ctx, self._forest(ctx.fail), self.n_targets, kind)
        return [TensorType(ctx.tensor(0).dtype, (row_type(ctx)[0], self.n_targets))]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        forest = self._forest()
        rows = as_rows(g, x, compared_in(x.type.dtype, forest))
        scores = put_together(g, rows, forest, self.n_targets, _AGGREGATES[self.aggregate_function])
        return cast_to(g, transformed(g, scores, _TRANSFORMS[self.post_transform]), x.type.dtype)

    @property
    def _members(self) -> np.ndarray:
        """Of all MEMBER nodes, NaN between them."""
        return np.zeros(0) if self.membership_values is None else self.membership_values.reshape(-1)

    def _check_lists(self, ctx: InferContext) -> None:
        """Equal lengths, known numbers of modes, children and roots that there are."""
        n, n_leaves = len(self.nodes_featureids), len(self.leaf_targetids)
        for name in ("nodes_falseleafs", "nodes_falsenodeids", "nodes_trueleafs", "nodes_truenodeids"):
            if len(getattr(self, name)) != n:
                ctx.fail(f"{name} has the wrong length", expected=n, found=len(getattr(self, name)))
        for name, size in (("nodes_modes", n), ("nodes_splits", n), ("leaf_weights", n_leaves)):
            if getattr(self, name).size != size or getattr(self, name).dtype.kind not in "fu":
                ctx.fail(f"{name} has the wrong length or type", expected=size, found=getattr(self, name).size)
        if len(self.nodes_missing_value_tracks_true) not in (0, n):
            ctx.fail("nodes_missing_value_tracks_true has the wrong length", expected=n)
        if n == 0 or not 0 <= min(self.nodes_featureids) <= max(self.nodes_featureids) < MOST_FEATURES:
            ctx.fail("an ensemble needs nodes, and features that are not negative")
        if self.nodes_modes.dtype != np.uint8 or self.nodes_modes.max() > _MEMBER:
            ctx.fail("unknown mode of a node", expected=f"0 to {_MEMBER}", found=self.nodes_modes.max())
        for name, number, known in (("aggregate_function", self.aggregate_function, _AGGREGATES),
                                    ("post_transform", self.post_transform, _TRANSFORMS)):  # fmt: skip
            if not 0 <= number < len(known):
                ctx.fail(f"unknown {name}", expected=f"0 to {len(known) - 1}", found=number)
        self._check_children(ctx, n, n_leaves)

    def _check_children(self, ctx: InferContext, n: int, n_leaves: int) -> None:
        for ids, leafs in ((self.nodes_truenodeids, self.nodes_trueleafs),
                           (self.nodes_falsenodeids, self.nodes_falseleafs)):  # fmt: skip
            sizes = np.where(np.asarray(leafs) != 0, n_leaves, n)
            if ((np.asarray(ids) < 0) | (np.asarray(ids) >= sizes)).any():
                ctx.fail("a child is no node and no leaf", expected=f"of {n} nodes and {n_leaves} leaves")
        if not self.tree_roots or not 0 <= min(self.tree_roots) <= max(self.tree_roots) < n:
            ctx.fail("tree_roots must be nodes", expected=f"0 to {n - 1}", found=str(self.tree_roots)[:60])
        if len(self._sets()) != (self.nodes_modes == _MEMBER).sum():
            ctx.fail("membership_values needs a set for each MEMBER node", found=len(self._sets()),
                     expected=(self.nodes_modes == _MEMBER).sum())  # fmt: skip

    def _sets(self) -> list[np.ndarray]:
        """The members of each MEMBER node."""
        values = self._members
        if not values.size:
            return []
        parts = np.split(values, np.flatnonzero(np.isnan(values)))  # all but the first begin with their NaN
        parts = parts[:-1] if np.isnan(values[-1]) else parts
        return [part[~np.isnan(part)] for part in parts]

    def _forest(self, fail: Fail = _malformed) -> Forest:
        """The trees as a kernel walks them; every reference to a leaf has a position of its own, behind all nodes."""
        n = len(self.nodes_featureids)
        leaf_of, sides = np.full(3 * n, -1), []
        for side, (ids, leafs) in enumerate(((self.nodes_truenodeids, self.nodes_trueleafs),
                                             (self.nodes_falsenodeids, self.nodes_falseleafs))):  # fmt: skip
            own = n + 2 * np.arange(n) + side
            is_leaf = np.asarray(leafs) != 0
            leaf_of[own[is_leaf]] = np.asarray(ids, np.int64)[is_leaf]
            sides.append(np.where(is_leaf, own, np.asarray(ids, np.int64)))
        same = (np.asarray(self.nodes_truenodeids) == self.nodes_falsenodeids) & (
            (np.asarray(self.nodes_trueleafs) != 0) == (np.asarray(self.nodes_falseleafs) != 0)
        )
        missing = np.asarray(self.nodes_missing_value_tracks_true or [0] * n) != 0
        modes = self.nodes_modes.reshape(-1)
        bits = np.array([*MODES.values(), EQUAL])[modes] | np.where(missing, MISSING, 0)
        splits = np.where(modes == _MEMBER, 0, self.nodes_splits.reshape(-1).astype(np.float64))
        bits, splits, yes, no = settled(bits, splits, *sides)
        nodes = _Nodes(np.asarray(self.nodes_featureids, np.int64), splits, bits, yes, np.where(same, -1, no), 3 * n)
        for node, members in zip(np.flatnonzero(modes == _MEMBER), self._sets(), strict=True):
            nodes.test_members(int(node), members.astype(np.float64))
        reached = np.flatnonzero(leaf_of >= 0)
        weights = self.leaf_weights.reshape(-1).astype(np.float64)
        votes = Votes(reached, np.asarray(self.leaf_targetids, np.int64)[leaf_of[reached]], weights[leaf_of[reached]])
        return flattened(nodes.branches(self.tree_roots), votes, fail)


class _Nodes:
    """Branches in lists that grow, as a set's test is a chain of comparisons."""

    def __init__(self, feature: np.ndarray, threshold: np.ndarray, bits: np.ndarray, yes: np.ndarray, no: np.ndarray,
                 size: int) -> None:  # fmt: skip
        more = size - len(feature)
        self.feature, self.threshold, self.bits = (
            np.concatenate([a, np.zeros(more, a.dtype)]).tolist() for a in (feature, threshold, bits)
        )
        self.yes, self.no = (np.concatenate([a, np.full(more, -1)]).tolist() for a in (yes, no))
        self.jumps = [False] * size

    def test_members(self, node: int, members: np.ndarray) -> None:
        """Let a node, which has its children, test for equality with some value; the first one's link is the node."""
        if self.no[node] < 0:
            return
        if not members.size:
            self.bits[node] &= MISSING
            return
        chosen, otherwise = self.yes[node], self.no[node]
        self.threshold[node] = members[0]
        for value in members[1:]:
            jump = self._add(0, 0.0, 0, chosen, -1, jumps=True)
            link = self._add(self.feature[node], value, EQUAL, jump, otherwise)
            self.no[node] = node = link

    def _add(self, feature: int, threshold: float, bits: int, yes: int, no: int, *, jumps: bool = False) -> int:
        lists = (self.feature, self.threshold, self.bits, self.yes, self.no, self.jumps)
        for values, value in zip(lists, (feature, threshold, bits, yes, no, jumps), strict=True):
            values.append(value)
        return len(self.feature) - 1

    def branches(self, roots: Sequence[int]) -> Branches:
        """All of them."""
        lists = (self.feature, self.threshold, self.bits, self.yes, self.no)
        feature, threshold, bits, yes, no = map(np.asarray, lists)
        jumps = np.asarray(self.jumps, bool)
        return Branches(feature, threshold, bits, yes, no, jumps, np.asarray(roots, np.int64))
