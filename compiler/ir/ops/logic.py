"""Comparisons, logic, bits, and tests for NaN and infinity, element by element."""

from __future__ import annotations

from typing import Any as PyAny

from ..types import BOOL, SymDim, at_least, at_most
from .base import Attr, Bool, Effort, Elementwise, Float, In, Int, Numeric, NumericBoolOrStr, op


class _Comparison(Elementwise):
    """A bool; what is known of symbolic dimensions may decide it when compiling."""

    result_dtype = BOOL
    effort = Effort.SINGLE


def _less(a: PyAny, b: PyAny) -> bool | None:
    """Whether a < b, None if it depends on a symbol's value."""
    if not isinstance(a, SymDim) and not isinstance(b, SymDim):
        return bool(a < b)
    if isinstance(a, float) or isinstance(b, float):
        return None
    difference = a - b
    if at_most(difference, -1):
        return True
    return False if at_least(difference, 0) else None


def _not(x: bool | None) -> bool | None:
    return None if x is None else not x


@op(since=13)
class Equal(_Comparison):
    """a == b; false for NaN."""

    a: In[NumericBoolOrStr]
    b: In[NumericBoolOrStr]

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return ~(a ^ b) if a.dtype == BOOL else a == b

    def fold(self, a: PyAny, b: PyAny) -> PyAny:
        if not isinstance(a, SymDim) and not isinstance(b, SymDim):
            return bool(a == b)
        if isinstance(a, float) or isinstance(b, float):
            return None
        if a == b:
            return True
        return False if _less(a, b) or _less(b, a) else None


@op(since=13)
class Less(_Comparison):
    """a < b."""

    a: In[Numeric]
    b: In[Numeric]

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a < b

    def fold(self, a: PyAny, b: PyAny) -> PyAny:
        return _less(a, b)


@op(since=16)
class LessOrEqual(_Comparison):
    """a <= b."""

    a: In[Numeric]
    b: In[Numeric]

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a <= b

    def fold(self, a: PyAny, b: PyAny) -> PyAny:
        return None if isinstance(a, float) or isinstance(b, float) else _not(_less(b, a))


@op(since=13)
class Greater(_Comparison):
    """a > b."""

    a: In[Numeric]
    b: In[Numeric]

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a > b

    def fold(self, a: PyAny, b: PyAny) -> PyAny:
        return _less(b, a)


@op(since=16)
class GreaterOrEqual(_Comparison):
    """a >= b."""

    a: In[Numeric]
    b: In[Numeric]

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a >= b

    def fold(self, a: PyAny, b: PyAny) -> PyAny:
        return None if isinstance(a, float) or isinstance(b, float) else _not(_less(a, b))


@op(since=1)
class Not(Elementwise):
    """The other truth value."""

    x: In[Bool]
    effort = Effort.SINGLE

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return ~x

    def fold(self, x: PyAny) -> PyAny:
        return not x


@op(since=7)
class And(Elementwise):
    """Both hold."""

    a: In[Bool]
    b: In[Bool]
    effort = Effort.SINGLE

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a & b

    def fold(self, a: PyAny, b: PyAny) -> PyAny:
        return bool(a and b)


@op(since=7)
class Or(Elementwise):
    """At least one holds."""

    a: In[Bool]
    b: In[Bool]
    effort = Effort.SINGLE

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a | b

    def fold(self, a: PyAny, b: PyAny) -> PyAny:
        return bool(a or b)


@op(since=7)
class Xor(Elementwise):
    """Exactly one holds."""

    a: In[Bool]
    b: In[Bool]
    effort = Effort.SINGLE

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a ^ b

    def fold(self, a: PyAny, b: PyAny) -> PyAny:
        return bool(a) != bool(b)


@op(since=18)
class BitwiseNot(Elementwise):
    """Every bit turned over."""

    x: In[Int]
    effort = Effort.SINGLE

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return ~x


@op(since=18)
class BitwiseAnd(Elementwise):
    """Bits set in both."""

    a: In[Int]
    b: In[Int]
    effort = Effort.SINGLE

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a & b


@op(since=18)
class BitwiseOr(Elementwise):
    """Bits set in either."""

    a: In[Int]
    b: In[Int]
    effort = Effort.SINGLE

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a | b


@op(since=18)
class BitwiseXor(Elementwise):
    """Bits set in exactly one."""

    a: In[Int]
    b: In[Int]
    effort = Effort.SINGLE

    def compute(self, e: PyAny, a: PyAny, b: PyAny) -> PyAny:
        return a ^ b


@op(since=13)
class IsNaN(Elementwise):
    """Whether x is not a number."""

    x: In[Float]
    result_dtype = BOOL
    effort = Effort.SINGLE

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        return e.is_nan(x)


@op(since=10)
class IsInf(Elementwise):
    """Whether x is infinite, of the signs asked for."""

    x: In[Float]
    detect_negative: Attr[int] = 1
    detect_positive: Attr[int] = 1
    result_dtype = BOOL
    effort = Effort.SINGLE

    def compute(self, e: PyAny, x: PyAny) -> PyAny:
        infinite = e.is_inf(x)
        if not self.detect_negative:
            infinite = infinite & (x > 0)
        return infinite if self.detect_positive else infinite & (x < 0)
