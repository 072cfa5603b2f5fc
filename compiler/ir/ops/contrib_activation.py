"""ONNX Runtime's activations with a bias before them, and its names for those that ONNX has.

Source: docs/ContribOperators.md of ONNX Runtime. Sums and functions of halves are computed in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

from ..types import Dim, Type
from .base import Attr, Composite, Float, In, InferContext, Opt, op
from .casting import as_float, cast_to


def check_last(ctx: InferContext, i: int, size: Dim, name: str) -> None:
    """Fails unless operand i is a vector of `size` elements."""
    shape = ctx.shape(i)
    if len(shape) != 1:
        ctx.fail(f"{name} must be a vector", expected=f"[{size}]", found=ctx.types[i])
    ctx.equal(size, shape[0], f"{name} must have an element for each of the last axis")


def _check_bias(ctx: InferContext) -> None:
    if ctx.has(1):
        shape = ctx.shape(0)
        if not shape:
            ctx.fail("a scalar has no axis for a bias", found=ctx.types[0])
        check_last(ctx, 1, shape[-1], "the bias")


def _biased(g: PyAny, x: PyAny, bias: PyAny) -> PyAny:
    return as_float(g, x) if bias is None else g.Add(as_float(g, x), as_float(g, bias))


@op(domain="com.microsoft", name="Gelu")
class MicrosoftGelu(Composite):
    """x times the normal distribution at x, by erf: ONNX's Gelu."""

    x: In[Float]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        return g.Gelu(x)


@op(domain="com.microsoft")
class BiasGelu(Composite):
    """Gelu of x + b, by erf; b is a vector along the last axis."""

    x: In[Float]
    b: In[Float]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        _check_bias(ctx)
        return [ctx.tensor(0)]

    def expand(self, g: PyAny, x: PyAny, b: PyAny) -> PyAny:
        return cast_to(g, g.Gelu(_biased(g, x, b)), x.type.dtype)


@op(domain="com.microsoft")
class FastGelu(Composite):
    """Gelu of x, or of x + bias, by tanh of a cubic; the bias is a vector along the last axis."""

    x: In[Float]
    bias: Opt[Float]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        _check_bias(ctx)
        return [ctx.tensor(0)]

    def expand(self, g: PyAny, x: PyAny, bias: PyAny = None) -> PyAny:
        return cast_to(g, g.Gelu(_biased(g, x, bias), approximate="tanh"), x.type.dtype)


@op(domain="com.microsoft")
class QuickGelu(Composite):
    """x / (1 + e^(-alpha x)): ONNX's Swish."""

    x: In[Float]
    alpha: Attr[float] = 1.702

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        return g.Swish(x, alpha=self.alpha)


class ImageFloat(Float):
    """What the operators of diffusion models take."""


@op(domain="com.microsoft")
class BiasSplitGelu(Composite):
    """The first half of x + bias along the last axis, times Gelu of the second, by erf; x is [N, S, D]."""

    x: In[ImageFloat]
    bias: In[ImageFloat]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        shape = ctx.shape(0)
        if len(shape) != 3:
            ctx.fail("x must be [N, S, D]", found=ctx.types[0])
        _check_bias(ctx)
        if not isinstance(shape[-1], int):
            ctx.unsupported("the last axis must be known at compile time", found=ctx.types[0])
        if shape[-1] % 2:
            ctx.fail("the last axis must have two halves", expected="an even size", found=shape[-1])
        return [ctx.tensor(0).with_shape((*shape[:-1], shape[-1] // 2))]

    def expand(self, g: PyAny, x: PyAny, bias: PyAny) -> PyAny:
        y, half = _biased(g, x, bias), x.tensor.dims[-1] // 2
        values, gate = (g.Slice(y, [start], [start + half], [-1]) for start in (0, half))
        return cast_to(g, g.Mul(values, g.Gelu(gate)), x.type.dtype)


@op(domain="com.microsoft")
class BiasAdd(Composite):
    """x + bias + skip for x and skip [N, S, C] and a bias [C]."""

    x: In[ImageFloat]
    bias: In[ImageFloat]
    skip: In[ImageFloat]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        shape = ctx.shape(0)
        if len(shape) != 3 or ctx.rank(2) != 3:
            ctx.fail("x and skip must be [N, S, C]", found=f"{ctx.types[0]} and {ctx.types[2]}")
        _check_bias(ctx)
        for size, dim in zip(shape, ctx.shape(2), strict=True):
            ctx.equal(size, dim, "x and skip must have the same shape")
        return [ctx.tensor(0)]

    def expand(self, g: PyAny, x: PyAny, bias: PyAny, skip: PyAny) -> PyAny:
        return cast_to(g, g.Add(_biased(g, x, bias), as_float(g, skip)), x.type.dtype)
