"""A matrix product between two reshapes that merge and split its rows takes the rows as they are."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Movement
from ...ir.ops.contraction import Gemm, MatMul
from ..base import BlockPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class UnflattenProducts(BlockPass):
    """Multiply without merging the leading axes, so that transposes around the product can be views.

    before: %1 = Reshape(%x) [A·B, K]; %2 = Gemm(%1, %w, %b); %3 = Reshape(%2) [A, B, M]
    after:  %2 = MatMul(%x, %w); %3 = Add(%2, %b)
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if node.graph is graph and _is_view(node):
                changed |= _unflatten(node, rw)
        return changed


def _is_view(node: Node | None) -> bool:
    return node is not None and isinstance(node.op, Movement) and node.op.is_view


def _unflatten(node: Node, rw: Rewriter) -> bool:
    product = node.operands[0].producer
    alone = len(node.operands[0].uses) == 1 and not node.operands[0].output_uses
    if product is None or type(product.op) not in (Gemm, MatMul) or not alone or product.output.tensor.rank != 2:
        return rw.no_match("no matrix product of a single use feeds it", node)
    merge = product.operands[0].producer
    if merge is None or not _is_view(merge):
        return rw.no_match("the product's rows are not merged before", node)
    x, w = merge.operands[0], _plain_weights(product)
    if w is None:
        return rw.no_match("not a plain product with constant weights", node)
    rows, result = x.tensor.dims[:-1], node.output.tensor.dims
    if x.tensor.rank < 3 or result[:-1] != rows or x.tensor.dims[-1] != w.tensor.dims[0]:
        return rw.no_match("the rows are split in another way than they were merged", node)
    g = rw.before(node, product.name)
    made = g.MatMul(x, w)
    rw.replace(node, g.Add(made, product.inputs[2]) if len(product.inputs) > 2 else made)
    rw.erase(product)
    return True


def _plain_weights(product: Node) -> Value | None:
    """The constant weights as [K, M], if the product is x · w plus at most a vector."""
    w, op = product.operands[1], product.op
    if w.data is None or w.tensor.rank != 2:
        return None
    if type(op) is MatMul:
        return w
    c = product.inputs[2] if len(product.inputs) > 2 else None
    if op.transA or op.alpha != 1 or (c is not None and (op.beta != 1 or c.tensor.rank > 1)):  # type: ignore[attr-defined]
        return None
    if not op.transB:  # type: ignore[attr-defined]
        return w
    assert product.graph is not None
    return product.graph.add_constant(w.data.T, w.name)
