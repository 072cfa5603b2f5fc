"""Products of bf16 summed in f32: what products of f32 become where a lower precision is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

from ..types import BF16, F32, DType, TensorType, Type
from .attention import DotProductAttention
from .base import Attr, In, InferContext, Opt, TypeGroup, op
from .contraction import Conv, ConvTranspose, MatMul
from .elementwise import Cast


class Half(TypeGroup):
    """Operands, whose products f32 holds exactly."""

    dtypes = frozenset({BF16})


class Single(TypeGroup):
    """A bias, which the sums start from."""

    dtypes = frozenset({F32})


@op(domain="parax")
class RoundToBf16(Cast):
    """x as bf16 that products of bf16 read; denormals, which these take for zeros, may be zeros already."""

    x: In[Single]  # type: ignore[assignment]
    to: Attr[DType] = BF16

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if self.to != BF16:
            ctx.fail("rounds to nothing else", expected=BF16.name, found=self.to.name)
        return super().infer(ctx)

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.round_to_bf16(x)


@op(domain="parax")
class Bf16MatMul(MatMul):
    """MatMul of bf16, in f32."""

    a: In[Half]  # type: ignore[assignment]
    b: In[Half]  # type: ignore[assignment]

    def infer(self, ctx: InferContext) -> list[TensorType]:
        return [t.with_dtype(F32) for t in super().infer(ctx)]


@op(domain="parax")
class Bf16Conv(Conv):
    """Conv of bf16, in f32."""

    x: In[Half]  # type: ignore[assignment]
    w: In[Half]  # type: ignore[assignment]
    b: Opt[Single]  # type: ignore[assignment]

    def infer(self, ctx: InferContext) -> list[TensorType]:
        return [t.with_dtype(F32) for t in super().infer(ctx)]


@op(domain="parax")
class Bf16ConvTranspose(ConvTranspose):
    """ConvTranspose of bf16, in f32."""

    x: In[Half]  # type: ignore[assignment]
    w: In[Half]  # type: ignore[assignment]
    b: Opt[Single]  # type: ignore[assignment]

    def infer(self, ctx: InferContext) -> list[TensorType]:
        return [t.with_dtype(F32) for t in super().infer(ctx)]


@op(domain="parax")
class Bf16Attention(DotProductAttention):
    """DotProductAttention of bf16, whose products are summed in f32; its softmax and its mask are f32, too.

    The result is rounded to bf16, as are the softmax's numbers before they multiply v.
    """

    q: In[Half]  # type: ignore[assignment]
    kt: In[Half]  # type: ignore[assignment]
    v: In[Half]  # type: ignore[assignment]
    mask: Opt[Single]  # type: ignore[assignment]

    def expand(self, g: PyAny, q: PyAny, kt: PyAny, v: PyAny, mask: PyAny = None) -> PyAny:
        weights = self.weights(g, g.Bf16MatMul(q, kt), mask)
        return g.RoundToBf16(g.Bf16MatMul(g.RoundToBf16(weights), v))
