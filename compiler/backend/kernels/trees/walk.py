"""Several walks at once, as a step waits for the one before it and other walks need not.

    for tree of a part: for some rows of a block: walk them to their leaves, add the votes of each
    for each row that is left: for some trees of the part: walk them, add the votes in the trees' order

A step is `node += step[node] + (x[feature[node]] <= threshold[node])`, without a branch; a walk that has reached its
leaf stays there, as its step is 0 and its threshold NaN, until the others have. Each row's votes are added in the
trees' order, whatever walks side by side. A node is 8 bytes where it can be, so that a tree of some thousand nodes fits
the first cache; 12 or 16 for thresholds in f64, large trees and large numbers of features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....ir.ops.tree_nodes import BITS_AT, LEAF_BITS, STEP_AT, WIDE_BITS_AT
from ....ir.ops.tree_walk import WalkTrees
from ....ir.types import I32, I64, U32, DType
from ....kernel_ir.builder import Builder, KValue
from .node_test import has_own_bits, passes

ROW_WALKS = 16  # rows side by side in a tree, whole vectors of them: while one waits, others step
TREE_WALKS = 12  # trees side by side of a row: as many as have a register each, of x86-64's 16, beside what all need
LINE_NBYTES = 64  # of a cache line
STEPS = 2  # between two looks whether all walks are at their leaves

Starts = Callable[[KValue], Callable[[KValue], KValue]]
"""Of a tree: what finds the nodes at which rows' walks through it begin, and gives a row's."""


class Walks:
    """Emits walks of rows through trees, by parameters called as WalkTrees's operands.

    Args:
        width: how many features a row has.
    """

    def __init__(self, k: Builder, op: WalkTrees, dtype: DType, width: KValue) -> None:
        self.k, self.op, self.dtype, self.width = k, op, dtype, width
        self.wide = dtype.nbytes // 4  # words of a threshold, which a node's own words follow
        self.stride = self.wide + (1 if op.short else 2)

    @property
    def nothing(self) -> float:
        """What votes begin from."""
        return 0.0 if self.op.kind == "SUM" else np.nan

    def run(
        self, part: KValue, low: KValue, high: KValue, first: KValue, last: KValue, starts: Starts | None = None
    ) -> None:
        """Rows [low, high) through trees [first, last); `part` counts the rows of the parts before.

        Args:
            starts: of walks of rows side by side, which are those below `side_by_side`; None: the roots.
        """
        k, n = self.k, self.k.index(self.op.n_targets)
        nothing = k.const(self.nothing, self.dtype)
        k.for_((part + low) * n, (part + high) * n, 1, [], lambda i, _: k.store(k["y"], i, nothing))
        middle = self.side_by_side(low, high)

        def tree(number: KValue, _: list[KValue]) -> None:
            fetch = self._prefetcher(number, last, k.udiv(high - low, ROW_WALKS))
            root = k.cast(k.load(k["roots"], number), I64)
            start = starts(number) if starts else lambda row: root

            def rows(row: KValue, _: list[KValue]) -> None:
                every = [row + i for i in range(ROW_WALKS)]
                fetch(k.udiv(row - low, ROW_WALKS))
                self._together([start(one) for one in every], every, part)

            k.for_(low, middle, ROW_WALKS, [], rows)

        any_group = middle > low  # else the loop is not worth its steps
        k.for_(k.select(any_group, first, last), last, 1, [], tree)
        k.for_(middle, high, 1, [], lambda row, _: self._trees_of_row(row, first, last, part))

    def side_by_side(self, low: KValue, high: KValue) -> KValue:
        """Of rows [low, high): the end of those that walk a tree together."""
        return low + self.k.udiv(high - low, ROW_WALKS) * ROW_WALKS

    def combined(self, total: KValue, weight: KValue) -> KValue:
        """Votes put together with one more."""
        k = self.k
        if self.op.kind == "SUM":
            return total + weight
        wins = weight < total if self.op.kind == "MIN" else weight > total
        return k.select(k.is_nan(total) | wins, weight, total)

    def _trees_of_row(self, row: KValue, first: KValue, last: KValue, part: KValue) -> None:
        k = self.k
        middle = first + k.udiv(last - first, TREE_WALKS) * TREE_WALKS

        def walk(trees: list[KValue]) -> None:
            roots = [k.cast(k.load(k["roots"], t), I64) for t in trees]
            self._together(roots, [row] * len(trees), part)

        k.for_(first, middle, TREE_WALKS, [], lambda t, _: walk([t + i for i in range(TREE_WALKS)]))
        k.for_(middle, last, 1, [], lambda t, _: walk([t]))

    def _prefetcher(self, tree: KValue, last: KValue, times: KValue) -> Callable[[KValue], None]:
        """A function that asks for a share of the tree behind this one, to be called so many times."""
        k, per_line = self.k, LINE_NBYTES // 4
        begin, end = (k.cast(k.load(k["roots"], k.min(tree + i, last)), I64) * self.stride for i in (1, 2))
        share = k.udiv(end - begin, k.max(times, 1) * per_line) * per_line + per_line

        def fetch(which: KValue) -> None:
            low = begin + which * share
            k.for_(low, k.min(low + share, end), per_line, [], lambda at, _: k.prefetch(k["nodes"], at, 2))

        return fetch

    def _together(self, starts: Sequence[KValue], rows: Sequence[KValue], part: KValue) -> None:
        """Walk some rows from nodes to leaves, then add the leaves' votes in this order."""
        k = self.k
        bases = [row * self.width for row in rows]

        def look(nodes: list[KValue]) -> tuple[KValue, list[KValue]]:
            """Whether any walk is not at a leaf; where all go from here."""
            words = [self._word(node, self.stride - 1) for node in nodes]
            every = words[0]
            for word in words[1:]:
                every = every | word
            return (every >> STEP_AT if self.op.short else every) != 0, nodes

        def steps(nodes: list[KValue]) -> list[KValue]:
            for _ in range(STEPS):
                nodes = [self._step(node, base) for node, base in zip(nodes, bases, strict=True)]
            return nodes

        ends = k.while_(starts, look, steps)
        for row, node in zip(rows, ends, strict=True):
            self._vote(self._leaf(node), (part + row) * self.op.n_targets)

    def _word(self, node: KValue, which: int) -> KValue:
        return self.k.bitcast(self.k.load(self.k["nodes"], node * self.stride + which), U32)

    def _leaf(self, node: KValue) -> KValue:
        """The number of a leaf."""
        word = self._word(node, 0)
        return self.k.cast(word if self.wide > 1 else word & ((1 << LEAF_BITS) - 1), I64)

    def _step(self, node: KValue, base: KValue) -> KValue:
        """The child that a row goes to; a leaf itself."""
        k = self.k
        word = self._word(node, self.wide)
        threshold = k.bitcast(k.load(k["nodes"], node * self.stride, self.wide), self.dtype)
        bits_at = BITS_AT if self.op.short else WIDE_BITS_AT
        feature_bits = bits_at if has_own_bits(self.op) or not self.op.short else STEP_AT
        x = k.load(k["x"], base + k.cast(word & ((1 << feature_bits) - 1), I64))
        step = word >> STEP_AT if self.op.short else k.bitcast(self._word(node, self.stride - 1), I32)
        passed = passes(k, self.op, x, threshold, word >> bits_at)
        return node + k.cast(step, I64) + k.select(passed, k.const(1, I64), k.const(0, I64))

    def _vote(self, leaf: KValue, to: KValue) -> None:
        """Add a leaf's votes to the row's targets from y[to] on."""
        k, at = self.k, self.k.cast(leaf, I64)

        def add(vote: KValue) -> None:
            place = to if self.op.n_targets == 1 else to + k.cast(k.load(k["targets"], vote), I64)
            k.store(k["y"], place, self.combined(k.load(k["y"], place), k.load(k["weights"], vote)))

        if self.op.one_vote:
            add(at)
        else:
            begin, end = (k.cast(k.load(k["firsts"], at + i), I64) for i in (0, 1))
            k.for_(begin, end, 1, [], lambda vote, _: add(vote))
