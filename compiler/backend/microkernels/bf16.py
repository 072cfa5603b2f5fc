"""Products of operands rounded to bf16, summed in f32: two steps of k in one instruction of AVX512-BF16.

An element is a pair of bf16, that of the even k in the lower half of a u32: A's row is pairs that follow each other, B
is [K/2][width] of pairs of one column. Where K is odd, both have a zero in the last pair, so that an infinity meets
none of its own making.

Error of an element c = Σ a·b over K finite products, |a|, |b| and all sums below 2^127: with u = 2^-8 (bf16 has 8
digits, and rounds to the nearest, ties to even) and v = 2^-24 (f32)

    |c - exact| <= (2u + u²) Σ|a·b| + γ (1 + u)² Σ|a·b| + z,   γ = n·v / (1 - n·v),  n = 2·ceil(K/2)
    z = 2^-126 (Σ|a| + Σ|b| + n)

as fl(a)·fl(b) = a·b·(1+d)(1+e) with |d|, |e| <= u is exact in f32, and n sums of it round by v each, in any order
(Higham, "Accuracy and Stability of Numerical Algorithms", ch. 3); z is of denormals, which the instruction takes for
zeros. The bound is each element's own: no outlier of another row or column is in it.

NaN and infinities stay what they are. From 2^127 (2 - 2^-8) on a finite number rounds to an infinity. An infinity times
what is a denormal or rounds to zero is NaN, where the model has an infinity.

Speed: an Emerald Rapids starts the instruction in every second cycle, at any width, which is half of its f32
multiply-adds: products out of the caches take twice as long as f32's there, and those that wait for B's memory half to
two thirds as long (`python -m benchmarks.kernels gemm gemm-bf16`, one core of two, neighbours busy, medians of 9,
2026-11-26: 1024³ 73.5 of f32's 153.7 GFLOP/s, 1×4096×4096 12.3 of 7.5).
"""

from __future__ import annotations

import numpy as np

from ...ir.types import BF16, F32, U32
from ...kernel_ir.builder import Builder, KValue
from ...kernel_ir.interpreted_lanes import cast
from .emitter import Emitter, steps_of

_HIGH = 0xFFFF0000
_STEP = 16  # pairs in a row of a matrix register


def _dot(k: Builder, a: KValue, b: KValue, sums: KValue, fma: bool) -> KValue:
    """Two products a lane: the instruction has its own rounding, whatever other instructions the target has."""
    return k.op("dot_bf16", (a, b, sums), sums.type)


def _pairs(k: Builder, vectors: list[KValue]) -> KValue:
    """Two vectors of neighbouring f32 → one of as many pairs."""
    front, back = vectors
    even, odd = (k.bitcast(k.shuffle(front, back, range(i, 2 * front.lanes, 2)), U32) for i in (0, 1))
    return (_rounded(k, even) >> 16) | (_rounded(k, odd) & _HIGH)


def _rounded(k: Builder, bits: KValue) -> KValue:
    """The bits of f32 → those of the nearest bf16 in the upper half, ties to even; NaN → a quiet one."""
    nearest = bits + ((bits >> 16) & 1) + 0x7FFF
    return k.select((bits & 0x7FFFFFFF) > 0x7F800000, bits | 0x400000, nearest)


def pairs_of_columns(columns: np.ndarray) -> np.ndarray:
    """f32 [..., K, N] → pairs [..., ceil(K/2), N]."""
    if columns.shape[-2] % 2:
        none = np.zeros_like(columns[..., :1, :])
        columns = np.concatenate([columns, none], axis=-2)
    bits = cast(np.asarray(columns, np.float32), F32, BF16).astype(np.uint32)
    return np.asarray(bits[..., 0::2, :] | bits[..., 1::2, :] << 16)


def _steps_of_columns(columns: np.ndarray) -> np.ndarray:
    """f32 [..., K, N] → pairs [..., ceil(K/32), N · 16]."""
    return steps_of(pairs_of_columns(columns), _STEP)


PAIRS = Emitter(U32, 2, _dot, _pairs, pairs_of_columns, U32)
"""Of bf16, in vectors."""
MATRICES = Emitter(BF16, 2 * _STEP, None, _pairs, _steps_of_columns, U32, _STEP, matrices="bf16")
"""Of bf16, in matrix registers."""
