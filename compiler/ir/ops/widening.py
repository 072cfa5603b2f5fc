"""Products of whole numbers of 8 and 16 bits by weights, in i32: what quantised products are computed by."""

from __future__ import annotations

from ..types import I8, I16, I32, U8, TensorType
from . import layout_policies
from .base import Attr, In, InferContext, Opt, TypeGroup, op
from .contraction import Conv, MatMul


class Short(TypeGroup):
    """What bytes less their zero points are."""

    dtypes = frozenset({I16})


class Narrow(TypeGroup):
    """Weights less their zero points."""

    dtypes = frozenset({I8, I16})


class Byte(TypeGroup):
    """Bytes as they are, with their zero points."""

    dtypes = frozenset({U8})


class SignedByte(TypeGroup):
    """Weights less their zero points where they fit a byte."""

    dtypes = frozenset({I8})


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

    layout_policy = layout_policies.ChannelsLast(reads_few=False)

    def infer(self, ctx: InferContext) -> list[TensorType]:
        return [t.with_dtype(I32) for t in super().infer(ctx)]


@op(domain="parax")
class ByteMatMul(WideningMatMul):
    """MatMul of numbers from 0 to 255 by numbers from -128 to 127, modulo 2^32."""

    a: In[Byte]  # type: ignore[assignment]
    b: In[SignedByte]  # type: ignore[assignment]


@op(domain="parax")
class ByteConv(WideningConv):
    """Conv of numbers from 0 to 255 by numbers from -128 to 127, modulo 2^32; `margin` is what padding consists of."""

    x: In[Byte]  # type: ignore[assignment]
    w: In[SignedByte]  # type: ignore[assignment]
    margin: Attr[int] = 0
