"""sin, cos, tan and their inverses on vectors of f32.

Owns the reduction by multiples of pi/2, done in f64, and its fallback to the C library for huge arguments. For the
fits and for fma see `vector_math`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from ..ir.types import F32, F64, I32
from ..kernel_ir.builder import Builder, KValue
from ..kernel_ir.loops import KFunc, KType
from .vector_polynomial import copy_sign, horner

# pi/2 in three parts (Cody, Waite 1980) of 26, 26 and 53 bits: a whole number below 2^27 times the first is exact, with
# FMA or without, and the f32 nearest to a multiple of pi/2 still keeps its full precision
PIO2_PARTS = (1.5707963407039642, -1.3909067675399456e-08, 6.123233995736766e-17)
LARGEST = 2.0**27
# (sin r - r) / r^3, (cos r - 1 + r^2 / 2) / r^4, (tan r - r) / r^3 in r^2 for |r| <= pi/4: 2^-27.9, 2^-33, 2^-29.5
SIN = (-0.16666655242443085, 0.008332188241183758, -0.0001951809972524643)
COS = (0.04166664555668831, -0.0013887310633435845, 2.4432552891084924e-05)
TAN = (0.33333349227905273, 0.13332673907279968, 0.054059166461229324, 0.021284645423293114, 0.010831929743289948,
       9.215826139552519e-05, 0.004375854507088661)
# (atan x - x) / x^3 in x^2 for |x| <= 1: 2^-28.5; (asin x - x) / x^3 in x^2 for |x| <= 1/2: 2^-27.6
ATAN = (-0.33333298563957214, 0.1999853104352951, -0.14264048635959625, 0.10951128602027893, -0.08400224149227142,
        0.05790000781416893, -0.031118126586079597, 0.010881295427680016, -0.001785897882655263)
ASIN = (0.16666753590106964, 0.07495255023241043, 0.045475251972675323, 0.024157200008630753, 0.04220224916934967)
PIO2_HIGH, PIO2_LOW = 1.57079637050628662, -4.37113900018624283e-8


def _reduce(k: Builder, x: KValue) -> tuple[KValue, KValue]:
    """x = n pi/2 + r with |r| <= pi/4: (r, n as i32)."""
    wide = k.cast(x, F64)
    n = k.math("round_even", wide * (2.0 / math.pi))
    for part in PIO2_PARTS:
        wide = k.fma(n, -part, wide)
    return k.cast(wide, F32), k.op("cast", (n,), KType(I32, x.lanes), in_range=True)


@cache
def _by_library(fn: str, t: KType) -> KFunc:
    """The C library's function lane by lane, out of the way of the polynomial's code."""
    k = Builder(f"vm_library_{fn}_{t.dtype.name}x{t.lanes}", [("x", t)], returns=t, inline="never")
    k.ret(k.op("math", (k["x"],), t, fn=fn, libm=True))
    return k.func


def _with_fallback(k: Builder, fn: str, x: KValue, result: KValue) -> KValue:
    """Arguments too large for the reduction are left to the C library."""
    huge = k.math("abs", x) > LARGEST
    replaced = k.if_(
        k.reduce("or", huge),
        lambda: [k.select(huge, k.call(_by_library(fn, x.type), [x]), result)],
        lambda: [result],
    )
    return replaced[0]


def _sin_polynomial(k: Builder, r: KValue, square: KValue) -> KValue:
    return k.fma(r * square, horner(k, square, SIN), r)


def _cos_polynomial(k: Builder, square: KValue) -> KValue:
    return k.fma(square * square, horner(k, square, COS), k.fma(square, -0.5, 1.0))


def _circular(k: Builder, fn: str, x: KValue, turn: int) -> KValue:
    """sin(x + turn pi/2)."""
    r, n = _reduce(k, x)
    square = r * r
    quadrant = n + turn
    y = k.select((quadrant & 1) == 1, _cos_polynomial(k, square), _sin_polynomial(k, r, square))
    flip = (quadrant & 2) << 30
    return _with_fallback(k, fn, x, k.bitcast(k.bitcast(y, I32) ^ flip, F32))


def _sin(k: Builder, x: KValue) -> KValue:
    return k.select(x == 0.0, x, _circular(k, "sin", x, 0))


def _cos(k: Builder, x: KValue) -> KValue:
    return _circular(k, "cos", x, 1)


def _tan(k: Builder, x: KValue) -> KValue:
    r, n = _reduce(k, x)
    square = r * r
    t = k.fma(r * square, horner(k, square, TAN), r)
    y = k.select((n & 1) == 1, -1.0 / t, t)
    return k.select(x == 0.0, x, _with_fallback(k, "tan", x, y))


def _arc(k: Builder, s: KValue, square: KValue) -> KValue:
    """asin s for |s| <= 1/2, given its square."""
    return k.fma(s * square, horner(k, square, ASIN), s)


def _half_angle(k: Builder, x: KValue) -> tuple[KValue, KValue, KValue]:
    """(|x| > 1/2, s, s^2): beyond 1/2, asin a = pi/2 - 2 asin s with s^2 = (1 - a) / 2 (Cephes)."""
    a = k.math("abs", x)
    big = a > 0.5
    square = k.select(big, k.fma(a, -0.5, 0.5), a * a)
    return big, k.select(big, k.math("sqrt", square), a), square


def _asin(k: Builder, x: KValue) -> KValue:
    big, s, square = _half_angle(k, x)
    p = _arc(k, s, square)
    return copy_sign(k, k.select(big, PIO2_HIGH - (k.fma(p, 2.0, -PIO2_LOW)), p), x)


def _acos(k: Builder, x: KValue) -> KValue:
    big, s, square = _half_angle(k, x)
    p = _arc(k, s, square)
    small = PIO2_HIGH - (copy_sign(k, p, x) - PIO2_LOW)
    large = k.select(x < 0.0, 2.0 * PIO2_HIGH - k.fma(p, 2.0, -2.0 * PIO2_LOW), p + p)
    return k.select(big, large, small)


def _atan(k: Builder, x: KValue) -> KValue:
    a = k.math("abs", x)
    big = a > 1.0
    z = k.select(big, 1.0 / a, a)
    square = z * z
    p = k.fma(z * square, horner(k, square, ATAN), z)
    return copy_sign(k, k.select(big, PIO2_HIGH - (p - PIO2_LOW), p), x)


FUNCTIONS: dict[str, Callable[[Builder, KValue], KValue]] = {
    "sin": _sin, "cos": _cos, "tan": _tan, "asin": _asin, "acos": _acos, "atan": _atan,
}  # fmt: skip
