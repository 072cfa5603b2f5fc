"""Divisions by a known number as a multiplication and a fused multiply-add, for results that become whole numbers.

    1/y = h + l,  h rounded down to f32, l the rest rounded to f32:  x/y = fma(x, h, x·l)

is what Brisebarre, Muller and Raina propose ("Accelerating Correctly Rounded Floating-Point Division When the Divisor
Is Known in Advance", IEEE Transactions on Computers 53(8), 2004). Before its last rounding it is off by less than 2⁻⁴⁵
of the quotient; one of two numbers of 24 bits that lies so near to the middle between two others is one of a few,
which congruences give: those are computed here with exact fractions. About one divisor in eleven has one that comes out
as the neighbour; it is refused where that may be half-way between two whole numbers. Owns that proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import numpy as np

DIGITS = 24  # of a number of f32
WHOLE_DIGITS = 18  # of a whole number that a quotient is rounded to, and a half
NEAREST = 16  # quotients that are off the middle by less: 2⁻⁴⁵ · 2⁴⁹, the largest product of divisor and middle
LEAST, MOST = 2.0**-60, 2.0**60  # divisors for which no part of the quotient leaves the normal numbers


@cache
def rounding_parts(divisor: float) -> tuple[float, float] | None:
    """h and l so that fma(x, h, x·l) is next to the same whole number as RN(x / divisor) for every x of f32.

    That is for whole numbers of up to 17 bits; larger quotients, infinities and NaN come out as by the division.

    Args:
        divisor: a number of f32.

    Returns:
        None where the parts are not proved to do, and for powers of two, by which a multiplication is exact.
    """
    size = abs(divisor)
    if not LEAST < size < MOST or math.frexp(size)[0] == 0.5:
        return None
    exact = 1 / Fraction(size)
    high = np.float32(float(exact))
    if Fraction(float(high)) > exact:
        high = np.nextafter(high, np.float32(0))
    h = Fraction(float(high))
    low = nearest_single(exact - h)
    for x in _critical(size):
        found, right = nearest_single(x * h + nearest_single(x * low)), nearest_single(x * exact)
        if found != right and (_may_be_half(found) or _may_be_half(right)):
            return None
    sign = math.copysign(1, divisor)
    return sign * float(high), sign * float(low)


def _may_be_half(x: Fraction) -> bool:
    """Whether so few digits hold it that, times a power of two, it is half-way between two whole numbers."""
    digits = x.numerator // (x.numerator & -x.numerator)
    return digits.bit_length() <= WHOLE_DIGITS


def nearest_single(x: Fraction) -> Fraction:
    """The number of 24 binary digits that is nearest to x, of two the even one; exponents have no limits."""
    if x == 0:
        return x
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - DIGITS + 1)
    return round(x / unit) * unit


def _critical(divisor: float) -> Iterator[Fraction]:
    """Every x, up to its exponent, whose quotient lies next to the middle between two neighbouring numbers.

    With Y the divisor's digits as a whole number and X those of x, M an odd number of 25 bits for a middle,
    X / Y = M / 2ᵏ + δ / (2ᵏ·Y) where δ = 2ᵏ·X - M·Y is small: M ≡ -δ / Y (mod 2ᵏ). k is 24 for X > Y, else 25.
    """
    y = int(math.frexp(divisor)[0] * 2**DIGITS)
    zeros = (y & -y).bit_length() - 1
    for k in (DIGITS, DIGITS + 1):
        modulus = 2 ** (k - zeros)
        inverse = pow(y >> zeros, -1, modulus)
        for delta in range(-NEAREST, NEAREST + 1):
            if delta == 0 or delta % 2**zeros:
                continue
            first = -(delta >> zeros) * inverse % modulus
            for m in range(first + -((first - 2**DIGITS) // modulus) * modulus, 2 ** (DIGITS + 1), modulus):
                x = (m * y + delta) >> k
                if m % 2 and 2 ** (DIGITS - 1) <= x < 2**DIGITS and (x > y) == (k == DIGITS):
                    yield Fraction(x) * Fraction(math.ldexp(1, math.frexp(divisor)[1] - DIGITS))


__all__ = ["nearest_single", "rounding_parts"]
