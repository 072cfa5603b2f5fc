"""A look-up in flattened rows by row number · row length + place is a look-up inside each row.

Exporters write `mask[batch_index, place]` that way; without the row numbers the rows are plainly independent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Movement
from ...ir.types import Dim, SymDim
from ..base import BlockPass
from ..rewrite import Rewriter
from .algebraic_simplification import uniform


@dataclass(frozen=True)
class UnflattenGathers(BlockPass):
    """Gather within rows instead of across the flattened rows.

    before: %1 = Range(0, N, 1); %2 = Add(Mul(Reshape(%1) [N,1], S), %k); %3 = Gather(Reshape(%x) [N·S], %2)
    after:  %3 = Gather(Reshape(%x) [N,S], %k) {axis=1}
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if node.op.name == "Gather":
                changed |= _unflatten(node, rw)
        return changed


def _unflatten(node: Node, rw: Rewriter) -> bool:
    data, index = node.operands
    if node.op.axis % data.tensor.rank != 0:  # type: ignore[attr-defined]
        return rw.no_match("not along the first axis", node)
    add = index.producer
    if add is None or add.op.name != "Add" or add.operands[1].data is None:
        return rw.no_match("the index is no sum with a constant", node)
    scaled, places = add.operands[0].producer, add.operands[1].data
    step = uniform(scaled.operands[1]) if scaled is not None and scaled.op.name == "Mul" else None
    if scaled is None or not isinstance(step, int) or step < 1:
        return rw.no_match("the index is no multiple of row numbers", node)
    rows = _row_numbers(scaled.operands[0])
    if rows is None or data.tensor.dims[0] != rows * step or places.ndim != index.tensor.rank or places.shape[0] != 1:
        return rw.no_match("the row numbers are not those of the data", node)
    if places.size == 0 or places.min() < 0 or places.max() >= step:
        return rw.no_match("a place outside of its row", node)
    rest = data.tensor.dims[1:]
    if not all(isinstance(d, int) and d > 0 for d in rest):
        return rw.no_match("rows of unknown shape", node)
    g = rw.before(node)
    by_row = g.Reshape(data, [-1, step, *rest])
    if np.array_equal(places.ravel(), np.arange(step)):
        rw.replace(node, g.Reshape(by_row, [-1, *places.shape[1:], *rest]))
    else:
        rw.replace(node, g.Gather(by_row, places[0], axis=1))
    return True


def _row_numbers(v: Value) -> Dim | None:
    """n, if `v` is 0, 1, … n - 1 along its first axis, all other axes being of size 1."""
    dims = v.tensor.dims
    if not dims or not isinstance(dims[0], SymDim) or any(d != 1 for d in dims[1:]):
        return None
    maker = v.producer
    while maker is not None and isinstance(maker.op, Movement) and maker.op.is_view:
        maker = maker.operands[0].producer
    if maker is None or maker.op.name != "Range":
        return None
    start, limit, delta = maker.operands
    ends = limit.known
    counts = ends is not None and ends.size == 1 and ends.ravel()[0] == dims[0]
    return dims[0] if uniform(start) == 0 and uniform(delta) == 1 and counts else None
