"""The spatial axes of a convolution: what a filter meets along them, and how outputs are cut into runs.

Emits no loops.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....ir.types import Dim
from ....kernel_ir.builder import Builder, KValue
from ..matmul.blocking import static
from .weights import ConvShape


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

    def inside(self, start: int, n: int) -> bool:
        """Whether no pixel under the outputs [start, start + n) is in the padding."""
        low = start * self.stride - static(self.pad)
        high = low + (n - 1) * self.stride + (self.kernel - 1) * self.dilation
        return low >= 0 and high < static(self.input)

    def uses(self, n: int) -> list[tuple[int, list[tuple[int, int]]]]:
        """The pixels under a run of `n` outputs, counted from its first, each with the pairs (output, tap) it meets."""
        found: dict[int, list[tuple[int, int]]] = {}
        for p in range(n):
            for j in range(self.kernel):
                found.setdefault(p * self.stride + j * self.dilation, []).append((p, j))
        return sorted(found.items())


def lines_of(s: ConvShape) -> tuple[SpatialAxis, SpatialAxis]:
    """The rows, and the line that runs lie along."""
    g = s.geometry
    lines = [SpatialAxis(*each) for each in zip(g.kernel, g.strides, g.dilations, g.pads_begin, g.input, g.output)]
    return lines[0] if s.rank == 2 else SpatialAxis(1, 1, 1, 0, 1, 1), lines[-1]


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
