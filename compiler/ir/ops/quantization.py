"""Linear quantisation: to and from small integers, and products of small integers, by floating-point operators.

x_real = (x - zero_point) · scale. Products of 8-bit integers are summed in floating point, which is exact: in f32 while
the sum stays below 2^24, else in f64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ....errors import InvalidModel, UnsupportedOp
from ..types import F32, F64, I8, I16, I32, U8, U16, DType, SymDim, prod
from .base import Attr, Composite, Float, In, Ints, Mixed, Opt, TypeGroup, op

_RANGES = {U8: (0, 255), I8: (-128, 127), U16: (0, 65535), I16: (-32768, 32767)}


class Quantized(TypeGroup):
    """Integers that stand for real numbers."""

    dtypes = frozenset({*_RANGES, I32})


class Byte(TypeGroup):
    """8-bit integers."""

    dtypes = frozenset({I8, U8})


class Byte2(Byte):
    """A second, independent type variable over Byte."""


class Byte3(Byte):
    """A third, independent type variable over Byte."""


class Scale(TypeGroup):
    """Scales: floats."""

    dtypes = Float.dtypes


class Real(TypeGroup):
    """What can be quantised."""

    dtypes = Float.dtypes | {I32}


def _along(g: PyAny, parameter: PyAny, axis: int, rank: int) -> PyAny:
    """A scale or zero point made to broadcast: as it is if there is one, else along `axis`."""
    shape = parameter.tensor.dims
    if shape in ((), (1,)):
        return parameter if shape == () else g.Reshape(parameter, np.zeros(0, np.int64))
    if len(shape) != 1:
        raise UnsupportedOp("blocked quantisation is not supported", found=parameter.type)
    if not -rank <= axis < rank:
        raise InvalidModel("axis out of range", expected=f"[{-rank}, {rank})", found=axis)
    trailing = rank - 1 - axis % rank
    return g.Unsqueeze(parameter, np.arange(1, 1 + trailing, dtype=np.int64)) if trailing else parameter


def _centred(g: PyAny, x: PyAny, zero: PyAny, axis: int, dtype: DType) -> PyAny:
    """x - zero_point as floats."""
    real = g.Cast(x, to=dtype)
    return real if zero is None else g.Sub(real, g.Cast(_along(g, zero, axis, x.tensor.rank), to=dtype))


def _saturated(g: PyAny, real: PyAny, zero: PyAny, to: DType) -> PyAny:
    """round(real) + zero_point, clipped to the range of `to`; halves round to even."""
    if to not in _RANGES:
        raise UnsupportedOp(f"quantisation to {to} is not supported")
    dtype = real.tensor.dtype
    shifted = g.Round(real)
    if zero is not None:
        shifted = g.Add(shifted, g.Cast(zero, to=dtype))
    low, high = _RANGES[to]
    return g.Cast(g.Clip(shifted, g.const(low, dtype), g.const(high, dtype)), to=to)


def _exact(length: PyAny) -> DType:
    """The float type that sums `length` products of two differences of bytes without rounding."""
    return F64 if isinstance(length, SymDim) or length * 255 * 255 >= 2**24 else F32


@op(since=13)
class QuantizeLinear(Composite):
    """y = saturate(round(x / scale) + zero_point), for the whole tensor or along an axis."""

    x: In[Real]
    scale: In[Scale]
    zero_point: Opt[Quantized]
    axis: Attr[int] = 1
    saturate: Attr[int] = 1
    block_size: Attr[int] = 0
    output_dtype: Attr[int] = 0
    precision: Attr[int] = 0

    def expand(self, g: PyAny, x: PyAny, scale: PyAny, zero_point: PyAny = None) -> PyAny:
        if self.block_size:
            raise UnsupportedOp("blocked quantisation is not supported", found=self.block_size)
        to = DType.from_code(self.output_dtype) if self.output_dtype else U8
        if zero_point is not None:
            to = zero_point.tensor.dtype
        dtype = DType.from_code(self.precision) if self.precision else scale.tensor.dtype
        dtype = F32 if dtype.bits < 32 else dtype
        rank = x.tensor.rank
        divisor = g.Cast(_along(g, scale, self.axis, rank), to=dtype)
        zero = None if zero_point is None else _along(g, zero_point, self.axis, rank)
        return _saturated(g, g.Div(g.Cast(x, to=dtype), divisor), zero, to)


@op(since=13)
class DequantizeLinear(Composite):
    """y = (x - zero_point) · scale, for the whole tensor or along an axis."""

    x: In[Quantized]
    scale: In[Scale]
    zero_point: Opt[Quantized]
    axis: Attr[int] = 1
    block_size: Attr[int] = 0
    output_dtype: Attr[int] = 0

    def expand(self, g: PyAny, x: PyAny, scale: PyAny, zero_point: PyAny = None) -> PyAny:
        if self.block_size:
            raise UnsupportedOp("blocked quantisation is not supported", found=self.block_size)
        dtype = DType.from_code(self.output_dtype) if self.output_dtype else scale.tensor.dtype
        inner = F32 if dtype.bits < 32 else dtype
        factor = g.Cast(_along(g, scale, self.axis, x.tensor.rank), to=inner)
        return g.Cast(g.Mul(_centred(g, x, zero_point, self.axis, inner), factor), to=dtype)


def _product(g: PyAny, a: PyAny, b: PyAny, a_zero: PyAny, b_zero: PyAny) -> PyAny:
    """(a - a_zero) @ (b - b_zero): a's zero point may be one per row, b's one per column."""
    dtype = _exact(a.tensor.dims[-1])
    column = None if a_zero is None else a_zero
    if column is not None and len(column.tensor.dims) == 1 and column.tensor.dims != (1,):
        column = g.Unsqueeze(column, np.array([1], np.int64))
    left = g.Cast(a, to=dtype)
    left = left if column is None else g.Sub(left, g.Cast(column, to=dtype))
    right = g.Cast(b, to=dtype)
    return g.MatMul(left, right if b_zero is None else g.Sub(right, g.Cast(b_zero, to=dtype)))


@op(since=10)
class MatMulInteger(Composite):
    """(a - a_zero_point) @ (b - b_zero_point) of bytes, in i32."""

    a: In[Byte]
    b: In[Byte2]
    a_zero_point: Opt[Byte]
    b_zero_point: Opt[Byte2]

    def expand(self, g: PyAny, a: PyAny, b: PyAny, a_zero_point: PyAny = None, b_zero_point: PyAny = None) -> PyAny:
        return g.Cast(_product(g, a, b, a_zero_point, b_zero_point), to=I32)


@op(since=10)
class QLinearMatMul(Composite):
    """quantize(dequantize(a) @ dequantize(b)): the product of bytes is exact, rounding happens once."""

    a: In[Byte]
    a_scale: In[Scale]
    a_zero_point: In[Byte]
    b: In[Byte2]
    b_scale: In[Scale]
    b_zero_point: In[Byte2]
    y_scale: In[Scale]
    y_zero_point: In[Byte3]

    def expand(self, g: PyAny, a: PyAny, a_scale: PyAny, a_zero: PyAny, b: PyAny, b_scale: PyAny, b_zero: PyAny,
               y_scale: PyAny, y_zero: PyAny) -> PyAny:  # fmt: skip
        if any(len(s.tensor.dims) and s.tensor.dims != (1,) for s in (a_scale, a_zero, y_scale, y_zero)):
            raise UnsupportedOp("scales per row are not supported")
        total = g.Cast(_product(g, a, b, a_zero, b_zero), to=F32)
        factor = g.Div(g.Mul(g.Cast(a_scale, to=F32), g.Cast(b_scale, to=F32)), g.Cast(y_scale, to=F32))
        return _saturated(g, g.Mul(total, factor), y_zero, y_zero.tensor.dtype)


class _Convolution(Composite):
    """Attributes of Conv, and the exact convolution of bytes."""

    auto_pad: Attr[str] = "NOTSET"
    dilations: Attr[Ints] = None  # type: ignore[assignment]
    group: Attr[int] = 1
    kernel_shape: Attr[Ints] = None  # type: ignore[assignment]
    pads: Attr[Ints] = None  # type: ignore[assignment]
    strides: Attr[Ints] = None  # type: ignore[assignment]

    def _convolve(self, g: PyAny, x: PyAny, w: PyAny, x_zero: PyAny, w_zero: PyAny) -> PyAny:
        dtype = _exact(prod(w.tensor.dims[1:]))
        names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
        attributes = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        # padding stands for zero_point: once it is subtracted, for 0, which is what Conv pads with
        return g.Conv(_centred(g, x, x_zero, 1, dtype), _centred(g, w, w_zero, 0, dtype), **attributes)


@op(since=10)
class ConvInteger(_Convolution):
    """Convolution of x - x_zero_point with w - w_zero_point, bytes, in i32."""

    x: In[Byte]
    w: In[Byte2]
    x_zero_point: Opt[Byte]
    w_zero_point: Opt[Byte2]

    def expand(self, g: PyAny, x: PyAny, w: PyAny, x_zero_point: PyAny = None, w_zero_point: PyAny = None) -> PyAny:
        return g.Cast(self._convolve(g, x, w, x_zero_point, w_zero_point), to=I32)


@op(since=10)
class QLinearConv(_Convolution):
    """quantize(Conv(dequantize(x), dequantize(w)) + b · x_scale · w_scale), one scale, or one per output channel."""

    x: In[Byte]
    x_scale: In[Scale]
    x_zero_point: In[Byte]
    w: In[Byte2]
    w_scale: In[Scale]
    w_zero_point: In[Byte2]
    y_scale: In[Scale]
    y_zero_point: In[Byte3]
    b: Opt[Mixed]

    def expand(self, g: PyAny, x: PyAny, x_scale: PyAny, x_zero: PyAny, w: PyAny, w_scale: PyAny, w_zero: PyAny,
               y_scale: PyAny, y_zero: PyAny, b: PyAny = None) -> PyAny:  # fmt: skip
        rank = x.tensor.rank
        total = self._convolve(g, x, w, x_zero, w_zero)
        if b is not None:
            total = g.Add(total, g.Cast(_along(g, b, 1, rank), to=total.tensor.dtype))
        factors: Sequence[PyAny] = [g.Cast(_along(g, s, 1, rank), to=F32) for s in (x_scale, w_scale, y_scale)]
        factor = g.Div(g.Mul(factors[0], factors[1]), factors[2])
        return _saturated(g, g.Mul(g.Cast(total, to=F32), factor), _along(g, y_zero, 1, rank), y_zero.tensor.dtype)
