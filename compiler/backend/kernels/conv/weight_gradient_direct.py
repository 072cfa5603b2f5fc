"""The gradient of a convolution's weights: xᵀ·dy over the pixels, for each tap.

    for work item: group, taps along the last axis, chunk of input channels, panel of output channels
        for block of output rows, pieces of their lines:
            pack dy's columns of the panel                          [pixel][column], in the core's scratch
            for tap, MR input channels:                             MR × NR accumulators in registers
                for row, pixel that meets the input under the tap:  broadcast MR of x, times NR of dy

A broadcast of x reads elements side by side, as channels lie innermost; taps only change where x is read. Rows and
pixels in the padding are left out. A work item owns its part of the result, and sums in one order: blocks one after
the other, each from 0. So no bit depends on the number of cores, and with b pixels a block of P in all the error of an
element is at most (b + P / b) · ε · Σ |x · dy|, NaN and Inf apart, which come where they would in any order.
"""

from __future__ import annotations

from collections.abc import Callable

from ....ir.types import Dim
from ....kernel_ir.builder import F32, Builder, KValue
from ....kernel_ir.loops import KType
from .weight_gradient_sizes import Sizes, input_row, output_row, place, split

Tile = Callable[[KValue, KValue, int], None]  # of a tap of the last axis, from a channel on, so many channels


class WeightGradient:
    """The loops. See the file."""

    def __init__(self, k: Builder, s: Sizes) -> None:
        self.k, self.s = k, s
        self.full = s.outputs // s.width  # panels of all vectors; the last one may be narrower

    def emit(self) -> None:
        """All work items of the call."""
        k, s = self.k, self.s

        def item(number: KValue, _: list[KValue]) -> None:
            rest, panel = k.udiv(number, s.n_panels), k.urem(number, s.n_panels)
            rest, chunk = k.udiv(rest, s.n_chunks), k.urem(rest, s.n_chunks)
            group, taps = k.udiv(rest, s.tap_rows), k.urem(rest, s.tap_rows)
            vectors = -(-(s.outputs - self.full * s.width) // s.lanes)
            if not vectors:
                Part(self, group, taps, chunk, panel, s.vectors, masked=False).emit()
                return
            masked = s.outputs % s.lanes != 0
            narrow = Part(self, group, taps, chunk, panel, vectors, masked)
            if not self.full:
                narrow.emit()
                return
            k.if_(panel < self.full, Part(self, group, taps, chunk, panel, s.vectors, masked=False).emit, narrow.emit)

        k.for_(k["begin"], k["end"], 1, [], item)


class Part:
    """One work item, for panels of so many vectors; `masked`: the last of them is not full."""

    def __init__(
        self, of: WeightGradient, group: KValue, taps: KValue, chunk: KValue, panel: KValue, vectors: int, masked: bool
    ) -> None:
        self.k, self.s, self.vectors = of.k, of.s, vectors
        self.taps, self.group = taps, group
        self.c0, self.m0 = chunk * of.s.chunk, panel * of.s.width
        self.masked = masked

    def emit(self) -> None:
        """Block after block of dy."""
        self.outer = split(self.k, self.taps, self.s.geometry.kernel[:-1])
        self.sum()

    def sum(self) -> None:
        """All blocks, added to a result of 0."""
        k, s = self.k, self.s
        rest = s.outputs % s.lanes
        self.mask = k.tail_mask(k.index(rest), s.lanes) if self.masked else None
        n_rows, line = k.index(s.rows), k.index(s.geometry.output[-1])

        def rows(r0: KValue, _: list[KValue]) -> None:
            r1 = k.min(r0 + s.block_rows, n_rows)
            k.for_(0, line, s.block_pixels, [], lambda w0, _: self.block(r0, r1, w0, k.min(w0 + s.block_pixels, line)))

        self.clear()
        k.for_(0, n_rows, s.block_rows, [], rows)
        if s.sums_apart:
            self.write()

    def clear(self) -> None:
        """The item's part of the result becomes 0, which blocks are added to."""
        zero = self.k.const(0.0, KType(F32, self.s.lanes))

        def tile(kw: KValue, c: KValue, height: int) -> None:
            for i in range(height):
                for j in range(self.vectors):
                    self.store(kw, c + i, j, zero)

        self.tiles(tile)

    def tiles(self, tile: Tile) -> None:
        """Calls tile(tap of the last axis, first channel, channels) for all of the item's."""
        k, s = self.k, self.s
        rest = s.inputs % s.tile_rows
        end = k.min(self.c0 + s.chunk, s.inputs - rest)

        def tap(kw: KValue, _: list[KValue]) -> None:
            k.for_(self.c0, end, s.tile_rows, [], lambda c, _: tile(kw, c, s.tile_rows))
            if rest:
                is_last = self.c0 + s.chunk >= s.inputs
                k.if_(is_last, lambda: tile(kw, k.index(s.inputs - rest), rest))

        k.for_(0, s.geometry.kernel[-1], 1, [], tap)

    def block(self, r0: KValue, r1: KValue, w0: KValue, w1: KValue) -> None:
        """Lines [r0, r1), pixels [w0, w1) of each."""
        self.pack(r0, r1, w0, w1)
        self.tiles(lambda kw, c, height: self.tile(r0, r1, w0, w1, kw, c, height))

    def pack(self, r0: KValue, r1: KValue, w0: KValue, w1: KValue) -> None:
        """dy's columns of the panel, pixel after pixel."""
        k, s = self.k, self.s
        strides = s.dy.strides
        column = self.group * s.outputs + self.m0

        def row(r: KValue, _: list[KValue]) -> None:
            base = output_row(k, s, r) + column * k.index(strides[1])

            def pixel(w: KValue, _: list[KValue]) -> None:
                source = k.gep(k["dy"], base + w * k.index(strides[-1]))
                place = ((r - r0) * s.block_pixels + (w - w0)) * (self.vectors * s.lanes)
                for j in range(self.vectors):
                    k.store(k["panel"], place + j * s.lanes, self.columns(source, j, strides[1]))

            k.for_(w0, w1, 1, [], pixel)

        k.for_(r0, r1, 1, [], row)

    def columns(self, source: KValue, j: int, step: Dim) -> KValue:
        """Vector j of a pixel's columns."""
        k, lanes = self.k, self.s.lanes
        mask = self.mask if j == self.vectors - 1 else None
        if step == 1:
            return k.load(source, j * lanes, lanes, mask)
        return k.gather(source, (k.ramp(lanes) + j * lanes) * k.splat(k.index(step), lanes), mask)

    def tile(self, r0: KValue, r1: KValue, w0: KValue, w1: KValue, kw: KValue, c: KValue, height: int) -> None:
        """`height` input channels from c on, one tap: its block's sum, added to the result."""
        k, s, g = self.k, self.s, self.s.geometry
        low, high = self.met(w0, w1, kw)
        step = k.index(s.x.strides[-1]) * g.strides[-1]
        zero = k.const(0.0, KType(F32, s.lanes))
        apart, width = k.index(s.x.strides[1]), self.vectors * s.lanes

        def row(r: KValue, acc: list[KValue]) -> list[KValue]:
            source, valid = self.line_of(r, kw, c)
            panel = k.gep(k["panel"], ((r - r0) * s.block_pixels - w0) * width)

            def pixel(w: KValue, acc: list[KValue]) -> list[KValue]:
                columns = [k.load(panel, w * width + j * s.lanes, s.lanes) for j in range(self.vectors)]
                sums = []
                for i in range(height):
                    a = k.splat(k.load(source, w * step + apart * i), s.lanes)
                    sums += [k.fma(a, b, acc[i * self.vectors + j]) for j, b in enumerate(columns)]
                return sums

            return k.for_(low, k.select(valid, high, low), 1, acc, pixel)

        sums = k.for_(r0, r1, 1, [zero] * (height * self.vectors), row)
        for i in range(height):
            for j in range(self.vectors):
                self.store(kw, c + i, j, self.stored(kw, c + i, j) + sums[i * self.vectors + j])

    def met(self, w0: KValue, w1: KValue, kw: KValue) -> tuple[KValue, KValue]:
        """The pixels of [w0, w1) that meet the input under a tap: of pixel w it is stride · w + shift."""
        k, g, shift = self.k, self.s.geometry, self.shift(kw)
        stride = g.strides[-1]
        low = k.max(w0, k.udiv(k.max(k.index(0) - shift + (stride - 1), 0), stride))
        return low, k.min(w1, k.udiv(k.max(k.index(g.input[-1]) - shift + (stride - 1), 0), stride))

    def shift(self, kw: KValue) -> KValue:
        """How far right of its pixel a tap reads."""
        g = self.s.geometry
        return kw * g.dilations[-1] - self.k.index(g.pads_begin[-1])

    def line_of(self, r: KValue, kw: KValue, c: KValue) -> tuple[KValue, KValue]:
        """Where x begins under pixel 0 of a line of dy, for a tap and from channel c on, and whether it is there."""
        k, s, strides = self.k, self.s, self.s.x.strides
        base, valid = input_row(k, s, r, self.outer)
        channel = (self.group * s.inputs + c) * k.index(strides[1])
        return k.gep(k["x"], base + channel + self.shift(kw) * k.index(strides[-1])), valid

    def at(self, kw: KValue, c: KValue, j: int) -> KValue:
        """Where vector j of the result's columns for an input channel and a tap begins."""
        m = self.group * self.s.outputs + self.m0 + j * self.s.lanes
        return place(self.k, self.s, [*self.outer, kw], m, c)

    def summed(self, kw: KValue, c: KValue, j: int) -> tuple[KValue, KValue]:
        """Where in the scratch vector j of the sums for an input channel and a tap is."""
        s = self.s
        return self.k["sums"], (kw * s.chunk + (c - self.c0)) * s.width + j * s.lanes

    def stored(self, kw: KValue, c: KValue, j: int) -> KValue:
        if self.s.sums_apart:
            return self.k.load(*self.summed(kw, c, j), self.s.lanes)
        k, s, at = self.k, self.s, self.at(kw, c, j)
        mask = self.mask if j == self.vectors - 1 else None
        if s.dw.strides[0] == 1:
            return k.load(k["dw"], at, s.lanes, mask)
        return k.gather(k.gep(k["dw"], at), self.apart(), mask)

    def store(self, kw: KValue, c: KValue, j: int, value: KValue) -> None:
        if self.s.sums_apart:
            self.k.store(*self.summed(kw, c, j), value)
            return
        k, s, at = self.k, self.s, self.at(kw, c, j)
        mask = self.mask if j == self.vectors - 1 else None
        if s.dw.strides[0] == 1:
            k.store(k["dw"], at, value, mask)
        else:
            k.scatter(k.gep(k["dw"], at), self.apart(), value, mask)

    def write(self) -> None:
        """The item's sums into the result, along the input channels: an output channel's may lie pages apart."""
        k, s = self.k, self.s
        step, ramp = s.dw.strides[1], k.ramp(s.lanes)
        there = k.min(k.index(s.inputs) - self.c0, s.chunk)

        def vector(c: KValue, source: KValue, target: KValue, mask: KValue | None) -> None:
            value = k.gather(k.gep(source, c * s.width), ramp * k.splat(k.index(s.width), s.lanes), mask)
            if step == 1:
                k.store(target, c, value, mask)
            else:
                k.scatter(k.gep(target, c * k.index(step)), ramp * k.splat(k.index(step), s.lanes), value, mask)

        def column(m: KValue, kw: KValue) -> None:
            source = k.gep(k["sums"], kw * (s.chunk * s.width) + m)
            at = place(k, s, [*self.outer, kw], self.group * s.outputs + self.m0 + m, self.c0)
            target, whole = k.gep(k["dw"], at), k.udiv(there, s.lanes) * s.lanes
            k.for_(0, whole, s.lanes, [], lambda c, _: vector(c, source, target, None))
            mask = k.tail_mask(there - whole, s.lanes)
            k.if_(whole < there, lambda: vector(whole, source, target, mask))

        columns = k.min(k.index(s.outputs) - self.m0, self.vectors * s.lanes)
        k.for_(0, s.geometry.kernel[-1], 1, [],
               lambda kw, _: k.for_(0, columns, 1, [], lambda m, _: column(m, kw)))  # fmt: skip

    def apart(self) -> KValue:
        """Distances of a vector's columns in the result."""
        k, s = self.k, self.s
        return k.ramp(s.lanes) * k.splat(k.index(s.dw.strides[0]), s.lanes)
