"""Attention as one operator: what exporters write as a product, a softmax and a product."""

from __future__ import annotations

import math
from typing import Any as PyAny

from . import layout_policies
from .base import Attr, Composite, Float, In, Opt, Rows, Shapes, Work, op
from .work_rules import SOFTMAX_FLOPS


@op(domain="parax")
class DotProductAttention(Composite):
    """softmax(scale · q kt + mask) v, in which q is [.., M, D], kt [.., D, S], v [.., S, E] and mask broadcasts."""

    q: In[Float]
    kt: In[Float]
    v: In[Float]
    mask: Opt[Float]
    scale: Attr[float] = 1.0
    layout_policy = layout_policies.KeepsInner()

    def expand(self, g: PyAny, q: PyAny, kt: PyAny, v: PyAny, mask: PyAny = None) -> PyAny:
        return g.MatMul(self.weights(g, g.MatMul(q, kt), mask), v)

    def weights(self, g: PyAny, scores: PyAny, mask: PyAny) -> PyAny:
        """What v's rows are multiplied by."""
        if self.scale != 1.0:
            scores = g.Mul(scores, self.scale)
        if mask is not None:
            scores = g.Add(scores, mask)
        return g.Softmax(scores, axis=-1)

    def row_axis(self, rows: Rows) -> int:
        """Rows count heads, or batches of them, in queries, keys, values and, where it has them, the mask."""
        rank, a = rows.result.rank, rows.given[0]
        mask = rows.given[3] if len(rows.given) > 3 else None
        if a is None or a >= rank - 2 or rows.given[1] != a or rows.given[2] != a:
            raise rows.interact("rows attend to each other")
        if mask is not None and mask + rank - rows.ctx.rank(3) != a:
            raise rows.interact("rows of the mask lie elsewhere")
        return a

    def work(self, shapes: Shapes) -> Work:
        q, kt, v = (shapes.operand(i) for i in range(3))
        scores = math.prod(q[:-1]) * kt[-1]
        return Work("attention", scores * (2 * (q[-1] + v[-1]) + SOFTMAX_FLOPS))
