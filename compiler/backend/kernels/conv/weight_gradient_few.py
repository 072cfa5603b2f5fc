"""The gradient of a convolution's weights where an image has few channels, as the first layer's has.

Those of one tap would leave a register tile empty, so all taps of the last axis are rows of tiles too:

    for work item: panel of output channels
        for block of output rows, pieces of their lines:
            pack dy's columns of the panel
            for taps of the other axes:
                copy the lines of x under them, channel by channel, with zeros for their padding
                for MR pairs of a channel and a tap:                    MR × NR accumulators in registers
                    for row, pixel:  broadcast MR of the lines, times NR of dy

The sums are in the order, and of the error, of `weight_gradient_direct`; but an infinity or a NaN of dy meets the zeros
of the padding beside the image.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from ....kernel_ir.builder import F32, Builder, KValue
from ....kernel_ir.loops import KType
from .weight_gradient_direct import Part
from .weight_gradient_sizes import Sizes, input_row, split


class FewChannels:
    """The loops; the parameters of the direct sum, and `lines`."""

    def __init__(self, k: Builder, s: Sizes) -> None:
        self.k, self.s = k, s

    def emit(self) -> None:
        """All work items of the call."""
        k, s = self.k, self.s
        full, rest = divmod(s.outputs, s.width)
        vectors, masked = -(-rest // s.lanes), s.outputs % s.lanes != 0

        def item(panel: KValue, _: list[KValue]) -> None:
            whole, narrow = MergedPart(k, s, panel, s.vectors, False), MergedPart(k, s, panel, vectors, masked)
            if not rest or not full:
                (narrow if rest else whole).emit()
            else:
                k.if_(panel < full, whole.emit, narrow.emit)

        k.for_(k["begin"], k["end"], 1, [], item)


class MergedPart(Part):
    """One work item: all taps of a panel."""

    def __init__(self, k: Builder, s: Sizes, panel: KValue, vectors: int, masked: bool) -> None:
        self.k, self.s, self.vectors, self.masked = k, s, vectors, masked
        self.group, self.m0 = k.index(0), panel * s.width
        pairs = list(itertools.product(range(s.inputs), range(s.geometry.kernel[-1])))
        n = -(-len(pairs) // s.tile_rows)  # tiles, as equal as they can be
        self.parts = [pairs[i * len(pairs) // n : (i + 1) * len(pairs) // n] for i in range(n)]

    def emit(self) -> None:
        """Block after block of dy, for all taps."""
        self.sum()

    def clear(self) -> None:
        """As of a part, for all taps."""
        zero = self.k.const(0.0, KType(F32, self.s.lanes))

        def taps() -> None:
            for c, kw in itertools.chain(*self.parts):
                for j in range(self.vectors):
                    self.store(self.k.index(kw), self.k.index(c), j, zero)

        self.each_outer(taps)

    def each_outer(self, body: Callable[[], None]) -> None:
        """For the taps of all axes but the last."""
        k, s = self.k, self.s

        def one(taps: KValue, _: list[KValue]) -> None:
            self.outer = split(k, taps, s.geometry.kernel[:-1])
            body()

        k.for_(0, math.prod(s.geometry.kernel[:-1]), 1, [], one)

    def block(self, r0: KValue, r1: KValue, w0: KValue, w1: KValue) -> None:
        """Lines [r0, r1), pixels [w0, w1) of each."""
        self.pack(r0, r1, w0, w1)

        def taps() -> None:
            self.k.for_(r0, r1, 1, [], lambda r, _: self.copy_lines(r, r - r0, w0, w1))
            for pairs in self.parts:
                self.pairs(r0, r1, w1 - w0, pairs)

        self.each_outer(taps)

    def copy_lines(self, r: KValue, number: KValue, w0: KValue, w1: KValue) -> None:
        """The lines of x under a line of dy, padded; nothing where they are all padding."""
        k, s, g = self.k, self.s, self.s.geometry
        base, valid = input_row(k, s, r, self.outer)
        first = w0 * g.strides[-1] - k.index(g.pads_begin[-1])
        count = (w1 - w0 - 1) * g.strides[-1] + g.kernel[-1]
        low = k.min(k.max(k.index(0) - first, 0), count)
        high = k.max(low, k.min(k.index(g.input[-1]) - first, count))
        step, zero = k.index(s.x.strides[-1]), k.const(0.0, F32)
        source = k.gep(k["x"], base + first * step)

        def channel(c: KValue, _: list[KValue]) -> None:
            target = k.gep(k["lines"], (number * s.inputs + c) * s.line)
            own = k.gep(source, c * k.index(s.x.strides[1]))
            k.for_(0, low, 1, [], lambda i, _: k.store(target, i, zero))
            whole = low
            if s.x.strides[-1] == 1:
                whole = low + k.udiv(high - low, s.lanes) * s.lanes
                k.for_(low, whole, s.lanes, [], lambda i, _: k.store(target, i, k.load(own, i, s.lanes)))
            k.for_(whole, high, 1, [], lambda i, _: k.store(target, i, k.load(own, i * step)))
            k.for_(high, count, 1, [], lambda i, _: k.store(target, i, zero))

        k.if_(valid, lambda: k.for_(0, s.inputs, 1, [], channel) and None)

    def pairs(self, r0: KValue, r1: KValue, n_pixels: KValue, pairs: list[tuple[int, int]]) -> None:
        """The block's sums of some channels and taps, added to the result."""
        k, s, stride = self.k, self.s, self.s.geometry.strides[-1]
        zero, width = k.const(0.0, KType(F32, s.lanes)), self.vectors * s.lanes

        def row(r: KValue, acc: list[KValue]) -> list[KValue]:
            _, valid = input_row(k, s, r, self.outer)
            lines = k.gep(k["lines"], (r - r0) * (s.inputs * s.line))
            panel = k.gep(k["panel"], (r - r0) * s.block_pixels * width)

            def pixel(w: KValue, acc: list[KValue]) -> list[KValue]:
                columns = [k.load(panel, w * width + j * s.lanes, s.lanes) for j in range(self.vectors)]
                sums = []
                for i, (c, kw) in enumerate(pairs):
                    a = k.splat(k.load(lines, w * stride + (c * s.line + kw)), s.lanes)
                    sums += [k.fma(a, b, acc[i * self.vectors + j]) for j, b in enumerate(columns)]
                return sums

            return k.for_(0, k.select(valid, n_pixels, k.index(0)), 1, acc, pixel, unroll=2)

        sums = k.for_(r0, r1, 1, [zero] * (len(pairs) * self.vectors), row)
        for i, (c, kw) in enumerate(pairs):
            for j in range(self.vectors):
                at = k.index(kw), k.index(c), j
                self.store(*at, self.stored(*at) + sums[i * self.vectors + j])
