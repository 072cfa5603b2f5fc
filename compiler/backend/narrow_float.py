"""Conversions between f32 and the 16-bit floats in integer arithmetic, for CPUs without instructions for them.

Rounds to nearest even, keeps denormals, infinities and NaN. The halves are passed as their bits (u16).
"""

from __future__ import annotations

from functools import cache

from ...errors import InternalError
from ..ir.types import F32, F64, U16, U32
from ..kernel_ir.builder import Builder, KValue
from ..kernel_ir.loops import KFunc, KType


@cache
def widen_f16(lanes: int) -> KFunc:
    """f16 bits → f32. A multiplication by 2^112 moves the exponent and normalises denormals (F. Giesen, 2012)."""
    k = Builder(f"vm_widen_f16_x{lanes}", [("x", KType(U16, lanes))], returns=KType(F32, lanes), inline="always")
    wide = k.cast(k["x"], U32)
    magnitude = wide & 0x7FFF
    scaled = k.bitcast(k.bitcast(magnitude << 13, F32) * 2.0**112, U32)
    special = k.select(magnitude >= 0x7C00, k.const(0x7F800000, scaled), k.const(0, scaled))
    k.ret(k.bitcast(scaled | special | ((wide & 0x8000) << 16), F32))
    return k.func


@cache
def widen_bf16(lanes: int) -> KFunc:
    """bf16 bits → f32, whose upper half they are."""
    k = Builder(f"vm_widen_bf16_x{lanes}", [("x", KType(U16, lanes))], returns=KType(F32, lanes), inline="always")
    k.ret(k.bitcast(k.cast(k["x"], U32) << 16, F32))
    return k.func


@cache
def narrow(name: str, lanes: int) -> KFunc:
    """f32 → bits of f16 or bf16."""
    k = Builder(f"vm_narrow_{name}_x{lanes}", [("x", KType(F32, lanes))], returns=KType(U16, lanes), inline="always")
    k.func.exact = True
    bits = k.bitcast(k["x"], U32)
    if name == "bf16":
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        result = k.select(k.is_nan(k["x"]), (bits >> 16) | 0x40, rounded)
    elif name == "f16":
        result = _f16_bits(k, bits)
    else:
        raise InternalError(f"no conversion from f32 to {name}", where="LLVM emission")
    k.ret(k.cast(result, U16))
    return k.func


def _f16_bits(k: Builder, bits: KValue) -> KValue:
    """The three ranges of F. Giesen's float_to_half_fast3_rtne (2016), selected instead of branched to."""
    magnitude = bits & 0x7FFFFFFF
    # adding 0.5 aligns the last bit of the sum with that of an f16 denormal, so the addition rounds
    denormal = k.bitcast(k.bitcast(magnitude, F32) + 0.5, U32) - 0x3F000000
    normal = (magnitude + (((15 - 127) << 23) % 2**32 + 0xFFF) + ((magnitude >> 13) & 1)) >> 13
    special = k.select(magnitude > 0x7F800000, k.const(0x7E00, bits), k.const(0x7C00, bits))
    result = k.select(magnitude < 0x38800000, denormal, normal)
    return k.select(magnitude >= 0x47800000, special, result) | ((bits ^ magnitude) >> 16)


@cache
def to_odd_f32(lanes: int) -> KFunc:
    """f64 → f32 rounded to odd, so that a second rounding to 16 bits gives the same as one (Boldo, Melquiond 2008)."""
    k = Builder(f"vm_odd_f32_x{lanes}", [("x", KType(F64, lanes))], returns=KType(F32, lanes), inline="always")
    nearest = k.cast(k["x"], F32)
    back, bits = k.cast(nearest, F64), k.bitcast(nearest, U32)
    too_far = k.math("abs", back) > k.math("abs", k["x"])
    toward_zero = k.select(too_far, bits - 1, bits)
    inexact = (back < k["x"]) | (back > k["x"])
    k.ret(k.bitcast(k.select(inexact, toward_zero | 1, toward_zero), F32))
    return k.func
