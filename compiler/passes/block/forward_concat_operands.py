"""Parts of a concatenation are read from the operands that they lie in; a concatenation of all parts is the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Operator
from ...ir.ops.gathering import Gather
from ...ir.ops.shape import Concat
from ...ir.ops.slicing import Slice, Split
from ...ir.types import Dim, TensorType
from ..base import BlockPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class ForwardConcatOperands(BlockPass):
    """Let Slice, Split and Gather of a Concat read its operands, and undo a Split whose parts are joined again.

    before: %1 = Concat(%x, %y) {axis=1}; %2, %3 = Split(%1) {axis=1}; %4 = Relu(%2); %5 = Neg(%3)
    after:  %4 = Relu(%x); %5 = Neg(%y)
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            rule = RULES.get(type(node.op))
            if rule is None or not all(_has_shape(v) for v in (*node.operands, *node.outputs)):
                continue
            found = rule(node, rw)
            if found is None or not all(new.tensor.same_logical(old.type) for new, old in zip(found, node.outputs)):
                rw.no_match("no operands of a Concat, nor all parts of a Split", node)
                continue
            rw.replace(node, found)
            changed = True
        return changed


def _has_shape(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.shape is not None


@dataclass(frozen=True)
class Joined:
    """A Concat as what lies where.

    Attributes:
        operands: one after the other. axis: along which, counted from the front.
        begins: where each of them begins, and last where all of them end.
        alone: whether a single operator reads the concatenation.
    """

    operands: tuple[Value, ...]
    axis: int
    begins: tuple[Dim, ...]
    alone: bool

    @classmethod
    def of(cls, value: Value) -> Joined | None:
        """What a Concat makes; None for anything else."""
        node = value.producer
        if node is None or not isinstance(node.op, Concat):
            return None
        axis = node.op.axis % value.tensor.rank
        begins: list[Dim] = [0]
        for v in node.operands:
            begins.append(begins[-1] + v.tensor.dims[axis])
        return cls(tuple(node.operands), axis, tuple(begins), len(value.uses) == 1 and not value.output_uses)

    def part(self, begin: Dim, end: Dim, node: Node, rw: Rewriter) -> Value | None:
        """Positions [begin, end) of the axis, as an operand, a part of one, or a shorter concatenation for `node`."""
        if begin in self.begins[:-1] and end in self.begins:
            first, last = self.begins.index(begin), self.begins.index(end)
            if last - first == 1:
                return self.operands[first]
            if 1 < last - first < len(self.operands) and self.alone:
                return rw.before(node).Concat(*self.operands[first:last], axis=self.axis)
        place = self.place(begin, end)
        if place is None:
            return None
        index, start, stop = place
        if (start, stop) == (0, self.operands[index].tensor.dims[self.axis]):
            return self.operands[index]
        rows = (np.array([n], np.int64) for n in (start, stop, self.axis))
        return rw.before(node).Slice(self.operands[index], *rows)

    def place(self, begin: Dim, end: Dim) -> tuple[int, int, int] | None:
        """The operand that holds all of [begin, end), and where there; None where sizes are open, or none does."""
        for index, (low, high) in enumerate(zip(self.begins, self.begins[1:])):
            if not (isinstance(begin, int) and isinstance(end, int) and isinstance(low, int) and isinstance(high, int)):
                return None
            if low <= begin < end <= high:
                return index, begin - low, end - low
        return None


def _slice(node: Node, rw: Rewriter) -> list[Value] | None:
    joined = Joined.of(node.operands[0])
    if joined is None:
        return None
    assert isinstance(node.op, Slice)
    ranges = node.op.ranges(node.context())
    for axis, (taken, size) in enumerate(zip(ranges, node.operands[0].tensor.dims)):
        if axis != joined.axis and (taken.start != 0 or taken.count != size or taken.step != 1):
            return None
    taken = ranges[joined.axis]
    found = joined.part(taken.start, taken.start + taken.count, node, rw) if taken.step == 1 else None
    return None if found is None else [found]


def _split(node: Node, rw: Rewriter) -> list[Value] | None:
    joined = Joined.of(node.operands[0])
    assert isinstance(node.op, Split)
    axis, sizes = node.op.sizes(node.context())
    if joined is None or axis != joined.axis:
        return None
    found: list[Value] = []
    begin: Dim = 0
    for size in sizes:
        part = joined.part(begin, begin + size, node, rw)
        if part is None:
            return None
        found.append(part)
        begin = begin + size
    return found


def _gather(node: Node, rw: Rewriter) -> list[Value] | None:
    """One position of the axis."""
    joined, index = Joined.of(node.operands[0]), node.operands[1]
    assert isinstance(node.op, Gather)
    known = index.known
    if joined is None or node.op.axis % node.operands[0].tensor.rank != joined.axis or known is None or known.ndim:
        return None
    at, size = known.item(), joined.begins[-1]
    if not isinstance(at, int) or not isinstance(size, int):
        return None
    place = joined.place(at + size * (at < 0), at + size * (at < 0) + 1)
    if place is None:
        return None
    operand, start, _ = place
    return [rw.before(node).Gather(joined.operands[operand], np.array(start, np.int64), axis=joined.axis)]


def _concat(node: Node, rw: Rewriter) -> list[Value] | None:
    """All parts of a Split in their order are what was split."""
    split = node.operands[0].producer
    if split is None or not isinstance(split.op, Split) or tuple(node.operands) != tuple(split.outputs):
        return None
    assert isinstance(node.op, Concat)
    axis, _ = split.op.sizes(split.context())
    return [split.operands[0]] if node.op.axis % node.output.tensor.rank == axis else None


RULES: dict[type[Operator], Callable[[Node, Rewriter], list[Value] | None]] = {
    Slice: _slice, Split: _split, Gather: _gather, Concat: _concat,
}  # fmt: skip
