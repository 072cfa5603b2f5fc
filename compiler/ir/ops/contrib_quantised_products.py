"""ONNX Runtime's products of quantised matrices beyond ONNX's: scaled to f32, with a bias, of operands quantised anew.

Sums are exact, as MatMulInteger's (`quantised_products.py`). Source: docs/ContribOperators.md of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F32, U8, Type
from .base import Attr, Composite, Float32, In, InferContext, Opt, op
from .casting import as_float, cast_to
from .contraction import swapped
from .contrib_activation import check_last
from .contrib_quantised import ShortScale, check_one, number
from .quantised_products import BiasI32, ByteA, ByteB, ByteC, integer_matmul

LEVELS = 255  # steps from the least byte to the greatest


def check_columns(ctx: InferContext, columns: PyAny, *operands: int) -> None:
    """Fails unless each of these operands that is given is one number, or one for each column of B."""
    for i in operands:
        if ctx.has(i) and ctx.shape(i) not in ((), (1,)):
            check_last(ctx, i, columns, f"scale or zero point {i}")


def one_or_columns(g: PyAny, v: PyAny) -> PyAny:
    """A scale or zero point that broadcasts along the last axis, without an axis if it is one number."""
    return number(g, v) if v is not None and v.tensor.dims in ((), (1,)) else v


def scaled_product(g: PyAny, a: PyAny, b: PyAny, zeros: Sequence[PyAny], scales: Sequence[PyAny],
                   bias: PyAny = None) -> PyAny:  # fmt: skip
    """(a - zero)(b - zero) · scale · scale + bias in f32; B's scale and zero point may be one a column."""
    a_zero, b_zero = (one_or_columns(g, zero) for zero in zeros)
    total, _ = integer_matmul(g, a, b, a_zero, b_zero)
    a_scale, b_scale = (as_float(g, one_or_columns(g, scale)) for scale in scales)
    y = g.Mul(cast_to(g, total, F32), g.Mul(a_scale, b_scale))
    return y if bias is None else g.Add(y, as_float(g, bias))


def dynamically_quantised(g: PyAny, x: PyAny) -> tuple[PyAny, PyAny, PyAny]:
    """x in u8, as DynamicQuantizeLinear says: the bytes, their scale and their zero point, found in x itself."""
    every = g.Reshape(x, [-1])
    low, high = (g.Min(g.ReduceMin(every, [0], keepdims=0), 0.0), g.Max(g.ReduceMax(every, [0], keepdims=0), 0.0))
    extent = g.Div(g.Sub(high, low), np.float32(LEVELS))
    scale = g.Where(g.Equal(extent, np.float32(0)), np.float32(1), extent)
    zero = g.RoundTo(g.Div(g.Neg(low), scale), to=U8)
    return g.QuantizeLinear(x, scale, zero), scale, zero


class MatrixProduct(Composite):
    """Products of stacks of matrices."""

    def columns(self, ctx: InferContext) -> PyAny:
        """How many B has."""
        if ctx.rank(0) < 1 or ctx.rank(1) < 2:
            ctx.fail("A must have rows, and B must be a matrix", found=f"{ctx.types[0]} and {ctx.types[1]}")
        return ctx.shape(1)[-1]


@op(domain="com.microsoft")
class MatMulIntegerToFloat(MatrixProduct):
    """(a - a_zero_point)(b - b_zero_point) · a_scale · b_scale + bias; B's scales and zero points may be one a column.

    ONNX Runtime has one scale and one zero point of A alone, whatever its document says.
    """

    a: In[ByteA]
    b: In[ByteB]
    a_scale: In[ShortScale]
    b_scale: In[ShortScale]
    a_zero_point: Opt[ByteA]
    b_zero_point: Opt[ByteB]
    bias: Opt[ShortScale]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        columns = self.columns(ctx)
        check_one(ctx, 2, 4)
        check_columns(ctx, columns, 3, 5)
        if ctx.has(6):
            check_last(ctx, 6, columns, "the bias")
        return super().infer(ctx)

    def expand(self, g: PyAny, a: PyAny, b: PyAny, a_scale: PyAny, b_scale: PyAny, a_zero: PyAny = None,
               b_zero: PyAny = None, bias: PyAny = None) -> PyAny:
        y = scaled_product(g, a, b, (a_zero, b_zero), (a_scale, b_scale), bias)
        return cast_to(g, y, a_scale.type.dtype)


@op(domain="com.microsoft")
class DynamicQuantizeMatMul(MatrixProduct):
    """a, quantised to u8 by its own least and greatest numbers, times (b - b_zero_point) · b_scale, + bias."""

    a: In[Float32]
    b: In[ByteB]
    b_scale: In[Float32]
    b_zero_point: Opt[ByteB]
    bias: Opt[Float32]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        columns = self.columns(ctx)
        check_columns(ctx, columns, 2, 3)
        if ctx.has(4):
            check_last(ctx, 4, columns, "the bias")
        return super().infer(ctx)

    def expand(self, g: PyAny, a: PyAny, b: PyAny, b_scale: PyAny, b_zero: PyAny = None, bias: PyAny = None) -> PyAny:
        q, a_scale, a_zero = dynamically_quantised(g, a)
        return scaled_product(g, q, b, (a_zero, b_zero), (a_scale, b_scale), bias)


@op(domain="com.microsoft")
class QGemm(Composite):
    """alpha · A' B' + C of quantised matrices; quantised where `y_scale` is given, else in f32.

    A' and B' are transposed on demand; C is i32, counted in steps of alpha · a_scale · b_scale. Of B, scales and zero
    points may be one a column.
    """

    a: In[ByteA]
    a_scale: In[Float32]
    a_zero_point: In[ByteA]
    b: In[ByteB]
    b_scale: In[Float32]
    b_zero_point: In[ByteB]
    c: Opt[BiasI32]
    y_scale: Opt[Float32]
    y_zero_point: Opt[ByteC]
    alpha: Attr[float] = 1.0
    transA: Attr[int] = 0
    transB: Attr[int] = 0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.rank(0) != 2 or ctx.rank(3) != 2:
            ctx.fail("A and B must be matrices", found=f"{ctx.types[0]} and {ctx.types[3]}")
        if ctx.has(8) and not ctx.has(7):
            ctx.fail("y_zero_point is nothing without y_scale", expected="both, or neither")
        a, b = ctx.shape(0), ctx.shape(3)
        sizes = (a[1 if self.transA else 0], b[0 if self.transB else 1])
        check_one(ctx, 1, 2, 7, 8)
        check_columns(ctx, sizes[1], 4, 5)
        if ctx.has(6):
            if ctx.rank(6) > 2:
                ctx.fail("C does not broadcast to the result", expected="rank 2 at most", found=ctx.types[6])
            for size, dim in zip(reversed(sizes), reversed(ctx.shape(6)), strict=False):
                if dim != 1:
                    ctx.equal(size, dim, "C does not broadcast to the result")
        return super().infer(ctx)

    def expand(self, g: PyAny, a: PyAny, a_scale: PyAny, a_zero: PyAny, b: PyAny, b_scale: PyAny, b_zero: PyAny,
               c: PyAny = None, y_scale: PyAny = None, y_zero: PyAny = None) -> PyAny:
        if self.transA:
            a = swapped(g, a)
        if self.transB:
            b = g.const(np.ascontiguousarray(b.data.T)) if b.data is not None else swapped(g, b)
        total, whole = integer_matmul(g, a, b, number(g, a_zero), one_or_columns(g, b_zero))
        if c is not None:
            total, whole = g.Add(total if whole else g.Cast(total, to=c.type.dtype), c), True
        factor = g.Mul(number(g, a_scale), one_or_columns(g, b_scale))
        if self.alpha != 1:
            factor = g.Mul(factor, self.alpha)
        if y_scale is None:
            return g.Mul(cast_to(g, total, F32), factor)
        factor = g.Div(factor, number(g, y_scale))
        scaled = g.Mul(g.Cast(total, to=F32) if whole else total, factor)
        if y_zero is None:
            return g.RoundTo(scaled, to=a.type.dtype)
        return g.RoundTo(scaled, number(g, y_zero), to=y_zero.type.dtype)
