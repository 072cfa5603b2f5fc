"""Products of 16-bit whole numbers by weights of 8 or 16 bits, in i32: what quantised products are computed by."""

from __future__ import annotations

from ..types import I8, I16, I32, TensorType
from .base import In, InferContext, Opt, TypeGroup, op
from .contraction import Conv, MatMul


class Short(TypeGroup):
    """What bytes less their zero points are."""

    dtypes = frozenset({I16})


class Narrow(TypeGroup):
    """Weights less their zero points."""

    dtypes = frozenset({I8, I16})


class Sum(TypeGroup):
    """A bias in units of the products."""

    dtypes = frozenset({I32})


@op(domain="parax")
class WideningMatMul(MatMul):
    """MatMul of numbers from -255 to 255, modulo 2^32."""

    a: In[Short]  # type: ignore[assignment]
    b: In[Narrow]  # type: ignore[assignment]

    def infer(self, ctx: InferContext) -> list[TensorType]:
        return [t.with_dtype(I32) for t in super().infer(ctx)]


@op(domain="parax")
class WideningConv(Conv):
    """Conv of numbers from -255 to 255, modulo 2^32."""

    x: In[Short]  # type: ignore[assignment]
    w: In[Narrow]  # type: ignore[assignment]
    b: Opt[Sum]  # type: ignore[assignment]

    def infer(self, ctx: InferContext) -> list[TensorType]:
        return [t.with_dtype(I32) for t in super().infer(ctx)]
