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
from ...ir.ops.filling import Expand
from ...ir.ops.shape import Reshape, Transpose
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
        op = DotProductAttention(scale=scale)
        if not _share(node, op, (q, kt, v, mask), rw):
            operands = [q, kt, v] if mask is None else [q, kt, v, mask]
            rw.replace(node, rw.before(node).add(op, operands))
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


def _share(
    node: Node, op: DotProductAttention, operands: tuple[Value, Value, Value, Value | None], rw: Rewriter
) -> bool:
    """Attention of several heads to the keys and values of one, where these are repeated: as an axis of its own.

    before: %y = parax::DotProductAttention(%q, Repeated(%kt), Repeated(%v)) : f32[N,8,S,D]
    after:  %y = Reshape(parax::DotProductAttention(Reshape(%q), %kt, %v) : f32[N,2,4,S,D])
    """
    q, kt, v, mask = operands
    keys, values = _unrepeated(_turned(kt)), _unrepeated(v)
    if keys is None or values is None or keys.tensor.dims[1] != values.tensor.dims[1]:
        return False
    if mask is not None and mask.tensor.rank > 2 and mask.tensor.dims[-3] != 1:
        return rw.no_match("heads have masks of their own", node)
    one, many = keys.tensor.dims[1], q.tensor.dims[1]
    if not isinstance(one, int) or not isinstance(many, int):
        return rw.no_match("heads of unknown number", node)
    group, g = many // one, rw.before(node)
    apart = g.Reshape(q, np.array([0, one, group, -1, q.tensor.dims[-1]]))
    given = [apart, g.Transpose(keys, perm=(0, 1, 2, 4, 3)), values]
    if mask is not None:
        given.append(g.Unsqueeze(mask, np.array([1])) if mask.tensor.rank == 4 else mask)
    made = g.add(op, given)
    rw.replace(node, g.Reshape(made, np.array([0, many, -1, v.tensor.dims[-1]])))
    return True


def _turned(kt: Value) -> Value | None:
    """The keys that are transposed, if they are nothing else."""
    made = kt.producer
    if made is None or not isinstance(made.op, Transpose) or made.op.order(kt.tensor.rank) != (0, 1, 3, 2):
        return None
    return made.operands[0]


def _unrepeated(v: Value | None) -> Value | None:
    """[N,heads,1,S,D] of what is there once for each of several heads, [N,heads · several,S,D]."""
    merge = v.producer if v is not None else None
    if merge is None or not isinstance(merge.op, Reshape) or merge.output.tensor.rank != 4:
        return None
    repeat = merge.operands[0].producer
    if repeat is None or not isinstance(repeat.op, Expand) or repeat.output.tensor.rank != 5:
        return None
    wide, x = repeat.output.tensor.dims, repeat.operands[0]
    merged = (wide[0], wide[1] * wide[2], *wide[3:])
    fits = x.tensor.dims == (*wide[:2], 1, *wide[3:]) and merge.output.tensor.dims == merged
    return x if fits else None


def _alone(v: Value, *kinds: type[Operator]) -> Node | None:
    """The operator of one of these kinds that makes `v` for a single reader."""
    made = v.producer
    return made if made is not None and type(made.op) in kinds and len(v.uses) == 1 and not v.output_uses else None


def _is_scores(v: Value) -> bool:
    """Whether a product makes `v`, or a scaled one."""
    made = _alone(v, MatMul, Mul, Div)
    return made is not None and (type(made.op) is MatMul or any(_alone(x, MatMul) for x in made.operands))
