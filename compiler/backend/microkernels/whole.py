"""Products of whole numbers of 8 and 16 bits, summed in i32: two or four steps of k in one multiplication.

Pairs: A is rows of i16: activations less their zero point, from -255 to 255. B is [K/2][width] of pairs of one column,
i8, or i16 where the weights less their zero points need it; i8 stays so in memory and is widened as it is loaded. Where
K is odd, B has a zero in the last pair.

Sums are exact modulo 2^32, as those of ONNX's MatMulInteger and ConvInteger are. |a|, |b| <= 255 make products below
2^16 and pairs of them below 2^17, so that no sum of 2^15 = 32,768 of them or fewer leaves i32.

Speed: PMADDWD and PADDD are two instructions for two multiply-adds a lane, and cores start as many of each as of
multiply-adds of f32, or more: up to twice f32's rate (`docs/data-types.md` has what is measured).

Quads: A is rows of u8, zero points and all, B is [K/4][width] of quads of one column, i8. Sums are exact modulo 2^32,
and so is what remains when a column's sum times the zero point is taken from them. VPDPBUSD (AVX512-VNNI, AVX-VNNI)
adds a quad in one instruction, for four multiply-adds a lane; TDPBUSD of matrix registers (AMX) multiplies 16 rows of A
by 16 columns. Without them PMADDUBSW, PMADDWD by ones and PADDD are
three, where no sum of two products leaves i16, at which PMADDUBSW saturates: 255 · 128 = 32,640 is the most that a
pair of weights gives whose positive parts sum to 128, and so do the negative ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np

from ...ir.types import I8, I16, I32, U8, U32, DType
from ...kernel_ir.builder import Builder, KValue
from .emitter import Emitter, steps_of

_STEP = 16  # quads in a row of a matrix register, at most


def _dot(k: Builder, a: KValue, b: KValue, sums: KValue, fma: bool) -> KValue:
    """Two products a lane."""
    return k.op("dot_i16", (a, b, sums), sums.type)


def _splat(k: Builder, a: KValue, at: KValue, lanes: int) -> KValue:
    """A pair in all lanes."""
    pair = k.load(a, at, 2)
    return k.shuffle(pair, pair, (0, 1) * lanes)


def _columns(k: Builder, b: KValue, at: KValue, lanes: int, mask: KValue | None, align: int | None) -> KValue:
    """A pair of each column; panels are packed, so that all are there."""
    assert mask is None
    return k.cast(k.load(b, at, 2 * lanes), I16)


def _joined(k: Builder, vectors: list[KValue]) -> KValue:
    """Two vectors one behind the other."""
    front, back = vectors
    return k.shuffle(front, back, range(2 * front.lanes))


def _grouped_columns(group: int, element: DType, columns: np.ndarray) -> np.ndarray:
    """[..., K, N] → [..., ceil(K/group), group·N]: as many of each column side by side."""
    *lead, depth, n = columns.shape
    groups = np.zeros((*lead, -(-depth // group), n, group), element.numpy)
    for i in range(group):
        part = columns[..., i::group, :]
        groups[..., : part.shape[-2], :, i] = part
    return groups.reshape(*lead, -1, group * n)


def quads_of_columns(columns: np.ndarray) -> np.ndarray:
    """i8 [..., K, N] → [..., ceil(K/4), 4·N]: each column's quad side by side."""
    return _grouped_columns(4, I8, columns)


def pair_weight(weights: np.ndarray) -> int:
    """The most that positive parts, or negative ones, of two neighbours sum to that one PMADDUBSW multiplies.

    Args:
        weights: [..., K, N], whole numbers.
    """
    depth = weights.shape[-2]
    if not weights.size:
        return 0
    even = weights[..., 0::2, :].astype(np.int16)
    odd = np.zeros_like(even)
    odd[..., : depth // 2, :] = weights[..., 1::2, :]
    parts = (np.maximum(sign * even, 0) + np.maximum(sign * odd, 0) for sign in (1, -1))
    return max(int(part.max()) for part in parts)


def _dot_quads(pairs_in_i16: bool) -> Callable[[Builder, KValue, KValue, KValue, bool], KValue]:
    """Four products a lane."""
    return lambda k, a, b, sums, fma: k.op("dot_u8i8", (a, b, sums), sums.type, pairs_in_i16=pairs_in_i16 or None)


def _splat_quad(k: Builder, a: KValue, at: KValue, lanes: int) -> KValue:
    """A quad in all lanes."""
    quad = k.load(a, at, 4)
    return k.shuffle(quad, quad, (0, 1, 2, 3) * lanes)


def _quads(k: Builder, b: KValue, at: KValue, lanes: int, mask: KValue | None, align: int | None) -> KValue:
    """A quad of each column; panels are packed, so that all are there."""
    assert mask is None
    return k.load(b, at, 4 * lanes, align=align)


def _joined_quads(k: Builder, vectors: list[KValue]) -> KValue:
    """Four vectors one behind the other."""
    return _joined(k, [_joined(k, vectors[:2]), _joined(k, vectors[2:])])


def _steps_of_columns(step: int, columns: np.ndarray) -> np.ndarray:
    """i8 [..., K, N] → quads in a u32 [..., ceil(K/(4 · step)), N · step]."""
    return steps_of(quads_of_columns(columns).view(np.uint32), step)


def _emitter(weights: DType) -> Emitter:
    return Emitter(I16, 2, _dot, _joined, partial(_grouped_columns, 2, weights), weights, 2, I16, I32, _splat, _columns)


BYTES, SHORTS = _emitter(I8), _emitter(I16)
"""By the weights' type."""
QUADS = Emitter(U8, 4, _dot_quads(False), _joined_quads, quads_of_columns, I8, 4, U8, I32, _splat_quad, _quads)
"""Of any weights, where the target adds a quad in one instruction."""
LIGHT_QUADS = replace(QUADS, multiply_add=_dot_quads(True), heaviest_pair=128)
"""Of weights that PMADDUBSW does not saturate at."""


@cache
def quad_matrices(step: int) -> Emitter:
    """Of any weights, in matrix registers, so many quads a step."""
    pack = partial(_steps_of_columns, step)
    return Emitter(U8, 4 * step, None, _joined_quads, pack, U32, step, U8, I32, matrices="u8i8",
                   narrowed=quad_matrices)  # fmt: skip


QUAD_MATRICES = quad_matrices(_STEP)
