"""log, log1p, the inverse hyperbolic functions and pow on vectors of f32.

Owns the reduction x = 2^e m and the polynomials of log(1 + f). For the fits and for fma see `vector_math`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..ir.types import F32, F64, I32, I64
from ..kernel_ir.builder import Builder, KValue
from ..kernel_ir.loops import KType
from .vector_polynomial import copy_sign, horner

LN2 = math.log(2.0)
THREE_QUARTERS = 0x3F400000
EXPONENT = -(2**23)
# (log(1 + f) - f + f^2 / 2) / f^3 on [-1/4, 1/2], relative error of log(1 + f) 2^-27.5
LOG = (0.3333345055580139, -0.25000104308128357, 0.19990819692611694, -0.1664699912071228, 0.14478321373462677,
       -0.13163873553276062, 0.10468878597021103, -0.04511205479502678)
# log2((1 + s) / (1 - s)) / s in s^2 for |s| <= 0.1717, relative error 2^-45
LOG2 = (2.885390081777849, 0.9617966941148, 0.5770779419128906, 0.41220930076074985, 0.31990360388697614,
        0.28293161080443147)
# 2^r on |r| <= 1/2, relative error 2^-28.9: the result is rounded to f32
EXP2_F64 = (1.0, 0.6931472029858445, 0.2402264789675781, 0.055503321615831734, 0.009618438609639627,
            0.001339900388336219, 0.0001535325667877264)
SQRT_HALF = 0x3FE6A09E667F3BCD
EXPONENT_F64 = -(2**52)


def _log_of_sum(k: Builder, f: KValue, e: KValue) -> KValue:
    """log(1 + f) + e ln 2, f in [-1/4, 1/2]."""
    square = f * f
    return k.fma(e, LN2, k.fma(k.fma(horner(k, f, LOG), f, -0.5), square, f))


def _log_core(k: Builder, x: KValue, shift: KValue | float = 0.0) -> KValue:
    """log x + shift ln 2 for positive normal x; the mantissa is taken in [3/4, 3/2), so that e = 0 around 1."""
    bits = k.bitcast(x, I32)
    i = (bits - THREE_QUARTERS) & EXPONENT
    e = k.fma(k.cast(i, F32), 2.0**-23, shift)
    return _log_of_sum(k, k.bitcast(bits - i, F32) - 1.0, e)


def _log_edges(k: Builder, distance: KValue, value: KValue) -> KValue:
    """-infinity at distance 0, NaN below, infinity and NaN kept."""
    edge = k.select(distance < 0.0, k.const(math.nan, distance), distance)
    edge = k.select(distance == 0.0, k.const(-math.inf, distance), edge)
    return k.select((distance > 0.0) & (distance < math.inf), value, edge)


def _log(k: Builder, x: KValue) -> KValue:
    denormal = x < 2.0**-126
    normal = k.select(denormal, x * 2.0**23, x)
    shift = k.select(denormal, k.const(-23.0, x), k.const(0.0, x))
    return _log_edges(k, x, _log_core(k, normal, shift))


def _log1p_core(k: Builder, x: KValue) -> KValue:
    """log(1 + x), -1 < x < infinity. The exponent of 1 + x is taken off x and off 1 apart, exactly (N. Juffa)."""
    i = (k.bitcast(x + 1.0, I32) - THREE_QUARTERS) & EXPONENT
    one = k.bitcast(0x40800000 - i, F32)  # 4 * 2^-e
    f = k.bitcast(k.bitcast(x, I32) - i, F32) + k.fma(one, 0.25, -1.0)
    # x itself may be too small to have an exponent to take from
    f = k.select(i == 0, x, f)
    return _log_of_sum(k, f, k.cast(i, F32) * 2.0**-23)


def _log1p(k: Builder, x: KValue) -> KValue:
    inside = _log_edges(k, x + 1.0, _log1p_core(k, x))
    return k.select(x == 0.0, x, inside)


def _asinh(k: Builder, x: KValue) -> KValue:
    """log(a + sqrt(a^2 + 1)) without cancellation; log 2a where the square would overflow."""
    a = k.math("abs", x)
    big = a > 2.0**60
    square = a * a
    z = k.select(big, a, a + square / (k.math("sqrt", square + 1.0) + 1.0))
    y = _log1p_core(k, z) + k.select(big, k.const(LN2, x), k.const(0.0, x))
    return copy_sign(k, k.select(a < math.inf, y, a), x)


def _acosh(k: Builder, x: KValue) -> KValue:
    t = x - 1.0
    big = x > 2.0**60
    z = k.select(big, x, t + k.math("sqrt", k.fma(t, t, t + t)))
    y = _log1p_core(k, z) + k.select(big, k.const(LN2, x), k.const(0.0, x))
    y = k.select(x < math.inf, y, x)
    return k.select(x < 1.0, k.const(math.nan, x), y)


def _atanh(k: Builder, x: KValue) -> KValue:
    """log1p(2a / (1 - a)) / 2."""
    a = k.math("abs", x)
    return copy_sign(k, 0.5 * _log1p(k, (a + a) / (1.0 - a)), x)


def _log2_f64(k: Builder, x: KValue) -> KValue:
    """log2 of positive normal f64, relative error 2^-45, by atanh((m - 1) / (m + 1))."""
    bits = k.bitcast(x, I64)
    i = (bits - SQRT_HALF) & EXPONENT_F64
    m = k.bitcast(bits - i, F64)
    s = (m - 1.0) / (m + 1.0)
    e = k.cast(k.cast(i >> 52, I32), F64)
    return k.fma(s, horner(k, s * s, LOG2), e)


def power(k: Builder, x: KValue, y: KValue) -> KValue:
    """x^y as C's powf: 2^(y log2 |x|) in f64, whose 53 bits hold even exponents of 150 to f32 precision."""
    magnitude = k.math("abs", x)
    wide = k.cast(magnitude, F64)
    log2 = k.select(magnitude < math.inf, _log2_f64(k, wide), wide)
    log2 = k.select(magnitude == 0.0, k.const(-math.inf, wide), log2)
    t = k.min(k.max(k.cast(y, F64) * log2, -160.0), 140.0)
    n = k.math("round_even", t)
    p = horner(k, t - n, EXP2_F64)
    whole = k.cast(k.op("cast", (n,), KType(I32, x.lanes), in_range=True), I64)
    scaled = k.bitcast(k.bitcast(p, I64) + (whole << 52), F64)
    result = k.cast(k.select(k.is_nan(t), t, scaled), F32)
    return _power_edges(k, x, y, magnitude, result)


def _power_edges(k: Builder, x: KValue, y: KValue, magnitude: KValue, result: KValue) -> KValue:
    """Sign, and the cases where an infinite or NaN operand does not matter."""
    one, half = k.const(1.0, x), y * 0.5
    whole = y == k.math("trunc", y)
    odd = whole & (half != k.math("trunc", half))
    result = k.select((magnitude == 1.0) & (y == y), one, result)
    negative = k.bitcast(x, I32) < 0
    result = k.select(negative & odd, -result, result)
    result = k.select((x < 0.0) & (x > -math.inf) & ~whole, k.const(math.nan, x), result)
    return k.select((y == 0.0) | (x == 1.0), one, result)


FUNCTIONS: dict[str, Callable[[Builder, KValue], KValue]] = {
    "log": _log, "log1p": _log1p, "asinh": _asinh, "acosh": _acosh, "atanh": _atanh,
}  # fmt: skip
