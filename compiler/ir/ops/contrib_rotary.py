"""ONNX Runtime's RotaryEmbedding: ONNX's, with the positions before the caches, and counted from one number on demand.

Source: docs/ContribOperators.md of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import Type
from .base import Attr, Composite, In, InferContext, Int64, op
from .rotary import ShortFloat


def counted_from(g: PyAny, first: PyAny, x: PyAny, batch: int, tokens: int) -> PyAny:
    """Positions [N, S] that count from the numbers `first`, [1] or [N, 1]; N and S are axes of x. i64."""
    count = g.Squeeze(g.Shape(x, start=tokens, end=tokens + 1), [0])
    positions = g.Add(first, g.Range(np.int64(0), count, np.int64(1)))
    sizes = g.Concat(*(g.Shape(x, start=a, end=a + 1) for a in (batch, tokens)), axis=0)
    return g.Expand(positions, sizes)


@op(domain="com.microsoft", name="RotaryEmbedding")
class MicrosoftRotaryEmbedding(Composite):
    """ONNX's RotaryEmbedding with rows of the caches that `position_ids` picks: [N, S], or [1], the first position.

    x is [N, heads, S, D], or [N, S, heads · D] in which D is twice a cache's columns, or as `num_heads` says beside
    `rotary_embedding_dim`. Batches without padding (`is_packed_batching`) and a `scale`, which ONNX Runtime does not
    apply, are refused.
    """

    x: In[ShortFloat]
    position_ids: In[Int64]
    cos_cache: In[ShortFloat]
    sin_cache: In[ShortFloat]
    interleaved: Attr[int] = 0
    is_packed_batching: Attr[int] = 0
    num_heads: Attr[int] = 0
    rotary_embedding_dim: Attr[int] = 0
    scale: Attr[float] = 1.0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if self.is_packed_batching:
            ctx.unsupported("batches without padding (is_packed_batching)")
        if self.scale != 1:
            ctx.unsupported("a scale of a rotary embedding", found=self.scale)
        if self.rotary_embedding_dim and self.num_heads < 1:
            ctx.fail("rotary_embedding_dim needs num_heads", expected=">= 1", found=self.num_heads)
        if ctx.rank(0) not in (3, 4):
            ctx.fail("x must be [N, heads, S, D] or [N, S, heads · D]", found=ctx.types[0])
        if ctx.rank(2) != 2:
            ctx.fail("cos_cache must be [positions, R/2]", found=ctx.types[2])
        if ctx.rank(1) == 1:
            ctx.equal(1, ctx.shape(1)[0], "position_ids without a batch must be the first position alone")
        elif ctx.rank(1) != 2:
            ctx.fail("position_ids must be [N, S] or [1]", found=ctx.types[1])
        if ctx.rank(0) == 3:
            self._check_heads(ctx)
        return super().infer(ctx)

    def _check_heads(self, ctx: InferContext) -> None:
        size, pairs = ctx.shape(0)[-1], ctx.shape(2)[1]
        if not isinstance(size, int) or not isinstance(pairs, int):
            ctx.unsupported("the size of a head must be known at compile time", found=f"{ctx.types[0]}, {ctx.types[2]}")
        if self.num_heads < 1 and (pairs < 1 or size % (2 * pairs)):
            ctx.fail("heads must divide the last axis", expected=f"a multiple of {2 * pairs}", found=size)

    def expand(self, g: PyAny, x: PyAny, position_ids: PyAny, cos: PyAny, sin: PyAny) -> PyAny:
        apart = x.tensor.rank == 4
        heads = self.num_heads
        if not apart and not heads:
            heads = x.tensor.dims[-1] // (2 * cos.tensor.dims[1])
        if position_ids.tensor.rank == 1:
            position_ids = counted_from(g, position_ids, x, 0, 2 if apart else 1)
        return g.RotaryEmbedding(x, cos, sin, position_ids, interleaved=self.interleaved,
                                 num_heads=0 if apart else heads, rotary_embedding_dim=self.rotary_embedding_dim)
