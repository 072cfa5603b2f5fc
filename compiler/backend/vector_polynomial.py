"""What all vector functions are made of: Horner's scheme and sign transfer."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.types import F32, I32
from ..kernel_ir.builder import Builder, KValue

SIGN = -(2**31)


def horner(k: Builder, x: KValue, coefficients: Sequence[float]) -> KValue:
    """c[0] + c[1] x + c[2] x^2 + ... in as many fused multiply-adds."""
    result = k.const(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        result = k.fma(result, x, c)
    return result


def copy_sign(k: Builder, magnitude: KValue, sign: KValue) -> KValue:
    """|magnitude| with the sign of `sign` (f32)."""
    return k.bitcast((k.bitcast(magnitude, I32) & (2**31 - 1)) | (k.bitcast(sign, I32) & SIGN), F32)
