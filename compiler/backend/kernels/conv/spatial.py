"""The spatial axes of a convolution: what a filter meets along them, and how outputs are cut into runs.

Emits no loops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

from ....ir.ops.geometry import WindowGeometry
from ....ir.types import Dim
from ....kernel_ir.builder import Builder, KValue
from ..matmul.blocking import static
from .weights import ConvShape

FORESEEN = (128, 4096)  # bytes of a pixel: up to the first, from the second on, memory was read as fast unasked; Zen 3


def is_unforeseen(pixel_nbytes: int) -> bool:
    """Whether loops should ask for the pixels of a line below: those of vector after vector over a run of pixels.

    Small pixels lie next to each other, and large ones are many cache lines in a row; between them, the processor's
    prefetchers follow neither.
    """
    least, most = FORESEEN
    return least < pixel_nbytes < most


@dataclass(frozen=True)
class SpatialAxis:
    """One spatial axis, the one runs lie along (or the rows)."""

    kernel: int
    stride: int
    dilation: int
    pad: Dim
    input: Dim
    output: Dim

    @property
    def is_static(self) -> bool:
        """Whether its sizes are known."""
        return all(isinstance(d, int) for d in (self.pad, self.input, self.output))

    def corner(self, k: Builder, start: KValue) -> KValue:
        """The pixel that `uses` counts from, of a run from output `start` on; in the padding, < 0."""
        return start * self.stride - k.index(self.pad)

    def lengths(self, longest: int) -> list[int]:
        """Of the runs that all outputs are cut into."""
        return run_lengths(static(self.output), longest)

    def inside(self, start: int, n: int) -> bool:
        """Whether no pixel under the outputs [start, start + n) is in the padding."""
        low = start * self.stride - static(self.pad)
        high = low + (n - 1) * self.stride + (self.kernel - 1) * self.dilation
        return low >= 0 and high < static(self.input)

    def uses(self, n: int) -> list[tuple[int, list[tuple[int, int]]]]:
        """The pixels under a run of `n` outputs, from its corner on, each with the pairs (output, tap) it meets."""
        found: dict[int, list[tuple[int, int]]] = {}
        for p in range(n):
            for j in range(self.kernel):
                found.setdefault(p * self.stride + j * self.dilation, []).append((p, j))
        return sorted(found.items())


@dataclass(frozen=True)
class TransposedAxis(SpatialAxis):
    """An axis of a transposed convolution: output o meets pixel (o + pad - tap · dilation) / stride, if that is whole.

    Runs begin at whole strides, so that which taps an output of one meets is known.
    """

    def corner(self, k: Builder, start: KValue) -> KValue:
        return k.udiv(start, self.stride)

    def lengths(self, longest: int) -> list[int]:
        n = static(self.output)
        lengths = [m * self.stride for m in run_lengths(-(-n // self.stride), max(1, longest // self.stride))]
        return [*lengths[:-1], lengths[-1] - (sum(lengths) - n)]

    def inside(self, start: int, n: int) -> bool:
        pixels = [start // self.stride + column for column, _ in self.uses(n)]
        return not pixels or (pixels[0] >= 0 and pixels[-1] < static(self.input))

    def uses(self, n: int) -> list[tuple[int, list[tuple[int, int]]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for p in range(n):
            for j in range(self.kernel):
                pixel, rest = divmod(p + static(self.pad) - j * self.dilation, self.stride)
                if rest == 0:
                    found.setdefault(pixel, []).append((p, j))
        return sorted(found.items())

    def first_tap(self, phase: int) -> int:
        """Of the taps that outputs with (o + pad) mod stride = `phase` meet; as many as there are where it is none."""
        met = (tap for tap in range(self.kernel) if (phase - tap * self.dilation) % self.stride == 0)
        return next(met, self.kernel)

    @property
    def step(self) -> int:
        """From one tap that an output meets to the next."""
        return self.stride // math.gcd(self.stride, self.dilation)


Axis = TypeVar("Axis", bound=SpatialAxis)


def lines_of(s: ConvShape) -> tuple[SpatialAxis, SpatialAxis]:
    """The rows, and the line that runs lie along."""
    return axes_of(s.geometry, SpatialAxis)


def axes_of(g: WindowGeometry, kind: type[Axis]) -> tuple[Axis, Axis]:
    """The axes of a window of rank 1 or 2."""
    lines = [kind(*each) for each in zip(g.kernel, g.strides, g.dilations, g.pads_begin, g.input, g.output)]
    return lines[0] if g.rank == 2 else kind(1, 1, 1, 0, 1, 1), lines[-1]


def rows_met(k: Builder, rows: SpatialAxis, item: KValue) -> tuple[KValue, KValue, KValue]:
    """Of output row `item`, counted over all images: the input row under the first row of the filter, counted likewise
    (in the padding: another image's, or < 0), and the filter's rows [first, last) that meet the image.
    """
    image = k.udiv(item, k.index(rows.output))
    top = (item - image * k.index(rows.output)) * rows.stride - k.index(rows.pad)
    size = k.index(rows.input)
    first = k.udiv(k.max(0 - top, 0) + (rows.dilation - 1), rows.dilation)
    last = k.min(k.udiv(k.max(size - top, 0) + (rows.dilation - 1), rows.dilation), rows.kernel)
    return image * size + top, first, last


def run_lengths(n: int, longest: int) -> list[int]:
    """Lengths of nearly equal runs that add up to n."""
    count = -(-n // longest)
    small, extra = divmod(n, count)
    return [small + 1] * extra + [small] * (count - extra)
