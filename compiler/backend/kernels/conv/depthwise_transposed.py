"""Transposed depthwise convolution, as the input's gradient of one of larger stride: every channel has a small filter.

    y[o] = Σ_k x[(o + p - d·k) / s] · w[k], where that is whole and inside of x

    for output row (image, oh) in work items:
        for run of P output pixels of the row, from a whole stride on:
            for vector of channels:
                for kh that meet an input row:  load each input pixel under the run once, feed all outputs it meets
                epilogue(P accumulators)

Which taps meet an output row is worked out of its number; along the line it is known, as runs begin at whole strides.
Nothing is multiplied that is not of the sum, so that NaN and Inf stay where they belong. Each sum is of its taps one by
one, with a rounding a tap.
"""

from __future__ import annotations

from ....ir.ops.conv_gradients import has_filters_alone
from ....kernel_ir.builder import KValue
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext
from ..matmul.blocking import static
from .depthwise import Depthwise, Met, lower_depthwise
from .spatial import TransposedAxis, axes_of
from .weights import ConvShape


def serves(s: ConvShape) -> bool:
    """Whether these loops apply to a transposed convolution, its `geometry.input` being x's size."""
    return s.is_depthwise and has_filters_alone(s.geometry, s.groups, s.w.tensor)


def lower_depthwise_transposed(ctx: LowerContext, fusion: Fusion, s: ConvShape) -> KernelCall:
    """The kernel call; work items are output rows."""
    return lower_depthwise(ctx, fusion, s, axes_of(s.geometry, TransposedAxis), DepthwiseTransposed)


class DepthwiseTransposed(Depthwise):
    """Emits the loops. See the file."""

    rows: TransposedAxis

    def emit(self, begin: KValue, end: KValue) -> None:
        """The loop over output rows, of all images."""
        self.k.for_(begin, end, 1, [], lambda item, _: self.row(item))

    def row(self, item: KValue) -> None:
        """One output row, from the taps that meet an input row."""
        k, axis = self.k, self.rows
        image = k.udiv(item, static(axis.output))
        place = item - image * static(axis.output) + static(axis.pad)
        first, phase = k.index(axis.first_tap(0)), k.urem(place, axis.stride)
        for r in range(1, axis.stride):
            first = k.select(phase >= r, axis.first_tap(r), first)
        last = k.min(k.udiv(place, axis.dilation) + 1, axis.kernel)
        behind = k.max(place - (static(axis.input) - 1) * axis.stride, 0)  # rows that the first tap is too far down
        skipped = k.max(k.udiv(behind + (axis.dilation - 1), axis.dilation) - first, 0)
        first = first + k.udiv(skipped + (axis.step - 1), axis.step) * axis.step

        def row(kh: KValue) -> KValue:
            number = image * static(axis.input) + k.udiv(place - kh * axis.dilation, axis.stride)
            return self.corner_row(number)

        ahead = [row(first) + self.corner_row(k.index(1))] if self.unforeseen else []
        self.row_of(item, Met(first, last, axis.step, row, ahead))
