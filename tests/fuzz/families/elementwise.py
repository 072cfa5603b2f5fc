"""Element-wise operators: functions of one operand, arithmetic, comparisons, logic, casts, selections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..contents import ALL, BOOL, F16, F64, FLOATS, INTS, UNSIGNED, is_float, random_array
from ..known import IMPRECISE
from ..maker import Maker, Refused, Value, allowed_types
from ..sizes import Shape, broadcast, numbers, shape_of
from .registry import family

INF = float("inf")
Bound = Callable[[float], float]
# operator → where its operand must lie, and the bound of the result for that of the operand
FUNCTIONS: dict[str, tuple[float, float, Bound]] = {
    "Abs": (-INF, INF, lambda b: b), "Neg": (-INF, INF, lambda b: b), "Relu": (-INF, INF, lambda b: b),
    "Sign": (-INF, INF, lambda b: 1.0), "Floor": (-INF, INF, lambda b: b + 1), "Ceil": (-INF, INF, lambda b: b + 1),
    "Round": (-INF, INF, lambda b: b + 1), "Identity": (-INF, INF, lambda b: b),
    "Acos": (-1, 1, lambda b: 4.0), "Asin": (-1, 1, lambda b: 2.0), "Atan": (-INF, INF, lambda b: 2.0),
    "Acosh": (1.0, 50, lambda b: 6.0), "Asinh": (-INF, INF, lambda b: 12.0), "Atanh": (-0.95, 0.95, lambda b: 3.0),
    "Cosh": (-4, 4, lambda b: 30.0), "Sinh": (-4, 4, lambda b: 30.0), "Tanh": (-INF, INF, lambda b: 1.0),
    "Sin": (-100, 100, lambda b: 1.0), "Cos": (-100, 100, lambda b: 1.0), "Tan": (-1.4, 1.4, lambda b: 6.0),
    "Exp": (-8, 4, lambda b: 60.0), "Log": (1e-3, INF, lambda b: 10.0), "Sqrt": (0, INF, lambda b: b),
    "Erf": (-INF, INF, lambda b: 1.0), "Reciprocal": (0.05, INF, lambda b: 20.0),
    "Sigmoid": (-INF, INF, lambda b: 1.0), "Softplus": (-INF, INF, lambda b: b + 1),
    "Softsign": (-INF, INF, lambda b: 1.0), "Gelu": (-INF, INF, lambda b: b), "Mish": (-INF, INF, lambda b: b),
    "HardSwish": (-INF, INF, lambda b: b), "Elu": (-INF, INF, lambda b: 2 * b + 2),
    "Celu": (-INF, INF, lambda b: 2 * b + 2), "Selu": (-INF, INF, lambda b: 4 * b + 4),
    "LeakyRelu": (-INF, INF, lambda b: 2 * b), "HardSigmoid": (-INF, INF, lambda b: 1.0),
    "ThresholdedRelu": (-INF, INF, lambda b: b), "Swish": (-INF, INF, lambda b: b),
    "Shrink": (-INF, INF, lambda b: b + 2),
}  # fmt: skip
ATTRIBUTES: dict[str, dict[str, tuple[float, ...]]] = {
    "Elu": {"alpha": (0.5, 1.7)}, "Celu": {"alpha": (0.5, 1.7, 2.0)},
    "Selu": {"alpha": (1.0, 1.7), "gamma": (1.0, 1.1)},
    "LeakyRelu": {"alpha": (0.0, 0.1, 1.5)}, "HardSigmoid": {"alpha": (0.1, 0.5), "beta": (0.0, 0.6)},
    "ThresholdedRelu": {"alpha": (0.0, 0.7)}, "Swish": {"alpha": (0.5, 2.0)},
    "Shrink": {"bias": (0.0, 0.25), "lambd": (0.5, 1.0)},
}  # fmt: skip


@family(*FUNCTIONS)
def function(m: Maker, op: str) -> None:
    """A function of one operand, moved into the function's range unless the graph is wild."""
    low, high, bound = FUNCTIONS[op]
    types = allowed_types(op, m.opset)[0]
    if op in IMPRECISE:
        types = tuple(t for t in types if t != F64)
    if op in ("Sign", "Abs", "Shrink", "Neg", "Relu", "Identity") and m.chance(0.5):
        types = tuple(t for t in types if is_float(t)) or types
    x = m.pick(types)
    if x.is_float and (low, high) != (-INF, INF):
        ceiling_ = 100.0
        if low > 0 and x.dtype in FLOATS and m.chance(0.5) and not m.wild:
            x = m.one("Abs", [x], x.dtype, x.shape)
            x = m.one("Add", [x, m.scalar(max(low, 0.1), x.dtype)], x.dtype, x.shape, x.bound + 1)
            x = m.within(x, low, min(high, ceiling_)) if high < ceiling_ else x
        else:
            x = m.within(x, max(low, -ceiling_), min(high, ceiling_))
    attributes: dict[str, Any] = {k: m.choose(v) for k, v in ATTRIBUTES.get(op, {}).items() if m.chance(0.5)}
    if op == "Gelu":
        attributes["approximate"] = m.choose([None, "none", "tanh"])
    if op == "Shrink" and not x.is_float:
        if m.wild:
            raise Refused("implementations differ in how they round large integers")
        attributes = {"bias": float(m.choose([0, 1])), "lambd": float(m.choose([0, 2]))}
        x = _small(m, x)
    m.one(op, [x], x.dtype, x.shape, bound(x.bound), **attributes)


def _small(m: Maker, x: Value) -> Value:
    """A fresh operand of small integers in place of any integers."""
    low = 0 if x.dtype in UNSIGNED else -50
    return m.input(x.dtype, tuple(s if s.is_static or s.symbol else m.size(0) for s in x.shape), low, 50)


@family("SwiGLU")
def gated(m: Maker, op: str) -> None:
    """Two of one shape."""
    a = m.pick(FLOATS, where=lambda v: all(s.is_static or s.symbol for s in v.shape))
    b = m.input(a.dtype, a.shape, -3, 3)
    m.one(op, [a, b], a.dtype, a.shape, 3 * a.bound, alpha=m.choose([None, 0.5, 1.7]))


@family("IsNaN", "IsInf")
def classified(m: Maker, op: str) -> None:
    x = m.pick(allowed_types(op, m.opset)[0])
    signs = {"detect_negative": m.choose([None, 0]), "detect_positive": m.choose([None, 0])} if op == "IsInf" else {}
    m.one(op, [x], BOOL, x.shape, 1.0, **signs)


def operands(m: Maker, types: tuple[np.dtype, ...]) -> tuple[Value, Value, Shape]:
    """Two that broadcast against each other, in any order, sometimes both ways, and the shape of both."""
    a = m.pick(types)
    if m.chance(0.1) and a.rank and all(s.is_static or s.symbol for s in a.shape):
        axis = m.rng.randrange(a.rank)
        thin = m.fresh(a.dtype, tuple(shape_of(1)[0] if i == axis else s for i, s in enumerate(a.shape)))
        column = m.fresh(a.dtype, (a.shape[axis], *shape_of(*[1] * (a.rank - 1 - axis))))
        assert thin is not None and column is not None
        a, b = thin, column
    elif m.chance(0.08):
        b = a
    else:
        b = m.same_or_broadcast(a)
    if m.chance(0.4):
        a, b = b, a
    shape = broadcast(a.shape, b.shape)
    if shape is None:
        raise Refused("operands do not broadcast")
    return a, b, shape


@family("Add", "Sub", "Mul", "PRelu", frequency=2)
def arithmetic(m: Maker, op: str) -> None:
    a, b, shape = operands(m, allowed_types(op, m.opset)[0])
    if op == "PRelu" and a.shape != shape:
        a, b = b, a
    if op == "PRelu" and (a.shape != shape or a.dtype in UNSIGNED):
        raise Refused("the slope must broadcast to x")
    m.one(op, [a, b], a.dtype, shape, a.bound * b.bound if op in ("Mul", "PRelu") else a.bound + b.bound)


@family("Div", "Mod", frequency=1.5)
def division(m: Maker, op: str) -> None:
    """Divisors are away from 0 unless floats may be wild; integers never divide the least one by -1."""
    types = allowed_types(op, m.opset)[0]
    a = m.pick(types)
    fmod = 1 if is_float(a.dtype) else m.choose([0, 1])
    b = divisor(m, a)
    attributes = {"fmod": fmod} if op == "Mod" else {}
    shape = broadcast(a.shape, b.shape)
    assert shape is not None
    m.one(op, [a, b], a.dtype, shape, max(b.bound, a.bound) if op == "Mod" else a.bound / 0.3, **attributes)


def divisor(m: Maker, a: Value) -> Value:
    """An operand that broadcasts to `a` and is not near 0."""
    floats = [v for v in m.values if v.dtype == a.dtype and v.shape == a.shape]
    if a.is_float and floats and m.chance(0.4):
        b = m.choose(floats)
        if m.wild:
            return b
        return m.one(
            "Add", [m.one("Abs", [b], b.dtype, b.shape), m.scalar(0.5, b.dtype)], b.dtype, b.shape, b.bound + 1
        )
    positive = m.same_or_broadcast(a, low=1.0 if not a.is_float else 0.4, high=9.0)
    if a.is_float or m.wild:
        if not a.is_float:
            return _nonzero(m, positive)
        return positive
    return positive


def _nonzero(m: Maker, like: Value) -> Value:
    """A constant of small positive integers, in wild graphs too."""
    return (
        m.constant(m.numpy.integers(1, 9, numbers(like.shape, 0)).astype(like.dtype))
        if all(s.is_static for s in like.shape)
        else m.constant(np.array(3, like.dtype))
    )


@family("Pow")
def power(m: Maker, op: str) -> None:
    first, second = allowed_types(op, m.opset)
    if m.wild:
        first = tuple(t for t in first if is_float(t))
    x = m.pick(first)
    if x.is_float:
        if m.chance(0.6):
            exponent = m.choose([0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -0.5, 1.5])
            other = m.dtype([t for t in second if is_float(t)]) if m.chance(0.3) else x.dtype
            y = m.scalar(exponent, other)
            if exponent not in (0.0, 1.0, 2.0, 3.0):
                x = m.within(x, 0.1, 50.0)
        else:
            x, y = m.within(x, 0.1, 5.0), m.same_or_broadcast(x, low=-2.0, high=2.0)
        shape = broadcast(x.shape, y.shape)
        assert shape is not None
        m.one(op, [x, y], x.dtype, shape, min(max(x.bound, 5.0), 1e100) ** 3)
        return
    y = m.constant(np.array(m.choose([0, 1, 2, 3]), m.dtype([t for t in second if t in INTS])))
    m.one(op, [x, y], x.dtype, x.shape)


@family("Max", "Min", "Sum", "Mean", frequency=1.5)
def many(m: Maker, op: str) -> None:
    types = tuple(t for t in allowed_types(op, m.opset)[0])
    first = m.pick(types)
    rest = [m.same_or_broadcast(first) for _ in range(m.choose([0, 1, 1, 1, 2, 3, 6]))]
    xs = [first, *rest]
    m.rng.shuffle(xs)
    shape = broadcast(*(x.shape for x in xs))
    if shape is None:
        raise Refused("operands do not broadcast")
    bound = sum(x.bound for x in xs) if op == "Sum" else max(x.bound for x in xs)
    m.one(op, xs, first.dtype, shape, bound)


@family("And", "Or", "Xor", "Not")
def logic(m: Maker, op: str) -> None:
    if op == "Not":
        x = m.pick((BOOL,))
        m.one(op, [x], BOOL, x.shape)
        return
    a, b, shape = operands(m, (BOOL,))
    m.one(op, [a, b], BOOL, shape)


@family("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift")
def bits(m: Maker, op: str) -> None:
    types = allowed_types(op, m.opset)[0]
    if op == "BitwiseNot":
        x = m.pick(types)
        m.one(op, [x], x.dtype, x.shape)
        return
    if op == "BitShift":
        a = m.pick(types)
        high = 8 * a.dtype.itemsize - 1
        b = (
            m.constant(random_array(m.numpy, a.dtype, (), 0, high))
            if m.wild
            else m.same_or_broadcast(a, low=0, high=high)
        )
        m.one(op, [a, b], a.dtype, broadcast(a.shape, b.shape) or a.shape, direction=m.choose(["LEFT", "RIGHT"]))
        return
    a, b, shape = operands(m, types)
    m.one(op, [a, b], a.dtype, shape)


@family("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def comparison(m: Maker, op: str) -> None:
    a, b, shape = operands(m, allowed_types(op, m.opset)[0])
    m.one(op, [a, b], BOOL, shape)


@family("Where", frequency=1.5)
def selection(m: Maker, op: str) -> None:
    x = m.pick(allowed_types(op, m.opset)[1])
    y, condition = m.same_or_broadcast(x), m.same_or_broadcast(x, BOOL)
    if m.chance(0.3):
        x, y = y, x
    shape = broadcast(x.shape, y.shape, condition.shape)
    if shape is None:
        raise Refused("operands do not broadcast")
    m.one(op, [condition, x, y], x.dtype, shape, max(x.bound, y.bound))


@family("Clip")
def clip(m: Maker, op: str) -> None:
    x = m.pick(allowed_types(op, m.opset)[0])
    low, high = (0, 40) if x.dtype in UNSIGNED else (-1, 2)
    bounds = [m.scalar(b, x.dtype) if m.chance(0.8) else None for b in (low, high)]
    m.one(op, [x, *bounds], x.dtype, x.shape)


@family("Cast", "CastLike", frequency=1.5)
def cast(m: Maker, op: str) -> None:
    if op == "CastLike" and m.opset < 15:
        raise Refused("newer")
    x, to = m.pick(ALL), m.dtype(ALL)
    if op == "Cast" or x.dtype == to or (x.is_float and not is_float(to) and to != BOOL):
        m.cast(x, to)
        return
    if not x.is_float and is_float(to) and to.itemsize == 2 and x.dtype.itemsize > 1:
        raise Refused("integers may be too large")
    like = m.pick((to,))
    m.one(op, [x, like], to, x.shape, max(x.bound, 256.0) if to != F16 else 256.0)
