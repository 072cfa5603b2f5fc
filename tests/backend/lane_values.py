"""What the kernel IR's operations on lanes mean, by numpy: the oracle of the patterns that LLVM compiles.

`NumpyLanes` answers to the same calls as `kernel_ir.builder.Builder`, so that one description of a computation is both
built as a kernel and evaluated here. It knows of no LLVM and of no memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from parax.compiler.ir.types import BF16, BOOL, F16, F32, F64, I32, DType
from parax.compiler.kernel_ir.interpreted_lanes import dot_bf16, dot_i16, dot_u8i8, round_to

_ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or,
               "xor": np.bitwise_xor, "min": np.minimum, "max": np.maximum, "shl": np.left_shift,
               "shr": np.right_shift}
_COMPARE = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
            "ne": np.not_equal}
_MATH = {"abs": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round_even": np.rint, "sqrt": np.sqrt}


@dataclass
class Lanes:
    """A vector value, or a scalar: one lane."""

    data: np.ndarray
    dtype: DType

    @property
    def lanes(self) -> int:
        return int(self.data.size)


class NumpyLanes:
    """The operations of a Builder that compute, on arrays."""

    def const(self, value: Any, like: Lanes | DType) -> Lanes:
        dtype, lanes = (like, 1) if isinstance(like, DType) else (like.dtype, like.lanes)
        return Lanes(np.full(lanes, value, dtype.numpy), dtype)

    def splat(self, a: Lanes, lanes: int) -> Lanes:
        return a if a.lanes == lanes else Lanes(np.repeat(a.data, lanes), a.dtype)

    def _pair(self, a: Any, b: Any) -> tuple[Lanes, Lanes]:
        a = a if isinstance(a, Lanes) else self.const(a, b)
        b = b if isinstance(b, Lanes) else self.const(b, a)
        lanes = max(a.lanes, b.lanes)
        return self.splat(a, lanes), self.splat(b, lanes)

    def binary(self, opcode: str, a: Any, b: Any) -> Lanes:
        a, b = self._pair(a, b)
        with np.errstate(all="ignore"):
            if opcode in ("div", "rem", "udiv", "urem"):
                return Lanes(_divided(opcode, a.data, b.data, a.dtype), a.dtype)
            return Lanes(_ARITHMETIC[opcode](a.data, b.data).astype(a.dtype.numpy), a.dtype)

    def min(self, a: Any, b: Any) -> Lanes:
        return self.binary("min", a, b)

    def max(self, a: Any, b: Any) -> Lanes:
        return self.binary("max", a, b)

    def compare(self, predicate: str, a: Any, b: Any) -> Lanes:
        a, b = self._pair(a, b)
        return Lanes(_COMPARE[predicate](a.data, b.data), BOOL)

    def select(self, condition: Lanes, a: Any, b: Any) -> Lanes:
        a, b = self._pair(a, b)
        return Lanes(np.where(condition.data, a.data, b.data), a.dtype)

    def math(self, fn: str, a: Lanes) -> Lanes:
        with np.errstate(all="ignore"):
            return Lanes(_MATH[fn](a.data).astype(a.dtype.numpy), a.dtype)

    def bitcast(self, a: Lanes, dtype: DType) -> Lanes:
        return Lanes(a.data.view(dtype.numpy), dtype)

    def op(self, opcode: str, operands: tuple[Lanes, ...], result: None, **attributes: Any) -> Lanes:
        """What the builder has no method for."""
        dot, of = {"dot_bf16": (dot_bf16, F32), "dot_i16": (dot_i16, I32), "dot_u8i8": (dot_u8i8, I32)}[opcode]
        with np.errstate(all="ignore"):
            return Lanes(dot(*(v.data for v in operands), **attributes), of)

    def cast(self, a: Lanes, dtype: DType) -> Lanes:
        return Lanes(converted(a.data, a.dtype, dtype), dtype)

    def round_to(self, a: Lanes, dtype: DType, zero: int) -> Lanes:
        return Lanes(round_to(a.data, dtype, zero), dtype)

    def reduce(self, opcode: str, v: Lanes) -> Lanes:
        with np.errstate(all="ignore"):
            return Lanes(_ARITHMETIC[opcode].reduce(v.data, keepdims=True).astype(v.dtype.numpy), v.dtype)

    def extract(self, v: Lanes, lane: int) -> Lanes:
        return Lanes(v.data[lane : lane + 1], v.dtype)

    def insert(self, v: Lanes, x: Lanes, lane: int) -> Lanes:
        data = v.data.copy()
        data[lane] = x.data[0]
        return Lanes(data, v.dtype)

    def shuffle(self, a: Lanes, b: Lanes, lanes: Sequence[int]) -> Lanes:
        return Lanes(np.concatenate([a.data, b.data])[list(lanes)], a.dtype)


def _divided(opcode: str, a: np.ndarray, b: np.ndarray, dtype: DType) -> np.ndarray:
    """Truncated towards zero; by 1 where the divisor is 0 or the quotient too large; "udiv" sees the bits unsigned."""
    if dtype.is_float:
        return a / b
    if opcode in ("udiv", "urem"):
        a, b = a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}")
    signed = a.dtype.kind == "i"
    bad = (b == 0) | ((b == -1) & (a == np.iinfo(a.dtype).min) if signed else False)
    b = np.where(bad, 1, b).astype(a.dtype)
    quotient = a // b
    quotient += ((quotient * b != a) & ((a < 0) != (b < 0))).astype(a.dtype)
    return (quotient if opcode in ("div", "udiv") else a - quotient * b).view(dtype.numpy)


def converted(x: np.ndarray, source: DType, to: DType) -> np.ndarray:
    """C's conversion; float → integer saturates and gives 0 for NaN; 16-bit floats to and from others through f32."""
    with np.errstate(all="ignore"):
        if source in (F16, BF16):
            x, source = x.astype(np.float32), F32
        if to == BOOL:
            return x != 0
        if to in (F16, BF16) and source != F64:
            return x.astype(np.float32).astype(to.numpy)
        if to == BF16:
            return _rounded_to_odd(x).astype(ml_dtypes.bfloat16)
        if source.is_float and to.is_int:
            low, high = np.iinfo(to.numpy).min, np.iinfo(to.numpy).max
            whole = [0 if math.isnan(v) else low if v <= low else high if v >= high else int(v) for v in x.tolist()]
            return np.array(whole, to.numpy)
        return x.astype(to.numpy)


def _rounded_to_odd(x: np.ndarray) -> np.ndarray:
    """f64 → f32 so that rounding that to 16 bits gives what one rounding would (ml_dtypes goes through f32)."""
    single = x.astype(np.float32)
    back, bits = single.astype(np.float64), single.view(np.uint32)
    bits = np.where(np.abs(back) > np.abs(x), bits - 1, bits)
    return np.where((back != x) & ~np.isnan(x), bits | 1, bits).astype(np.uint32).view(np.float32)


def differing(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Which lanes are wrong: any NaN is as good as another, and zeros of both signs are equal."""
    if expected.dtype.kind in "iub":
        return found != expected
    wide_found, wide = found.astype(np.float64), expected.astype(np.float64)
    return (wide_found != wide) & ~(np.isnan(wide_found) & np.isnan(wide))
