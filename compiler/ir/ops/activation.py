"""Activation functions, element by element. The plain ones (Relu, Sigmoid, Tanh, …) are in `elementwise`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any as PyAny

from ..types import F32, F64, Type
from .base import Attr, Composite, Effort, Elementwise, Float, In, InferContext, Numeric, op
from .casting import as_float, cast_to


def _exp_minus_1(e: PyAny, x: PyAny) -> PyAny:
    """e^x - 1, exact near 0: tanh(x/2) (e^x + 1)."""
    return e.tanh(x * 0.5) * (e.exp(x) + 1.0)


def _softplus(e: PyAny, x: PyAny) -> PyAny:
    """log(1 + e^x) without overflow."""
    return e.max(x, 0.0) + e.log1p(e.exp(-e.abs(x)))


@op(since=22)
class Elu(Elementwise):
    """x for x >= 0, else alpha (e^x - 1)."""

    x: In[Float]
    alpha: Attr[float] = 1.0
    effort = Effort.FUNCTION

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.select(x < 0, _exp_minus_1(e, x) * self.alpha, x)

    def derivative(self, e: PyAny, i: int, x: PyAny) -> PyAny:
        """The steps of e^x - 1 cancel."""
        return e.select(x < 0, e.exp(x) * self.alpha, 1.0)


@op(since=12)
class Celu(Elementwise):
    """max(0, x) + min(0, alpha (e^(x / alpha) - 1)); with alpha 0 that is 0 below 0 and NaN from there on."""

    x: In[Float]
    alpha: Attr[float] = 1.0
    effort = Effort.FUNCTION

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        if self.alpha == 0:
            return e.select(x < 0, e.min(e.abs(x), 0.0), math.nan)
        exponent = x / self.alpha if self.alpha < 0 else e.min(x / self.alpha, 0.0)
        return e.max(x, 0.0) + e.min(_exp_minus_1(e, exponent) * self.alpha, 0.0)

    def derivative(self, e: PyAny, i: int, x: PyAny) -> PyAny:
        """The two parts meet smoothly at 0 for alpha > 0; below 0, parts with alpha < 0 are above 0 and cut off."""
        return e.select(x < 0, e.exp(x / self.alpha) if self.alpha > 0 else 0.0, 1.0)


@op(since=22)
class Selu(Elementwise):
    """gamma x for x > 0, else gamma alpha (e^x - 1)."""

    x: In[Float]
    alpha: Attr[float] = 1.67326319217681884765625
    gamma: Attr[float] = 1.05070102214813232421875
    effort = Effort.FUNCTION

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.select(x > 0, x, _exp_minus_1(e, x) * self.alpha) * self.gamma

    def derivative(self, e: PyAny, i: int, x: PyAny) -> PyAny:
        """The steps of e^x - 1 cancel."""
        return e.select(x > 0, 1.0, e.exp(x) * self.alpha) * self.gamma


@op(since=16)
class PRelu(Elementwise):
    """x for x >= 0, else slope x; the slope broadcasts to x."""

    x: In[Numeric]
    slope: In[Numeric]
    effort = Effort.CHEAP

    def compute(self, e: PyAny, x: PyAny, slope: PyAny) -> PyAny:
        return e.select(x < 0, x * slope, x)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.rank(1) > ctx.rank(0) or ctx.broadcast(ctx.shape(0), ctx.shape(1)) != ctx.shape(0):
            ctx.fail("the slope must broadcast to x", expected=ctx.types[0], found=ctx.types[1])
        return [ctx.tensor(0)]


@op(since=20)
class Gelu(Elementwise):
    """x times the normal distribution at x: by erf, or by tanh of a cubic."""

    x: In[Float]
    approximate: Attr[str] = "none"
    effort = Effort.FUNCTION

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        if self.approximate == "tanh":
            # (1 + tanh u) / 2 = sigmoid(2 u)
            return x * e.sigmoid(x * (x * x * 0.044715 + 1.0) * (2 * math.sqrt(2 / math.pi)))
        return x * 0.5 * (e.erf(x * math.sqrt(0.5)) + 1.0)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if self.approximate not in ("none", "tanh"):
            ctx.fail("unknown approximation", expected="none or tanh", found=self.approximate[:60])
        return super().infer(ctx)


@op(since=22)
class Softplus(Elementwise):
    """log(1 + e^x)."""

    x: In[Float]
    effort = Effort.FUNCTION

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return _softplus(e, x)


@op(since=22)
class Softsign(Elementwise):
    """x / (1 + |x|)."""

    x: In[Float]
    effort = Effort.SINGLE

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return x / (e.abs(x) + 1.0)


@op(since=22)
class Mish(Elementwise):
    """x tanh(log(1 + e^x))."""

    x: In[Float]
    effort = Effort.FUNCTION

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return x * e.tanh(_softplus(e, x))


@op(since=24)
class Swish(Elementwise):
    """x / (1 + e^(-alpha x))."""

    x: In[Float]
    alpha: Attr[float] = 1.0
    effort = Effort.FUNCTION

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return x * e.sigmoid(x * self.alpha)


@op(since=28)
class SwiGLU(Composite):
    """Swish of the gate a, times b (Shazeer, "GLU variants improve Transformer", 2020).

    Nothing is broadcast, which no element-wise operator could insist on: passes give those a number for a constant.
    """

    a: In[Float]
    b: In[Float]
    alpha: Attr[float] = 1.0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        a, b = ctx.shape(0), ctx.shape(1)
        if len(a) != len(b):
            ctx.fail("the gate and the values must have the same shape", expected=ctx.types[0], found=ctx.types[1])
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            ctx.equal(x, y, f"dimension {i} of the gate and the values must agree")
        return [ctx.tensor(0)]

    def expand(self, g: PyAny, a: PyAny, b: PyAny) -> PyAny:
        gate = g.Swish(as_float(g, a), alpha=self.alpha)
        return cast_to(g, g.Mul(gate, as_float(g, b)), a.type.dtype)


@op(since=22)
class HardSwish(Elementwise):
    """x max(0, min(1, x / 6 + 1 / 2))."""

    x: In[Float]
    effort = Effort.CHEAP
    tie_share = 0.0

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return x * e.max(e.min(x * (1 / 6) + 0.5, 1.0), 0.0)


@op(since=22)
class ThresholdedRelu(Elementwise):
    """x where it exceeds alpha, else 0."""

    x: In[Float]
    alpha: Attr[float] = 1.0
    effort = Effort.CHEAP

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.select(x > self.alpha, x, 0.0)


@op(since=9)
class Shrink(Elementwise):
    """x + bias below -lambd, x - bias above lambd, 0 between."""

    x: In[Numeric]
    bias: Attr[float] = 0.0
    lambd: Attr[float] = 0.5
    effort = Effort.SINGLE

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        wide = x if x.dtype.is_float else e.cast(x, F64 if x.dtype.bits > 16 else F32)
        shrunk = e.select(wide < -self.lambd, wide + self.bias, e.select(wide > self.lambd, wide - self.bias, 0.0))
        return e.cast(shrunk, x.dtype)
