"""The tops of trees, as bit vectors find the exits of rows from them.

The top of a tree is its root and nodes below it, each with its parent; an exit is what a row finds below them: a leaf,
or a node to walk on from. Exits are numbered from the branches that tests lead to on passing to the others, so that the
exit of a row is the first of those that no failed test rules out (Lucchese et al., "QuickScorer: a fast algorithm to
rank documents with additive ensembles of regression trees", SIGIR 2015). A node that does not pass rules out the exits
below its first branch: a mask of 32 bits.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ....ir.ops.tree_nodes import Unpacked

EXITS = 32  # of a tree at most: the bits of a mask
GROUP = 4  # nodes of a tree are a multiple of it: a loop of so many at once has as many turns for trees alike


@dataclass(frozen=True)
class Shape:
    """What lies below each node: [nodes], of those that a root leads to by tests.

    Attributes:
        branches: whether a test leads from here to two children, at `second` and behind it.
        leaves: below, one of a leaf itself. steps: to all of them together.
    """

    branches: np.ndarray
    second: np.ndarray
    leaves: np.ndarray
    steps: np.ndarray


def shape_of(nodes: Unpacked, roots: np.ndarray) -> Shape | None:
    """None where roots lead in circles or nowhere, as those of no model do."""
    n = len(nodes.steps)
    branches, second = (nodes.steps != 0) & (nodes.bits != 0), np.arange(n) + nodes.steps
    leaves, steps = np.ones(n, np.int64), np.zeros(n, np.int64)
    levels, seen, level = [], 0, roots[:-1].astype(np.int64)
    while level.size:
        seen += level.size
        if seen > n or level.min() < 0 or level.max() >= n:
            return None
        levels.append(level[branches[level]])
        level = np.concatenate([second[levels[-1]], second[levels[-1]] + 1])
    for level in reversed(levels):
        for values in (leaves, steps):
            values[level] = values[second[level]] + values[second[level] + 1]
        steps[level] += leaves[level]
    return Shape(branches, second, leaves, steps)


@dataclass(frozen=True)
class Tops:
    """Tops of all trees.

    Attributes:
        firsts: i32[trees + 1], each tree's first entry of `nodes` and `masks`. nodes: [entries], their numbers.
        masks: u32[entries], 0 for exits that failing rules out.
        exits: i32[trees, EXITS], nodes; that of number e is in column e - 1, the first one's is the last column.
        counts: [trees], of exits. whole: whether all exits are leaves.
    """

    firsts: np.ndarray
    nodes: np.ndarray
    masks: np.ndarray
    exits: np.ndarray
    counts: np.ndarray
    whole: bool

    @cached_property
    def n_trees(self) -> int:
        """Whose tops they are."""
        return len(self.exits)

    def shares(self, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
        """Of all trees' exits: the share of its tree's leaves below each, and the mean of steps from it to a leaf."""
        trees = np.repeat(np.arange(self.n_trees), self.counts)
        numbers = np.concatenate([np.arange(count) for count in self.counts])
        at = self.exits[trees, numbers - 1]
        below = shape.leaves[at]
        return below / np.bincount(trees, below)[trees], shape.steps[at] / below


def tops_of(shape: Shape, nodes: Unpacked, roots: np.ndarray, least_share: float) -> Tops:
    """Of each tree, the nodes that most leaves are below; none with less than a share of the tree's leaves."""
    firsts, entries, masks, exits, counts = [0], [], [], [], []
    for root in roots[:-1].tolist():
        top = _Top(shape, root, least_share)
        padding = -len(top.nodes) % GROUP
        entries += [*top.nodes, *[root] * padding]
        masks += [*top.masks, *[(1 << EXITS) - 1] * padding]
        firsts.append(len(entries))
        counts.append(len(top.exits))
        exits.append(np.roll([*top.exits, *top.exits[:1] * (EXITS - len(top.exits))], -1))
    whole = bool((nodes.steps[np.concatenate(exits)] == 0).all())
    return Tops(np.array(firsts, np.int32), np.array(entries, np.int64), np.array(masks, np.uint32),
                np.array(exits, np.int32), np.array(counts), whole)  # fmt: skip


class _Top:
    """A tree's: nodes, their masks, and exits in order."""

    def __init__(self, shape: Shape, root: int, least_share: float) -> None:
        self.shape = shape
        self.nodes: list[int] = []
        self.masks: list[int] = []
        self.exits: list[int] = []
        self._chosen = self._choose(root, least_share * int(shape.leaves[root]))
        self._number(root)

    def _choose(self, root: int, least: float) -> set[int]:
        """Nodes to test, those with most leaves first."""
        shape, chosen, waiting = self.shape, set[int](), [(-int(self.shape.leaves[root]), root)]
        while waiting and len(chosen) + 1 < EXITS:
            leaves, node = heapq.heappop(waiting)
            if -leaves < least or not shape.branches[node]:
                continue
            chosen.add(node)
            for child in self._children(node):
                heapq.heappush(waiting, (-int(shape.leaves[child]), child))
        return chosen

    def _children(self, node: int) -> Sequence[int]:
        """The one that passing leads to, and the other one."""
        second = int(self.shape.second[node])
        return second + 1, second

    def _number(self, node: int) -> None:
        if node not in self._chosen:
            self.exits.append(node)
            return
        passed, failed = self._children(node)
        at, first = len(self.nodes), len(self.exits)
        self.nodes.append(node)
        self.masks.append(0)
        self._number(passed)
        self.masks[at] = (1 << EXITS) - 1 ^ (1 << len(self.exits)) - (1 << first)
        self._number(failed)
