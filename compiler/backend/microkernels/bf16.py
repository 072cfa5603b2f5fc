"""Products of bf16, summed in f32: two steps of k in one instruction of AVX512-BF16, or by multiply-adds of f32.

An element is a pair of bf16, that of the even k in the lower half of 32 bits. A is rows of bf16 whose pairs follow each
other, or of f32 that are copied and rounded; B is [K/2][width] of pairs of one column. Where K is odd, both have a zero
in the last pair, so that an infinity meets none of its own making.

Error of an element c = Σ a·b over K finite products, |a|, |b| and all sums below 2^127: with u = 2^-8 (bf16 has 8
digits, and rounds to the nearest, ties to even) and v = 2^-24 (f32)

    |c - exact| <= (2u + u²) Σ|a·b| + γ (1 + u)² Σ|a·b| + z,   γ = n·v / (1 - n·v),  n = 2·ceil(K/2)
    z = 2^-126 (Σ|a| + Σ|b| + n)

as fl(a)·fl(b) = a·b·(1+d)(1+e) with |d|, |e| <= u is exact in f32, and n sums of it round by v each, in any order
(Higham, "Accuracy and Stability of Numerical Algorithms", ch. 3); z is of denormals, which the instruction takes for
zeros, as may what rounds A's copies. The bound is each element's own: no outlier of another row or column is in it. Of
operands that are bf16 already, u is 0.

NaN and infinities stay what they are. From 2^127 (2 - 2^-8) on a finite number rounds to an infinity. An infinity times
what is a denormal or rounds to zero is NaN, where the model has an infinity.

Where a target lacks the instruction, a bf16 is the upper half of the f32 of its value: a shift finds the even k of a
pair, a mask the odd one, and each takes a multiply-add. The bound is the same, and denormals stay.

Speed: an Emerald Rapids starts the instruction in every second cycle, at any width, which is half of its f32
multiply-adds: products out of the caches take twice as long as f32's there, and those that wait for B's memory half to
two thirds as long (`python -m benchmarks.kernels gemm gemm-bf16`, one core of two, neighbours busy, medians of 9,
2026-11-26: 1024³ 73.5 of f32's 153.7 GFLOP/s, 1×4096×4096 12.3 of 7.5).
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from ...ir.types import BF16, F32, U16, U32
from ...kernel_ir.builder import Builder, KValue
from ...kernel_ir.interpreted_lanes import cast
from .emitter import Emitter, steps_of

_HIGH = 0xFFFF0000
_INSTRUCTION = (4, 8, 16)  # lanes that it has
_STEP = 16  # pairs in a row of a matrix register, at most


def _dot(k: Builder, a: KValue, b: KValue, sums: KValue, fma: bool) -> KValue:
    """Two products a lane: the instruction has its own rounding, whatever other instructions the target has."""
    if sums.lanes not in _INSTRUCTION:
        return _converted(k, a, b, sums, fma)
    return k.op("dot_bf16", (k.bitcast(a, U32), k.bitcast(b, U32), sums), sums.type)


def _converted(k: Builder, a: KValue, b: KValue, sums: KValue, fma: bool) -> KValue:
    """Two products a lane, of the even k first."""
    left, right = k.bitcast(a, U32), k.bitcast(b, U32)
    for x, y in ((left << 16, right << 16), (left & _HIGH, right & _HIGH)):
        x, y = k.bitcast(x, F32), k.bitcast(y, F32)
        sums = k.fma(x, y, sums) if fma else sums + x * y
    return sums


def _splat(k: Builder, a: KValue, at: KValue, lanes: int) -> KValue:
    """A pair in all lanes."""
    pair = k.bitcast(k.load(a, at, 2), U32)
    return k.bitcast(k.splat(pair, lanes), BF16)


def _columns(k: Builder, b: KValue, at: KValue, lanes: int, mask: KValue | None, align: int | None) -> KValue:
    """A pair of each column; panels are packed, so that all are there."""
    assert mask is None
    return k.bitcast(k.load(b, at, 2 * lanes, align=align), BF16)


def _pairs(k: Builder, vectors: list[KValue]) -> KValue:
    """Two vectors of f32 that follow each other, rounded."""
    front, back = vectors
    return k.round_to_bf16(k.shuffle(front, back, range(2 * front.lanes)))


def _woven(k: Builder, vectors: list[KValue]) -> KValue:
    """Two vectors of f32 of neighbouring k, rounded: each lane's pair side by side."""
    n, width = vectors[0].lanes, max(2, vectors[0].lanes)
    even, odd = (k.splat(v, width) if n == 1 else v for v in vectors)
    return k.round_to_bf16(k.shuffle(even, odd, [i for lane in range(n) for i in (lane, width + lane)]))


def pairs_of_columns(columns: np.ndarray) -> np.ndarray:
    """[..., K, N] → the bits of bf16, [..., ceil(K/2), 2·N]: each column's pair side by side."""
    *lead, depth, n = columns.shape
    bits = np.zeros((*lead, -(-depth // 2), n, 2), np.uint16)
    for i in (0, 1):
        part = cast(np.asarray(columns[..., i::2, :], np.float32), F32, BF16)
        bits[..., : part.shape[-2], :, i] = part
    return bits.reshape(*lead, -1, 2 * n)


def _steps_of_columns(step: int, columns: np.ndarray) -> np.ndarray:
    """[..., K, N] → pairs in a u32 [..., ceil(K/(2 · step)), N · step]."""
    return steps_of(pairs_of_columns(columns).view(np.uint32), step)


PAIRS = Emitter(BF16, 2, _dot, _pairs, pairs_of_columns, U16, 2, splat=_splat, columns=_columns, weave=_woven)
"""In vectors, by the instruction."""
CONVERTED = Emitter(BF16, 2, _converted, _pairs, pairs_of_columns, U16, 2, splat=_splat, columns=_columns)
"""In vectors, by multiply-adds of f32."""


@cache
def matrices(step: int) -> Emitter:
    """In matrix registers, so many pairs a step."""
    pack = partial(_steps_of_columns, step)
    return Emitter(BF16, 2 * step, None, _pairs, pack, U32, step, matrices="bf16", narrowed=matrices)


MATRICES = matrices(_STEP)
