"""The element-wise operators that most models use: plain arithmetic and activations, Cast, Where, Identity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import NARROW, STR, Dim, DType, SymDim, Type, at_least
from .backward import Backward
from .base import (
    Any,
    Any2,
    Attr,
    Bool,
    Composite,
    Effort,
    Elementwise,
    Float,
    In,
    InferContext,
    Mixed,
    Numeric,
    Opt,
    Signed,
    op,
)
from .narrow_types import ROUND_MODES, from_narrow, to_narrow

_NO_TEXT = ("f8e8m0", "f4e2m1", "f6e2m3", "f6e3m2")  # what is out of their range has rules of its own


@op(since=14)
class Add(Elementwise):
    """a + b."""

    a: In[Numeric]
    b: In[Numeric]
    folds_sizes_as_floats = True
    effort = Effort.CHEAP

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a + b

    def fold(self, a: PyAny, b: PyAny) -> PyAny:
        return a + b


@op(since=14)
class Sub(Elementwise):
    """a - b."""

    a: In[Numeric]
    b: In[Numeric]
    folds_sizes_as_floats = True
    effort = Effort.CHEAP

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a - b

    def fold(self, a: PyAny, b: PyAny) -> PyAny:
        return a - b


@op(since=14)
class Mul(Elementwise):
    """a * b."""

    a: In[Numeric]
    b: In[Numeric]
    folds_sizes_as_floats = True
    effort = Effort.CHEAP

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a * b

    def fold(self, a: PyAny, b: PyAny) -> PyAny:
        return a * b

    def _whole(self, scalars: list[PyAny], dtype: DType) -> list[PyAny] | None:
        symbolic = any(isinstance(x, SymDim) for x in scalars)
        if symbolic and dtype.is_float and 0 in scalars:  # the sign of the zero is that of a size
            return None
        return super()._whole(scalars, dtype)


@op(since=14)
class Div(Elementwise):
    """a / b; integers round towards zero."""

    a: In[Numeric]
    b: In[Numeric]
    effort = Effort.CHEAP

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a / b

    def known(self, ctx: InferContext) -> np.ndarray | None:
        return super().known(ctx) if ctx.tensor(0).dtype.is_int else None

    def fold(self, a: Dim, b: Dim) -> Dim | None:
        if b == 0:
            return None
        if isinstance(a, int) and isinstance(b, int):
            quotient = abs(a) // abs(b)
            return quotient if (a < 0) == (b < 0) else -quotient
        return a // b if at_least(a, 0) and at_least(b, 1) else None


@op(since=14)
class Relu(Elementwise):
    """max(x, 0); NaN stays NaN."""

    x: In[Signed]
    effort = Effort.CHEAP
    tie_share = 0.0

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.max(x, 0)


@op(since=13)
class Sigmoid(Elementwise):
    """1 / (1 + exp(-x))."""

    x: In[Float]
    effort = Effort.FUNCTION

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.sigmoid(x)


@op(since=13)
class Tanh(Elementwise):
    """Hyperbolic tangent."""

    x: In[Float]
    effort = Effort.FUNCTION

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.tanh(x)


@op(since=13)
class Exp(Elementwise):
    """e to the power x."""

    x: In[Float]
    effort = Effort.FUNCTION

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.exp(x)


@op(since=13)
class Sqrt(Elementwise):
    """Square root; NaN for negative x."""

    x: In[Float]
    effort = Effort.SINGLE

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.sqrt(x)


@op(since=13)
class Clip(Elementwise):
    """min(max(x, low), high) with scalar bounds; either may be left out. low > high gives high."""

    x: In[Numeric]
    min: Opt[Numeric]
    max: Opt[Numeric]
    effort = Effort.CHEAP
    tie_share = 0.0

    def compute(self, e: PyAny, x: PyAny, low: PyAny = None, high: PyAny = None) -> PyAny:
        if low is not None:
            x = e.max(x, low)
        return x if high is None else e.min(x, high)

    def infer(self, ctx: InferContext) -> list[PyAny]:
        for i, bound in ((1, "min"), (2, "max")):
            if ctx.has(i) and any(d != 1 for d in ctx.shape(i)):
                ctx.fail(f"{bound} must be a scalar", found=ctx.types[i])
        return [ctx.tensor(0)]


@op(since=16)
class LeakyRelu(Elementwise):
    """x for x >= 0, else alpha * x."""

    x: In[Float]
    alpha: Attr[float] = 0.01
    effort = Effort.CHEAP

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.select(x < 0, x * self.alpha, x)


@op(since=6)
class HardSigmoid(Elementwise):
    """max(0, min(1, alpha * x + beta))."""

    x: In[Float]
    alpha: Attr[float] = 0.2
    beta: Attr[float] = 0.5
    effort = Effort.CHEAP
    tie_share = 0.0

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.max(e.min(x * self.alpha + self.beta, 1), 0)


@op(since=13)
class Cast(Elementwise):
    """x converted to the element type `to`. Float to int rounds towards zero, anything to bool is x != 0."""

    x: In[Any]
    to: Attr[DType]
    saturate: Attr[int] = 1
    round_mode: Attr[str] = "up"
    folds_sizes_as_floats = True
    effort = Effort.CHEAP

    def output_dtype(self, ctx: InferContext) -> DType:
        return self.to

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if self.round_mode not in ROUND_MODES:
            ctx.fail("unknown round_mode", expected=", ".join(ROUND_MODES), found=self.round_mode)
        given = ctx.tensor(0).dtype
        if STR in (given, self.to) and any(d.kind == "c" or d.name in _NO_TEXT for d in (given, self.to)):
            ctx.unsupported("numbers of this type are neither written as text nor read", f"{given} to {self.to}")
        return super().infer(ctx)

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        if x.dtype == self.to:
            return x
        number = from_narrow(e, x) if x.dtype in NARROW else x
        if self.to in NARROW:
            return to_narrow(e, number, self.to, bool(self.saturate), self.round_mode)
        return e.cast(number, self.to)

    def gradient(self, back: Backward) -> Sequence[None] | None:
        """None of narrow types, as of integers: their numbers are steps."""
        return [None] if self.to in NARROW or back.inputs[0].tensor.dtype in NARROW else None

    def fold(self, x: PyAny) -> PyAny:
        if self.to in NARROW:
            return None
        if isinstance(x, SymDim):
            return x if (self.to.is_int or self.to.is_float) and self.to.bits >= 32 else None
        if isinstance(x, float) and not math.isfinite(x):
            return x if self.to.is_float else None
        if self.to.kind == "b":
            return bool(x)
        if self.to.is_int:
            return int(x) if self.to.holds(int(x)) else None
        return float(x) if self.to.is_float and self.to.bits >= 32 else None


@op(since=15)
class CastLike(Composite):
    """x converted to the element type of another tensor."""

    x: In[Any]
    target: In[Any2]
    saturate: Attr[int] = 1
    round_mode: Attr[str] = "up"

    def expand(self, g: PyAny, x: PyAny, target: PyAny) -> PyAny:
        return g.Cast(x, to=target.tensor.dtype, saturate=self.saturate, round_mode=self.round_mode)


@op(since=16)
class Where(Elementwise):
    """x where the condition holds, else y."""

    condition: In[Bool]
    x: In[Any]
    y: In[Any]
    effort = Effort.CHEAP

    def output_dtype(self, ctx: InferContext) -> DType:
        return ctx.tensor(1).dtype

    def compute(self, e: PyAny, condition: PyAny, x: PyAny, y: PyAny) -> PyAny:
        return e.select(condition, x, y)

    def fold(self, condition: PyAny, x: PyAny, y: PyAny) -> PyAny:
        return x if condition else y


@op(since=14)
class Identity(Elementwise):
    """x itself; sequences and optionals pass too."""

    x: In[Mixed]
    effort = Effort.CHEAP

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return x

    def infer(self, ctx: InferContext) -> list[PyAny]:
        return [ctx.types[0]]

    def fold(self, x: PyAny) -> PyAny:
        return x
