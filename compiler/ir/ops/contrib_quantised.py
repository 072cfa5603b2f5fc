"""ONNX Runtime's operators between quantised tensors: each is DequantizeLinear, an operator of ONNX and QuantizeLinear.

Passes then compute in integers, by tables of 256 bytes, or fuse the scales into what reads them, as they do in models
that are written so. Source: docs/ContribOperators.md of ONNX Runtime, whose kernels may round one step off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F16, F32, I8, U8, Type, prod
from .base import (
    Any,
    Attr,
    Bool,
    Composite,
    Float32,
    In,
    InferContext,
    Ints,
    Mixed,
    Opt,
    TypeGroup,
    Variadic,
    op,
)
from .quantised_products import BiasI32, ByteA, ByteB, ByteC

FLAT_SOFTMAX = 12  # the last operator set whose Softmax takes all axes from `axis` on for one


def check_one(ctx: InferContext, *operands: int) -> None:
    """Fails unless each of these operands that is given is one number, of no axis or of one."""
    for i in operands:
        if ctx.has(i) and ctx.shape(i) not in ((), (1,)):
            ctx.fail("scales and zero points are one number each", expected="a scalar", found=ctx.types[i])


def number(g: PyAny, v: PyAny) -> PyAny:
    """One number without an axis."""
    return g.Reshape(v, np.zeros(0, np.int64)) if v.tensor.rank else v


def real(g: PyAny, x: PyAny, scale: PyAny, zero: PyAny) -> PyAny:
    """A tensor of bytes in f32: (x - zero) · scale, for one scale, and one zero point, 0 if omitted."""
    return g.DequantizeLinear(x, number(g, scale), None if zero is None else number(g, zero))


def stored(g: PyAny, y: PyAny, scale: PyAny, zero: PyAny, like: PyAny) -> PyAny:
    """A tensor of f32 in bytes: of the zero point's type, or of `like`'s where it is omitted."""
    zero = g.const(np.zeros((), like.type.dtype.numpy)) if zero is None else number(g, zero)
    return g.QuantizeLinear(y, number(g, scale), zero)


class Between(Composite):
    """Operators whose scales and zero points are single numbers."""

    single: tuple[int, ...] = ()

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        check_one(ctx, *self.single)
        return super().infer(ctx)


class QuantisedPair(Between):
    """An operator of two tensors, which broadcast."""

    a: In[ByteA]
    a_scale: In[Float32]
    a_zero_point: Opt[ByteA]
    b: In[ByteA]
    b_scale: In[Float32]
    b_zero_point: Opt[ByteA]
    c_scale: In[Float32]
    c_zero_point: Opt[ByteA]
    single = (1, 2, 4, 5, 6, 7)

    def combined(self, g: PyAny, a: PyAny, b: PyAny) -> PyAny:
        """The result for operands in f32."""
        raise NotImplementedError(f"{self.name}.combined")

    def expand(self, g: PyAny, a: PyAny, a_scale: PyAny, a_zero: PyAny, b: PyAny, b_scale: PyAny, b_zero: PyAny,
               c_scale: PyAny, c_zero: PyAny = None) -> PyAny:
        c = self.combined(g, real(g, a, a_scale, a_zero), real(g, b, b_scale, b_zero))
        return stored(g, c, c_scale, c_zero, a)


@op(domain="com.microsoft")
class QLinearAdd(QuantisedPair):
    """a + b, quantised."""

    def combined(self, g: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return g.Add(a, b)


@op(domain="com.microsoft")
class QLinearMul(QuantisedPair):
    """a · b, quantised."""

    def combined(self, g: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return g.Mul(a, b)


class QuantisedOne(Between):
    """An operator of one tensor."""

    x: In[ByteA]
    x_scale: In[Float32]
    x_zero_point: Opt[ByteA]
    y_scale: In[Float32]
    y_zero_point: Opt[ByteA]
    single = (1, 2, 3, 4)

    def computed(self, g: PyAny, x: PyAny) -> PyAny:
        """The result for the operand in f32."""
        raise NotImplementedError(f"{self.name}.computed")

    def expand(self, g: PyAny, x: PyAny, x_scale: PyAny, x_zero: PyAny, y_scale: PyAny, y_zero: PyAny = None) -> PyAny:
        return stored(g, self.computed(g, real(g, x, x_scale, x_zero)), y_scale, y_zero, x)


@op(domain="com.microsoft")
class QLinearSigmoid(QuantisedOne):
    """1 / (1 + e^-x), quantised."""

    def computed(self, g: PyAny, x: PyAny) -> PyAny:
        return g.Sigmoid(x)


@op(domain="com.microsoft")
class QLinearLeakyRelu(QuantisedOne):
    """x for x >= 0, else alpha x, quantised."""

    alpha: Attr[float] = 0.01

    def computed(self, g: PyAny, x: PyAny) -> PyAny:
        return g.LeakyRelu(x, alpha=self.alpha)


@op(domain="com.microsoft")
class QLinearSoftmax(QuantisedOne):
    """Softmax along `axis`, quantised; up to the Softmax of `opset` 12 all axes from there on are one."""

    opset: Attr[int]
    axis: Attr[int] = -1

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if self.opset < 1:
            ctx.fail("malformed opset", expected="1 or more", found=self.opset)
        ctx.axis(self.axis, ctx.rank(0))
        return super().infer(ctx)

    def computed(self, g: PyAny, x: PyAny) -> PyAny:
        dims = x.tensor.dims
        axis = self.axis % len(dims)
        if self.opset > FLAT_SOFTMAX or prod(dims[axis + 1 :]) == 1:
            return g.Softmax(x, axis=axis)
        return g.Reshape(g.Softmax(g.Flatten(x, axis=axis), axis=-1), g.Shape(x))


@op(domain="com.microsoft")
class QLinearReduceMean(QuantisedOne):
    """The mean over `axes`, all where they are empty, quantised."""

    axes: Attr[Ints]
    keepdims: Attr[int]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        ctx.axes(self.axes, ctx.rank(0))
        return super().infer(ctx)

    def computed(self, g: PyAny, x: PyAny) -> PyAny:
        axes = np.array(self.axes, np.int64) if self.axes else None
        return g.ReduceMean(x, axes, keepdims=int(self.keepdims != 0))


def first_channels(g: PyAny, x: PyAny) -> PyAny:
    """[N, spatial..., C] as [N, C, spatial...]."""
    rank = x.tensor.rank
    return g.Transpose(x, perm=[0, rank - 1, *range(1, rank - 1)])


def last_channels(g: PyAny, x: PyAny) -> PyAny:
    """[N, C, spatial...] as [N, spatial..., C]."""
    return g.Transpose(x, perm=[0, *range(2, x.tensor.rank), 1])


class QuantisedPool(QuantisedOne):
    """A pool of [N, C, spatial...], or of [N, spatial..., C] with `channels_last`."""

    channels_last: Attr[int] = 0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.rank(0) < 3:
            ctx.fail("a pool needs [N, C, spatial...]", found=ctx.types[0])
        return super().infer(ctx)

    def pooled(self, g: PyAny, x: PyAny) -> PyAny:
        """The pool of an operand in f32, channels first."""
        raise NotImplementedError(f"{self.name}.pooled")

    def computed(self, g: PyAny, x: PyAny) -> PyAny:
        return last_channels(g, self.pooled(g, first_channels(g, x))) if self.channels_last else self.pooled(g, x)


@op(domain="com.microsoft")
class QLinearAveragePool(QuantisedPool):
    """AveragePool, quantised."""

    kernel_shape: Attr[Ints]
    auto_pad: Attr[str] = "NOTSET"
    ceil_mode: Attr[int] = 0
    count_include_pad: Attr[int] = 0
    pads: Attr[Ints | None] = None
    strides: Attr[Ints | None] = None

    def pooled(self, g: PyAny, x: PyAny) -> PyAny:
        attributes = {name: value for name, value in self.attributes().items() if name != "channels_last"}
        return g.AveragePool(x, **attributes)


@op(domain="com.microsoft")
class QLinearGlobalAveragePool(QuantisedPool):
    """The mean over all spatial axes, which stay as 1, quantised."""

    def pooled(self, g: PyAny, x: PyAny) -> PyAny:
        return g.GlobalAveragePool(x)


@op(domain="com.microsoft")
class QLinearWhere(Between):
    """x where the condition holds, else y, quantised; all three broadcast."""

    condition: In[Bool]
    x: In[ByteA]
    x_scale: In[Float32]
    x_zero_point: In[ByteA]
    y: In[ByteA]
    y_scale: In[Float32]
    y_zero_point: In[ByteA]
    z_scale: In[Float32]
    z_zero_point: In[ByteA]
    single = (2, 3, 5, 6, 7, 8)

    def expand(self, g: PyAny, condition: PyAny, x: PyAny, x_scale: PyAny, x_zero: PyAny, y: PyAny, y_scale: PyAny,
               y_zero: PyAny, z_scale: PyAny, z_zero: PyAny) -> PyAny:
        z = g.Where(condition, real(g, x, x_scale, x_zero), real(g, y, y_scale, y_zero))
        return stored(g, z, z_scale, z_zero, x)


@op(domain="com.microsoft")
class QLinearConcat(Composite):
    """Tensors along an axis, each with its scale and its zero point behind it, quantised alike."""

    y_scale: In[Float32]
    y_zero_point: In[ByteA]
    inputs: Variadic[Mixed]
    axis: Attr[int]
    min_variadic = 3

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        tensors = range(2, ctx.n_inputs, 3)
        if (ctx.n_inputs - 2) % 3:
            ctx.fail("tensors come with a scale and a zero point each", expected="2 operands and 3 for each tensor",
                     found=f"{ctx.n_inputs} operands")  # fmt: skip
        for i in tensors:
            kinds = [ctx.tensor(j).dtype for j in range(i, i + 3)]
            if kinds[0] not in (U8, I8) or kinds[1] != F32 or kinds[2] != kinds[0]:
                ctx.fail(f"operands {i} to {i + 2} are no quantised tensor", expected="bytes, f32 and such a byte",
                         found=", ".join(map(str, kinds)))  # fmt: skip
        check_one(ctx, 0, 1, *(i + 1 for i in tensors), *(i + 2 for i in tensors))
        return super().infer(ctx)

    def expand(self, g: PyAny, y_scale: PyAny, y_zero: PyAny, *inputs: PyAny) -> PyAny:
        parts = [real(g, *inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
        return stored(g, g.Concat(*parts, axis=self.axis), y_scale, y_zero, y_zero)


class ShortScale(TypeGroup):
    """What ONNX Runtime scales by outside of ONNX's domain."""

    dtypes = frozenset({F16, F32})


@op(domain="com.microsoft", name="QuantizeLinear")
class MicrosoftQuantizeLinear(Composite):
    """ONNX's QuantizeLinear by one scale, or by one for each index of `axis`."""

    x: In[ShortScale]
    y_scale: In[ShortScale]
    y_zero_point: Opt[Any]
    axis: Attr[int] = 1

    def expand(self, g: PyAny, x: PyAny, scale: PyAny, zero: PyAny = None) -> PyAny:
        return g.QuantizeLinear(x, scale, zero, axis=self.axis)


@op(domain="com.microsoft", name="DequantizeLinear")
class MicrosoftDequantizeLinear(Composite):
    """ONNX's DequantizeLinear by one scale, or by one for each index of `axis`."""

    x: In[Any]
    x_scale: In[ShortScale]
    x_zero_point: Opt[Any]
    axis: Attr[int] = 1

    def expand(self, g: PyAny, x: PyAny, scale: PyAny, zero: PyAny = None) -> PyAny:
        return g.DequantizeLinear(x, scale, zero, axis=self.axis)


@op(domain="com.microsoft", name="QLinearConv")
class MicrosoftQLinearConv(Composite):
    """ONNX's QLinearConv, of [N, spatial..., C] with `channels_last`; weights are ONNX's in both."""

    x: In[ByteA]
    x_scale: In[Float32]
    x_zero_point: In[ByteA]
    w: In[ByteB]
    w_scale: In[Float32]
    w_zero_point: In[ByteB]
    y_scale: In[Float32]
    y_zero_point: In[ByteC]
    b: Opt[BiasI32]
    auto_pad: Attr[str] = "NOTSET"
    channels_last: Attr[int] = 0
    dilations: Attr[Ints | None] = None
    group: Attr[int] = 1
    kernel_shape: Attr[Ints | None] = None
    pads: Attr[Ints | None] = None
    strides: Attr[Ints | None] = None

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.rank(0) < 3:
            ctx.fail("a convolution needs [N, C, spatial...]", found=ctx.types[0])
        return super().infer(ctx)

    def expand(self, g: PyAny, x: PyAny, *others: PyAny) -> PyAny:
        attributes = {name: value for name, value in self.attributes().items() if name != "channels_last"}
        if not self.channels_last:
            return g.QLinearConv(x, *others, **attributes)
        return last_channels(g, g.QLinearConv(first_channels(g, x), *others, **attributes))
