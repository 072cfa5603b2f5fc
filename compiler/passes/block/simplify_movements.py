"""Chains of reshapes, transposes, slices and joins become one; shape operands that shapes decide become constants.

Owns the rules for operators that only move elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Movement, Operator
from ...ir.ops.shape import Concat, Flatten, Reshape, Squeeze, Transpose, Unsqueeze
from ...ir.ops.slicing import Pad, Slice
from ...ir.types import Dim, SymDim, TensorType
from ..base import BlockPass
from ..rewrite import Rewriter

FAR = 2**63 - 1


@dataclass(frozen=True)
class SimplifyMovements(BlockPass):
    """Merge movements that follow one another and make their shape operands constant.

    before: %1 = Transpose(%x) {perm=[1,0]}; %2 = Transpose(%1) {perm=[1,0]}; %3 = Relu(%2)      after: %3 = Relu(%x)
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            rule = RULES.get(type(node.op))
            if rule is None or len(node.outputs) != 1 or any(not _has_shape(v) for v in (*node.operands, node.output)):
                continue
            found = rule(node, rw)
            if found is None:
                rw.no_match("nothing to merge with", node)
            elif found.tensor.same_logical(node.output.type):
                rw.replace(node, found)
                changed = True
        return changed


def _has_shape(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.shape is not None


def constant_shape(source: Sequence[Dim], dims: Sequence[Dim]) -> list[int] | None:
    """A Reshape operand that gives `dims` from `source`: 0 copies a dimension, -1 is what is left."""
    if any(d == 0 for d in (*source, *dims)):
        return None
    unknown = [i for i, d in enumerate(dims) if isinstance(d, SymDim)]
    copied = [i for i in unknown if len(unknown) > 1 and i < len(source) and source[i] == dims[i]]
    if len(unknown) - len(copied) > 1:
        return None
    return [0 if i in copied else -1 if isinstance(d, SymDim) else int(d) for i, d in enumerate(dims)]


def _view(node: Node, rw: Rewriter) -> Value | None:
    """Reshape of a reshape is a reshape; a shape that is known but for one dimension is a constant."""
    x, dims = node.operands[0], node.output.tensor.dims
    inner = x.producer
    if inner is not None and isinstance(inner.op, Movement) and inner.op.is_view:
        x = inner.operands[0]
    elif not isinstance(node.op, Reshape) or node.operands[1].is_constant:
        return None
    if x.tensor.dims == dims:
        return x
    shape = constant_shape(x.tensor.dims, dims)
    if shape is not None:
        return rw.before(node).Reshape(x, shape)
    known = node.operands[1].known if isinstance(node.op, Reshape) and x is not node.operands[0] else None
    if known is None or any(d == 0 for d in known.flat):
        return None
    return rw.before(node).Reshape(x, node.operands[1])


def _transpose(node: Node, rw: Rewriter) -> Value | None:
    inner = node.operands[0].producer
    if inner is None or not isinstance(inner.op, Transpose):
        return None
    x = inner.operands[0]
    first = inner.op.order(x.tensor.rank)
    both = [first[a] for a in node.op.order(x.tensor.rank)]  # type: ignore[attr-defined]
    if both == list(range(len(both))):
        return x
    return rw.before(node).Transpose(x, perm=both)


def _concat(node: Node, rw: Rewriter) -> Value | None:
    rank, parts = node.output.tensor.rank, []
    axis = node.op.axis % rank  # type: ignore[attr-defined]
    for v in node.operands:
        inner = v.producer
        same = inner is not None and isinstance(inner.op, Concat) and inner.op.axis % rank == axis
        alone = len(v.uses) == 1 and not v.output_uses
        parts += inner.operands if inner is not None and same and alone else [v]
    return None if len(parts) == len(node.operands) else rw.before(node).Concat(*parts, axis=axis)


def _slice(node: Node, rw: Rewriter) -> Value | None:
    inner = node.operands[0].producer
    if inner is not None and isinstance(inner.op, Pad):
        return _cropped_margin(node, inner, rw)
    if inner is None or not isinstance(inner.op, Slice) or not isinstance(node.op, Slice):
        return None
    x, columns = inner.operands[0], []
    pairs = zip(inner.op.ranges(inner.context()), node.op.ranges(node.context()), x.tensor.dims, strict=True)
    for axis, (a, b, size) in enumerate(pairs):
        whole = all(r.start == 0 and r.step == 1 for r in (a, b)) and b.count == size
        if whole:
            continue
        if not (isinstance(a.start, int) and isinstance(b.start, int) and isinstance(b.count, int)) or b.count == 0:
            return None
        start = a.start + a.step * b.start
        step = a.step * b.step if b.count > 1 else 1  # of one element it may be beyond what int64 holds
        end: Any = start + step * (b.count - 1) + (1 if step > 0 else -1)
        columns.append((start, end if end >= 0 else -FAR, axis, step))
    if not columns:
        return x
    return rw.before(node).Slice(x, *(np.array(c, np.int64) for c in zip(*columns, strict=True)))


def _cropped_margin(node: Node, pad: Node, rw: Rewriter) -> Value | None:
    """A part of a tensor with constant margins is a part of the tensor with what is left of the margins."""
    assert isinstance(node.op, Slice) and isinstance(pad.op, Pad)
    x = pad.operands[0]
    if pad.op.mode != "constant" or len(pad.output.uses) != 1 or pad.output.output_uses:
        return None
    columns, before, after = [], [0] * x.tensor.rank, [0] * x.tensor.rank
    triples = zip(node.op.ranges(node.context()), pad.op.widths(pad.context()), x.tensor.dims, strict=True)
    for axis, (taken, (low, high), size) in enumerate(triples):
        start, count = taken.start, taken.count
        if (start, taken.step, low, high) == (0, 1, 0, 0) and count == size:
            continue
        numbers = (start, count, low, high, size)
        if taken.step != 1 or not all(isinstance(n, int) and n >= 0 for n in numbers):
            return None
        start, count, low, high, size = map(int, numbers)  # type: ignore[arg-type]
        first, end = max(start - low, 0), min(start + count - low, size)
        if first >= end:
            return None
        before[axis], after[axis] = max(low - start, 0), max(start + count - low - size, 0)
        if (first, end) != (0, size):
            columns.append((first, end, axis))
    g = rw.before(node)
    if columns:
        x = g.Slice(x, *(np.array(c, np.int64) for c in zip(*columns, strict=True)))
    value = pad.inputs[2] if len(pad.inputs) > 2 else None
    return rw.before(node, pad.name).Pad(x, np.array(before + after, np.int64), value) if any(before + after) else x


RULES: dict[type[Operator], Callable[[Node, Rewriter], Value | None]] = {
    Reshape: _view, Flatten: _view, Squeeze: _view, Unsqueeze: _view,
    Transpose: _transpose, Concat: _concat, Slice: _slice,
}  # fmt: skip
