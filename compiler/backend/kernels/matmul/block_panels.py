"""Constants of 4 or 8 bits with a scale a block, in the order in which their kernels read them.

A panel is [block][scales, zero points where they are given, words], each of the panel's width: a word is a u32 of the
numbers of one column that follow each other along k, the first in the lowest bits, as the model has them. Scales and
zero points are f32, in words as well, so that a panel is one stream of memory. Columns beyond the last are zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....ir import bands
from ....ir.ops.block_products import BlockedMatMul
from ....ir.types import ceil_div
from ...fusion import Fusion
from ...lowering import LowerContext, Weight
from .blocking import PanelKind, static

MAGIC = 0x4B000000  # the bits of 2^23, whose last bit counts ones
MOST_WHOLE = 255  # of a zero point: up to there 2^23 + zero · 2^12 is exact in f32


@dataclass(frozen=True)
class Blocks:
    """What a kernel of blocked weights depends on besides sizes.

    Attributes:
        bits: of a weight. size: weights of a column that share a scale. n: blocks of a column.
        zeros: "" for 2^(bits - 1) everywhere, "whole" numbers of `MOST_WHOLE` at most, or "any".
        rounds: whether activations may be rounded to 8 bits.
    """

    bits: int
    size: int
    n: int
    zeros: str
    rounds: bool = False

    @property
    def per_word(self) -> int:
        """Weights of a u32."""
        return 32 // self.bits

    @property
    def words(self) -> int:
        """Of a block and a column, with what it is scaled by."""
        return 1 + bool(self.zeros) + self.size // self.per_word


def blocks_of(fusion: Fusion) -> Blocks:
    """The blocks of a (fused) product's weights, which must be constants."""
    op = fusion.root.op
    assert isinstance(op, BlockedMatMul)
    zeros = fusion.root_inputs[3] if len(fusion.root_inputs) > 3 else None
    kind = ""
    if zeros is not None:
        data = zeros.data
        assert data is not None
        whole = np.all((data == np.rint(data)) & (np.abs(data) <= MOST_WHOLE))
        kind = "whole" if whole else "any"
    b = fusion.root_inputs[1]
    assert b is not None
    return Blocks(op.bits, op.block_size, static(b.tensor.dims[1]), kind, bool(op.rounds))


def packed_blocks(ctx: LowerContext, fusion: Fusion, blocks: Blocks, kinds: Sequence[PanelKind], lanes: int) -> Weight:
    """A product's weights, panel after panel."""
    q, scales, *zeros = (v.data for v in fusion.root_inputs[1:] if v is not None)
    assert q is not None and scales is not None
    parts = [scales, *zeros[:1]]
    n_words = sum(static(kind.count) * kind.vectors * lanes for kind in kinds) * blocks.n * blocks.words

    def fill(place: np.ndarray) -> None:
        at = 0
        for kind in kinds:
            width = kind.vectors * lanes
            several = max(1, bands.BAND_NBYTES // (4 * blocks.n * blocks.words * width))
            for first in range(0, static(kind.count), several):
                count = min(several, static(kind.count) - first)
                size = count * blocks.n * blocks.words * width
                column = static(kind.column) + first * width
                target = place[at : at + size].reshape(count, blocks.n, blocks.words, width)
                _fill(target, q, parts, column)
                at += size

    return ctx.weights.make((n_words,), np.uint32, fill)


def _fill(target: np.ndarray, q: np.ndarray, parts: Sequence[np.ndarray | None], column: int) -> None:
    """[panel, block, word, width] of the columns from one on."""
    count, n_blocks, _, width = target.shape
    for i, part in enumerate(parts):
        assert part is not None
        _put(target[:, :, i : i + 1], np.ascontiguousarray(part[column : column + count * width, :, None]))
    words = np.ascontiguousarray(q[column : column + count * width]).view("<u4")
    _put(target[:, :, len(parts) :], words.reshape(len(words), n_blocks, -1))


def _put(target: np.ndarray, columns: np.ndarray) -> None:
    """[panel, block, word, width] from [column, block, word], which may be too few."""
    width, columns = target.shape[-1], columns.view(np.uint32)
    for panel in range(ceil_div(len(columns), width)):
        some = columns[panel * width : (panel + 1) * width]
        target[panel, ..., : len(some)] = some.transpose(1, 2, 0)
