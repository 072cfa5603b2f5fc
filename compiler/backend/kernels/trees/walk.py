"""WalkTrees: several walks at once, as a step waits for the one before it and other walks need not.

    for part, block of rows (work items, parts outermost, so that a part's trees stay in the cache for all rows):
        for tree of the part: for some rows of the block: walk them to their leaves, add the votes of each
        for each row that is left: for some trees of the part: walk them, add the votes in the trees' order

A step is `node += step[node] + (x[feature[node]] <= threshold[node])`, without a branch; a walk that has reached its
leaf stays there, as its step is 0 and its threshold NaN, until the others have. Each row's votes are added in the
trees' order, whatever walks side by side. A node is 8 bytes where it can be, so that a tree of some thousand nodes fits
the first cache; 12 or 16 for thresholds in f64, large trees and large numbers of features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....ir.graph import Node
from ....ir.ops.tree_nodes import BITS_AT, EQUAL, LEAF_BITS, LESS, MISSING, STEP_AT, WIDE_BITS_AT
from ....ir.ops.tree_walk import ROWS, WalkTrees, row_blocks
from ....ir.types import BOOL, I32, I64, U32, DType
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...lowering import KernelCall, LowerContext, lowers

ROW_WALKS, TREE_WALKS = 16, 16  # side by side: while one waits for a cache, others step
LINE_NBYTES = 64  # of a cache line
STEPS = 4  # between two looks whether all walks are at their leaves


@lowers(WalkTrees)
def lower_walk_trees(ctx: LowerContext, node: Node) -> KernelCall:
    """A work item for each part of the trees and block of rows."""
    assert isinstance(node.op, WalkTrees)
    op, x, y = node.op, node.operands[0], node.output
    n_trees, dtype = node.operands[2].tensor.dims[0] - 1, x.tensor.dtype
    parts, rows, _ = y.tensor.dims
    blocks = row_blocks(rows)
    site = ctx.error_site(node, f"too few features for the trees, which need {op.features}")

    def build(name: str) -> KFunc:
        ints = ("nodes", "roots", "firsts", "targets")
        names = ("x", "nodes", "roots", "firsts", "targets", "weights", "y")
        k = ctx.kernel(name, [(n, PtrType(I32 if n in ints else dtype)) for n in names])
        width = k.index(x.tensor.dims[1])
        walk = _Walks(k, op, dtype, width)

        def item(work: KValue, _: list[KValue]) -> None:
            part, block = k.udiv(work, blocks), k.urem(work, blocks)
            first = part * op.trees_per_part
            last = k.min(first + op.trees_per_part, k.index(n_trees))
            low = block * ROWS
            walk.run(part * k.index(rows), low, k.min(low + ROWS, k.index(rows)), first, last)

        enough = width >= op.features
        k.if_(enough, lambda: k.for_(k["begin"], k["end"], 1, [], item), lambda: k.fail(site))
        return k.func

    func = ctx.function("walk_trees", node, build, site)
    return KernelCall(func, (*node.operands, y), blocks * parts, node.name,
                      nbytes=x.tensor.nbytes + y.tensor.nbytes + sum(v.tensor.nbytes for v in node.operands[1:]))


class _Walks:
    """Emits walks of rows through trees."""

    def __init__(self, k: Builder, op: WalkTrees, dtype: DType, width: KValue) -> None:
        self.k, self.op, self.dtype, self.width = k, op, dtype, width
        self.wide = dtype.nbytes // 4  # words of a threshold, which a node's own words follow
        self.stride = self.wide + (1 if op.short else 2)

    def run(self, part: KValue, low: KValue, high: KValue, first: KValue, last: KValue) -> None:
        """Rows [low, high) through trees [first, last); `part` counts the rows of the parts before."""
        k, n = self.k, self.k.index(self.op.n_targets)
        nothing = k.const(0.0 if self.op.kind == "SUM" else np.nan, self.dtype)
        k.for_((part + low) * n, (part + high) * n, 1, [], lambda i, _: k.store(k["y"], i, nothing))
        side_by_side = low + k.udiv(high - low, ROW_WALKS) * ROW_WALKS

        def tree(number: KValue, _: list[KValue]) -> None:
            fetch = self._prefetcher(number, last, k.udiv(high - low, ROW_WALKS))

            def rows(row: KValue, _: list[KValue]) -> None:
                every = [row + i for i in range(ROW_WALKS)]
                fetch(k.udiv(row - low, ROW_WALKS))
                self._together([number] * ROW_WALKS, every, part)

            k.for_(low, side_by_side, ROW_WALKS, [], rows)

        def trees_of_row(row: KValue, _: list[KValue]) -> None:
            middle = first + k.udiv(last - first, TREE_WALKS) * TREE_WALKS

            def trees(t: KValue, _: list[KValue]) -> None:
                self._together([t + i for i in range(TREE_WALKS)], [row] * TREE_WALKS, part)

            k.for_(first, middle, TREE_WALKS, [], trees)
            k.for_(middle, last, 1, [], lambda t, _: self._together([t], [row], part))

        any_group = side_by_side > low  # else the loop is not worth its steps
        k.for_(k.select(any_group, first, last), last, 1, [], tree)
        k.for_(side_by_side, high, 1, [], trees_of_row)

    def _prefetcher(self, tree: KValue, last: KValue, times: KValue) -> Callable[[KValue], None]:
        """A function that asks for a share of the tree behind this one, to be called so many times."""
        k, per_line = self.k, LINE_NBYTES // 4
        begin, end = (k.cast(k.load(k["roots"], k.min(tree + i, last)), I64) * self.stride for i in (1, 2))
        share = k.udiv(end - begin, k.max(times, 1) * per_line) * per_line + per_line

        def fetch(which: KValue) -> None:
            low = begin + which * share
            k.for_(low, k.min(low + share, end), per_line, [], lambda at, _: k.prefetch(k["nodes"], at, 2))

        return fetch

    def _together(self, trees: Sequence[KValue], rows: Sequence[KValue], part: KValue) -> None:
        """Walk some pairs of trees and rows to their leaves, then add the leaves' votes in this order."""
        k = self.k
        bases = [row * self.width for row in rows]
        starts = [k.cast(k.load(k["roots"], t), I64) for t in trees]

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
        own_bits = not self.op.test or self.op.missing
        bits_at = BITS_AT if self.op.short else WIDE_BITS_AT
        feature_bits = bits_at if own_bits or not self.op.short else STEP_AT
        x = k.load(k["x"], base + k.cast(word & ((1 << feature_bits) - 1), I64))
        step = word >> STEP_AT if self.op.short else k.bitcast(self._word(node, self.stride - 1), I32)
        passed = self._passes(x, threshold, word >> bits_at)
        return node + k.cast(step, I64) + k.select(passed, k.const(1, I64), k.const(0, I64))

    def _passes(self, x: KValue, threshold: KValue, bits: KValue) -> KValue:
        k = self.k
        known = {LESS: "lt", EQUAL: "eq", LESS | EQUAL: "le"}.get(self.op.test)
        if known:
            passed = k.compare(known, x, threshold)
        else:
            passed = (x < threshold) & self._bit(bits, LESS) | k.compare("eq", x, threshold) & self._bit(bits, EQUAL)
        return passed | (k.is_nan(x) & self._bit(bits, MISSING)) if self.op.missing else passed

    def _bit(self, word: KValue, bit: int) -> KValue:
        return self.k.cast(word & bit, BOOL)

    def _vote(self, leaf: KValue, to: KValue) -> None:
        """Add a leaf's votes to the row's targets from y[to] on."""
        k, at = self.k, self.k.cast(leaf, I64)

        def add(vote: KValue) -> None:
            place = to if self.op.n_targets == 1 else to + k.cast(k.load(k["targets"], vote), I64)
            k.store(k["y"], place, self._combined()(k.load(k["y"], place), k.load(k["weights"], vote)))

        if self.op.one_vote:
            add(at)
        else:
            begin, end = (k.cast(k.load(k["firsts"], at + i), I64) for i in (0, 1))
            k.for_(begin, end, 1, [], lambda vote, _: add(vote))

    def _combined(self) -> Callable[[KValue, KValue], KValue]:
        k = self.k
        if self.op.kind == "SUM":
            return lambda total, weight: total + weight
        return lambda best, weight: k.select(
            k.is_nan(best) | (weight < best if self.op.kind == "MIN" else weight > best), weight, best
        )
