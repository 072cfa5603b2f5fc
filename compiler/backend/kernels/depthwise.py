"""Depthwise convolution over channels-last tensors: every channel has its own small filter.

    for output row (image, oh) in work items:
        for run of P output pixels of the row:
            for vector of channels:
                for kh inside the input:  load each input pixel under the run once, feed all outputs it meets
                epilogue(P accumulators)

Pixels in the padding are skipped, not read: rows by the bounds of the kh loop, columns because the first and the last
run of a row are generated for their place. With a symbolic width each column is tested. One input channel feeds
`multiplier` output channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ...ir.kernel_builder import F32PTR, Builder, KValue
from ...ir.loops import KFunc, PtrType
from ...ir.types import Dim, SymDim
from ..fusion import Epilogue, Fusion, load, widen
from ..lowering import KernelCall, LowerContext, Weight
from .blocking import padded_columns, static
from .conv_weights import ConvShape, NamedOperand, bias_operand
from .tail import round_like

SHORT_ROW = 14  # a row of that many outputs is one run: each input pixel is loaded once


def is_depthwise(s: ConvShape) -> bool:
    """Whether this file's kernel takes the layer."""
    return s.tiled and s.group_inputs == 1 and s.groups > 1 and s.channels_last_input and s.rank <= 2 and s.constant


@dataclass(frozen=True)
class Line:
    """One spatial axis, the one runs lie along (or the rows)."""

    kernel: int
    stride: int
    dilation: int
    pad: Dim
    input: Dim
    output: Dim


def lower_depthwise(ctx: LowerContext, fusion: Fusion, s: ConvShape) -> KernelCall:
    """The kernel call; work items are output rows."""
    rows, line = lines_of(s)
    w, padded = depthwise_weights(ctx, s)
    operands: list[NamedOperand] = [("x", PtrType(s.x.tensor.dtype), s.x), ("w", F32PTR, w), bias_operand(ctx, s)]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        Depthwise(k, ctx, s, rows, line, padded, Epilogue(k, fusion), k["w"], k["bias"]).emit(k["begin"], k["end"])
        return k.func

    func = ctx.function("depthwise", fusion.node, build)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), s.y.dims[0] * rows.output)


def lines_of(s: ConvShape) -> tuple[Line, Line]:
    """The rows, and the line that runs lie along."""
    g = s.geometry
    lines = [Line(*each) for each in zip(g.kernel, g.strides, g.dilations, g.pads_begin, g.input, g.output)]
    return lines[0] if s.rank == 2 else Line(1, 1, 1, 0, 1, 1), lines[-1]


def depthwise_weights(ctx: LowerContext, s: ConvShape) -> tuple[Weight, int]:
    """The filters as [tap][channel], and the distance of taps."""
    channels = s.groups * s.group_outputs
    padded = padded_columns(channels, ctx.lanes)
    assert s.w.data is not None
    w = np.zeros((s.taps, padded), np.float32)
    w[:, :channels] = s.w.data.astype(np.float32).reshape(channels, s.taps).T
    return ctx.weights.add(w), padded


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
        rows: Line,
        line: Line,
        padded: int,
        epilogue: Epilogue,
        weights: KValue,
        bias: KValue,
    ) -> None:
        self.k, self.s, self.rows, self.line, self.padded = k, s, rows, line, padded
        self.epilogue, self.weights, self.bias = epilogue, weights, bias
        self.lanes, self.source = ctx.lanes, k["x"]
        self.channels, self.inputs = s.groups * s.group_outputs, s.groups
        free = ctx.target.n_registers - line.kernel - 2
        row = line.output if isinstance(line.output, int) else 4
        usual = 8 if line.stride == 1 else 6
        self.longest = max(1, min(row if row <= SHORT_ROW else usual, free))

    def emit(self, begin: KValue, end: KValue) -> None:
        """The loop over output rows, of all images."""
        k, rows = self.k, self.rows

        def row(item: KValue, _: list[KValue]) -> None:
            number, first, last = rows_met(k, rows, item)
            self.runs(item * k.index(self.line.output), self.corner_row(number), first, last)

        k.for_(begin, end, 1, [], row)

    def corner_row(self, number: KValue) -> KValue:
        """What `input_row` starts from, for the input row under the first row of the filter (in the padding: < 0)."""
        return number * self.k.index(self.line.input) * self.inputs

    def input_row(self, corner: KValue, kh: KValue) -> KValue:
        """Offset of the input row under the filter's row `kh`."""
        return corner + kh * self.rows.dilation * self.k.index(self.line.input) * self.inputs

    def runs(self, y_row: KValue, x_row: KValue, first: KValue, last: KValue) -> None:
        """Cut an output row into runs: edges apart, so that the middle needs no tests."""
        k, line = self.k, self.line

        def run(start: KValue | int, n: int, place: str) -> None:
            self.run(k.index(start), n, place, y_row, x_row, first, last)

        def middle(n: int, at: KValue, _: list[KValue]) -> None:
            run(at, n, "inside")

        if isinstance(line.output, SymDim) or isinstance(line.input, SymDim) or isinstance(line.pad, SymDim):
            whole = k.udiv(k.index(line.output), 4) * 4
            k.for_(0, whole, 4, [], lambda i, _: run(i, 4, "tested"))
            k.for_(whole, k.index(line.output), 1, [], lambda i, _: run(i, 1, "tested"))
            return
        lengths = run_lengths(line.output, self.longest)
        starts = np.cumsum([0, *lengths[:-1]]).tolist()
        i = 0
        while i < len(lengths):
            if self.inside(starts[i], lengths[i]):
                j = i
                while j < len(lengths) and lengths[j] == lengths[i] and self.inside(starts[j], lengths[j]):
                    j += 1
                n = lengths[i]
                k.for_(starts[i], starts[i] + (j - i) * n, n, [], partial(middle, n))
                i = j
            else:
                run(starts[i], lengths[i], "fixed")
                i += 1

    def inside(self, start: int, n: int) -> bool:
        """Whether no pixel under the outputs [start, start + n) is in the padding."""
        line = self.line
        assert isinstance(line.pad, int) and isinstance(line.input, int)
        low = start * line.stride - line.pad
        high = (start + n - 1) * line.stride - line.pad + (line.kernel - 1) * line.dilation
        return low >= 0 and high < line.input

    def run(self, start: KValue, n: int, place: str, y_row: KValue, x_row: KValue, first: KValue, last: KValue) -> None:
        """`n` outputs from `start` on, all channels."""
        k, lanes = self.k, self.lanes
        whole = self.channels // lanes * lanes

        def block(c: KValue, mask: KValue | None) -> None:
            bias = k.load(self.bias, c if self.s.b is not None else 0, lanes, mask)
            acc = k.for_(first, last, 1, [bias] * n, lambda kh, a: self.taps(start, n, place, x_row, kh, c, mask, a))
            for p, value in enumerate(acc):
                self.epilogue.apply(y_row + start + p, c, round_like(k, value, self.epilogue.type.dtype), mask)

        k.for_(0, whole, lanes, [], lambda c, _: block(c, None))
        if whole < self.channels:
            block(k.index(whole), k.tail_mask(k.index(self.channels - whole), lanes))

    def taps(
        self,
        start: KValue,
        n: int,
        place: str,
        x_row: KValue,
        kh: KValue,
        c: KValue,
        mask: KValue | None,
        acc: list[KValue],
    ) -> list[KValue]:
        """One kernel row: its weights in registers, each input pixel loaded once."""
        k, line = self.k, self.line
        acc = list(acc)
        weights = [
            k.load(self.weights, (kh * line.kernel + j) * self.padded + c, self.lanes, align=4 * self.lanes)
            for j in range(line.kernel)
        ]
        corner = start * line.stride - k.index(line.pad)
        row = self.input_row(x_row, kh)
        uses: dict[int, list[tuple[int, int]]] = {}
        for p in range(n):
            for j in range(line.kernel):
                uses.setdefault(p * line.stride + j * line.dilation, []).append((p, j))
        for column, pairs in sorted(uses.items()):
            if place == "fixed" and not 0 <= int(corner.const or 0) + column < static(line.input):
                continue
            at = corner + column

            def feed(at: KValue = at, pairs: list[tuple[int, int]] = pairs) -> list[KValue]:
                value = self.pixel(row + at * self.inputs, c, mask)
                return [k.fma(value, weights[j], acc[p]) for p, j in pairs]

            def skip(pairs: list[tuple[int, int]] = pairs) -> list[KValue]:
                return [acc[p] for p, _ in pairs]

            valid = (at >= 0) & (at < k.index(line.input)) if place == "tested" else k.index(0) == 0
            for (p, _), value in zip(pairs, k.if_(valid, feed, skip)):
                acc[p] = value
        return acc

    def pixel(self, at: KValue, c: KValue, mask: KValue | None) -> KValue:
        """The input channels that output channels c … c + lanes read."""
        k, lanes, multiplier = self.k, self.lanes, self.s.group_outputs
        if multiplier == 1:
            return load(k, self.source, at + c, lanes, mask)
        index = k.binary("udiv", k.splat(c, lanes) + k.ramp(lanes), k.splat(k.index(multiplier), lanes))
        return widen(k, k.gather(self.source, k.splat(at, lanes) + index, mask))


def rows_met(k: Builder, rows: Line, item: KValue) -> tuple[KValue, KValue, KValue]:
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
