"""Attention as one operator: what exporters write as a product, a softmax and a product."""

from __future__ import annotations

from typing import Any as PyAny

from .base import Attr, Composite, Float, In, Opt, op


@op(domain="parax")
class DotProductAttention(Composite):
    """softmax(scale · q kt + mask) v, in which q is [.., M, D], kt [.., D, S], v [.., S, E] and mask broadcasts."""

    q: In[Float]
    kt: In[Float]
    v: In[Float]
    mask: Opt[Float]
    scale: Attr[float] = 1.0

    def expand(self, g: PyAny, q: PyAny, kt: PyAny, v: PyAny, mask: PyAny = None) -> PyAny:
        scores = g.MatMul(q, kt)
        if self.scale != 1.0:
            scores = g.Mul(scores, self.scale)
        if mask is not None:
            scores = g.Add(scores, mask)
        return g.MatMul(g.Softmax(scores, axis=-1), v)
