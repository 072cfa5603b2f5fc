"""Pad of bytes to four a position: what makes an image's planes one tensor of whole pixels, as products of quads read.

Loops: `for each row of y: left margin; for 16 positions: y = x0 | x1 << 8 | x2 << 16 | fill << 24; right margin`. Owns
when that is so. A pixel is one number of 32 bits: `pad` would copy its bytes one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.types import U8, U32, DType
from ....kernel_ir.builder import Builder, KValue
from ..nest import emit_span
from .pad_axes import PadAxis

QUAD = 4  # bytes of a position
BYTE = 8  # bits


def makes_quads(axes: Sequence[PadAxis], mode: str, bits: DType) -> bool:
    """Whether y's innermost axis is four bytes, which lie apart in x, and x's positions lie side by side."""
    if len(axes) < 2 or mode != "constant" or bits != U8:
        return False
    positions, inner = axes[-2:]
    if not isinstance(inner.x, int) or not isinstance(inner.before, int) or inner.y != QUAD:
        return False
    fits = inner.before >= 0 and inner.before + inner.x <= QUAD
    return fits and inner.x_stride != 1 and positions.x_stride == 1 and positions.y_stride == QUAD


def emit_quads(
    k: Builder, axes: Sequence[PadAxis], lanes: int, fill: KValue, x_at: KValue, y_at: KValue, inside: KValue | None
) -> None:
    """Write one row of positions; `y`, in units of QUAD bytes, is written as numbers of 32 bits.

    Args:
        x_at, y_at: offsets of the row, in bytes. inside: whether x has the row; None: always.
    """
    positions, inner = axes[-2:]
    assert isinstance(inner.x, int) and isinstance(inner.before, int)
    first, size, before = k.udiv(y_at, QUAD), k.index(positions.y), k.index(positions.before)
    low = k.min(k.max(before, 0), size)
    high = k.max(k.min(before + k.index(positions.x), size), low)
    nothing = k.cast(fill, U32)
    taken = range(inner.before, inner.before + inner.x)

    def word(parts: dict[int, KValue]) -> KValue:
        y = parts[0]
        for place in range(1, QUAD):
            y = y | (parts[place] << k.const(BYTE * place, parts[place]))
        return y

    def margin(begin: KValue, end: KValue) -> None:
        empty = word(dict.fromkeys(range(QUAD), nothing))
        emit_span(k, begin, end, lanes, lambda i, n, mask: k.store(k["y"], first + i, k.splat(empty, n), mask, align=1))

    def copy(i: KValue, n: int, mask: KValue | None) -> None:
        at = x_at + (i - before)
        parts = {place: k.splat(nothing, n) for place in range(QUAD)}
        for c, place in enumerate(taken):
            parts[place] = k.cast(k.load(k["x"], at + k.index(inner.x_stride) * c, n, mask), U32)
        k.store(k["y"], first + i, word(parts), mask, align=1)

    def row() -> None:
        margin(k.index(0), low)
        emit_span(k, low, high, lanes, copy)
        margin(high, size)

    if inside is None:
        row()
    else:
        k.if_(inside, row, lambda: margin(k.index(0), size))


__all__ = ["emit_quads", "makes_quads"]
