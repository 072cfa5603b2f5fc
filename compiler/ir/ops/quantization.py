"""QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F32, I8, I16, I32, NARROW, U8, U16, DType, TensorType, ceil_div
from .base import (
    Any,
    Any2,
    Attr,
    Composite,
    Effort,
    Elementwise,
    Float,
    Float2,
    In,
    InferContext,
    Numeric,
    Opt,
    op,
)
from .casting import as_float, cast_to

STORED = frozenset({U8, I8, U16, I16})


@op(domain="parax")
class RoundTo(Elementwise):
    """x rounded half to even, plus the zero point, saturated to the integer type `to`."""

    x: In[Float]
    zero_point: Opt[Any2]
    to: Attr[DType]
    effort = Effort.SINGLE

    def output_dtype(self, ctx: InferContext) -> DType:
        return self.to

    def compute(self, e: PyAny, x: PyAny, zero_point: PyAny = None) -> PyAny:
        known = zero_point is None or zero_point.const is not None
        if known and x.dtype == F32 and self.to.bits <= 16 and self.to.is_int:
            return e.round_to(x, self.to, 0 if zero_point is None else int(zero_point.const))
        y = e.round_even(x)
        return e.cast(y if zero_point is None else y + e.cast(zero_point, y.dtype), self.to)


def along_axis(g: PyAny, v: PyAny, x: TensorType, axis: int, block: int = 0) -> PyAny:
    """A scale or zero point shaped to broadcast against `x`: one number, one per index of `axis`, or blocks."""
    axis %= max(1, x.rank)
    if block:
        dims = v.tensor.static_shape
        wide = g.Expand(g.Unsqueeze(v, [axis + 1]), [*dims[: axis + 1], block, *dims[axis + 1 :]])
        wide = g.Reshape(wide, [*dims[:axis], dims[axis] * block, *dims[axis + 1 :]])
        return g.Slice(wide, [0], [x.static_shape[axis]], [axis])
    if v.tensor.rank == 0 or v.tensor.dims == (1,):
        return g.Reshape(v, np.zeros(0, np.int64)) if x.rank == 0 and v.tensor.rank else v
    return g.Reshape(v, [-1] + [1] * (x.rank - 1 - axis))


def _check_scale(ctx: InferContext, axis: int, block: int) -> None:
    shape, scale = ctx.shape(0), ctx.shape(1)
    if ctx.has(2) and ctx.shape(2) != scale and not (len(scale) <= 1 and len(ctx.shape(2)) <= 1):
        ctx.fail("scale and zero point must have the same shape", expected=ctx.types[1], found=ctx.types[2])
    if block < 0:
        ctx.fail("block_size must not be negative", found=block)
    if block:
        if len(scale) != len(shape):
            ctx.fail("blocked scales must have the rank of x", expected=len(shape), found=ctx.types[1])
        if not all(isinstance(size, int) for size in (*shape, *scale)):
            ctx.unsupported("blocks of a tensor with open dimensions", found=ctx.types[0])
        blocked = ctx.axis(axis, len(shape))
        for a, (size, given) in enumerate(zip(shape, scale, strict=True)):
            wanted = ceil_div(size, block) if a == blocked else size
            ctx.equal(given, wanted, "scale must have one number for each block along axis and each index of others")
    elif len(scale) == 1 and scale != (1,):
        ctx.equal(shape[ctx.axis(axis, len(shape))], scale[0], "scale must have one number for each index of axis")
    elif len(scale) > 1:
        ctx.fail("scale must be a number or a vector", found=ctx.types[1])


@op(since=23)
class QuantizeLinear(Composite):
    """saturate(round(x / scale) + zero_point), per tensor, per index of `axis`, or per block along it."""

    x: In[Numeric]
    y_scale: In[Float2]
    y_zero_point: Opt[Any]
    axis: Attr[int] = 1
    block_size: Attr[int] = 0
    output_dtype: Attr[int] = 0
    precision: Attr[int] = 0
    saturate: Attr[int] = 1

    def target(self, zero_point: PyAny) -> DType:
        """The element type of the result."""
        if zero_point is not None:
            return zero_point.type.dtype
        return DType.from_code(self.output_dtype) if self.output_dtype else U8

    def infer(self, ctx: InferContext) -> Sequence[PyAny]:
        _check_scale(ctx, self.axis, self.block_size)
        to = self.target(ctx.value(2))
        if to not in STORED and to not in NARROW:
            ctx.unsupported(f"quantisation to {to}")
        return [ctx.tensor(0).with_dtype(to)]

    def expand(self, g: PyAny, x: PyAny, scale: PyAny, zero_point: PyAny = None) -> PyAny:
        t = x.tensor
        scale = along_axis(g, scale, t, self.axis, self.block_size)
        to = self.target(zero_point)
        if zero_point is not None:
            zero_point = along_axis(g, zero_point, t, self.axis, self.block_size)
        division = DType.from_code(self.precision) if self.precision else scale.type.dtype
        ratio = as_float(g, g.Div(cast_to(g, x, division), cast_to(g, scale, division)))
        if to.is_float:
            if not is_zero(zero_point):
                ratio = g.Add(ratio, cast_to(g, zero_point, ratio.type.dtype))
            return g.Cast(ratio, to=to, saturate=self.saturate)
        whole = to if to in STORED else I8 if to.is_signed else U8
        if zero_point is None:
            y = g.RoundTo(ratio, to=whole)
        else:
            y = g.RoundTo(ratio, cast_to(g, zero_point, whole), to=whole)
        if whole == to:
            return y
        low, high = to.whole_range
        return g.Cast(g.Clip(y, g.const(low, whole), g.const(high, whole)), to=to)


@op(since=23)
class DequantizeLinear(Composite):
    """(x - zero_point) * scale, per tensor, per index of `axis`, or per block along it."""

    x: In[Any]
    x_scale: In[Float]
    x_zero_point: Opt[Any]
    axis: Attr[int] = 1
    block_size: Attr[int] = 0
    output_dtype: Attr[int] = 0

    def infer(self, ctx: InferContext) -> Sequence[PyAny]:
        _check_scale(ctx, self.axis, self.block_size)
        if ctx.tensor(0).dtype not in (*STORED, I32) and ctx.tensor(0).dtype not in NARROW:
            ctx.unsupported(f"dequantisation of {ctx.tensor(0).dtype}")
        return [ctx.tensor(0).with_dtype(self._result(ctx.tensor(1).dtype))]

    def _result(self, scale: DType) -> DType:
        return DType.from_code(self.output_dtype) if self.output_dtype else scale

    def expand(self, g: PyAny, x: PyAny, scale: PyAny, zero_point: PyAny = None) -> PyAny:
        t, result = x.tensor, self._result(scale.type.dtype)
        wide = t.dtype == I32
        scale = as_float(g, along_axis(g, scale, t, self.axis, self.block_size))
        y = x if wide else g.Cast(x, to=F32)
        if zero_point is not None and not is_zero(zero_point):
            zero_point = along_axis(g, zero_point, t, self.axis, self.block_size)
            y = g.Sub(y, zero_point if wide else g.Cast(zero_point, to=F32))
        y = g.Mul(g.Cast(y, to=F32) if wide else y, scale)
        return y if result == F32 else g.Cast(y, to=result)


def is_zero(v: PyAny) -> bool:
    """Whether a zero point is known to be 0."""
    return v is None or (v.data is not None and not v.data.any())
