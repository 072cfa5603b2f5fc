"""Derivatives of element-wise operators, taken from the expressions they compute: no operator has a rule of its own.

Forward mode over one expression: the slope of every operation with respect to one operand, by a rule per opcode. A
slope is never multiplied into a branch that is not taken, so that an infinity there does not become NaN.

    d(a · b) = da · b + a · db          d select(c, a, b) = select(c, da, db)          d max(a, b) = a > b ? da : db

Where a and b of a maximum or minimum tie, the slope is the mean of both, as PyTorch's `maximum` has it; operators whose
custom is another say so (`Elementwise.tie_share`: a Relu is flat at 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ....errors import UnsupportedOp
from ...ir.graph import Value
from ...kernel_ir.builder import KValue
from ...kernel_ir.loops import KOp
from .expression import Expression, truncated

Slope: TypeAlias = "float | Value"
"""A number, the same for all elements, or a tensor."""


class Slopes:
    """The slopes of an expression's operations with respect to operand `i`."""

    def __init__(self, e: Expression, i: int) -> None:
        self.e, self.g = e, e.g
        self._of: dict[KValue, Slope] = {}
        param = e.params[i]
        assert param is not None
        self._of[param] = 1.0
        for op in e.ops:
            slopes = [self.of(o) for o in op.operands]
            if any(_is_there(s) for s in slopes) and op.results[0].dtype.is_float:
                self._of[op.results[0]] = self._rule(op, slopes)

    @property
    def result(self) -> Slope:
        """Of the whole expression."""
        return self.of(self.e.result)

    def of(self, k: KValue) -> Slope:
        """Of a part; 0 where it does not depend on the operand."""
        return self._of.get(k, 0.0)

    def _rule(self, op: KOp, slopes: list[Slope]) -> Slope:
        rule = _RULES.get(op.opcode)
        if rule is None:
            raise UnsupportedOp(f"no derivative of the kernel's {op.opcode}", where=self.e.where)
        return rule(self, op, *slopes)

    # Arithmetic on slopes

    def plus(self, a: Slope, b: Slope) -> Slope:
        """a + b."""
        if not _is_there(a) or not _is_there(b):
            return a if _is_there(a) else b
        if isinstance(a, float) and isinstance(b, float):
            return a + b
        result: Value = self.g.Add(a, b)
        return result

    def negative(self, a: Slope) -> Slope:
        """-a."""
        if isinstance(a, float):
            return -a
        result: Value = self.g.Neg(a)
        return result

    def times(self, a: Slope, b: Value | KValue) -> Slope:
        """a times a part of the expression, or a tensor made of parts."""
        if not _is_there(a):
            return 0.0
        if isinstance(b, KValue):
            if b.const is not None and isinstance(a, float):
                return a * float(b.const)
            b = self.e.value(b)
        if a == 1.0 and isinstance(a, float):
            return b
        result: Value = self.g.Mul(b, a)
        return result

    def over(self, a: Slope, b: KValue) -> Slope:
        """a divided by a part."""
        if not _is_there(a):
            return 0.0
        if isinstance(a, float) and b.const is not None:
            return a / float(b.const) if b.const else math.inf * a
        result: Value = self.g.Div(self.tensor(a, b), self.e.value(b))
        return result

    def pick(self, condition: Value, a: Slope, b: Slope, like: KValue) -> Slope:
        """a where the condition holds, else b."""
        if isinstance(a, float) and isinstance(b, float) and a == b:
            return a
        result: Value = self.g.Where(condition, self.tensor(a, like), self.tensor(b, like))
        return result

    def tensor(self, a: Slope, like: KValue) -> Value:
        """A slope as a value of the element type of a part."""
        return self.e.number(a, like.dtype) if isinstance(a, float) else a


def _is_there(a: Slope) -> bool:
    return not (isinstance(a, float) and a == 0)


def _product(s: Slopes, op: KOp, da: Slope, db: Slope) -> Slope:
    a, b = op.operands
    return s.plus(s.times(da, b), s.times(db, a))


def _quotient(s: Slopes, op: KOp, da: Slope, db: Slope) -> Slope:
    """(da - (a / b) db) / b."""
    return s.over(s.plus(da, s.negative(s.times(db, op.results[0]))), op.operands[1])


def _remainder(s: Slopes, op: KOp, da: Slope, db: Slope) -> Slope:
    """a - b trunc(a / b)."""
    a, b = (s.e.value(o) for o in op.operands)
    whole = truncated(s.g, s.g.Div(a, b)) if _is_there(db) else None
    return da if whole is None else s.plus(da, s.negative(s.times(db, whole)))


def _extreme(wins: str) -> Callable[..., Slope]:
    def rule(s: Slopes, op: KOp, da: Slope, db: Slope) -> Slope:
        like = op.results[0]
        if isinstance(da, float) and isinstance(db, float) and da == db:
            return da
        share = s.e.tie_share if op.operands[0].const is None else 1 - s.e.tie_share  # the share of what varies
        a, b = s.e.value(_witness(s.e, op) if share == 0 else op.operands[0]), s.e.value(op.operands[1])
        tie = s.plus(_scaled(s, da, share, like), _scaled(s, db, 1 - share, like))
        loser = db if share == 0 else s.pick(s.g.Equal(a, b), tie, db, like)
        return s.pick(getattr(s.g, wins)(a, b), da, loser, like)

    return rule


def _witness(e: Expression, op: KOp) -> KValue:
    """What may stand for x in "x beats the bound" of max(x, bound) or min(x, bound): the result that the graph has
    anyway, so that x itself need not be kept for the backward pass. Of a Clip also the result behind the other bound.
    """
    (x, bound), y = op.operands, e.result
    if bound.const is None:
        return x
    if y is op.results[0]:
        return y
    outer = e.ops[-1]
    if outer.results[0] is y and {outer.opcode, op.opcode} == {"min", "max"} and outer.operands[0] is op.results[0]:
        other = outer.operands[1].const
        low, high = (other, bound.const) if outer.opcode == "max" else (bound.const, other)
        if other is not None and low < high:
            return y
    return x


def _scaled(s: Slopes, a: Slope, by: float, like: KValue) -> Slope:
    return a * by if isinstance(a, float) else s.times(a, s.e.number(by, like.dtype))


def _power(s: Slopes, op: KOp, da: Slope, db: Slope) -> Slope:
    """b a^(b-1) da + a^b log(a) db; 0 for the first where b is 0, and for the second where a is 0, as in PyTorch."""
    a, b = op.operands
    base, exponent = s.e.value(a), s.e.value(b)
    total: Slope = 0.0
    if _is_there(da):
        lower = s.g.Mul(exponent, s.g.Pow(base, s.g.Sub(exponent, 1.0)))
        zero = s.e.number(0.0, a.dtype)
        total = s.times(da, s.g.Where(s.g.Equal(exponent, 0.0), zero, lower))
    if _is_there(db):
        log = s.g.Mul(s.e.value(op.results[0]), s.g.Log(base))
        zero = s.e.number(0.0, a.dtype)
        dead = s.g.And(s.g.Equal(base, 0.0), s.g.GreaterOrEqual(exponent, 0.0))
        total = s.plus(total, s.times(db, s.g.Where(dead, zero, log)))
    return total


def _cast(s: Slopes, op: KOp, da: Slope) -> Slope:
    if not op.operands[0].dtype.is_float or isinstance(da, float):
        return da if op.operands[0].dtype.is_float else 0.0
    result: Value = s.g.Cast(da, to=op.results[0].dtype)
    return result


def _fused(s: Slopes, op: KOp, da: Slope, db: Slope, dc: Slope) -> Slope:
    a, b, _ = op.operands
    return s.plus(s.plus(s.times(da, b), s.times(db, a)), dc)


def _select(s: Slopes, op: KOp, dc: Slope, da: Slope, db: Slope) -> Slope:
    return s.pick(s.e.value(op.operands[0]), da, db, op.results[0])


def _function(s: Slopes, op: KOp, da: Slope) -> Slope:
    derivative = _DERIVATIVES.get(op.attrs["fn"])
    if derivative is None:
        return 0.0  # steps: floor, ceil, trunc, round
    x, y = (s.e.value(v) for v in (op.operands[0], op.results[0]))
    return s.times(da, derivative(s.g, x, y))


_RULES: Mapping[str, Callable[..., Slope]] = {
    "add": lambda s, op, da, db: s.plus(da, db),
    "sub": lambda s, op, da, db: s.plus(da, s.negative(db)),
    "neg": lambda s, op, da: s.negative(da),
    "mul": _product, "div": _quotient, "rem": _remainder, "pow": _power, "fma": _fused,
    "max": _extreme("Greater"), "min": _extreme("Less"), "select": _select, "cast": _cast, "math": _function,
    "round_to": lambda s, op, da: 0.0,
}  # fmt: skip

_DERIVATIVES: Mapping[str, Callable[[Any, Value, Value], Value]] = {
    "exp": lambda g, x, y: y,
    "exp2": lambda g, x, y: g.Mul(y, math.log(2)),
    "log": lambda g, x, y: g.Reciprocal(x),
    "log1p": lambda g, x, y: g.Reciprocal(g.Add(x, 1.0)),
    "sigmoid": lambda g, x, y: g.Mul(y, g.Sub(1.0, y)),
    "tanh": lambda g, x, y: g.Sub(1.0, g.Mul(y, y)),
    "erf": lambda g, x, y: g.Mul(g.Exp(g.Neg(g.Mul(x, x))), 2 / math.sqrt(math.pi)),
    "sqrt": lambda g, x, y: g.Div(0.5, y),
    "abs": lambda g, x, y: g.Sign(x),
    "sin": lambda g, x, y: g.Cos(x),
    "cos": lambda g, x, y: g.Neg(g.Sin(x)),
    "tan": lambda g, x, y: g.Add(g.Mul(y, y), 1.0),
    "asin": lambda g, x, y: g.Reciprocal(g.Sqrt(g.Sub(1.0, g.Mul(x, x)))),
    "acos": lambda g, x, y: g.Neg(g.Reciprocal(g.Sqrt(g.Sub(1.0, g.Mul(x, x))))),
    "atan": lambda g, x, y: g.Reciprocal(g.Add(g.Mul(x, x), 1.0)),
    "sinh": lambda g, x, y: g.Cosh(x),
    "cosh": lambda g, x, y: g.Sinh(x),
    "asinh": lambda g, x, y: g.Reciprocal(g.Sqrt(g.Add(g.Mul(x, x), 1.0))),
    "acosh": lambda g, x, y: g.Reciprocal(g.Mul(g.Sqrt(g.Sub(x, 1.0)), g.Sqrt(g.Add(x, 1.0)))),
    "atanh": lambda g, x, y: g.Reciprocal(g.Sub(1.0, g.Mul(x, x))),
}
