"""How a register tile multiplies: what an element of its operands is, and the instruction that adds a product.

Everything else of a tile (its loops, its addresses, its epilogue) is the same for all (`kernels.matmul.tile`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...ir.types import DType, ceil_div
from ...kernel_ir.builder import F32, Builder, KValue


def _splat(k: Builder, a: KValue, at: KValue, lanes: int) -> KValue:
    """An element in all lanes."""
    return k.splat(k.load(a, at), lanes)


def _columns(k: Builder, b: KValue, at: KValue, lanes: int, mask: KValue | None, align: int | None) -> KValue:
    return k.load(b, at, lanes, mask, align=align)


def _same(k: Builder, sums: KValue) -> KValue:
    return sums


@dataclass(frozen=True)
class Emitter:
    """The inner step of a row's tiles.

    Attributes:
        element, b_element: of A and of B in memory, where the tile reads them.
        k_step: inputs of one step of k. width: elements that hold them, one after the other.
        multiply_add: (builder, A's step in all lanes, a vector of B, the sums so far, whether the target adds
            products in one instruction) → the sums with the products; None: see `matrices`.
        pack: (builder, `k_step` vectors of inputs that follow each other in a row) → a vector of elements.
        pack_columns: inputs [K, N], or [group, K, N] → B's elements [..., steps, N · width]; zeros fill the last up.
        source: what copies of A are made of. sums: the accumulators' type.
        splat: (builder, a row of A, where, lanes) → its step in all lanes.
        columns: (builder, B, where, lanes, mask, alignment in bytes) → a vector of B.
        matrices: the kind of product of matrix registers that multiplies (`kernel_ir.matrix_registers`), "" where
            vectors do. A step of A is `k_step` elements then, and `width` are B's: a step of a panel lies as
            [width][columns], else as [columns][width].
        heaviest_pair: the most that `pair_weight` may be of B for sums to be exact; None: any B's are.
        begin: (builder, a vector of sums) → what is accumulated from them. end: (builder, that) → the sums.
        column_nbytes: of B, for a column in what a product counts as a step of k.
        weave: (builder, vectors of f32 of the inputs of a step, as they follow each other in k) → a vector of elements,
            each lane's step side by side: how operands are packed that only a run knows; None: they are not.
        narrowed: elements of B in a step, fewer than `width` → the emitter of such steps; None: there are no others.
    """

    element: DType
    k_step: int
    multiply_add: Callable[[Builder, KValue, KValue, KValue, bool], KValue] | None
    pack: Callable[[Builder, list[KValue]], KValue]
    pack_columns: Callable[[np.ndarray], np.ndarray]
    b_element: DType = F32
    width: int = 1
    source: DType = F32
    sums: DType = F32
    splat: Callable[[Builder, KValue, KValue, int], KValue] = _splat
    columns: Callable[[Builder, KValue, KValue, int, KValue | None, int | None], KValue] = _columns
    matrices: str = ""
    heaviest_pair: int | None = None
    begin: Callable[[Builder, KValue], KValue] = _same
    end: Callable[[Builder, KValue], KValue] = _same
    column_nbytes: int = 4
    weave: Callable[[Builder, list[KValue]], KValue] | None = None
    narrowed: Callable[[int], Emitter] | None = None

    def for_depth(self, depth: int) -> Emitter:
        """The emitter of as many steps, of the fewest inputs each that a depth fits."""
        if self.narrowed is None or not depth:
            return self
        elements = ceil_div(depth * self.width, self.k_step)
        return self.narrowed(ceil_div(elements, ceil_div(elements, self.width)))

    def dividing(self, depth: int) -> Emitter | None:
        """The emitter of the fewest steps that together are a depth; None: there is none."""
        each = self.k_step // self.width
        if self.narrowed is None or depth % each:
            return None
        elements = depth // each
        steps = next(n for n in range(ceil_div(elements, self.width), elements + 1) if elements % n == 0)
        return self.narrowed(elements // steps)


def steps_of(elements: np.ndarray, step: int) -> np.ndarray:
    """[..., K, N] → [..., ceil(K/step), N · step]: a column's step side by side, zeros where there are no more."""
    *lead, depth, n = elements.shape
    whole = np.zeros((*lead, -(-depth // step) * step, n), elements.dtype)
    whole[..., :depth, :] = elements
    return whole.reshape(*lead, -1, step, n).swapaxes(-1, -2).reshape(*lead, -1, step * n)


def multiply_add(k: Builder, a: KValue, b: KValue, sums: KValue, fma: bool) -> KValue:
    """One product of f32 a lane, rounded once together with its sum where the target has an instruction for that."""
    return k.fma(a, b, sums) if fma else sums + a * b


SINGLE = Emitter(F32, 1, multiply_add, lambda k, vectors: vectors[0], lambda columns: columns)
"""Of f32."""
