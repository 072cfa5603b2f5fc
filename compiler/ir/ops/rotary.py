"""RotaryEmbedding: pairs of numbers of every token turned by an angle that grows with its position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

from ..types import BF16, F16, F32, Dim, Type
from .base import Attr, Composite, In, InferContext, Int64, Opt, op
from .casting import as_float, cast_to
from .signature import TypeGroup


class ShortFloat(TypeGroup):
    """What ONNX rotates."""

    dtypes = frozenset({F16, F32, BF16})


@op(since=23)
class RotaryEmbedding(Composite):
    """(x1 cos - x2 sin, x1 sin + x2 cos) of the two halves, or of all two neighbours, of the first numbers of a head.

    x is [N, heads, S, D], or [N, S, heads · D] with `num_heads`. The cosines and sines are [N, S, R/2], or rows
    [positions, R/2] that `position_ids` [N, S] picks. R is `rotary_embedding_dim`, or all of D; what lies beyond it
    stays. Su et al., "RoFormer", 2021.
    """

    x: In[ShortFloat]
    cos_cache: In[ShortFloat]
    sin_cache: In[ShortFloat]
    position_ids: Opt[Int64]
    interleaved: Attr[int] = 0
    num_heads: Attr[int] = 0
    rotary_embedding_dim: Attr[int] = 0

    def head_size(self, shape: Sequence[Dim]) -> Dim:
        """Numbers of a head."""
        return shape[-1] if len(shape) == 4 else shape[-1] // self.num_heads

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        shape = ctx.shape(0)
        if len(shape) not in (3, 4):
            ctx.fail("x must be [N, heads, S, D] or [N, S, heads · D]", found=ctx.types[0])
        if len(shape) == 3 and self.num_heads < 1:
            ctx.fail("num_heads must say how many heads lie in the last axis", expected=">= 1", found=self.num_heads)
        size = self.head_size(shape)
        if not isinstance(size, int) or not isinstance(shape[-1], int):
            ctx.unsupported("the size of a head must be known at compile time", found=ctx.types[0])
        if len(shape) == 3 and shape[-1] % self.num_heads:
            ctx.fail("heads must divide the last axis", expected=f"a multiple of {self.num_heads}", found=shape[-1])
        rotated = self.rotary_embedding_dim or size
        if rotated % 2 or not 0 < rotated <= size:
            ctx.fail("rotated numbers come in pairs", expected=f"an even number up to {size}", found=rotated)
        self._check_caches(ctx, (shape[0], shape[-2] if len(shape) == 4 else shape[1]), rotated // 2)
        return [ctx.tensor(0)]

    def _check_caches(self, ctx: InferContext, tokens: tuple[Dim, Dim], pairs: int) -> None:
        picked = ctx.has(3)
        if picked and ctx.rank(3) != 2:
            ctx.fail("position_ids must be [N, S]", found=ctx.types[3])
        for i, name in ((1, "cos_cache"), (2, "sin_cache")):
            shape = ctx.shape(i)
            if len(shape) != (2 if picked else 3):
                expected = "[positions, R/2] beside position_ids" if picked else "[N, S, R/2] without position_ids"
                ctx.fail(f"{name} has the wrong rank", expected=expected, found=ctx.types[i])
            ctx.equal(pairs, shape[-1], f"{name} must have a number for each pair that is rotated")
            for size, dim in () if picked else zip(tokens, shape[:2], strict=True):
                ctx.equal(size, dim, f"{name} must have a row for each token of x")
        if picked:
            ctx.equal(ctx.shape(1)[0], ctx.shape(2)[0], "cos_cache and sin_cache must have as many positions")
            for size, dim in zip(tokens, ctx.shape(3), strict=True):
                ctx.equal(size, dim, "position_ids must have a number for each token of x")

    def expand(self, g: PyAny, x: PyAny, cos: PyAny, sin: PyAny, position_ids: PyAny = None) -> PyAny:
        dims = x.type.dims
        size, apart = self.head_size(dims), len(dims) == 4
        assert isinstance(size, int)  # or `infer` refuses it
        wide = as_float(g, x if apart else g.Reshape(x, [0, 0, self.num_heads, size]))
        if position_ids is not None:
            cos, sin = (g.Gather(cache, position_ids) for cache in (cos, sin))
        cos, sin = (as_float(g, g.Unsqueeze(cache, [1 if apart else 2])) for cache in (cos, sin))
        rotated = self.rotary_embedding_dim or size
        x1, x2 = self._pairs(g, wide, rotated)
        parts = [g.Sub(g.Mul(x1, cos), g.Mul(x2, sin)), g.Add(g.Mul(x1, sin), g.Mul(x2, cos))]
        if self.interleaved:
            pairs = g.Concat(*(g.Unsqueeze(part, [-1]) for part in parts), axis=-1)
            parts = [g.Reshape(pairs, [0, 0, 0, rotated])]
        if rotated < size:
            parts.append(_columns(g, wide, rotated, size))
        y = cast_to(g, g.Concat(*parts, axis=-1) if len(parts) > 1 else parts[0], x.type.dtype)
        return y if apart else g.Reshape(y, [0, 0, dims[-1]])

    def _pairs(self, g: PyAny, x: PyAny, rotated: int) -> tuple[PyAny, PyAny]:
        if not self.interleaved:
            return _columns(g, x, 0, rotated // 2), _columns(g, x, rotated // 2, rotated)
        pairs = g.Reshape(_columns(g, x, 0, rotated), [0, 0, 0, rotated // 2, 2])
        first, second = (g.Squeeze(_columns(g, pairs, i, i + 1), [-1]) for i in range(2))
        return first, second


def _columns(g: PyAny, x: PyAny, start: int, end: int) -> PyAny:
    return g.Slice(x, [start], [end], [-1])
