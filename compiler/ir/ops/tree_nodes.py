"""The nodes of decision trees as a kernel walks them: flat arrays, children side by side, one kind of test for all.

A test is made of three bits: whether values less than the threshold, equal to it, and missing ones take the first
child; all others take the one behind it. Tests that greater values pass are turned round, children with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

import numpy as np

LESS, EQUAL, MISSING, GREATER = 1, 2, 4, 8
BITS = 3  # that a node's word has below its feature
MODES = {"BRANCH_LEQ": LESS | EQUAL, "BRANCH_LT": LESS, "BRANCH_GTE": EQUAL | GREATER, "BRANCH_GT": GREATER,
         "BRANCH_EQ": EQUAL, "BRANCH_NEQ": LESS | GREATER}  # fmt: skip
_SPARSE = 8  # times as many places as nodes has a table of them at most
MOST_FEATURES = 1 << (31 - BITS)
Fail = Callable[..., NoReturn]


@dataclass(frozen=True)
class Branches:
    """Nodes of all trees by position, as a model lists them.

    Attributes:
        feature, threshold, bits: of each node; what they are of leaves is not read.
        yes, no: positions of the children, -1 for a leaf; `no` alone is -1 for what goes to `yes` in any case.
        jumps: whether `yes` is no child of this node, but another one's to which it leads, too.
        roots: position of each tree's first node.
    """

    feature: np.ndarray
    threshold: np.ndarray
    bits: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    jumps: np.ndarray
    roots: np.ndarray


@dataclass(frozen=True)
class Votes:
    """What leaves say: leaf (a position), target and weight of each vote."""

    leaf: np.ndarray
    target: np.ndarray
    weight: np.ndarray


@dataclass(frozen=True)
class Forest:
    """Trees as the kernel walks them, one behind the other, each breadth first.

    Attributes:
        words: i32[nodes], feature << BITS | bits. thresholds: [nodes].
        children: i32[nodes], the first child, behind which the second lies; ~ of its number for a leaf.
        roots: i32[trees]. firsts: i32[leaves + 1], a leaf's first vote. targets: i32[votes]. weights: [votes].
    """

    words: np.ndarray
    thresholds: np.ndarray
    children: np.ndarray
    roots: np.ndarray
    firsts: np.ndarray
    targets: np.ndarray
    weights: np.ndarray

    def packed(self, dtype: type[np.floating]) -> np.ndarray:
        """i32[nodes * stride]: of each node, so that one cache line has it, threshold, word and first child."""
        thresholds = self.thresholds.astype(dtype).view(np.int32).reshape(len(self.words), -1)
        return np.concatenate([thresholds, self.words[:, None], self.children[:, None]], axis=1).ravel()

    @cached_property
    def tests(self) -> tuple[int, bool]:
        """LESS | EQUAL, … where all nodes have that test, 0 where they differ; and whether missing values matter."""
        bits = self.words[self.children >= 0] & ((1 << BITS) - 1)
        kinds = np.unique(bits & (LESS | EQUAL))
        return (int(kinds[0]) if len(kinds) == 1 else 0), bool((bits & MISSING).any())

    @cached_property
    def n_features(self) -> int:
        """That x must have at least."""
        inner = self.words[self.children >= 0]
        return int(inner.max() >> BITS) + 1 if inner.size else 0

    @cached_property
    def depth(self) -> int:
        """Steps to a leaf of a usual tree, about: as in one whose branches are alike."""
        n_leaves = (len(self.firsts) - 1) / len(self.roots)
        return max(1, round(float(np.log2(max(n_leaves, 1)))))

    def of_one_target(self) -> Forest:
        """With all votes for target 0."""
        return replace(self, targets=np.zeros_like(self.targets))

    @property
    def one_vote(self) -> bool:
        """Whether every leaf has one vote, which then has the leaf's number."""
        return len(self.targets) == len(self.firsts) - 1 and bool((np.diff(self.firsts) == 1).all())


def positions_of(trees: Sequence[int], nodes: Sequence[int], fail: Fail) -> Callable[..., np.ndarray]:
    """A function of trees and nodes that gives their positions in these lists, -1 for what is not there.

    Fails where a tree has two nodes of one number.
    """
    tree_ids, node_ids = np.unique(np.asarray(trees, np.int64)), np.unique(np.asarray(nodes, np.int64))

    def key(of_trees: np.ndarray, of_nodes: np.ndarray) -> np.ndarray:
        t, n = (np.minimum(np.searchsorted(ids, values), len(ids) - 1)
                for ids, values in ((tree_ids, of_trees), (node_ids, of_nodes)))  # fmt: skip
        there = (tree_ids[t] == of_trees) & (node_ids[n] == of_nodes)
        return np.where(there, t * len(node_ids) + n, -1)

    keys = key(np.asarray(trees, np.int64), np.asarray(nodes, np.int64))
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    twice = np.flatnonzero(in_order[1:] == in_order[:-1])
    if twice.size:
        at = order[twice[0]]
        fail("two nodes of one number", found=f"tree {trees[at]}, node {nodes[at]}")
    n_keys = len(tree_ids) * len(node_ids)
    table = None
    if n_keys <= _SPARSE * len(keys):  # looked up, not searched for, unless most of it were empty
        table = np.full(n_keys, -1, np.int64)
        table[keys] = np.arange(len(keys))

    def find(of_trees: Sequence[int], of_nodes: Sequence[int]) -> np.ndarray:
        wanted = key(np.asarray(of_trees, np.int64), np.asarray(of_nodes, np.int64))
        if table is not None:
            return np.where(wanted >= 0, table[wanted], -1)
        at = np.minimum(np.searchsorted(in_order, wanted), len(in_order) - 1)
        return np.where((wanted >= 0) & (in_order[at] == wanted), order[at], -1)

    return find


def settled(bits: np.ndarray, threshold: np.ndarray, yes: np.ndarray, no: np.ndarray) -> tuple[np.ndarray, ...]:
    """Bits, threshold, yes and no of nodes whose tests greater values fail; no number is compared with NaN.

    A threshold of NaN is less than, equal to and greater than nothing: of the tests NEQ alone passes.
    """
    odd = np.isnan(threshold)
    everything = LESS | EQUAL | GREATER
    bits = np.where(odd, np.where(bits & everything == LESS | GREATER, everything, 0) | (bits & MISSING), bits)
    turned = (bits & GREATER) != 0
    bits = np.where(turned, bits ^ (everything | MISSING), bits)
    return bits, np.where(odd, 0, threshold), np.where(turned, no, yes), np.where(turned, yes, no)


def flattened(branches: Branches, votes: Votes, fail: Fail) -> Forest:
    """The trees as a kernel walks them; what no root leads to is left out.

    Fails where a node has two parents, or is its own ancestor.
    """
    order, sizes = _breadth_first(branches, fail)
    number = np.full(len(branches.feature), -1, np.int64)
    number[order] = np.arange(len(order))
    is_leaf = branches.yes[order] < 0
    alone = (branches.no[order] < 0) | branches.jumps[order]
    bits = np.where(alone, 0, branches.bits[order])
    children = number[branches.yes[order]] - alone  # what no bit lets take the first child takes the one behind it
    children[is_leaf] = ~np.arange(is_leaf.sum())
    feature = np.where(is_leaf | alone, 0, branches.feature[order])
    leaf_number = np.full(len(number), -1, np.int64)
    leaf_number[order[is_leaf]] = np.arange(is_leaf.sum())
    of_leaf = leaf_number[votes.leaf]
    by_leaf = np.argsort(of_leaf, kind="stable")
    by_leaf = by_leaf[of_leaf[by_leaf] >= 0]
    firsts = np.searchsorted(of_leaf[by_leaf], np.arange(is_leaf.sum() + 1))
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    whole = (feature << BITS | bits, children, starts, firsts, votes.target[by_leaf])
    i32 = [array.astype(np.int32) for array in whole]
    return Forest(i32[0], branches.threshold[order], i32[1], i32[2], i32[3], i32[4], votes.weight[by_leaf])


def _breadth_first(branches: Branches, fail: Fail) -> tuple[np.ndarray, np.ndarray]:
    """Positions of all nodes that roots lead to, tree by tree and level by level, and how many each tree has."""
    inner = branches.yes >= 0
    own = [branches.yes[inner & ~branches.jumps], branches.no[inner & (branches.no >= 0)]]
    parents = np.bincount(np.concatenate(own), minlength=len(inner))
    if parents.size and parents.max() > 1:
        fail("a node has two parents", found=f"node {parents.argmax()} of the list")
    if np.bincount(branches.roots).max() > 1:
        fail("a node is in two trees", found=f"the root at {np.bincount(branches.roots).argmax()} of the list")
    level, tree = branches.roots, np.arange(len(branches.roots))
    levels, trees, seen = [level], [tree], len(level)
    while True:
        pairs = np.stack([np.where(branches.jumps[level], -1, branches.yes[level]), branches.no[level]], axis=1)
        tree = np.repeat(tree, 2).reshape(-1, 2)[pairs >= 0]
        level = pairs[pairs >= 0]
        if not level.size:
            break
        seen += len(level)
        if seen > len(inner):
            fail("a node is its own ancestor", found=f"node {level[0]} of the list")
        levels.append(level)
        trees.append(tree)
    all_trees = np.concatenate(trees)
    order = np.concatenate(levels)[np.argsort(all_trees, kind="stable")]
    if np.bincount(order).max() > 1:
        fail("a node is in two trees", found=f"node {np.bincount(order).argmax()} of the list")
    return order, np.bincount(all_trees, minlength=len(branches.roots))
