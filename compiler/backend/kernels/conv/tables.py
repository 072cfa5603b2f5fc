"""Offsets of the input pixels under each kernel tap, for blocks of consecutive output pixels.

Owns the walk over output coordinates. Entry -1 stands for a pixel in the padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....ir.types import Dim, SymDim
from ....kernel_ir.builder import Builder, KValue
from ..plain import decompose

UNROLLED_TAPS = 27  # 3 × 3 × 3, written out; chosen, not measured


@dataclass(frozen=True)
class Walk:
    """Where a window finds its input.

    Attributes:
        output: sizes of the output's spatial axes. input: of the input's. kernel, strides, dilations: of the window.
        pads_begin, pads_end: padding. x_strides: elements per step of each spatial axis of the input.
        batch_stride: elements between images.
    """

    output: tuple[Dim, ...]
    input: tuple[Dim, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[Dim, ...]
    pads_end: tuple[Dim, ...]
    x_strides: tuple[Dim, ...]
    batch_stride: Dim

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def taps(self) -> int:
        n = 1
        for size in self.kernel:
            n *= size
        return n


def fill_offsets(
    k: Builder, walk: Walk, table: KValue, pitch: KValue, row0: KValue, count: KValue, base: KValue
) -> None:
    """table[tap * pitch + i] = base + offset of output pixel row0 + i under each tap, or -1.

    Pixels are numbered over (image, output spatial axes), the last axis fastest.
    """
    axes = range(walk.rank + 1)
    start = decompose(k, row0, list(axes), (1 << 62, *walk.output))

    def row(i: KValue, at: list[KValue]) -> list[KValue]:
        image, *out = at
        corner = [o * s - k.index(p) for o, s, p in zip(out, walk.strides, walk.pads_begin)]
        offset = base + image * k.index(walk.batch_stride)
        for c, stride in zip(corner, walk.x_strides):
            offset = offset + c * k.index(stride)
        _taps(
            k,
            walk,
            corner,
            lambda tap, shift, valid: k.store(
                table, tap * pitch + i, offset + shift if valid is None else k.select(valid, offset + shift, -1)
            ),
        )
        return _advance(k, walk.output, at)

    k.for_(0, count, 1, start, row)


def _advance(k: Builder, sizes: Sequence[Dim], at: list[KValue]) -> list[KValue]:
    """The coordinates of the next pixel."""
    out = list(at)
    carry: KValue = k.index(1)
    for d in range(len(sizes), 0, -1):
        moved = out[d] + carry
        wrapped = moved == k.index(sizes[d - 1])
        out[d] = k.select(wrapped, 0, moved)
        carry = k.cast(wrapped, moved.dtype)
    out[0] = out[0] + carry
    return out


def _taps(
    k: Builder, walk: Walk, corner: Sequence[KValue], visit: Callable[[KValue, KValue, KValue | None], None]
) -> None:
    """Call visit(tap number, offset from the corner, valid or None if always) for each tap."""

    def axis(d: int, tap: KValue, shift: KValue, valid: KValue | None) -> None:
        if d == walk.rank:
            visit(tap, shift, valid)
            return

        def one(j: KValue, _: list[KValue]) -> None:
            inside = in_bounds(
                k, corner[d] + j * walk.dilations[d], walk.input[d], walk.pads_begin[d], walk.pads_end[d]
            )
            both = valid if inside is None else inside if valid is None else valid & inside
            axis(d + 1, tap * walk.kernel[d] + j, shift + j * walk.dilations[d] * k.index(walk.x_strides[d]), both)

        if walk.taps <= UNROLLED_TAPS:
            for j in range(walk.kernel[d]):
                one(k.index(j), [])
        else:
            k.for_(0, walk.kernel[d], 1, [], one)

    axis(0, k.index(0), k.index(0), None)


def in_bounds(k: Builder, at: KValue, size: Dim, pad_begin: Dim, pad_end: Dim) -> KValue | None:
    """Whether a coordinate lies in [0, size); None if it cannot be outside because there is no padding."""
    low = at >= 0 if isinstance(pad_begin, SymDim) or pad_begin > 0 else None
    high = at < k.index(size) if isinstance(pad_end, SymDim) or pad_end > 0 else None
    if low is None or high is None:
        return low if high is None else high
    return low & high
