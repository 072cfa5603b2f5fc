"""A matrix product behind a flattened channels-last tensor takes its weights' rows in that order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.axis_orders import reshape_order
from ...ir.bands import turned
from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Movement, Relayout
from ...ir.ops.contraction import Gemm, MatMul
from ..base import BlockPass
from ..rewrite import Rewriter

MOST_NBYTES = 64 << 20
"""Of weights that are permuted: of larger ones the copy would be the most memory that a compilation takes, while moving
the activation takes less than a hundredth of such a product's time."""


@dataclass(frozen=True)
class FoldFlatten(BlockPass):
    """Permute constant weights at compile time instead of moving the activation at run time.

    before: %1 = Relayout(%x{0,2,3,1}); %2 = Flatten(%1); %3 = Gemm(%2, %w)
    after:  %1 = Transpose(%x) {perm=[0,2,3,1]}; %2 = Reshape(%1); %3 = Gemm(%2, %w')     where the first two are views
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if isinstance(node.op, Relayout) and node.output.tensor.layout is None:
                changed |= _fold(node, rw)
        return changed


def _fold(node: Node, rw: Rewriter) -> bool:
    x, order = node.operands[0], node.operands[0].tensor.axis_order
    if order[0] != 0 or node.output.output_uses:
        return rw.no_match("the outermost axis moves, or the graph returns it", node)
    if not node.output.users or any(_products(view, x) is None for view in node.output.users):
        why = "something else than products of the flattened tensor reads it, or their weights are too large"
        return rw.no_match(why, node)
    sizes = [int(d) for d in x.tensor.dims[1:]]  # type: ignore[arg-type]
    for view in node.output.users:
        g = rw.before(view)
        turned = g.Transpose(x, perm=order)
        turned.type = turned.tensor.with_layout(None)
        flat = g.Reshape(turned, [-1, int(np.prod(sizes))])
        for product in view.output.users:
            transposed = bool(getattr(product.op, "transB", False))
            w = product.operands[1]
            assert w.data is not None
            weights = rw.graph.add_constant(_reordered(w.data, sizes, order, transposed), w.name)
            rw.replace_op(product, product.op, [flat, weights, *product.inputs[2:]])
        rw.erase(view)
    rw.erase(node)
    return True


def _reordered(w: np.ndarray, sizes: list[int], order: tuple[int, ...], transposed: bool) -> np.ndarray:
    """The weights with the axis that the flattened tensor meets (the second if `transposed`) in memory order."""
    if transposed:
        return turned(w.reshape(-1, *sizes), order).reshape(w.shape)
    return turned(w.reshape(*sizes, -1), (*[a - 1 for a in order[1:]], len(sizes))).reshape(w.shape)


def _products(view: Node, x: Value) -> list[Node] | None:
    """The products with constant weights that alone read `view`, which keeps axis 0 and merges all others."""
    dims = x.tensor.dims
    is_view = isinstance(view.op, Movement) and view.op.is_view
    if not is_view or view.output.tensor.rank != 2 or view.output.output_uses:
        return None
    whole = view.output.tensor.dims[0] == dims[0] and all(isinstance(d, int) for d in dims[1:])
    if not whole or reshape_order(x.tensor, view.output.tensor.dims) is not None:
        return None
    for product in view.output.users:
        if type(product.op) not in (Gemm, MatMul) or product.inputs[0] is not view.output:
            return None
        w = product.operands[1]
        if w.data is None or w.tensor.rank != 2 or getattr(product.op, "transA", False) or w is product.inputs[0]:
            return None
        if any(v is view.output for v in product.inputs[1:]) or w.data.nbytes > MOST_NBYTES:
            return None
    return view.output.users
