"""Products of f32 by weights that are kept in 16 bits, and are f32 again as a tile loads them: nothing is rounded.

Weights that were trained in f16 or bf16 have no more digits than that, whatever type a model gives them. They take
half the bytes on their way from memory, which is all the time that a product of few rows takes. A tile widens every
vector of B that it loads; its sums are those of f32's tiles, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ...ir.types import BF16, F16, F32, DType
from ...kernel_ir.builder import Builder, KValue
from ...targets.target import Target
from .emitter import Emitter, multiply_add

OPERATIONS = 2
"""Of a core's vector units, to widen one vector: a shuffle, and VCVTPH2PS's conversion or a shift for bf16."""
_SAMPLE = 4096
_WIDENED_BY: Mapping[DType, frozenset[str]] = {F16: frozenset({"f16c", "neon"}), BF16: frozenset()}


def _columns(k: Builder, b: KValue, at: KValue, lanes: int, mask: KValue | None, align: int | None) -> KValue:
    """A vector of B in f32; panels are packed, so that all columns are there."""
    assert mask is None
    return k.cast(k.load(b, at, lanes, align=None if align is None else align // 2), F32)


def _stored(dtype: DType) -> Callable[[np.ndarray], np.ndarray]:
    def pack(columns: np.ndarray) -> np.ndarray:
        return columns.astype(dtype.numpy)

    return pack


def _of(dtype: DType) -> Emitter:
    return Emitter(F32, 1, multiply_add, lambda k, vectors: vectors[0], _stored(dtype), b_element=dtype,
                   columns=_columns)  # fmt: skip


STORED: Mapping[DType, Emitter] = {F16: _of(F16), BF16: _of(BF16)}
"""By the type that weights are kept in."""


def widens(target: Target, dtype: DType) -> bool:
    """Whether a target has instructions that make f32 of a type."""
    return not _WIDENED_BY[dtype] or bool(_WIDENED_BY[dtype] & target.abilities)


def is_exact(weights: np.ndarray, dtype: DType) -> bool:
    """Whether all of some numbers of f32 are numbers of a narrower type, too; a NaN is none."""
    few = weights[: -(-_SAMPLE // max(1, weights.shape[-1]))]  # of which most models have one that is not
    return all(_same_numbers(part, dtype) for part in (few, weights))


def _same_numbers(weights: np.ndarray, dtype: DType) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.array_equal(weights.astype(dtype.numpy).astype(np.float32), weights))
