"""What kernel IR's arithmetic, comparisons and conversions do to the lanes of registers, in NumPy.

Integers wrap; no division traps; conversions to integers saturate; min and max pass NaN on (`kernel_ir/builder.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import InternalError
from ..ir.types import BF16, BOOL, F16, F32, F64, NARROW, DType

Lanes = np.ndarray


def register_type(dtype: DType) -> Any:
    """NumPy's type of a register's lanes: bf16 and the narrow types by their bits."""
    if dtype == BF16 or dtype in NARROW:
        return np.dtype(np.uint16 if dtype == BF16 else np.uint8)
    if dtype == BOOL:
        return np.dtype(np.bool_)
    return np.dtype(f"{dtype.kind}{dtype.nbytes}")


# -- arithmetic -------------------------------------------------------------------------------------------------------
def _divisor(a: Lanes, b: Lanes) -> Lanes:
    """1 where a quotient has no value, or none that the type holds."""
    bad = b == 0
    if a.dtype.kind == "i":
        bad |= (b == -1) & (a == np.iinfo(a.dtype).min)
    return np.where(bad, np.ones_like(b), b)


def _quotient(a: Lanes, b: Lanes) -> Lanes:
    if a.dtype.kind == "f":
        return a / b
    b = _divisor(a, b)
    below = (a % b != 0) & ((a < 0) != (b < 0))
    return a // b + below.astype(a.dtype)  # towards zero


def _remainder(a: Lanes, b: Lanes) -> Lanes:
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    b = _divisor(a, b)
    return a - _quotient(a, b) * b


def _unsigned(of: Callable[[Lanes, Lanes], Lanes]) -> Callable[[Lanes, Lanes], Lanes]:
    def run(a: Lanes, b: Lanes) -> Lanes:
        kind = np.dtype(f"u{a.dtype.itemsize}")
        return of(a.view(kind), _divisor(a.view(kind), b.view(kind))).view(a.dtype)

    return run


def _power(a: Lanes, b: Lanes) -> Lanes:
    if a.dtype.kind == "f":
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    bits = 8 * a.dtype.itemsize
    found = [pow(int(x), int(n), 1 << bits) if n >= 0 else _inverse(int(x), int(n)) for x, n in zip(a, b, strict=True)]
    return np.array([x % (1 << bits) for x in found], f"u{a.dtype.itemsize}").view(a.dtype)


def _inverse(x: int, n: int) -> int:
    return x if x in (0, 1) else (-1 if n % 2 else 1) if x == -1 else 0


BINARY: dict[str, Callable[[Lanes, Lanes], Lanes]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": _quotient,
    "rem": _remainder, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift, "udiv": _unsigned(lambda a, b: a // b),
    "urem": _unsigned(lambda a, b: a % b), "pow": _power,
}  # fmt: skip
COMPARE: dict[str, Callable[[Lanes, Lanes], Lanes]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
REDUCE: dict[str, Callable[[Lanes], Any]] = {
    "add": lambda v: np.add.reduce(v, dtype=v.dtype), "mul": lambda v: np.multiply.reduce(v, dtype=v.dtype),
    "min": np.minimum.reduce, "max": np.maximum.reduce, "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce,
    "xor": np.bitwise_xor.reduce,
}  # fmt: skip


# -- products of pairs ------------------------------------------------------------------------------------------------
_LEAST = 2.0**-126  # of f32 that is no denormal
_VANISHES = _LEAST * (1 - 2.0**-25)  # below it a sum is less than that once it is rounded to 24 bits


def dot_bf16(a: Lanes, b: Lanes, sums: Lanes) -> Lanes:
    """sums + the products of two pairs of bf16 a lane, of which u32 lanes hold the first in their lower half.

    Intel's VDPBF16PS (Software Developer's Manual, volume 2): the second product is added first; each sum is rounded
    once, to nearest even, whatever MXCSR says; denormals are zeros, of operands, of sums and of results. In f64
    products are exact, and no sum lies so near the middle of two f32 that rounding it twice is another result.
    """
    for x, y in ((a & 0xFFFF0000, b & 0xFFFF0000), (a << 16, b << 16)):
        sums = flushed_multiply_add(x.view(np.float32), y.view(np.float32), sums)
    return sums


def flushed_multiply_add(a: Lanes, b: Lanes, sums: Lanes) -> Lanes:
    """f32 sums + a · b of bf16, rounded once; denormals are zeros, of operands, of sums and of results."""
    left, right, sums = (_without_denormals(v).astype(np.float64) for v in (a, b, sums))
    return _flushed(sums + left * right)


def flushed_sum(a: Lanes, b: Lanes) -> Lanes:
    """a + b of f32, likewise."""
    return _flushed(_without_denormals(a).astype(np.float64) + _without_denormals(b).astype(np.float64))


def _flushed(exact: Lanes) -> Lanes:
    """f64 as f32, denormals as zeros."""
    return np.where(np.abs(exact) < _VANISHES, np.copysign(0.0, exact), exact).astype(np.float32)


def _without_denormals(x: Lanes) -> Lanes:
    return np.where(np.abs(x) < _LEAST, np.copysign(np.float32(0), x), x)


def dot_i16(a: Lanes, b: Lanes, sums: Lanes) -> Lanes:
    """sums + the products of two neighbouring i16 a lane, modulo 2^32.

    PMADDWD and PADDD, or VPDPWSSD (Intel's Software Developer's Manual, volume 2): products are exact in i32; of two
    only (-2^15)·(-2^15) twice leaves its range, as -2^31, which is 2^31 modulo 2^32.
    """
    products = a.astype(np.int64) * b.astype(np.int64)
    exact = sums.astype(np.int64) + products[0::2] + products[1::2]
    return (exact & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def dot_u8i8(a: Lanes, b: Lanes, sums: Lanes, pairs_in_i16: bool = False) -> Lanes:
    """sums + the products of four neighbouring u8 and i8 a lane, modulo 2^32.

    VPDPBUSD, or PMADDUBSW, PMADDWD by ones and PADDD (Intel's Software Developer's Manual, volume 2): products are
    exact in i16, and so is the sum of four in i32. PMADDUBSW saturates the sum of two neighbouring products.

    Args:
        pairs_in_i16: promises that no such sum of two saturates.

    Raises:
        InternalError: one does, although it was promised.
    """
    products = a.astype(np.int64) * b.astype(np.int64)
    pairs = products[0::2] + products[1::2]
    if pairs_in_i16 and (np.abs(pairs + 0.5) > 2**15).any():
        raise InternalError("the sum of two products leaves i16", expected="-32768 to 32767",
                            found=int(pairs[np.argmax(np.abs(pairs + 0.5))]))  # fmt: skip
    exact = sums.astype(np.int64) + pairs[0::2] + pairs[1::2]
    return (exact & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def permute(a: Lanes, b: Lanes, index: Lanes) -> Lanes:
    """The lanes of a and b, one behind the other, with these numbers modulo how many they are.

    VPERMI2PS and VPERMI2D (Intel's Software Developer's Manual, volume 2).
    """
    both = np.concatenate([a, b])
    return np.asarray(both[index & (both.size - 1)])


# -- functions --------------------------------------------------------------------------------------------------------
_FUNCTIONS: dict[str, Callable[[Lanes], Lanes]] = {
    "erf": np.vectorize(math.erf, otypes=[np.float64]), "round_even": np.rint, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip


def function(name: str, x: Lanes) -> Lanes:
    """A function of each lane, computed in f64 and rounded once."""
    if x.dtype.kind != "f":
        return np.abs(x) if name == "abs" else x  # rounding to whole numbers
    found = _FUNCTIONS.get(name) or getattr(np, name)
    return np.asarray(found(x.astype(np.float64)).astype(x.dtype))


# -- conversions ------------------------------------------------------------------------------------------------------
def cast(x: Lanes, given: DType, to: DType) -> Lanes:
    """Lanes of one type as another: see Builder.cast."""
    if given == BF16:
        x, given = (x.astype(np.uint32) << 16).view(np.float32), F32
    if to == BF16:
        return _to_bf16(_to_odd(x) if given == F64 else x.astype(np.float32))
    if to == F16 and given != F64:
        return x.astype(np.float32).astype(np.float16)
    if given.is_float and not to.is_float:
        return _saturated(x.astype(np.float64), register_type(to))
    return x.astype(register_type(to))


def round_to(x: Lanes, to: DType, zero: int) -> Lanes:
    """Lanes of f32 rounded, shifted and saturated: see Builder.round_to."""
    return _saturated(np.rint(x.astype(np.float64)) + zero, register_type(to))


def _saturated(x: Lanes, kind: np.dtype) -> Lanes:
    limits = np.iinfo(kind)
    whole = np.trunc(np.nan_to_num(x, nan=0.0))
    over, under = whole >= float(limits.max) + 1, whole < float(limits.min)
    inside = np.where(over | under, 0.0, whole).astype(kind)
    inside[over], inside[under] = limits.max, limits.min
    return inside


def _to_bf16(x: Lanes) -> Lanes:
    """To the nearest, ties to even; a NaN stays one."""
    bits = x.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 0x40, rounded).astype(np.uint16)


def _to_odd(x: Lanes) -> Lanes:
    """f64 as f32 towards zero, the last bit set where digits were lost: rounding that once more rounds x once."""
    y = x.astype(np.float32)
    beyond = np.abs(y.astype(np.float64)) > np.abs(x)
    y = np.where(beyond, np.nextafter(y, np.float32(0)), y)
    lost = (y.astype(np.float64) != x) & np.isfinite(x)
    return (y.view(np.uint32) | lost).view(np.float32)
