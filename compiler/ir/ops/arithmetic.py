"""Element-wise arithmetic: signs, rounding, remainders, powers, and the operators of any number of operands."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import reduce
from typing import Any as PyAny

import numpy as np

from ..types import F32, F64, I64, Dim, DType, SymDim, at_least, dim_max, dim_min
from .base import Attr, Effort, Elementwise, Float, In, InferContext, Int, Numeric, Numeric2, Signed, Variadic, op


@op(since=13)
class Neg(Elementwise):
    """-x; the least integer stays what it is."""

    x: In[Signed]
    folds_sizes_as_floats = True
    effort = Effort.CHEAP

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return -x

    def fold(self, x: PyAny) -> PyAny:
        return -x


@op(since=13)
class Abs(Elementwise):
    """|x|; the least integer stays what it is."""

    x: In[Numeric]
    effort = Effort.CHEAP

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.abs(x)

    def fold(self, x: PyAny) -> PyAny:
        if isinstance(x, SymDim):
            return x if at_least(x, 0) else None
        return abs(x)


@op(since=13)
class Reciprocal(Elementwise):
    """1 / x."""

    x: In[Float]
    effort = Effort.SINGLE

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return 1.0 / x


@op(since=13)
class Floor(Elementwise):
    """The greatest whole number not above x."""

    x: In[Float]
    folds_sizes_as_floats = True
    effort = Effort.SINGLE

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.floor(x)

    def fold(self, x: PyAny) -> PyAny:
        return x if isinstance(x, SymDim) else None


@op(since=13)
class Ceil(Elementwise):
    """The least whole number not below x."""

    x: In[Float]
    folds_sizes_as_floats = True
    effort = Effort.SINGLE

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.ceil(x)

    def fold(self, x: PyAny) -> PyAny:
        return x if isinstance(x, SymDim) else None


@op(since=11)
class Round(Elementwise):
    """The nearest whole number; halves go to the even one."""

    x: In[Float]
    folds_sizes_as_floats = True
    effort = Effort.SINGLE

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.round_even(x)

    def fold(self, x: PyAny) -> PyAny:
        return x if isinstance(x, SymDim) else None


@op(since=13)
class Sign(Elementwise):
    """-1, 0 (of -0 too) or 1; NaN stays NaN."""

    x: In[Numeric]
    effort = Effort.SINGLE

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        positive = e.select(x > 0, 1, e.select(x == 0, 0, x) if x.dtype.is_float else x)
        return e.select(x < 0, -1, positive) if x.dtype.is_signed else positive


@op(since=13)
class Mod(Elementwise):
    """Remainder with the sign of the divisor, or of the dividend if `fmod` (C's fmod and %)."""

    a: In[Numeric]
    b: In[Numeric]
    fmod: Attr[int] = 0
    effort = Effort.SINGLE

    def infer(self, ctx: InferContext) -> PyAny:
        if self.fmod not in (0, 1):
            ctx.fail("fmod must be 0 or 1", found=self.fmod)
        return super().infer(ctx)

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        remainder = a % b
        if self.fmod or not remainder.dtype.is_signed:
            return remainder
        opposite = (remainder != 0) & ((remainder < 0) != (b < 0))
        return e.select(opposite, remainder + b, remainder)

    def fold(self, a: PyAny, b: PyAny) -> PyAny:
        if isinstance(a, float) or isinstance(b, float) or not at_least(b, 1):
            return None
        return a % b if not self.fmod or at_least(a, 0) else None


@op(since=15)
class Pow(Elementwise):
    """x to the power y, in the type of x. Integers wrap around; negative powers of integers round towards zero."""

    x: In[Numeric]
    y: In[Numeric2]
    effort = Effort.FUNCTION

    def compute(self, e: PyAny, x: PyAny, y: PyAny) -> PyAny:
        if y.const is not None and x.dtype.is_float:
            product = _small_power(e, x, y.const)
            if product is not None:
                return product
        if x.dtype.is_int and y.dtype.is_float:
            return e.cast(e.pow(e.cast(x, F64), e.cast(y, F64)), x.dtype)
        wide = _common(x, y)
        return e.cast(e.pow(e.cast(x, wide), e.cast(y, wide)), x.dtype)


def _common(x: PyAny, y: PyAny) -> DType:
    """The type that a power is computed in: one that holds the exponent, odd or even, negative or not."""
    if x.dtype.is_float:
        digits = {F64: 53, F32: 24}
        is_short = y.dtype.bits < digits[x.dtype] if y.dtype.is_int else y.dtype.bits <= x.dtype.bits
        constant = y.const is not None and x.dtype == F32 and float(np.float32(y.const)) == y.const
        return x.dtype if is_short or constant else F64
    bits = max(x.dtype.bits, y.dtype.bits)
    if x.dtype.is_signed != y.dtype.is_signed and bits < 64:
        return I64
    return y.dtype if y.dtype.bits > x.dtype.bits else x.dtype


def _small_power(e: PyAny, x: PyAny, exponent: float) -> PyAny:
    """Powers that a multiplication or two give, or a root: of -0 and -inf it differs from the power's."""
    if exponent == 1:
        return x
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    if abs(exponent) == 0.5:
        root = e.select(x == -math.inf, math.inf, e.sqrt(x + 0.0))
        return root if exponent > 0 else 1.0 / root
    return 1.0 / x if exponent == -1 else None


@op(since=11)
class BitShift(Elementwise):
    """x shifted by y bits, LEFT or RIGHT; RIGHT keeps the sign. A y below 0 or not below the width shifts all out."""

    x: In[Int]
    y: In[Int]
    direction: Attr[str]
    effort = Effort.SINGLE

    def infer(self, ctx: InferContext) -> PyAny:
        if self.direction not in ("LEFT", "RIGHT"):
            ctx.fail("unknown direction", expected="LEFT or RIGHT", found=self.direction[:60])
        return super().infer(ctx)

    def compute(self, e: PyAny, x: PyAny, y: PyAny) -> PyAny:
        bits, signed = x.dtype.bits, x.dtype.is_signed
        inside = (y >= 0) & (y < bits) if signed else y < bits
        count = e.select(inside, y, bits - 1)  # shifting by the width or more is undefined in LLVM
        if self.direction == "LEFT":
            return e.select(inside, x << count, 0)
        return x >> count if signed else e.select(inside, x >> count, 0)


class _Many(Elementwise):
    """Folds any number of operands pairwise, so that rounding errors grow with the logarithm of their number."""

    def compute(self, e: PyAny, *xs: PyAny) -> PyAny:
        return self.finish(_pairwise(lambda a, b: self.combine(e, a, b), list(xs)), len(xs))

    @abstractmethod
    def combine(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        raise NotImplementedError(f"{self.name}.combine")

    def finish(self, x: PyAny, count: int) -> PyAny:
        return x


def _pairwise(combine: Callable[[PyAny, PyAny], PyAny], xs: list[PyAny]) -> PyAny:
    while len(xs) > 1:
        odd = xs[-1:] if len(xs) % 2 else []
        xs = [combine(a, b) for a, b in zip(xs[::2], xs[1::2])] + odd
    return xs[0]


@op(since=13)
class Max(_Many):
    """The greatest operand; NaN if any is."""

    xs: Variadic[Numeric]
    folds_sizes_as_floats = True
    effort = Effort.CHEAP

    def combine(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return e.max(a, b)

    def fold(self, *xs: Dim | float) -> Dim | float | None:
        if any(isinstance(x, float) for x in xs):
            return None if any(x != x for x in xs) else max(xs)  # type: ignore[type-var]
        return reduce(dim_max, xs)  # type: ignore[arg-type]


@op(since=13)
class Min(_Many):
    """The least operand; NaN if any is."""

    xs: Variadic[Numeric]
    folds_sizes_as_floats = True
    effort = Effort.CHEAP

    def combine(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return e.min(a, b)

    def fold(self, *xs: Dim | float) -> Dim | float | None:
        if any(isinstance(x, float) for x in xs):
            return None if any(x != x for x in xs) else min(xs)  # type: ignore[type-var]
        return reduce(dim_min, xs)  # type: ignore[arg-type]


@op(since=13)
class Sum(_Many):
    """The sum of the operands."""

    xs: Variadic[Float]
    effort = Effort.SINGLE

    def combine(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a + b


@op(since=13)
class Mean(_Many):
    """The mean of the operands."""

    xs: Variadic[Float]
    effort = Effort.SINGLE

    def combine(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a + b

    def finish(self, x: PyAny, count: int) -> PyAny:
        return x / float(count)
