"""Elementary functions on vectors of f32 as kernel-IR functions, and the table that leads to them.

Owns exp, exp2, tanh, sigmoid, erf, sinh and cosh (everything built on 2^n * polynomial); `vector_log` and
`vector_trigonometry` hold the others. Polynomials are minimax fits to the relative error of the result (weighted least
squares driven to equal ripple, coefficients rounded to f32 one after the other, lowest first, refitting the rest).
Measured errors stand in tests/backend/test_vector_math.py. Must not know of LLVM or targets: without FMA hardware an
`fma` here rounds twice, which the reductions allow for (their leading constants have few bits).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

from ..ir.types import F32, F64, I32
from ..kernel_ir.builder import Builder, KValue
from ..kernel_ir.loops import KFunc, KType
from . import vector_log, vector_trigonometry
from .vector_polynomial import copy_sign, horner

Expansion = Callable[[Builder, KValue], KValue]
LOG2E = math.log2(math.e)
# ln 2 in two parts (Cody, Waite 1980; the split of Cephes): a small integer times the first has no rounding error
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
# adding it leaves the nearest whole number in the low bits of the sum (|x| < 2^22)
MAGIC = 1.5 * 2.0**23
# (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, relative error of e^r 2^-28
EXP = (0.4999999403953552, 0.1666652113199234, 0.04166826978325844, 0.008368680253624916, 0.0013820419553667307)
# (2^r - 1) / r on |r| <= 1/2, relative error of 2^r 2^-28
EXP2 = (0.6931471824645996, 0.24022647738456726, 0.05550359562039375, 0.009618503041565418, 0.0013390997191891074,
        0.00015327802975662053)
# log2(erfc x) / x on [0, 4], weighted with the error it makes in erf x: 2^-24.7, of which rounding c[0] is most
ERF = (-1.6279070377349854, -0.9184446930885315, -0.14832156896591187, 0.027852199971675873, -0.0002650804817676544,
       -0.0018282068194821477, 0.0005573759553954005, -5.975832027615979e-05)


def _two_to(k: Builder, t: KValue, offset: int = 0) -> KValue:
    """2^(n + offset) from t = n + MAGIC, for a normal result: the low bits of t become the exponent."""
    return k.bitcast((k.bitcast(t, I32) << 23) + ((127 + offset) << 23), F32)


def _reduce(k: Builder, x: KValue) -> tuple[KValue, KValue, KValue]:
    """x = n ln 2 + r with |r| <= ln 2 / 2: (n + MAGIC, n, r)."""
    t = k.fma(x, LOG2E, MAGIC)
    n = t - MAGIC
    return t, n, k.fma(n, -LN2_LOW, k.fma(n, -LN2_HIGH, x))


def _exp_reduced(k: Builder, r: KValue) -> KValue:
    """e^r - 1."""
    return k.fma(r * r, horner(k, r, EXP), r)


def _zero_below(k: Builder, x: KValue, bound: float, power: Expansion) -> KValue:
    """`power` of x, and 0 below a bound, where the result would round to 0 in any case.

    It is not let round: Intel's cores take an assist of a hundred cycles for a result too small for a normal number,
    and masked scores of attention are all of that kind. NaN passes through.
    """
    far = x < bound
    return k.select(far, 0.0, power(k, k.select(far, 0.0, x)))


def _exp_above(k: Builder, x: KValue) -> KValue:
    _, n, r = _reduce(k, x)
    return k.op("scale", (_exp_reduced(k, r) + 1.0, n), x.type)


def _exp2_above(k: Builder, x: KValue) -> KValue:
    n = k.math("round_even", x)
    r = x - n
    return k.op("scale", (k.fma(r, horner(k, r, EXP2), 1.0), n), x.type)


def _exp(k: Builder, x: KValue) -> KValue:
    return _zero_below(k, k.min(x, 89.0), -104.0, _exp_above)  # from 89 on it is infinity


def _exp2(k: Builder, x: KValue) -> KValue:
    return _zero_below(k, k.min(x, 129.0), -150.0, _exp2_above)


def _sigmoid(k: Builder, x: KValue) -> KValue:
    """e^-|x| never overflows, and over 1 + e^-|x| it is the function left of 0 to full relative precision."""
    e = _zero_below(k, -k.math("abs", x), -104.0, _exp_above)
    return k.select(x < 0.0, e, 1.0) / (e + 1.0)


def _tanh(k: Builder, x: KValue) -> KValue:
    """h / (h + 1) of h = (e^2a - 1) / 2, a = |x|: h is a itself near 0, and its errors hardly matter where it is large.

    a = n (ln 2)/2 + r, and the polynomial in r is the one of e^2r with its coefficients times powers of 2.
    """
    a = k.min(k.math("abs", x), 9.1)
    t = k.fma(a, 2.0 * LOG2E, MAGIC)
    n = t - MAGIC
    r = k.fma(n, -0.5 * LN2_LOW, k.fma(n, -0.5 * LN2_HIGH, a))
    half = k.fma(r * r, horner(k, r, [2.0 ** (i + 1) * c for i, c in enumerate(EXP)]), r)
    s = _two_to(k, t)
    h = k.fma(half, s, k.fma(s, 0.5, -0.5))
    return copy_sign(k, h / (h + 1.0), x)


def _erf_magnitude(k: Builder, a: KValue) -> KValue:
    """2^u - 1 of u = log2(erfc a) = a p(a): to full relative precision near 0, the product is never rounded."""
    p = horner(k, a, ERF)
    t = k.fma(a, p, MAGIC)
    r = k.fma(a, p, -(t - MAGIC))
    s = _two_to(k, t)
    return k.fma(r * horner(k, r, EXP2), s, s - 1.0)


def _erf(k: Builder, x: KValue) -> KValue:
    """1 - 2^log2(erfc |x|): one polynomial for the whole range and no division."""
    a = k.min(k.math("abs", x), 3.95)
    return copy_sign(k, _erf_magnitude(k, a), x)


def _sinh(k: Builder, x: KValue) -> KValue:
    """(e + e / (e + 1)) / 2 of e = e^a - 1 (fdlibm), all over 4 so that nothing overflows too early."""
    t, _, r = _reduce(k, k.min(k.math("abs", x), 89.5))
    s = _two_to(k, t, -2)
    e = k.fma(_exp_reduced(k, r), s, s - 0.25)
    return k.select(k.math("abs", x) < 2.0**-12, x, copy_sign(k, 2.0 * (e + e / k.fma(e, 4.0, 1.0)), x))


def _cosh(k: Builder, x: KValue) -> KValue:
    t, _, r = _reduce(k, k.min(k.math("abs", x), 89.5))
    e = (_exp_reduced(k, r) + 1.0) * _two_to(k, t, -2)
    return 2.0 * (e + 0.0625 / e)


_F32: dict[str, Expansion] = {
    "exp": _exp, "exp2": _exp2, "tanh": _tanh, "sigmoid": _sigmoid, "erf": _erf, "sinh": _sinh, "cosh": _cosh,
    **vector_log.FUNCTIONS, **vector_trigonometry.FUNCTIONS,
}  # fmt: skip


def _sigmoid_f64(k: Builder, x: KValue) -> KValue:
    e = k.math("exp", -k.math("abs", x))
    return k.select(x < 0.0, e, 1.0) / (e + 1.0)


def _function(name: str, params: Sequence[str], t: KType, build: Callable[..., KValue]) -> KFunc:
    k = Builder(f"vm_{name}_{t.dtype.name}x{t.lanes}", [(p, t) for p in params], returns=t, inline="always")
    k.func.exact = True
    k.ret(build(k, *(k[p] for p in params)))
    return k.func


@cache
def math_function(fn: str, t: KType) -> KFunc | None:
    """The function for operands of type `t` (`pow` takes two), or None if the C library's is to be called per lane.

    All are within 4 ulp (most within 2) for every argument, denormals included, and follow C for special values.
    """
    if t.dtype == F64:
        return _function(fn, "x", t, _sigmoid_f64) if fn == "sigmoid" else None
    if t.dtype != F32:
        return None
    if fn == "pow":
        return _function(fn, "xy", t, vector_log.power)
    return _function(fn, "x", t, _F32[fn]) if fn in _F32 else None


@cache
def scale_by_power_of_two(t: KType) -> KFunc:
    """x * 2^n for f32 with whole |n| <= 250 in a float, by two factors so that denormal results round once."""

    def build(k: Builder, x: KValue, n: KValue) -> KValue:
        whole = k.op("cast", (n,), KType(I32, t.lanes), in_range=True)
        half = whole >> 1
        for part in (half, whole - half):
            x = x * k.bitcast((part + 127) << 23, F32)
        return x

    return _function("scale", "xn", t, build)


@cache
def integer_power(t: KType) -> KFunc:
    """x^n by squaring, modulo 2^bits; of negative powers only those of 1 and -1 are not 0 (as truncation has it)."""
    k = Builder(f"vm_pow_{t.dtype.name}x{t.lanes}", [("x", t), ("n", t)], returns=t)
    x, n = k["x"], k["n"]

    def step(_: KValue, carried: list[KValue]) -> list[KValue]:
        result, base, left = carried
        return [k.select((left & 1) == 1, result * base, result), base * base, left >> 1]

    bits = t.dtype.bits - (1 if t.dtype.is_signed else 0)
    result = k.for_(0, bits, 1, [k.const(1, t), x, n], step)[0]
    if t.dtype.is_signed:
        unit = (x == 1) | (x == -1)
        inverse = k.select(unit, k.select((n & 1) == 1, x, 1), 0)
        result = k.select(n < 0, inverse, result)
    k.ret(result)
    return k.func
