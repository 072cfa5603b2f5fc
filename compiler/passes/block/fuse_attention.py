"""The products and the softmax of attention become one operator, whose kernel keeps no matrix of scores in memory.

Owns what is taken for attention. Scores that something else reads, too, stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.attention import DotProductAttention
from ...ir.ops.base import Operator
from ...ir.ops.contraction import MatMul
from ...ir.ops.elementwise import Add, Div, Mul
from ...ir.ops.softmax import Softmax
from ...ir.types import F32, Dim
from ..base import BlockPass
from ..rewrite import Rewriter
from .algebraic_simplification import uniform


@dataclass(frozen=True)
class FuseAttention(BlockPass):
    """Merge the two products of attention, the scale and the mask between them, and the softmax.

    before: %1 = MatMul(%q, %k); %2 = Mul(%1, 0.125); %3 = Add(%2, %m); %4 = Softmax(%3); %5 = MatMul(%4, %v)
    after:  %5 = parax::DotProductAttention(%q, %k, %v, %m) {scale=0.125}
    """

    min_queries: int = 8  # with fewer, bringing k and v into the kernel's order takes longer than the products

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if node.graph is graph and type(node.op) is MatMul:
                changed |= self._fuse(node, rw)
        return changed

    def _fuse(self, node: Node, rw: Rewriter) -> bool:
        weights, v = node.operands
        softmax = _alone(weights, Softmax)
        if softmax is None or softmax.op.axis % weights.tensor.rank != weights.tensor.rank - 1:  # type: ignore[attr-defined]
            return rw.no_match("no softmax over the last axis feeds it alone", node)
        scores, mask, scale = softmax.operands[0], None, 1.0
        add = _alone(scores, Add)
        if add is not None:
            scores, mask = add.operands if _is_scores(add.operands[0]) else reversed(add.operands)
        factor = _alone(scores, Mul, Div)
        if factor is not None:
            scores, number = factor.operands if _is_scores(factor.operands[0]) else reversed(factor.operands)
            by = uniform(number)
            if by is None or by == 0 or (isinstance(factor.op, Div) and number is not factor.operands[1]):
                return rw.no_match("the scores are not scaled by a number", node)
            scale = float(by) if isinstance(factor.op, Mul) else 1 / float(by)
            if not np.finfo(np.float32).tiny <= abs(scale) <= np.finfo(np.float32).max:
                return rw.no_match("f32 does not hold the scale", node)
            if not factor.output.tensor.same_logical(scores.tensor):
                return rw.no_match("the scale has a shape of its own", node)
        product = _alone(scores, MatMul)
        if product is None:
            return rw.no_match("the scores are no product of which nobody else reads a part", node)
        q, kt = product.operands
        reason = self._refusal(q, kt, v, mask)
        if reason:
            return rw.no_match(reason, node)
        operands = [q, kt, v] if mask is None else [q, kt, v, mask]
        rw.replace(node, rw.before(node).add(DotProductAttention(scale=scale), operands))
        return True

    def _refusal(self, q: Value, kt: Value, v: Value, mask: Value | None) -> str:
        """Why the kernel does not take the operands, "" if it does."""
        types = [x.tensor for x in (q, kt, v)]
        if any(t.dtype != F32 for t in (*types, *([mask.tensor] if mask is not None else []))):
            return "not f32"
        if any(t.rank < 3 or t.dims[:-2] != types[0].dims[:-2] for t in types):
            return "the heads of queries, keys and values differ"
        queries, size, width = types[0].dims[-2], types[0].dims[-1], types[2].dims[-1]
        if isinstance(queries, int) and queries < self.min_queries:
            return "too few queries"
        if not isinstance(size, int) or not isinstance(width, int) or 0 in (size, width):
            return "heads of unknown size"
        scores: tuple[Dim, ...] = (*types[0].dims[:-1], types[1].dims[-1])
        if mask is not None:
            dims = (1,) * (len(scores) - mask.tensor.rank) + mask.tensor.dims
            if len(dims) != len(scores) or any(d not in (1, s) for d, s in zip(dims, scores, strict=True)):
                return "the mask is larger than the scores"
        return ""


def _alone(v: Value, *kinds: type[Operator]) -> Node | None:
    """The operator of one of these kinds that makes `v` for a single reader."""
    made = v.producer
    return made if made is not None and type(made.op) in kinds and len(v.uses) == 1 and not v.output_uses else None


def _is_scores(v: Value) -> bool:
    """Whether a product makes `v`, or a scaled one."""
    made = _alone(v, MatMul, Mul, Div)
    return made is not None and (type(made.op) is MatMul or any(_alone(x, MatMul) for x in made.operands))
