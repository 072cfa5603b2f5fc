"""How a register tile multiplies: what an element of its operands is, and the instruction that adds a product.

Everything else of a tile (its loops, its addresses, its epilogue) is the same for all (`kernels.matmul.tile`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...ir.types import DType
from ...kernel_ir.builder import F32, Builder, KValue


@dataclass(frozen=True)
class Emitter:
    """The inner step of a row's tiles.

    Attributes:
        element: of A and of B in memory, where the tile reads them: all inputs of one step of k.
        k_step: how many these are.
        multiply_add: (builder, an element of A in all lanes, a vector of B, the sums so far, whether the target adds
            products in one instruction) → the sums with the products.
        pack: (builder, `k_step` vectors of f32 that follow each other in a row) → a vector of as many elements.
        pack_columns: f32 [K, N], or [group, K, N] → elements, K counted in steps; zeros fill the last one up.
    """

    element: DType
    k_step: int
    multiply_add: Callable[[Builder, KValue, KValue, KValue, bool], KValue]
    pack: Callable[[Builder, list[KValue]], KValue]
    pack_columns: Callable[[np.ndarray], np.ndarray]


def _multiply_add(k: Builder, a: KValue, b: KValue, sums: KValue, fma: bool) -> KValue:
    """One product of f32 a lane, rounded once together with its sum where the target has an instruction for that."""
    return k.fma(a, b, sums) if fma else sums + a * b


SINGLE = Emitter(F32, 1, _multiply_add, lambda k, vectors: vectors[0], lambda columns: columns)
"""Of f32."""
