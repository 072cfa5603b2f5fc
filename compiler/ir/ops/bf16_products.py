"""Products of bf16 summed in f32: what products of f32 become where a lower precision is asked for."""

from __future__ import annotations

from ..types import BF16, F32, TensorType
from .base import In, InferContext, Opt, TypeGroup, op
from .contraction import Conv, MatMul


class Half(TypeGroup):
    """Operands, whose products f32 holds exactly."""

    dtypes = frozenset({BF16})


class Single(TypeGroup):
    """A bias, which the sums start from."""

    dtypes = frozenset({F32})


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
