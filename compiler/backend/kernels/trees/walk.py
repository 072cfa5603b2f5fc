"""WalkTrees: several walks at once, as a step waits for the one before it and other walks need not.

    for part, block of rows (work items, parts outermost, so that a part's trees stay in the cache for all rows):
        for 8 rows of the block: for tree of the part: walk 8 rows to their leaves, add the votes of each
        for each row that is left: for 8 trees of the part: walk them, add the votes in the trees' order

A step is `node = child[node] + not (x[feature[node]] <= threshold[node])`, without a branch; a walk that has reached
its leaf waits there for the others. Each row's votes are added in the trees' order, whatever walks side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....ir.graph import Node
from ....ir.ops.tree_nodes import BITS, EQUAL, LESS, MISSING
from ....ir.ops.tree_walk import ROWS, WalkTrees, row_blocks
from ....ir.types import BOOL, I32, I64, DType
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...lowering import KernelCall, LowerContext, lowers

WALKS = 8  # side by side: a load of each is on its way at any time


@lowers(WalkTrees)
def lower_walk_trees(ctx: LowerContext, node: Node) -> KernelCall:
    """A work item for each part of the trees and block of rows."""
    assert isinstance(node.op, WalkTrees)
    op, x, y = node.op, node.operands[0], node.output
    n_trees, dtype = node.operands[2].tensor.dims[0], x.tensor.dtype
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
        self.wide = dtype.nbytes // 4  # words of a threshold, which a node's word and its first child follow

    def run(self, part: KValue, low: KValue, high: KValue, first: KValue, last: KValue) -> None:
        """Rows [low, high) through trees [first, last); `part` counts the rows of the parts before."""
        k, n = self.k, self.k.index(self.op.n_targets)
        nothing = k.const(0.0 if self.op.kind == "SUM" else np.nan, self.dtype)
        k.for_((part + low) * n, (part + high) * n, 1, [], lambda i, _: k.store(k["y"], i, nothing))
        side_by_side = low + k.udiv(high - low, WALKS) * WALKS

        def tree(number: KValue, _: list[KValue]) -> None:
            def rows(row: KValue, _: list[KValue]) -> None:
                every = [row + i for i in range(WALKS)]
                self._together([number] * WALKS, every, part)

            k.for_(low, side_by_side, WALKS, [], rows)

        def trees_of_row(row: KValue, _: list[KValue]) -> None:
            middle = first + k.udiv(last - first, WALKS) * WALKS

            def trees(t: KValue, _: list[KValue]) -> None:
                self._together([t + i for i in range(WALKS)], [row] * WALKS, part)

            k.for_(first, middle, WALKS, [], trees)
            k.for_(middle, last, 1, [], lambda t, _: self._together([t], [row], part))

        k.for_(first, last, 1, [], tree)
        k.for_(side_by_side, high, 1, [], trees_of_row)

    def _together(self, trees: Sequence[KValue], rows: Sequence[KValue], part: KValue) -> None:
        """Walk some pairs of trees and rows to their leaves, then add the leaves' votes in this order."""
        k = self.k
        bases = [row * self.width for row in rows]
        starts = [k.load(k["roots"], t) for t in trees]
        init = [*starts, *map(self._child, starts)]

        def look(values: list[KValue]) -> tuple[KValue, list[KValue]]:
            any_inside = values[len(trees)] >= 0
            for child in values[len(trees) + 1 :]:
                any_inside = any_inside | (child >= 0)
            return any_inside, values

        def step(values: list[KValue]) -> list[KValue]:
            nodes, children = values[: len(trees)], values[len(trees) :]
            moved = [self._step(*walk) for walk in zip(nodes, children, bases, strict=True)]
            return [*moved, *map(self._child, moved)]

        ends = k.while_(init, look, step)
        for row, child in zip(rows, ends[len(trees) :], strict=True):
            self._vote(~child, (part + row) * self.op.n_targets)

    def _at(self, node: KValue) -> KValue:
        return self.k.cast(node, I64) * (self.wide + 2)

    def _child(self, node: KValue) -> KValue:
        return self.k.load(self.k["nodes"], self._at(node) + (self.wide + 1))

    def _step(self, node: KValue, child: KValue, base: KValue) -> KValue:
        """The child that a row goes to; a leaf itself."""
        k = self.k
        at = self._at(node)
        word = k.load(k["nodes"], at + self.wide)
        threshold = k.bitcast(k.load(k["nodes"], at, self.wide), self.dtype)
        x = k.load(k["x"], base + k.cast(k.binary("shr", word, BITS), I64))
        first = self._takes_first(x, threshold, word)
        return k.select(child >= 0, child + k.select(first, k.const(0, I32), k.const(1, I32)), node)

    def _takes_first(self, x: KValue, threshold: KValue, word: KValue) -> KValue:
        k = self.k
        known = {LESS: "lt", EQUAL: "eq", LESS | EQUAL: "le"}.get(self.op.test)
        if known:
            first = k.compare(known, x, threshold)
        else:
            first = (x < threshold) & self._bit(word, LESS) | k.compare("eq", x, threshold) & self._bit(word, EQUAL)
        return first | (k.is_nan(x) & self._bit(word, MISSING)) if self.op.missing else first

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
