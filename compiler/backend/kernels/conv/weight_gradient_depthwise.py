"""The gradient of a depthwise convolution's weights: one filter a channel, so that vectors go over channels.

    for work item: panel of channels
        for block of output rows:
            for pass of them, vector of the panel, rows of the filter that registers have room for:
                for row of the pass, pixel:     load dy once, for each tap: accumulator += x · dy

Operands come from memory once, line after line; a block's sums wait in the core's scratch while the other vectors pass.
Pixels for which some taps lie outside of x are at the ends of a line, and taken tap by tap; so are the rows above and
below an image. A work item owns its part of the result and sums it block after block, as in `weight_gradient.py`, with
the same bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ....kernel_ir.builder import F32, Builder, KValue
from ....kernel_ir.loops import KType
from .weight_gradient_sizes import Sizes, input_row, output_row, place, split

BLOCK_ROWS = 8  # lines that are summed by themselves; chosen, not measured
PASS_PIXELS = 32  # of the lines that one vector passes over, at least where lines are short; 32 to 128 alike on Zen 3
PANELS = (64, 32, 16)  # channels of a work item: runs of memory that are long enough; 64 and 128 alike on Zen 3
FREE = 4  # registers that are not accumulators: dy, x, and two more
MOST_APART = 8  # pixels at the ends of a line that are written out

Vector = Callable[[KValue, "KValue | None"], None]  # of the channels from one on, and its mask


def is_depthwise(s: Sizes) -> bool:
    """Whether these loops serve a gradient: one filter a channel, channels innermost everywhere."""
    innermost = s.x.strides[1] == s.dy.strides[1] == s.dw.strides[0] == 1
    return s.groups > 1 and s.inputs == s.outputs == 1 and innermost


def panel_channels(s: Sizes, n_cores: int) -> int:
    """Channels of a work item: fewer where cores would be left without one. No bit depends on it."""
    return next((n for n in PANELS if -(-s.groups // n) >= n_cores), PANELS[-1])


class DepthwiseGradient:
    """The loops. See the file."""

    def __init__(self, k: Builder, s: Sizes, n_registers: int, panel: int) -> None:
        self.k, self.s, self.panel = k, s, panel
        self.n_taps, self.outer = s.geometry.kernel[-1], s.tap_rows
        self.at_once = min(self.outer, max(1, (n_registers - FREE) // max(1, self.n_taps)))  # rows of the filter
        line = s.geometry.output[-1]
        self.pass_rows = min(BLOCK_ROWS, max(1, PASS_PIXELS // max(1, line))) if isinstance(line, int) else 1

    def emit(self) -> None:
        """All work items of the call."""
        k, s = self.k, self.s

        def item(number: KValue, _: list[KValue]) -> None:
            self.first = number * self.panel
            n_rows = k.index(s.rows)
            self.vectors(self.clear)
            k.for_(0, n_rows, BLOCK_ROWS, [], lambda r, _: self.block(r, k.min(r + BLOCK_ROWS, n_rows)))

        k.for_(k["begin"], k["end"], 1, [], item)

    def vectors(self, vector: Vector) -> None:
        """Calls vector(first channel, mask) for those of the item; the very last one may be masked."""
        k, s = self.k, self.s
        whole = s.groups // s.lanes * s.lanes
        end = k.min(self.first + self.panel, s.groups)
        k.for_(self.first, k.min(end, whole), s.lanes, [], lambda c, _: vector(c, None))
        if whole < s.groups:
            mask = k.tail_mask(k.index(s.groups - whole), s.lanes)
            k.if_(end > whole, lambda: vector(k.index(whole), mask))

    def rows(self, few: Callable[[list[KValue]], None]) -> None:
        """Calls few(rows) for all rows of the filter, as many at once as registers have room for."""
        k, n = self.k, self.at_once
        whole = self.outer // n * n
        k.for_(0, whole, n, [], lambda row, _: few([row + i for i in range(n)]))
        if whole < self.outer:
            few([k.index(row) for row in range(whole, self.outer)])

    def taps(self, rows: Sequence[KValue], c: KValue) -> list[tuple[KValue, KValue]]:
        """Where the sums of a vector from channel c on lie, for each tap of rows: in the scratch, and in the result."""
        k, s = self.k, self.s
        found = []
        for row in rows:
            outer = split(k, row, s.geometry.kernel[:-1])
            for t in range(self.n_taps):
                at = (row * self.n_taps + t) * self.panel + (c - self.first)
                found.append((at, place(k, s, [*outer, k.index(t)], c, k.index(0))))
        return found

    def clear(self, c: KValue, mask: KValue | None) -> None:
        """A vector of the result becomes 0, which blocks are added to."""

        def few(rows: list[KValue]) -> None:
            for _, at in self.taps(rows, c):
                self.k.store(self.k["dw"], at, self.zero, mask)

        self.rows(few)

    @property
    def zero(self) -> KValue:
        return self.k.const(0.0, KType(F32, self.s.lanes))

    def block(self, r0: KValue, r1: KValue) -> None:
        """Lines [r0, r1)."""
        k, s = self.k, self.s

        def begin(c: KValue, rows: list[KValue]) -> None:
            for at, _ in self.taps(rows, c):
                k.store(k["sums"], at, self.zero)

        def end(c: KValue, mask: KValue | None, rows: list[KValue]) -> None:
            for at, to in self.taps(rows, c):
                old = k.load(k["dw"], to, s.lanes, mask)
                k.store(k["dw"], to, old + k.load(k["sums"], at, s.lanes), mask)

        def lines(r: KValue, _: list[KValue]) -> None:
            last = k.min(r + self.pass_rows, r1)
            self.vectors(lambda c, mask: self.rows(partial(self.lines, r, last, c, mask)))

        self.vectors(lambda c, mask: self.rows(partial(begin, c)))
        k.for_(r0, r1, self.pass_rows, [], lines)
        self.vectors(lambda c, mask: self.rows(partial(end, c, mask)))

    def lines(self, r0: KValue, r1: KValue, c: KValue, mask: KValue | None, rows: list[KValue]) -> None:
        """Lines [r0, r1) of a vector, added to the block's sums of some rows of the filter."""
        k, own = self.k, [at for at, _ in self.taps(rows, c)]
        sums = [k.load(k["sums"], at, self.s.lanes) for at in own]
        sums = k.for_(r0, r1, 1, sums, lambda r, acc: self.line(r, rows, c, mask, acc))
        for at, value in zip(own, sums, strict=True):
            k.store(k["sums"], at, value)

    def line(
        self, r: KValue, rows: Sequence[KValue], c: KValue, mask: KValue | None, acc: list[KValue]
    ) -> list[KValue]:  # fmt: skip
        """A line of dy, and those of x under some rows of the filter: together where all are in the image."""
        k, s, n = self.k, self.s, self.n_taps
        given = k.gep(k["dy"], output_row(k, s, r) + c)
        met = [input_row(k, s, r, split(k, row, s.geometry.kernel[:-1])) for row in rows]
        sources = [k.gep(k["x"], base + c) for base, _ in met]
        inside = met[0][1]
        for _, valid in met[1:]:
            inside = inside & valid

        def together() -> list[KValue]:
            return self.pixels(given, sources, mask, list(acc))

        def apart() -> list[KValue]:
            found: list[KValue] = []
            for i, (source, (_, valid)) in enumerate(zip(sources, met, strict=True)):
                own = acc[i * n : (i + 1) * n]
                found += k.if_(valid, partial(self.pixels, given, [source], mask, own), partial(list, own))
            return found

        return k.if_(inside, together, apart if len(rows) > 1 else partial(list, acc))

    def pixels(self, given: KValue, sources: Sequence[KValue], mask: KValue | None, acc: list[KValue]) -> list[KValue]:
        """All pixels of a line, for the taps of so many rows: those that all taps meet, then the ends."""
        k, g = self.k, self.s.geometry
        every = range(self.n_taps)

        def at(w: KValue, acc: list[KValue], taps: Sequence[int] = every) -> list[KValue]:
            return self.pixel(w, given, sources, mask, list(acc), taps)

        ends = self.ends()
        if ends is not None:
            low, high, apart = ends
            acc = k.for_(low, high, 1, acc, at)
            for w, taps in apart:
                acc = at(k.index(w), acc, taps)
            return acc
        stride, line = g.strides[-1], k.index(g.output[-1])
        shifts = [k.index(t * g.dilations[-1]) - k.index(g.pads_begin[-1]) for t in every]
        lows = [k.udiv(k.max(k.index(0) - shift + (stride - 1), 0), stride) for shift in shifts]
        stops = [k.udiv(k.max(k.index(g.input[-1]) - shift + (stride - 1), 0), stride) for shift in shifts]
        highs = [k.min(line, stop) for stop in stops]
        first, last = lows[0], k.max(highs[-1], lows[0])  # the first tap begins last, the last one ends first
        acc = k.for_(first, last, 1, acc, at)
        for t in every:
            for begin, end in ((lows[t], k.min(first, highs[t])), (k.max(last, lows[t]), highs[t])):
                acc = k.for_(begin, k.max(end, begin), 1, acc, lambda w, a, t=t: at(w, a, [t]))
        return acc

    def ends(self) -> tuple[int, int, list[tuple[int, list[int]]]] | None:
        """The pixels [low, high) that all taps meet, and the others with theirs; None where they are open, or many."""
        g = self.s.geometry
        n, line, pad = g.input[-1], g.output[-1], g.pads_begin[-1]
        if not (isinstance(n, int) and isinstance(line, int) and isinstance(pad, int)):
            return None
        met = [[t for t in range(self.n_taps) if 0 <= w * g.strides[-1] + t * g.dilations[-1] - pad < n]
               for w in range(line)]  # fmt: skip
        whole = [w for w, taps in enumerate(met) if len(taps) == self.n_taps]
        low, high = (whole[0], whole[-1] + 1) if whole else (0, 0)
        apart = [(w, taps) for w, taps in enumerate(met) if taps and not low <= w < high]
        return (low, high, apart) if len(apart) <= MOST_APART else None

    def pixel(
        self, w: KValue, given: KValue, sources: Sequence[KValue], mask: KValue | None, acc: list[KValue],
        taps: Sequence[int],
    ) -> list[KValue]:  # fmt: skip
        """One pixel of dy, times those of x under some taps of each row."""
        k, s, g = self.k, self.s, self.s.geometry
        dy = k.load(given, w * k.index(s.dy.strides[-1]), s.lanes, mask)
        for i, source in enumerate(sources):
            for t in taps:
                column = w * g.strides[-1] + (k.index(t * g.dilations[-1]) - k.index(g.pads_begin[-1]))
                x = k.load(source, column * k.index(s.x.strides[-1]), s.lanes, mask)
                acc[i * self.n_taps + t] = k.fma(x, dy, acc[i * self.n_taps + t])
        return acc
