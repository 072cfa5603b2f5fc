"""Depthwise convolution over channels-last tensors: every channel has its own small filter.

    for run of P output columns:                                                # the walk
        for vector of channels:
            for input row under the output rows of the work items:
                load each of its pixels under the run once, feed all outputs that it meets in R output rows
                epilogue(the P accumulators of the row that it finishes)

R rows of P accumulators and all taps stay in registers, so that an input row is loaded once and not once per row of the
filter. Where few registers, a large filter or dilated rows forbid that, the rows follow one another:

    for output row (image, oh) in work items:
        for run of P output pixels of the row:
            for vector of channels:
                for kh inside the input:  load each input pixel under the run once, feed all outputs it meets
                epilogue(P accumulators)

Pixels in the padding are skipped, not read: rows by tests outside of the loop over pixels, columns because the first
and the last run of a row are generated for their place. With a symbolic width, runs that reach into the padding or
beyond the row are generated once, for any place: they test each column and each result. One input channel feeds
`multiplier` output channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ....ir.types import BOOL, ceil_div, lower_bound
from ....kernel_ir.builder import F32PTR, Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import Epilogue, Fusion, load, widen
from ...lowering import KernelCall, LowerContext, Operand
from ..matmul.blocking import padded_columns, static
from .layer import ConvAlgorithm, ConvLayer
from .spatial import SpatialAxis, is_unforeseen, lines_of, rows_met
from .weights import ConvShape, NamedOperand, bias_operand

SHORT_ROW = 14  # a row of that many outputs is one run: each input pixel is loaded once
LEAST_WALK, LONGEST_WALK = 4, 8  # outputs of a run of the walk: fewer load most pixels twice, more fill all registers

Axes = tuple[SpatialAxis, SpatialAxis]  # rows, line
Taps = list[list[KValue] | None]  # for rows of accumulators: the filter's row that an input row meets there, if any


class DepthwiseAlgorithm(ConvAlgorithm):
    """One filter a channel: nothing else comes near, so nothing is counted."""

    name = "depthwise"

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        return layer.shape.is_depthwise and layer.shape.taps > 0

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        return lower_depthwise(ctx, layer.fusion, layer.shape)


def lower_depthwise(
    ctx: LowerContext, fusion: Fusion, s: ConvShape, axes: Axes | None = None, loops: type[Depthwise] | None = None,
    bias: NamedOperand | None = None
) -> KernelCall:  # fmt: skip
    """The kernel call; work items are output rows. `axes`, `loops`, `bias`: others than a convolution's."""
    rows, line = axes or lines_of(s)
    w, padded = depthwise_weights(ctx, s)
    operands: list[NamedOperand] = [
        ("x", PtrType(s.x.tensor.dtype), s.x), ("w", F32PTR, w), bias or bias_operand(ctx, s)]  # fmt: skip

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        epilogue, kind = Epilogue(k, fusion), loops or Depthwise
        kind(k, ctx, s, rows, line, padded, epilogue, k["w"], k["bias"]).emit(k["begin"], k["end"])
        return k.func

    func = ctx.function("depthwise", fusion.node, build, s.constant)  # of the same node: the same loops
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), s.y.dims[0] * rows.output)


def depthwise_weights(ctx: LowerContext, s: ConvShape) -> tuple[Operand, int]:
    """The filters as [tap][channel], and the distance of taps."""
    channels = s.groups * s.group_outputs
    if not s.constant:
        return s.w, channels
    padded = padded_columns(channels, ctx.lanes)
    assert s.w.data is not None
    w = np.zeros((s.taps, padded), np.float32)
    w[:, :channels] = s.w.data.astype(np.float32).reshape(channels, s.taps).T
    return ctx.weights.add(w), padded


@dataclass(frozen=True)
class Met:
    """The filter's rows first, first + step, … before last that an output row meets; `row`: where the input's under one
    begins; `ahead`: where those begin that the next output row is the first to meet, if they are to be asked for.
    """

    first: KValue
    last: KValue
    step: int
    row: Callable[[KValue], KValue]
    ahead: Sequence[KValue]


class Depthwise:
    """Emits the loops of one depthwise convolution.

    Args:
        padded: distance of taps in `weights`. epilogue: receives the results. weights, bias: pointers.
    """

    def __init__(
        self,
        k: Builder,
        ctx: LowerContext,
        s: ConvShape,
        rows: SpatialAxis,
        line: SpatialAxis,
        padded: int,
        epilogue: Epilogue,
        weights: KValue,
        bias: KValue,
    ) -> None:
        self.k, self.s, self.rows, self.line, self.padded = k, s, rows, line, padded
        self.epilogue, self.weights, self.bias = epilogue, weights, bias
        self.lanes, self.source = ctx.lanes, k["x"]
        self.channels, self.inputs = s.groups * s.group_outputs, s.groups
        self.n_registers = ctx.target.n_registers
        self.unforeseen = s.group_outputs == 1 and is_unforeseen(s.x.tensor.dtype.nbytes * self.inputs)
        self.n_begun = ceil_div(rows.kernel, rows.stride) - 1

    def emit(self, begin: KValue, end: KValue) -> None:
        """The loop over output rows, of all images."""
        k, longest = self.k, walk_length(self.rows, self.line, self.n_registers)
        if longest:
            k.if_(begin < end, lambda: self.walk(begin, end, longest))
        else:
            k.for_(begin, end, 1, [], lambda item, _: self.row(item))

    def corner_row(self, number: KValue) -> KValue:
        """What `input_row` starts from, for the input row under the first row of the filter (in the padding: < 0)."""
        return number * self.k.index(self.line.input) * self.inputs

    def input_row(self, corner: KValue, kh: KValue) -> KValue:
        """Offset of the input row under the filter's row `kh`."""
        return corner + kh * self.rows.dilation * self.k.index(self.line.input) * self.inputs

    def row(self, item: KValue) -> None:
        """One output row, run by run."""
        number, first, last = rows_met(self.k, self.rows, item)
        x_row, rows, ahead = self.corner_row(number), self.rows, []
        if self.unforeseen:
            under = self.input_row(x_row, self.k.index(rows.kernel - 1))
            ahead = [under + self.corner_row(self.k.index(r)) for r in range(1, rows.stride + 1)]
        self.row_of(item, Met(first, last, 1, lambda kh: self.input_row(x_row, kh), ahead))

    def row_of(self, item: KValue, met: Met) -> None:
        """One output row, from the input rows that it meets."""
        line = self.line
        free = self.n_registers - line.kernel - 2
        usual = 8 if line.stride == 1 else 6
        row = line.output if isinstance(line.output, int) else usual
        longest = max(1, min(row if row <= SHORT_ROW else usual, free))
        y_row = item * self.k.index(line.output)
        self.runs(longest, lambda start, n, place: self.run(start, n, place, y_row, met))

    def runs(self, longest: int, run: Callable[[KValue, int, str], None]) -> None:
        """Cut an output row into runs (start, length, place): edges apart, so that the middle needs no tests."""
        k, line = self.k, self.line

        def middle(n: int, at: KValue, _: list[KValue]) -> None:
            run(at, n, "inside")

        if not line.is_static:
            self.open_runs(longest, run)
            return
        lengths = line.lengths(longest)
        starts = np.cumsum([0, *lengths[:-1]]).tolist()
        i = 0
        while i < len(lengths):
            if line.inside(starts[i], lengths[i]):
                j = i
                while j < len(lengths) and lengths[j] == lengths[i] and line.inside(starts[j], lengths[j]):
                    j += 1
                n = lengths[i]
                k.for_(starts[i], starts[i] + (j - i) * n, n, [], partial(middle, n))
                i = j
            else:
                run(k.index(starts[i]), lengths[i], "fixed")
                i += 1

    def open_runs(self, n: int, run: Callable[[KValue, int, str], None]) -> None:
        """The same for a row of any length: runs of `n`, the last of which may go beyond it, or be of half as many."""
        k, line, half = self.k, self.line, n // 2
        width, over = k.index(line.output), (n - 1) * line.stride + (line.kernel - 1) * line.dilation
        end = k.udiv(width + (n - 1 - half), n) * n

        def one(start: KValue, _: list[KValue]) -> None:
            corner = line.corner(k, start)
            inside = (corner >= 0) & (corner + over < k.index(line.input)) & (start + n <= width)
            k.if_(inside, lambda: run(start, n, "inside"), lambda: run(start, n, "tested"))

        k.for_(0, end, n, [], one)
        if half:
            k.if_(end < width, lambda: run(end, half, "tested"))

    def blocks(self, block: Callable[[KValue, KValue | None], None]) -> None:
        """The loop over vectors of channels; the last may be masked."""
        k, whole = self.k, self.channels // self.lanes * self.lanes
        k.for_(0, whole, self.lanes, [], lambda c, _: block(c, None))
        if whole < self.channels:
            block(k.index(whole), k.tail_mask(k.index(self.channels - whole), self.lanes))

    def run(self, start: KValue, n: int, place: str, y_row: KValue, met: Met) -> None:
        """`n` outputs from `start` on, all channels."""
        k = self.k

        def block(c: KValue, mask: KValue | None) -> None:
            def taps(kh: KValue, acc: list[KValue]) -> list[KValue]:
                return self.feed(start, n, place, met.row(kh), c, mask, [self.filter_row(kh, c, mask)], acc)

            self.ask_for([row + c for row in met.ahead], start, n)
            acc = k.for_(met.first, met.last, met.step, [self.bias_of(c, mask)] * n, taps)
            self.finish(y_row, start, c, mask, acc, place)

        self.blocks(block)

    def ask_for(self, rows: Sequence[KValue], start: KValue, n: int) -> None:
        """Ask for what a run reads of rows, from their pixels' channel on: a row later, the run below reads it.

        Between the pixels of a vector lie all other channels, which the processor does not foresee.
        """
        for row in rows:
            first = row + self.line.corner(self.k, start) * self.inputs
            for column, _ in self.line.uses(n):
                self.k.prefetch(self.source, first + column * self.inputs, level=2)

    def walk(self, begin: KValue, end: KValue, longest: int) -> None:
        """The output rows [begin, end), a run of columns of all of an image's at a time."""
        k, height = self.k, self.k.index(self.rows.output)

        def image(i: KValue, _: list[KValue]) -> None:
            first, last = k.max(begin - i * height, 0), k.min(end - i * height, height)
            self.runs(longest, lambda start, n, place: self.strip(start, n, place, i, first, last))

        k.for_(k.udiv(begin, height), k.udiv(end + (height - 1), height), 1, [], image)

    def strip(self, start: KValue, n: int, place: str, image: KValue, first: KValue, last: KValue) -> None:
        """`n` outputs from `start` on of each output row [first, last) of an image, all channels.

        Step m brings in the `stride` input rows that output row first + m is the first to meet: it begins that row,
        feeds the `n_begun` rows before it and finishes the oldest of them. The first steps have no older rows yet; the
        last ones begin none.
        """
        k, rows, line, begun = self.k, self.rows, self.line, self.n_begun
        pad, size, width = (k.index(d) for d in (rows.pad, rows.input, line.output))
        count, y_row = last - first, (image * k.index(rows.output) + first) * width
        beyond = rows.input - (rows.output * rows.stride - rows.pad)  # rows behind those of the loop's last step
        unpadded = lower_bound(begun * rows.stride - rows.pad, 0) >= 0 and lower_bound(beyond, 0) >= 0

        def block(c: KValue, mask: KValue | None) -> None:
            bias, weights = self.bias_of(c, mask), [self.filter_row(kh, c, mask) for kh in range(rows.kernel)]
            after = self.after(c, n) if mask is None else None

            def meet(m: KValue, behind: list[int], acc: list[KValue], inside: bool) -> list[KValue]:
                """Feed the input rows of step m to the output rows so many steps behind."""
                for r in range(rows.stride):
                    taps: Taps = [weights[kh] if (kh := r + q * rows.stride) < rows.kernel else None for q in behind]
                    number = (first + m) * rows.stride + (r - pad)

                    def feed(number: KValue = number, taps: Taps = taps, acc: list[KValue] = acc) -> list[KValue]:
                        row = self.input_row(self.corner_row(image * size + number), k.index(0))
                        return self.feed(start, n, place, row, c, mask, taps, acc, after)

                    valid = k.const(True, BOOL) if inside else (number >= 0) & (number < size)
                    acc = acc if taps == [None] * len(taps) else k.if_(valid, feed, partial(list, acc))
                return acc

            def finish(m: KValue, acc: list[KValue]) -> list[KValue]:
                """Store the oldest row of step m; the others are left."""
                self.finish(y_row + (m - begun) * width, start, c, mask, acc[:n], place)
                return acc[n:]

            acc: list[KValue] = []
            for m in range(begun):
                acc = meet(k.index(m), [*range(m, -1, -1)], [*acc, *[bias] * n], False)
            every = [*range(begun, -1, -1)]
            acc = k.for_(begun, count, 1, acc, lambda m, a: finish(m, meet(m, every, [*a, *[bias] * n], unpadded)))
            for u in range(begun):
                at = k.max(count, begun) + u

                def end(m: KValue = at, u: int = u, acc: list[KValue] = acc) -> list[KValue]:
                    return finish(m, meet(m, [*range(begun, u, -1)], acc, False))

                acc = k.if_(at < count + begun if u else k.const(True, BOOL), end, partial(list, acc[n:]))

        self.blocks(block)

    def after(self, c: KValue, n: int) -> KValue | None:
        """Distance from a pixel to what is read a strip later: the next channels, the next columns after the last ones.

        Lines come down a strip one pitch apart, which the processor does not foresee. Into the second cache: in the
        first, pixels of 2ⁿ channels would drive each other out.
        """
        if self.s.group_outputs != 1:
            return None
        k, near = self.k, c + self.lanes
        return k.select(near < self.channels, near, k.index(n * self.line.stride * self.inputs))

    def bias_of(self, c: KValue, mask: KValue | None) -> KValue:
        """What accumulators of the channels from `c` on start from."""
        return self.k.load(self.bias, c if self.s.b is not None else 0, self.lanes, mask)

    def filter_row(self, kh: KValue | int, c: KValue, mask: KValue | None) -> list[KValue]:
        """The taps of the filter's row `kh` for the channels from `c` on; constant ones are padded to whole vectors."""
        k, n, lanes, constant = self.k, self.line.kernel, self.lanes, self.s.constant
        own, align = (None, 4 * lanes) if constant else (mask, None)
        return [k.load(self.weights, (kh * n + j) * self.padded + c, lanes, own, align=align) for j in range(n)]

    def feed(
        self,
        start: KValue,
        n: int,
        place: str,
        row: KValue,
        c: KValue,
        mask: KValue | None,
        taps: Taps,
        acc: list[KValue],
        after: KValue | None = None,
    ) -> list[KValue]:
        """The input row at offset `row`, each pixel loaded once, to `n` accumulators for each entry of `taps`: the
        filter's row that meets the input row there, None where none does. `after`: what lies so far behind each pixel
        is asked for.
        """
        k, line = self.k, self.line
        acc, corner = list(acc), line.corner(k, start)
        first = row + corner * self.inputs
        for column, pairs in line.uses(n):
            if place == "fixed" and not 0 <= int(corner.const or 0) + column < static(line.input):
                continue
            if after is not None:
                k.prefetch(self.source, first + column * self.inputs + after, level=2)
            met = [(i * n + p, weights[j]) for i, weights in enumerate(taps) if weights for p, j in pairs]

            def add(column: int = column, met: list[tuple[int, KValue]] = met) -> list[KValue]:
                value = self.pixel(first, column, c, mask)
                return [k.fma(value, weight, acc[i]) for i, weight in met]

            def skip(met: list[tuple[int, KValue]] = met) -> list[KValue]:
                return [acc[i] for i, _ in met]

            at = corner + column
            valid = (at >= 0) & (at < k.index(line.input)) if place == "tested" else k.const(True, BOOL)
            for (i, _), value in zip(met, k.if_(valid, add, skip)):
                acc[i] = value
        return acc

    def finish(
        self, row: KValue, start: KValue, c: KValue, mask: KValue | None, acc: list[KValue], place: str
    ) -> None:
        """Hand a run's results, pixels from `start` of the row at `row` and channels from `c` on, to the epilogue."""
        k = self.k
        for p, value in enumerate(acc):
            def apply(p: int = p, value: KValue = value) -> None:
                self.epilogue.apply(row + start + p, c, value, mask)

            if place == "tested":
                k.if_(start + p < k.index(self.line.output), apply)
            else:
                apply()

    def pixel(self, first: KValue, column: int, c: KValue, mask: KValue | None) -> KValue:
        """The input channels that output channels c … c + lanes read, `column` pixels behind the one at `first`."""
        k, lanes, multiplier = self.k, self.lanes, self.s.group_outputs
        if multiplier == 1:
            return load(k, self.source, first + c + column * self.inputs, lanes, mask)
        index = k.binary("udiv", k.splat(c, lanes) + k.ramp(lanes), k.splat(k.index(multiplier), lanes))
        return widen(k, k.gather(self.source, k.splat(first + column * self.inputs, lanes) + index, mask))


def walk_length(rows: SpatialAxis, line: SpatialAxis, n_registers: int) -> int:
    """The most outputs of a run of the walk, 0 where the rows follow one another."""
    if rows.kernel == 1 or rows.dilation > 1:
        return 0
    longest = (n_registers - 1 - rows.kernel * line.kernel) // ceil_div(rows.kernel, rows.stride)
    return 0 if longest < LEAST_WALK else min(longest, LONGEST_WALK)
