"""The nodes of decision trees as a kernel walks them: flat arrays, children side by side, one kind of test for all.

A test is made of three bits: whether values less than the threshold, equal to it, and missing ones take the first
child; all others take the second. Tests that greater values pass are turned round, children with them. The second
child lies before the first, so that `node + step + passed` is the next node, and a leaf, which nothing passes and whose
step is 0, leads to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, NoReturn

import numpy as np

LESS, EQUAL, MISSING, GREATER = 1, 2, 4, 8
STEP_AT, BITS_AT, WIDE_BITS_AT = 16, 13, 28
"""Where in a node's word its step and its test's bits begin; features are below, of one test for all up to the step."""
LEAF_BITS = 22
"""Of a threshold in f32 that is NaN, for the number of a leaf; in f64 it has a word of its own."""
MODES = {"BRANCH_LEQ": LESS | EQUAL, "BRANCH_LT": LESS, "BRANCH_GTE": EQUAL | GREATER, "BRANCH_GT": GREATER,
         "BRANCH_EQ": EQUAL, "BRANCH_NEQ": LESS | GREATER}  # fmt: skip
_SPARSE = 8  # times as many places as nodes has a table of them at most
MOST_FEATURES = 1 << WIDE_BITS_AT
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


class Packed(NamedTuple):
    """Nodes as the kernel reads them: i32[nodes * stride], and whether a node's word has its step, too.

    A node is its threshold (of a leaf: a NaN with the leaf's number in its low bits), then either one word,
    step << STEP_AT | bits << BITS_AT | feature, or the words bits << WIDE_BITS_AT | feature and step.
    """

    words: np.ndarray
    short: bool


@dataclass(frozen=True)
class Forest:
    """Trees as the kernel walks them, one behind the other, each depth first, the larger of two branches first.

    Attributes:
        features, bits, thresholds: [nodes], of leaves 0, 0 and any.
        steps: [nodes], from a node to its second child, behind which the first lies; 0 for a leaf.
        leaves: [nodes], a leaf's number.
        roots: i32[trees + 1], each tree's first node, and how many nodes there are.
        firsts: i32[leaves + 1], a leaf's first vote. targets: i32[votes]. weights: [votes].
    """

    features: np.ndarray
    bits: np.ndarray
    thresholds: np.ndarray
    steps: np.ndarray
    leaves: np.ndarray
    roots: np.ndarray
    firsts: np.ndarray
    targets: np.ndarray
    weights: np.ndarray

    def packed(self, dtype: type[np.floating]) -> Packed:
        """The nodes with thresholds of this type, which must have bits enough for the number of every leaf."""
        stored = self.thresholds.astype(dtype).view(np.int32).reshape(len(self.steps), -1)
        leaf = self.steps == 0
        stored[leaf] = np.array([np.nan], dtype).view(np.int32)
        stored[leaf, 0] |= self.leaves[leaf].astype(np.int32)
        bits = np.zeros_like(self.bits) if self.one_test else self.bits
        most_features = 1 << (STEP_AT if self.one_test else BITS_AT)
        short = self.steps.min() >= 0 and self.steps.max() < 1 << 32 - STEP_AT and self.n_features <= most_features
        if short:
            words = [self.steps << STEP_AT | bits << BITS_AT | self.features]
        else:
            words = [bits << WIDE_BITS_AT | self.features, self.steps]
        columns = [word.astype(np.uint32).view(np.int32)[:, None] for word in words]
        return Packed(np.concatenate([stored, *columns], axis=1).ravel(), bool(short))

    @cached_property
    def tests(self) -> tuple[int, bool]:
        """LESS | EQUAL, … where all nodes have that test, 0 where they differ; and whether missing values matter."""
        bits = self.bits[self.steps != 0]
        kinds = np.unique(bits & (LESS | EQUAL))
        return (int(kinds[0]) if len(kinds) == 1 else 0), bool((bits & MISSING).any())

    @property
    def one_test(self) -> bool:
        """Whether no node needs bits of its own."""
        test, missing = self.tests
        return test != 0 and not missing

    @cached_property
    def n_features(self) -> int:
        """That x must have at least."""
        inner = self.features[self.steps != 0]
        return int(inner.max()) + 1 if inner.size else 0

    @cached_property
    def depth(self) -> int:
        """Steps to a leaf of a usual tree, about: as in one whose branches are alike."""
        return max(1, round(float(np.log2(max(self.n_leaves / self.n_trees, 1)))))

    @property
    def n_trees(self) -> int:
        """Whose roots follow each other."""
        return len(self.roots) - 1

    @property
    def n_leaves(self) -> int:
        """Of all trees."""
        return len(self.firsts) - 1

    @property
    def fits_f32(self) -> bool:
        """Whether thresholds in f32 can have the leaves' numbers, and are what the thresholds and weights are."""
        exact = (np.array_equal(a, a.astype(np.float32), equal_nan=True) for a in (self.thresholds, self.weights))
        return self.n_leaves <= 1 << LEAF_BITS and all(exact)

    def of_one_target(self) -> Forest:
        """With all votes for target 0."""
        return replace(self, targets=np.zeros_like(self.targets))

    @property
    def one_vote(self) -> bool:
        """Whether every leaf has one vote, which then has the leaf's number."""
        return len(self.targets) == self.n_leaves and bool((np.diff(self.firsts) == 1).all())


class Unpacked(NamedTuple):
    """Nodes as `Forest` has them, back from their words: of leaves, features and bits are 0 and thresholds any."""

    features: np.ndarray
    bits: np.ndarray
    thresholds: np.ndarray
    steps: np.ndarray
    leaves: np.ndarray


def unpacked(packed: Packed, dtype: type[np.floating], test: int, missing: bool) -> Unpacked:
    """The nodes that `Forest.packed` gave, whose `Forest.tests` were these."""
    n_words = np.dtype(dtype).itemsize // 4
    table = packed.words.reshape(-1, n_words + (1 if packed.short else 2))
    thresholds = np.ascontiguousarray(table[:, :n_words]).view(dtype)[:, 0]
    word = table[:, n_words].view(np.uint32).astype(np.int64)
    steps = word >> STEP_AT if packed.short else table[:, -1].astype(np.int64)
    own_bits = test == 0 or missing
    bits_at = BITS_AT if packed.short else WIDE_BITS_AT
    feature_bits = bits_at if own_bits or not packed.short else STEP_AT
    bits = (word >> bits_at) & (LESS | EQUAL | MISSING) if own_bits else np.full_like(word, test)
    leaf = steps == 0
    numbers = table[:, 0].astype(np.int64) & ((1 << LEAF_BITS) - 1 if n_words == 1 else (1 << 32) - 1)
    return Unpacked(np.where(leaf, 0, word & ((1 << feature_bits) - 1)), np.where(leaf, 0, bits), thresholds, steps,
                    np.where(leaf, numbers, 0))  # fmt: skip


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
    levels = _levels(branches, fail)
    number, starts = _depth_first(branches, levels)
    order = np.concatenate(levels)
    order = order[np.argsort(number[order])]  # positions by numbers
    is_leaf = branches.yes[order] < 0
    alone = (branches.no[order] < 0) | branches.jumps[order]  # no bit: the second child, which is the only one
    taken_if_none = np.where(alone, branches.yes[order], branches.no[order])
    steps = np.where(is_leaf, 0, number[taken_if_none] - np.arange(len(order)))
    inner = ~is_leaf & ~alone
    leaves = np.where(is_leaf, np.cumsum(is_leaf) - 1, 0)
    leaf_number = np.full(len(number), -1, np.int64)
    leaf_number[order[is_leaf]] = np.arange(is_leaf.sum())
    of_leaf = leaf_number[votes.leaf]
    by_leaf = np.argsort(of_leaf, kind="stable")
    by_leaf = by_leaf[of_leaf[by_leaf] >= 0]
    firsts = np.searchsorted(of_leaf[by_leaf], np.arange(is_leaf.sum() + 1))
    counted = (np.append(starts, len(order)), firsts, votes.target[by_leaf])
    roots, first_votes, targets = (array.astype(np.int32) for array in counted)
    feature, bits = (np.where(inner, array[order], 0) for array in (branches.feature, branches.bits))
    threshold, weight = branches.threshold[order], votes.weight[by_leaf]
    return Forest(feature, bits, threshold, steps, leaves, roots, first_votes, targets, weight)


def _own_children(branches: Branches) -> tuple[np.ndarray, np.ndarray]:
    """Positions of each node's children that are its own, of `no` and of `yes`; -1: there is none."""
    return branches.no, np.where(branches.jumps, -1, branches.yes)


def _levels(branches: Branches, fail: Fail) -> list[np.ndarray]:
    """Positions of the nodes that roots lead to: all roots, all their children, and so on."""
    no, yes = _own_children(branches)
    parents = np.bincount(np.concatenate([yes[yes >= 0], no[(yes >= 0) & (no >= 0)]]), minlength=len(yes))
    if parents.size and parents.max() > 1:
        fail("a node has two parents", found=f"node {parents.argmax()} of the list")
    if np.bincount(branches.roots).max() > 1:
        fail("a node is in two trees", found=f"the root at {np.bincount(branches.roots).argmax()} of the list")
    levels, seen = [branches.roots], len(branches.roots)
    while True:
        pairs = np.stack([no[levels[-1]], yes[levels[-1]]], axis=1)
        level = pairs[pairs >= 0]
        if not level.size:
            break
        seen += len(level)
        if seen > len(yes):
            fail("a node is its own ancestor", found=f"node {level[0]} of the list")
        levels.append(level)
    times = np.bincount(np.concatenate(levels))
    if times.max() > 1:
        fail("a node is in two trees", found=f"node {times.argmax()} of the list")
    return levels


def _depth_first(branches: Branches, levels: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Each position's number, and each root's.

    A node's children lie side by side, then what is below the one with more nodes, as most rows go there, then what is
    below the other: a walk often finds its next node in the cache line that it has.
    """
    no, yes = _own_children(branches)
    below = np.zeros(len(yes) + 1, np.int64)  # nodes below each
    below[-1] = -1  # of a child that is not there, so that it counts as no node
    for level in reversed(levels):
        below[level] = below[no[level]] + below[yes[level]] + 2
    starts = np.concatenate(([0], np.cumsum(below[branches.roots] + 1)[:-1]))
    number = np.full(len(yes) + 1, -1, np.int64)
    first_below = np.zeros(len(yes) + 1, np.int64)  # number of each one's first child
    number[branches.roots], first_below[branches.roots] = starts, starts + 1
    for level in levels:
        first, second = no[level], yes[level]
        at = first_below[level]
        number[second] = at + (first >= 0)
        number[first] = at
        at = at + (first >= 0) + (second >= 0)
        larger = below[first] >= below[second]
        first_below[first] = np.where(larger, at, at + below[second])
        first_below[second] = np.where(larger, at + below[first], at)
    return number[:-1], starts
