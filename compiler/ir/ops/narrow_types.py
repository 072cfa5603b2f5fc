"""Conversions to and from the element types that no instruction computes in: 8-, 6- and 4-bit floats, 4- and 2-bit
integers. All in integer arithmetic on their bits, which lie in the lowest bits of a byte, the others 0.

Formats: OCP 8-bit Floating Point (2023) for e4m3fn and e5m2; Noune et al., "8-bit numerical formats for deep neural
networks" (2022) for the fnuz ones; OCP Microscaling Formats (2023) for e8m0, e3m2, e2m3 and e2m1. Rules of out-of-range
numbers: ONNX's table in the documentation of Cast. What that leaves open is as onnx.reference has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any as PyAny

from ..types import BOOL, F32, F64, I8, I32, I64, U8, U32, U64, DType

ROUND_MODES = ("up", "down", "nearest")
LARGEST_SCALE = 0xFE  # of e8m0, 2^127; 0xFF is NaN


@dataclass(frozen=True)
class FloatFormat:
    """A sign, an exponent and a mantissa.

    Attributes:
        mantissa: its bits. bias: of the exponent. largest: the bits of the largest finite number. infinity, nan: theirs
            without the sign; None where there is none. unsigned_zero: no -0, whose bits are those of NaN.
    """

    bits: int
    mantissa: int
    bias: int
    largest: int
    infinity: int | None = None
    nan: int | None = None
    unsigned_zero: bool = False

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)


FORMATS = {
    "f8e4m3fn": FloatFormat(8, 3, 7, 0x7E, None, 0x7F),
    "f8e4m3fnuz": FloatFormat(8, 3, 8, 0x7F, None, 0x80, unsigned_zero=True),
    "f8e5m2": FloatFormat(8, 2, 15, 0x7B, 0x7C, 0x7E),
    "f8e5m2fnuz": FloatFormat(8, 2, 16, 0x7F, None, 0x80, unsigned_zero=True),
    "f6e2m3": FloatFormat(6, 3, 1, 0x1F), "f6e3m2": FloatFormat(6, 2, 3, 0x1F), "f4e2m1": FloatFormat(4, 1, 1, 7),
}  # fmt: skip


def from_narrow(e: PyAny, x: PyAny) -> PyAny:
    """The number that a narrow type's lanes hold, as f32 or, of an integer type, as i8 or u8: always exact."""
    dtype, bits = x.dtype, e.bitcast(x, U8)
    if dtype.is_int:
        empty = 8 - dtype.bits
        return (e.bitcast(bits << empty, I8) if dtype.is_signed else bits << empty) >> empty
    bits = e.cast(bits, U32)
    if dtype.name not in FORMATS:  # e8m0: an exponent alone
        found = e.select(bits == 0, e.const(0x00400000, U32), bits << 23)
        return e.bitcast(e.select(bits == 0xFF, e.const(0x7FC00000, U32), found), F32)
    form = FORMATS[dtype.name]
    bits = bits & (2 * form.sign - 1)
    magnitude = bits & (form.sign - 1)
    # a multiplication moves the exponent and normalises denormals (F. Giesen, "half_to_float", 2012)
    scaled = e.bitcast(magnitude << (23 - form.mantissa), F32) * 2.0 ** (127 - form.bias)
    found = e.bitcast(scaled, U32) | ((bits & form.sign) << (32 - form.bits))
    if form.infinity is not None:
        found = e.select(magnitude == form.infinity, found | 0x7F800000, found)
        return e.bitcast(e.select(magnitude > form.infinity, found | 0x7FC00000, found), F32)
    if form.nan is not None:
        is_nan = bits == form.nan if form.unsigned_zero else magnitude == form.nan
        found = e.select(is_nan, found | 0x7FC00000, found)
    return e.bitcast(found, F32)


def to_narrow(e: PyAny, x: PyAny, dtype: DType, saturate: bool = True, round_mode: str = "up") -> PyAny:
    """Lanes of f32, f64, an integer or bool as a narrow type.

    Args:
        saturate: numbers beyond the largest of an 8-bit float become that one, not infinity or NaN.
        round_mode: of e8m0: up, down or nearest; the others round to nearest even.
    """
    if dtype.is_int:  # floats towards zero; of integers that do not fit the lowest bits
        whole = e.cast(x, I32) if x.dtype.is_float else x
        return e.bitcast(e.cast(whole, U8) & ((1 << dtype.bits) - 1), dtype)
    bits = e.bitcast(_single(e, x), U32)
    found = _float_bits(e, bits, FORMATS[dtype.name], saturate) if dtype.name in FORMATS else (
        _scale_bits(e, bits, saturate, round_mode))  # fmt: skip
    return e.bitcast(e.cast(found, U8), dtype)


def _single(e: PyAny, x: PyAny) -> PyAny:
    """x as f32, rounded to odd where f32 does not hold it, so that a second rounding gives the same as one (Boldo,
    Melquiond, "Emulation of FMA and correctly rounded sums", 2008)."""
    if x.dtype == F32:
        return x
    if x.dtype in (I64, U64):  # f64 holds 53 bits: what is below them is gathered in one
        sticky = e.select((x & 0xFFF) == 0, e.const(0, x), e.const(0x800, x))
        short = (x << 11) >> 11 == x
        x = e.select(short, x, ((x >> 12) << 12) | sticky)
    elif x.dtype == BOOL or (x.dtype.is_int and x.dtype.bits < 32):
        return e.cast(x, F32)
    x = e.cast(x, F64)
    nearest = e.cast(x, F32)
    back, bits = e.cast(nearest, F64), e.bitcast(nearest, U32)
    toward_zero = e.select(e.math("abs", back) > e.math("abs", x), bits - 1, bits)
    return e.bitcast(e.select((back < x) | (back > x), toward_zero | 1, toward_zero), F32)


def _float_bits(e: PyAny, bits: PyAny, form: FloatFormat, saturate: bool) -> PyAny:
    """Bits of f32 → bits of the format."""
    magnitude = bits & 0x7FFFFFFF
    drop = 23 - form.mantissa
    # the last bit of such a sum is that of the format's denormals, so the addition rounds
    aligned = 2.0 ** (1 - form.bias - form.mantissa + 23)
    base = 127 + 24 - form.bias - form.mantissa << 23
    denormal = e.bitcast(e.bitcast(magnitude, F32) + aligned, U32) - base
    rebias = (form.bias - 127 << 23) + (1 << (drop - 1)) - 1
    normal = (magnitude + rebias % 2**32 + ((magnitude >> drop) & 1)) >> drop
    found = e.select(magnitude < (128 - form.bias << 23), denormal, normal)
    over = form.infinity if form.infinity is not None else form.nan
    beyond = form.largest if saturate or over is None else over
    too_large = (found > form.largest) | (magnitude >= 0x7F800000)
    found = e.select(too_large, e.const(beyond, U32), found)
    sign = (bits ^ magnitude) >> (32 - form.bits)
    is_nan = magnitude > 0x7F800000
    if form.nan is None:  # onnx.reference makes -0 of NaN
        return e.select(is_nan, e.const(form.sign, U32), found | sign)
    if not form.unsigned_zero:
        return e.select(is_nan, e.const(form.nan, U32), found) | sign
    signed = e.select((found == 0) | (found == form.nan), found, found | sign)
    return e.select(is_nan, e.const(form.nan, U32), signed)


def _scale_bits(e: PyAny, bits: PyAny, saturate: bool, round_mode: str) -> PyAny:
    """Bits of f32 → e8m0: the exponent of the magnitude, rounded; halfway `nearest` goes up. Of two powers of two that
    f32 has no normal numbers between, 2^-127 and 2^-126, the bits grow as the numbers do, too."""
    magnitude = bits & 0x7FFFFFFF
    tiny = magnitude < 0x00800000
    exponent, fraction = magnitude >> 23, magnitude & 0x7FFFFF
    above = {"down": 0x7FFFFF, "up": 0, "nearest": 0x3FFFFF}[round_mode]  # what the fraction must exceed to go up
    tiny_above = {"down": 0x7FFFFF, "up": 0x400000, "nearest": 0x5FFFFF}[round_mode]
    one, zero = e.const(1, U32), e.const(0, U32)
    grows = e.select(tiny, e.select(fraction > tiny_above, one, zero), e.select(fraction > above, one, zero))
    found = exponent + grows
    beyond = found > LARGEST_SCALE
    if not saturate:
        beyond = beyond | (magnitude < 0x00400000)  # smaller than 2^-127
    found = e.select(beyond, e.const(LARGEST_SCALE if saturate else 0xFF, U32), found)
    return e.select(magnitude > 0x7F800000, e.const(0xFF, U32), found)
