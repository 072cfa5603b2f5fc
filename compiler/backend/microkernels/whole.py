"""Products of whole numbers of 8 and 16 bits, summed in i32: two steps of k in one multiplication of pairs.

A is rows of i16: activations less their zero point, from -255 to 255. B is [K/2][width] of pairs of one column, i8, or
i16 where the weights less their zero points need it; i8 stays so in memory and is widened as it is loaded. Where K is
odd, B has a zero in the last pair.

Sums are exact modulo 2^32, as those of ONNX's MatMulInteger and ConvInteger are. |a|, |b| <= 255 make products below
2^16 and pairs of them below 2^17, so that no sum of 2^15 = 32,768 of them or fewer leaves i32.

Speed: PMADDWD and PADDD are two instructions for two multiply-adds a lane, and cores start as many of each as of
multiply-adds of f32, or more: up to twice f32's rate (`docs/data-types.md` has what is measured).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...ir.types import I8, I16, I32, DType
from ...kernel_ir.builder import Builder, KValue
from .emitter import Emitter


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


def _pairs_of_columns(element: DType, columns: np.ndarray) -> np.ndarray:
    """[..., K, N] → [..., ceil(K/2), 2·N]: each column's pair side by side."""
    *lead, depth, n = columns.shape
    pairs = np.zeros((*lead, -(-depth // 2), n, 2), element.numpy)
    for i in (0, 1):
        part = columns[..., i::2, :]
        pairs[..., : part.shape[-2], :, i] = part
    return pairs.reshape(*lead, -1, 2 * n)


def _emitter(weights: DType) -> Emitter:
    return Emitter(I16, 2, _dot, _joined, partial(_pairs_of_columns, weights), weights, 2, I16, I32, _splat, _columns)


BYTES, SHORTS = _emitter(I8), _emitter(I16)
"""By the weights' type."""
