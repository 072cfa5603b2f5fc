"""How a register tile multiplies: what an element of its operands is, and the instruction that adds a product.

Everything else of a tile (its loops, its addresses, its epilogue) is the same for all (`kernels.matmul.tile`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.types import DType
from ...kernel_ir.builder import F32, Builder, KValue


@dataclass(frozen=True)
class Emitter:
    """The inner step of a row's tiles.

    Attributes:
        element: of A and of B in memory, where the tile reads them: all inputs of one step of k.
        multiply_add: (builder, an element of A in all lanes, a vector of B, the sums so far, whether the target adds
            products in one instruction) → the sums with the products.
    """

    element: DType
    multiply_add: Callable[[Builder, KValue, KValue, KValue, bool], KValue]


def _multiply_add(k: Builder, a: KValue, b: KValue, sums: KValue, fma: bool) -> KValue:
    """One product of f32 a lane, rounded once together with its sum where the target has an instruction for that."""
    return k.fma(a, b, sums) if fma else sums + a * b


SINGLE = Emitter(F32, _multiply_add)
"""Of f32."""
