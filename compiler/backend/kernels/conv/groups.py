"""Convolution with few channels per group (ResNeXt): registers hold the output channels of several groups.

    for output row (image, oh) in work items:
        for run of P output pixels of the row:
            for vector of output channels:
                for steps of input channel, as many as have their filters in registers:      # inside the loop over kh
                    for kh inside the input:  for each input pixel under the run:            # where nothing is shuffled
                        load its channels once, arrange them for each step, feed all outputs the pixel meets
                epilogue(P accumulators)

Every lane of a multiply-add works: the zeros of groups merged into one product are not multiplied. At step r the lane
of output channel o reads channel r of its own group, or, where groups have as many inputs as outputs, channel
(o mod inputs) xor r: step 0 is then the vector as it was loaded, and the first steps stay within quarters of it, which
is the cheapest shuffle. A group that fills registers needs none: one channel is splat, as is the only one of an image
without colours, whose filters stay in registers too. With strides a pixel feeds too few outputs to hide so many
shuffles or splats: of groups of 8 the steps r and r xor 4 then share one shuffle, the latter's products going to sums
of their own, whose halves are exchanged at the end. Columns in the padding are skipped as in `depthwise`. It must not
know of other kernels' blocking.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ....ir.types import ceil_div
from ....kernel_ir.builder import F32, F32PTR, Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ....targets.target import Target
from ...fusion import Epilogue, Fusion, load
from ...lowering import KernelCall, LowerContext
from ...microkernels.registers import left_beside
from ..matmul.tile import LINE
from .layer import ConvAlgorithm, ConvLayer
from .spatial import SpatialAxis, lines_of, rows_met, run_lengths
from .weights import ConvShape, NamedOperand, bias_operand

LONGEST_RUN = 14  # output pixels; chosen, not measured
MOST_FILTERS = 12  # registers of filters, where a run leaves as many; chosen, not measured
MOST_STEPS = 16  # input channels of a group: the steps are written out
SPLAT_RUN = 8  # of splats: a pixel is read for each, and of more pixels those of 2ⁿ channels meet in few sets of L1
QUARTER = 4  # lanes that the cheapest shuffle does not leave


class GroupsAlgorithm(ConvAlgorithm):
    """Lanes of several groups: wherever it serves a layer, since its cycles are not counted."""

    name = "groups"

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        return layer.is_multiplied and arrangement(layer.shape, ctx.target) is not None

    def cost(self, ctx: LowerContext, layer: ConvLayer) -> float:
        return 0.0

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        own = arrangement(layer.shape, ctx.target)
        assert own is not None
        return lower_groups(ctx, layer.fusion, layer.shape, own)


@dataclass(frozen=True)
class Arrangement:
    """Which input channel each lane reads.

    Attributes:
        lanes: of a register. inputs, outputs: channels of one group. steps: input channels whose filters are held at
            a time. longest: output pixels of a run. folds: sums of an output: step r goes to the (r mod folds)th.
    """

    lanes: int
    inputs: int
    outputs: int
    steps: int
    longest: int
    folds: int = 1

    @property
    def span(self) -> int:
        """Consecutive input channels that one register of output channels reads."""
        return self.lanes // self.outputs * self.inputs

    @property
    def alone(self) -> bool:
        """Whether one group fills the register, or several."""
        return self.outputs % self.lanes == 0

    @property
    def splats(self) -> bool:
        """Whether all lanes read one channel."""
        return self.alone and self.folds == 1

    def channels(self, step: int) -> list[int]:
        """For each lane, the channel within its group that it reads at a step."""
        if self.inputs == self.outputs and not self.splats:
            return [lane % self.outputs ^ step // self.folds for lane in range(self.lanes)]
        return [step] * self.lanes

    def sources(self, step: int) -> list[int]:
        """For each lane of the sums of a step, the lane of the output that it holds."""
        return [lane ^ step % self.folds * QUARTER for lane in range(self.lanes)]


def arrangement(s: ConvShape, target: Target) -> Arrangement | None:
    """How a layer's groups lie in registers, None if this kernel does not serve it."""
    lanes = target.f32_lanes
    single = s.groups == s.group_inputs == 1 and s.x.tensor.within is None  # in any layout
    if not (s.tiled and s.constant and s.rank <= 2 and (single or s.channels_last_input)):
        return None
    _, line = lines_of(s)
    fits = s.groups > 1 and lanes % s.group_outputs == 0 and 1 < s.group_inputs <= MOST_STEPS
    if not (fits or (single and s.group_outputs % lanes == 0)) or not 1 < line.kernel <= MOST_FILTERS:
        return None
    if not all(isinstance(n, int) for n in (line.pad, line.input, line.output)):
        return None
    span = lanes // s.group_outputs * s.group_inputs
    if s.group_outputs < lanes and (span > 2 * lanes or span & (span - 1)):
        return None
    room = max(1, min(MOST_FILTERS, left_beside(target, LONGEST_RUN)))
    steps = next(n for n in range(max(1, min(s.group_inputs, room // line.kernel)), 0, -1) if s.group_inputs % n == 0)
    folds = 2 if s.group_inputs == s.group_outputs == 2 * QUARTER <= lanes and line.stride > 1 else 1
    steps = max(steps, folds)
    free = (left_beside(target, line.kernel * steps) - 1) // folds  # one for the pixel as it was loaded
    splat_often = s.group_outputs % lanes == 0 and folds == 1 < s.group_inputs
    longest = max(1, min(SPLAT_RUN if splat_often and lanes == LINE else LONGEST_RUN, free))
    return Arrangement(lanes, s.group_inputs, s.group_outputs, steps, longest, folds)


def grouped_weights(s: ConvShape, a: Arrangement) -> np.ndarray:
    """The filters as [vector of output channels][steps held together][kh][kw][step][lane]."""
    assert s.w.data is not None
    channels = s.groups * a.outputs
    vectors = ceil_div(channels, a.lanes)
    taps = s.geometry.kernel if s.rank == 2 else (1, *s.geometry.kernel)
    w = np.zeros((vectors * a.lanes, a.inputs, *taps), np.float32)
    w[:channels] = s.w.data.astype(np.float32).reshape(channels, a.inputs, *taps)
    w = w.reshape(vectors, a.lanes, a.inputs, *taps)
    by_step = [w[:, a.sources(step), a.channels(step)] for step in range(a.inputs)]
    ordered = np.stack(by_step, axis=1)  # vector, step, lane, taps
    ordered = ordered.reshape(vectors, a.inputs // a.steps, a.steps, a.lanes, *taps)
    return np.ascontiguousarray(ordered.transpose(0, 1, 4, 5, 2, 3))


def lower_groups(ctx: LowerContext, fusion: Fusion, s: ConvShape, a: Arrangement) -> KernelCall:
    """The kernel call; work items are output rows."""
    rows, line = lines_of(s)
    weights = ctx.weights.add(grouped_weights(s, a))
    operands: list[NamedOperand] = [("x", PtrType(s.x.tensor.dtype), s.x), ("w", F32PTR, weights), bias_operand(ctx, s)]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        GroupRuns(k, s, a, rows, line, Epilogue(k, fusion), ctx.target.has_fma).emit()
        return k.func

    func = ctx.function("conv_groups", fusion.node, build)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), s.y.dims[0] * rows.output)


class GroupRuns:
    """Emits the loops of one grouped convolution; its weights and bias are the kernel's `w` and `bias`."""

    def __init__(
        self,
        k: Builder,
        s: ConvShape,
        a: Arrangement,
        rows: SpatialAxis,
        line: SpatialAxis,
        epilogue: Epilogue,
        has_fma: bool,
    ) -> None:
        self.k, self.s, self.a, self.rows, self.line = k, s, a, rows, line
        self.epilogue, self.has_fma = epilogue, has_fma
        self.channels, self.inputs = s.groups * a.outputs, s.groups * a.inputs
        assert isinstance(line.output, int) and isinstance(line.input, int) and isinstance(line.pad, int)
        self.output, self.width, self.pad = line.output, line.input, line.pad

    def emit(self) -> None:
        """The loop over output rows, of all images."""
        k, rows = self.k, self.rows

        def row(item: KValue, _: list[KValue]) -> None:
            number, first, last = rows_met(k, rows, item)
            self.runs(item * self.output, number * (self.width * self.inputs), first, last)

        k.for_(k["begin"], k["end"], 1, [], row)

    def runs(self, y_row: KValue, x_row: KValue, first: KValue, last: KValue) -> None:
        """Cut an output row into runs: edges apart, so that the middle needs no tests."""
        k, lanes = self.k, self.a.lanes
        whole = self.channels // lanes * lanes

        def run(n: int, start: KValue, _: list[KValue]) -> None:
            def vector(c: KValue, mask: KValue | None) -> None:
                self.run(start, n, y_row, x_row, first, last, c, mask)

            k.for_(0, whole, lanes, [], lambda c, _: vector(c, None))
            if whole < self.channels:
                vector(k.index(whole), k.tail_mask(k.index(self.channels - whole), lanes))

        lengths = even_lengths(self.output, self.a.longest)
        starts = np.cumsum([0, *lengths[:-1]]).tolist()
        i = 0
        while i < len(lengths):
            j = i + 1
            while (
                j < len(lengths)
                and lengths[j] == lengths[i]
                and self.inside(starts[i], lengths[i])
                and self.inside(starts[j], lengths[j])
            ):
                j += 1
            k.for_(starts[i], starts[i] + (j - i) * lengths[i], lengths[i], [], partial(run, lengths[i]))
            i = j

    def inside(self, start: int, n: int) -> bool:
        """Whether no pixel under the outputs [start, start + n) is in the padding."""
        line = self.line
        low = start * line.stride - self.pad
        return low >= 0 and low + (n - 1) * line.stride + (line.kernel - 1) * line.dilation < self.width

    def run(
        self,
        start: KValue,
        n: int,
        y_row: KValue,
        x_row: KValue,
        first: KValue,
        last: KValue,
        c: KValue,
        mask: KValue | None,
    ) -> None:
        """`n` outputs from `start` on, of one vector of channels."""
        k, a = self.k, self.a
        bias = k.load(k["bias"], c if self.s.b is not None else 0, a.lanes, mask)
        acc = [bias] * n + [k.splat(k.const(0.0, F32), a.lanes)] * (n * (a.folds - 1))
        source = k.udiv(c * a.inputs, a.outputs)
        reads = k.tail_mask(self.inputs - source, a.span) if mask is not None and not a.alone else None
        corner = start * self.line.stride - self.pad
        x_run = x_row + corner * self.inputs + source
        columns = self.columns(n, int(start.const) if start.const is not None else None)
        self.prefetch(start, n, y_row, x_run, c)
        taps_of_row = self.line.kernel
        steps = range(0, a.inputs, a.steps)
        for together in [steps] if a.splats else [range(step, step + 1) for step in steps]:

            def taps(kh: KValue, acc: list[KValue], together: range = together) -> list[KValue]:
                x_at = x_run + kh * (self.rows.dilation * self.width * self.inputs)
                for step in together:
                    w_at = c * (a.inputs * taps_of_row * self.rows.kernel)
                    w_at = w_at + (kh * a.steps + step * self.rows.kernel) * (taps_of_row * a.lanes)
                    acc = self.row_of_taps(step, w_at, x_at, columns, reads, acc)
                return acc

            acc = k.for_(first, last, 1, acc, taps)
        for p, value in enumerate(self.unfolded(acc, n)):
            self.epilogue.apply(y_row + start + p, c, value, mask)

    def unfolded(self, acc: list[KValue], n: int) -> list[KValue]:
        """The `n` outputs from their sums."""
        k = self.k
        for fold in range(1, self.a.folds):
            parts = acc[fold * n : (fold + 1) * n]
            acc = [v + k.shuffle(part, part, self.a.sources(fold)) for v, part in zip(acc, parts)] + acc[n:]
        return acc[:n]

    def prefetch(self, start: KValue, n: int, y_row: KValue, x_run: KValue, c: KValue) -> None:
        """Ask for the run's results, and for the input that the run below it is the first to read.

        A run of one channel that stores whole lines ends before their memory arrives: it asks for the next one's.
        """
        k, rows = self.k, self.rows
        ahead = n if self.inputs == 1 and self.a.lanes == LINE else 0
        for i in range(len(self.epilogue.fusion.outputs)):
            for p in range(n):
                k.prefetch(k[f"y{i}"], (y_row + start + (p + ahead)) * self.channels + c)
        for row in range(rows.stride):
            below = x_run + ((rows.kernel - 1) * rows.dilation + 1 + row) * (self.width * self.inputs)
            for p in range(0, n * self.line.stride, LINE if self.inputs == 1 else 1):
                k.prefetch(k["x"], below + p * self.inputs, level=2)

    def columns(self, n: int, start: int | None) -> list[tuple[int, list[tuple[int, int]]]]:
        """Input columns from a run's corner on, each with the (output, tap) pairs that it feeds."""
        line = self.line
        uses: dict[int, list[tuple[int, int]]] = {}
        for p in range(n):
            for j in range(line.kernel):
                uses.setdefault(p * line.stride + j * line.dilation, []).append((p, j))
        corner = None if start is None else start * line.stride - self.pad
        return [
            (at, pairs) for at, pairs in sorted(uses.items()) if corner is None or 0 <= corner + at < self.width
        ]

    def row_of_taps(
        self,
        step: int,
        w_at: KValue,
        x_at: KValue,
        columns: list[tuple[int, list[tuple[int, int]]]],
        reads: KValue | None,
        acc: list[KValue],
    ) -> list[KValue]:
        """One kernel row for `steps` input channels: its filters in registers, each input pixel loaded once."""
        k, a = self.k, self.a
        acc = list(acc)
        steps, n = range(a.steps), len(acc) // a.folds
        weights = [
            [k.load(k["w"], w_at + (j * a.steps + r) * a.lanes, a.lanes, align=4 * a.lanes) for r in steps]
            for j in range(self.line.kernel)
        ]
        for column, pairs in columns:
            for r, value in enumerate(self.arranged(x_at + column * self.inputs, step, reads)):
                for p, j in pairs:
                    w, i = weights[j][r], r % a.folds * n + p
                    acc[i] = k.fma(value, w, acc[i]) if self.has_fma else acc[i] + value * w
        return acc

    def arranged(self, at: KValue, step: int, reads: KValue | None) -> list[KValue]:
        """One input pixel's channels as the lanes read them at each of the steps from `step` on."""
        k, a = self.k, self.a
        if a.splats:
            return [k.splat(load(k, k["x"], at + step + r, 1), a.lanes) for r in range(a.steps)]
        pixel = load(k, k["x"], at, a.span, reads)
        group = [lane // a.outputs * a.inputs for lane in range(a.lanes)]
        shuffled = [
            k.shuffle(pixel, pixel, [g + channel for g, channel in zip(group, a.channels(step + r))])
            for r in range(0, a.steps, a.folds)
        ]
        return [value for value in shuffled for _ in range(a.folds)]


def even_lengths(n: int, longest: int) -> list[int]:
    """Lengths of runs that add up to n: all equal if that makes them little shorter."""
    equal = max(length for length in range(1, longest + 1) if n % length == 0)
    return [equal] * (n // equal) if 10 * equal >= 7 * min(n, longest) else run_lengths(n, longest)
