"""Products of f32 whose columns fill vectors badly: two steps of k side by side in a vector of half as many columns.

A vector of B holds each of its columns twice, [k][column], [k + 1][column], and a step of A is the pair (k, k + 1) in
all lanes, which is one load. Where 24 columns of one step take two vectors of 16 lanes, of which a quarter multiplies
zeros, those of two steps take three, all of them full. An accumulator holds two sums of every column, one of the even
k, that begins with the bias, and one of the odd k; they are added at the end, and where a block of k ends.

A pointwise convolution of 56² pixels from 144 to 24 channels takes 88.6 µs so, 114.0 by whole vectors: 91.2 and 70.8
% of the measured peak (Zen 5, one core, `python -m benchmarks.kernels conv --repeats 5`, 2026-11-28).

Error: sums of K products in another order: within the bound of the other tiles of f32 (`docs/commands.md`), for an
element whose K products are summed in blocks (a half of a block of K_b passes through K_b / 2 + 1 roundings).
"""

from __future__ import annotations

from ...ir.types import F32, F64
from ...kernel_ir.builder import Builder, KValue
from .emitter import Emitter, multiply_add, steps_of


def _splat(k: Builder, a: KValue, at: KValue, lanes: int) -> KValue:
    """Two elements that follow each other, again and again."""
    return k.bitcast(k.splat(k.bitcast(k.load(a, at, 2), F64), lanes), F32)


def _columns(k: Builder, b: KValue, at: KValue, lanes: int, mask: KValue | None, align: int | None) -> KValue:
    """Both steps of each column; panels are packed, so that all are there."""
    assert mask is None
    return k.load(b, at, 2 * lanes, align=align)


def _begin(k: Builder, sums: KValue) -> KValue:
    """The sums so far count with the even steps; -0.0 changes no sum, not even one of -0.0."""
    lanes = sums.lanes
    return k.shuffle(sums, k.splat(k.const(-0.0, F32), lanes), [i + half for i in range(lanes) for half in (0, lanes)])


def _end(k: Builder, both: KValue) -> KValue:
    """The sums of even and odd steps together.

    Neighbours are added in their places first: of even and odd lanes side by side LLVM makes VHADDPS, which reaches no
    more than 16 registers, and so takes the rest from the accumulators.
    """
    lanes = range(both.lanes)
    return k.shuffle(both + k.shuffle(both, both, [i ^ 1 for i in lanes]), both, lanes[::2])


TWO_STEPS = Emitter(F32, 2, multiply_add, lambda k, vectors: vectors[0], lambda columns: steps_of(columns, 2), width=2,
                    splat=_splat, columns=_columns, begin=_begin, end=_end, column_nbytes=8)  # fmt: skip
