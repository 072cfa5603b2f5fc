"""A look-up in flattened rows by row number · row length + place is a look-up inside each row.

Exporters write `mask[batch_index, place]` that way; without the row numbers the rows are plainly independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Movement
from ...ir.ops.elementwise import Add, Mul
from ...ir.ops.filling import Range
from ...ir.ops.gathering import Gather
from ...ir.types import Dim, SymDim
from ..base import BlockPass
from ..rewrite import Rewriter
from .algebraic_simplification import uniform


@dataclass(frozen=True)
class UnflattenGathers(BlockPass):
    """Gather within rows instead of across the flattened rows.

    before: %1 = Range(0, N, 1); %2 = Add(Mul(Reshape(%1) [N,1], S), %k); %3 = Gather(Reshape(%x) [N·S], %2)
    after:  %3 = Gather(Reshape(%x) [N,S], %k) {axis=1}
    after:  %3 = Reshape(%x) [N,S]                        where %k = 0, 1, … S - 1, and S may be open
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if isinstance(node.op, Gather):
                changed |= _unflatten(node, rw)
        return changed


def _unflatten(node: Node, rw: Rewriter) -> bool:
    data, index = node.operands
    if node.op.axis % data.tensor.rank != 0:  # type: ignore[attr-defined]
        return rw.no_match("not along the first axis", node)
    parts = _rows_and_places(index)
    if parts is None:
        return rw.no_match("the index is no sum of a multiple of row numbers and places", node)
    rows, step, places = parts
    length, count = _number(step), _counted(rows, 0)
    if count is None or length is None or data.tensor.dims[0] != count * length:
        return rw.no_match("the row numbers are not those of the data", node)
    rank, rest = index.tensor.rank, data.tensor.dims[1:]
    if not rows.tensor.rank == places.tensor.rank == rank or places.tensor.dims[0] != 1:
        return rw.no_match("each row has places of its own", node)
    if not all(isinstance(d, int) and d > 0 for d in rest):
        return rw.no_match("rows of unknown shape", node)
    g = rw.before(node)
    if _are_all(places, length):
        sizes = [places.tensor.dims[i] for i in range(1, rank)]
        of_places = [step if size == length and isinstance(size, SymDim) else size for size in sizes]
        rw.replace(node, g.Reshape(data, _shape(g, [_limit(rows), *of_places, *rest]), allowzero=1))
        return True
    constant = places.data
    if constant is None or not isinstance(length, int) or constant.size == 0:
        return rw.no_match("the places are not known", node)
    if constant.min() < 0 or constant.max() >= length:
        return rw.no_match("a place outside of its row", node)
    by_row = g.Reshape(data, [-1, length, *rest])
    rw.replace(node, g.Gather(by_row, constant[0], axis=1))
    return True


def _rows_and_places(index: Value) -> tuple[Value, Value, Value] | None:
    """(row numbers, row length, places), if `index` is row numbers · row length + places."""
    add = index.producer
    if add is None or not isinstance(add.op, Add):
        return None
    for scaled, places in (add.operands, add.operands[::-1]):
        mul = scaled.producer
        if mul is None or not isinstance(mul.op, Mul):
            continue
        for rows, step in (mul.operands, mul.operands[::-1]):
            if _number(step) is not None and _counted(rows, 0) is not None:
                return rows, step, places
    return None


def _number(v: Value) -> Dim | None:
    """What a value of one element is known to be, if it is a size of 1 and more, or an open one."""
    if v.known is None or v.known.size != 1:
        return None
    size = v.known.flat[0]
    return size if isinstance(size, SymDim) or size > 0 else None


def _are_all(places: Value, length: Dim) -> bool:
    """Whether the places are 0, 1, … length - 1 along one axis."""
    if places.data is not None:
        return isinstance(length, int) and np.array_equal(places.data.ravel(), np.arange(length))
    axes = [a for a, d in enumerate(places.tensor.dims) if d != 1]
    return len(axes) == 1 and _counted(places, axes[0]) == length


def _counted(v: Value, axis: int) -> Dim | None:
    """n, if `v` is 0, 1, … n - 1 along an axis, n is open, and all other axes are of size 1."""
    dims = v.tensor.dims
    if axis >= len(dims) or not isinstance(dims[axis], SymDim) or any(d != 1 for i, d in enumerate(dims) if i != axis):
        return None
    maker = _maker(v)
    if maker is None or not isinstance(maker.op, Range):
        return None
    start, limit, delta = maker.operands
    counts = limit.known is not None and limit.known.size == 1 and limit.known.ravel()[0] == dims[axis]
    return dims[axis] if uniform(start) == 0 and uniform(delta) == 1 and counts else None


def _maker(v: Value) -> Node | None:
    """The node that makes the elements of `v`, behind views of them."""
    maker = v.producer
    while maker is not None and isinstance(maker.op, Movement) and maker.op.is_view:
        maker = maker.operands[0].producer
    return maker


def _limit(rows: Value) -> Value:
    maker = _maker(rows)
    assert maker is not None  # `_counted` holds
    return maker.operands[1]


def _shape(g: GraphBuilder, sizes: Sequence[Dim | Value]) -> Value:
    """A shape of numbers and of values that hold one."""
    if all(isinstance(d, int) for d in sizes[1:]):
        return g.const([-1, *sizes[1:]])
    parts = [g.const([d]) if not isinstance(d, Value) else d if d.tensor.rank else g.Reshape(d, [1]) for d in sizes]
    return g.Concat(*parts, axis=0)
