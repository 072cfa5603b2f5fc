"""The gradient of a depthwise convolution's weights: one filter a channel, so that vectors go over channels.

    for work item: panel of channels
        for block of output rows:
            for row of the block, run of its pixels, cache line of channels, rows of the filter that fit registers:
                load the run's dy; for each pixel of x under it, loaded once:     sum of each tap it meets += x · dy

Operands come from memory once, in the order in which they lie, by whole cache lines: those of pixels of 2ⁿ channels
drive each other out before the second half is read. A block's sums wait in scratch while the other channels of a run
pass. Pixels of a run that lie outside of x are left out where sizes are known; else the ends of a line are
taken tap by tap. So are the rows above and below an image. A work item owns its part of the result and sums it block
after block, as in `weight_gradient.py`, with the same bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ....ir.types import ceil_div
from ....kernel_ir.builder import F32, Builder, KValue
from ....kernel_ir.loops import KType
from ..matmul.blocking import static
from .spatial import is_unforeseen
from .weight_gradient_sizes import Sizes, input_row, output_row, place, split

BLOCK_ROWS = 8  # lines that are summed by themselves; chosen, not measured
PANELS = (256, 128, 64, 32, 16)  # channels of a work item: runs of memory that are long enough
SUMS_NBYTES = 16 << 10  # of a panel: half of a first cache, the other is for what passes
LINE_NBYTES = 64  # of a cache line
LONGEST_RUN = 4  # pixels: each of x is loaded once for three taps; 6 were no better on Zen 3
MOST_FIXED = 16  # runs of a line that are written out, at its ends

Pairs = list[tuple[int, int]]  # pixels of a run and the taps whose input they have
Run = Callable[[KValue, int, Pairs], None]  # from a pixel on, so many
Vector = Callable[[KValue, "KValue | None"], None]  # of the channels from one on, and its mask


def is_depthwise(s: Sizes) -> bool:
    """Whether these loops serve a gradient: one filter a channel, channels innermost everywhere."""
    innermost = s.x.strides[1] == s.dy.strides[1] == s.dw.strides[0] == 1
    return s.groups > 1 and s.inputs == s.outputs == 1 and innermost


def panel_channels(s: Sizes, n_cores: int) -> int:
    """Channels of a work item: fewer where cores would be left without one. No bit depends on it."""
    nbytes = 4 * math.prod(s.geometry.kernel)
    fit = [n for n in PANELS if n * nbytes <= SUMS_NBYTES] or PANELS[-1:]
    return next((n for n in fit if -(-s.groups // n) >= n_cores), PANELS[-1])


class DepthwiseGradient:
    """The loops. See the file."""

    def __init__(self, k: Builder, s: Sizes, n_registers: int, panel: int) -> None:
        self.k, self.s, self.panel = k, s, panel
        self.n_taps, self.outer = s.geometry.kernel[-1], s.tap_rows
        room = n_registers - 1  # for accumulators and dy, beside x
        together = max(1, LINE_NBYTES // (4 * s.lanes))
        self.together = together if together * (self.n_taps + 2) <= room else 1  # vectors of a run
        each = room // self.together
        fits = self.n_taps + 2 <= each
        most = self.n_taps if fits else ceil_div(self.n_taps, ceil_div(self.n_taps, each - LONGEST_RUN))
        self.pieces = [range(t, min(t + most, self.n_taps)) for t in range(0, self.n_taps, max(1, most))]  # of taps
        self.at_once = max(1, min(self.outer, (each - LONGEST_RUN) // max(1, most)))  # rows of the filter
        self.longest = max(1, min(LONGEST_RUN, each - self.at_once * most))
        pixel = s.groups * s.x.dtype.nbytes
        known = all(isinstance(t.strides[-2], int) for t in (s.x, s.dy))
        self.asks = is_unforeseen(pixel) and known and len(s.geometry.kernel) > 1

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
        """Calls vector(first channel, mask) for those of the item."""
        self.several(1, lambda cs, masks: vector(cs[0], masks[0]))

    def several(self, at_once: int, vectors: Callable[[list[KValue], list[KValue | None]], None]) -> None:
        """Calls vectors(first channels, masks) for those of the item, so many at once; the very last may be masked."""
        k, s, n = self.k, self.s, at_once * self.s.lanes
        end = k.min(self.first + self.panel, s.groups)
        whole = self.first + k.udiv(end - self.first, n) * n
        every = [v * s.lanes for v in range(at_once)]
        k.for_(self.first, whole, n, [], lambda c, _: vectors([c + v for v in every], [None] * at_once))
        left = s.groups % n
        if left:
            masks = [k.tail_mask(k.index(left - v), s.lanes) if left - v < s.lanes else None for v in every if v < left]
            k.if_(whole < end, lambda: vectors([whole + v for v in every if v < left], masks))

    def rows(self, few: Callable[[list[KValue]], None]) -> None:
        """Calls few(rows) for all rows of the filter, as many at once as registers have room for."""
        k, n = self.k, self.at_once
        whole = self.outer // n * n
        k.for_(0, whole, n, [], lambda row, _: few([row + i for i in range(n)]))
        if whole < self.outer:
            few([k.index(row) for row in range(whole, self.outer)])

    def taps(self, rows: Sequence[KValue], c: KValue, piece: range | None = None) -> list[tuple[KValue, KValue]]:
        """Where the sums of a vector from channel c on lie, for each tap of rows (or some): in the scratch, and in the
        result.
        """
        k, s = self.k, self.s
        found = []
        for row in rows:
            outer = split(k, row, s.geometry.kernel[:-1])
            for t in range(self.n_taps) if piece is None else piece:
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

        self.vectors(lambda c, mask: self.rows(partial(begin, c)))
        k.for_(r0, r1, 1, [], lambda r, _: self.line(r))
        self.vectors(lambda c, mask: self.rows(partial(end, c, mask)))

    def line(self, r: KValue) -> None:
        """A line of dy, run by run."""
        for piece in self.pieces:

            def run(w: KValue, n: int, pairs: Pairs, piece: range = piece) -> None:
                def several(cs: list[KValue], masks: list[KValue | None]) -> None:
                    self.rows(partial(self.run, r, w, n, piece, pairs, cs, masks))

                self.several(self.together, several)

            fixed = self.fixed_runs(piece)
            if fixed is None:
                self.open_runs(piece, run)
            else:
                self.known_runs(piece, fixed, run)

    def met(self, start: int, n: int, piece: range) -> Pairs:
        """The pairs of a run of known place, in a line of known size."""
        g = self.s.geometry
        first, most = start * g.strides[-1] - static(g.pads_begin[-1]), static(g.input[-1])
        return [(q, t) for q, t in every(n, piece) if 0 <= first + q * g.strides[-1] + t * g.dilations[-1] < most]

    def fixed_runs(self, piece: range) -> list[tuple[int, int, Pairs]] | None:
        """The runs (start, length, pairs) of a line; None where sizes are open, or many runs would be written out."""
        g = self.s.geometry
        line = g.output[-1]
        if not all(isinstance(size, int) for size in (g.input[-1], line, g.pads_begin[-1])):
            return None
        starts = range(0, static(line), self.longest)
        lengths = [min(self.longest, static(line) - at) for at in starts]
        runs = [(at, n, self.met(at, n, piece)) for at, n in zip(starts, lengths, strict=True)]
        n_ends = sum(bool(pairs) and pairs != every(self.longest, piece) for _, _, pairs in runs)
        return runs if n_ends <= MOST_FIXED else None

    def known_runs(self, piece: range, runs: list[tuple[int, int, Pairs]], run: Run) -> None:
        """Those that meet all taps in a loop, the others by themselves; in the line's order."""
        k, whole = self.k, every(self.longest, piece)
        i = 0
        while i < len(runs):
            start, n, pairs = runs[i]
            j = i + 1
            if pairs == whole:
                while j < len(runs) and runs[j][2] == whole:
                    j += 1
                k.for_(start, start + (j - i) * n, n, [], lambda w, _, n=n: run(w, n, whole))
            elif pairs:
                run(k.index(start), n, pairs)
            i = j

    def open_runs(self, piece: range, run: Run) -> None:
        """Runs of the pixels that all taps meet, then the ends, tap by tap."""
        k, g, n = self.k, self.s.geometry, self.longest
        stride, line = g.strides[-1], k.index(g.output[-1])
        shifts = [k.index(t * g.dilations[-1]) - k.index(g.pads_begin[-1]) for t in piece]
        lows = [k.udiv(k.max(k.index(0) - shift + (stride - 1), 0), stride) for shift in shifts]
        stops = [k.udiv(k.max(k.index(g.input[-1]) - shift + (stride - 1), 0), stride) for shift in shifts]
        highs = [k.min(line, stop) for stop in stops]
        first, last = lows[0], k.max(highs[-1], lows[0])  # the first tap begins last, the last one ends first
        whole = first + k.udiv(last - first, n) * n
        k.for_(first, whole, n, [], lambda w, _: run(w, n, every(n, piece)))
        k.for_(whole, last, 1, [], lambda w, _: run(w, 1, every(1, piece)))
        for t, low, high in zip(piece, lows, highs, strict=True):
            for begin, end in ((low, k.min(first, high)), (k.max(last, low), high)):
                k.for_(begin, k.max(end, begin), 1, [], lambda w, _, t=t: run(w, 1, [(0, t)]))

    def run(
        self, r: KValue, w: KValue, n: int, piece: range, pairs: Pairs, cs: list[KValue], masks: list[KValue | None],
        rows: list[KValue],
    ) -> None:  # fmt: skip
        """`n` pixels of dy from w on, with x under some rows of the filter: together where all are in the image."""
        k, s = self.k, self.s
        own = [[at for at, _ in self.taps(rows, c, piece)] for c in cs]
        sums = [[k.load(k["sums"], at, s.lanes) for at in places] for places in own]
        given = k.gep(k["dy"], output_row(k, s, r) + w * k.index(s.dy.strides[-1]) + cs[0])
        found = [input_row(k, s, r, split(k, row, s.geometry.kernel[:-1])) for row in rows]
        column = w * s.geometry.strides[-1] - k.index(s.geometry.pads_begin[-1])
        sources = [k.gep(k["x"], base + column * k.index(s.x.strides[-1]) + cs[0]) for base, _ in found]
        inside = found[0][1]
        for _, valid in found[1:]:
            inside = inside & valid

        def fed(sources: list[KValue], sums: list[list[KValue]]) -> list[KValue]:
            return _flat(self.feed(given, n, sources, piece, pairs, masks, sums))

        def together() -> list[KValue]:
            return fed(sources, sums)

        def apart() -> list[KValue]:
            new: list[list[KValue]] = [[] for _ in cs]
            for i, (source, (_, valid)) in enumerate(zip(sources, found, strict=True)):
                before = [acc[i * len(piece) : (i + 1) * len(piece)] for acc in sums]
                after = k.if_(valid, partial(fed, [source], before), partial(_flat, before))
                for v, acc in enumerate(new):
                    acc += after[v * len(piece) : (v + 1) * len(piece)]
            return _flat(new)

        after = k.if_(inside, together, apart if len(rows) > 1 else partial(_flat, sums))
        for at, value in zip(_flat(own), after, strict=True):
            k.store(k["sums"], at, value)

    def feed(
        self, given: KValue, n: int, sources: Sequence[KValue], piece: range, pairs: Pairs,
        masks: Sequence[KValue | None], sums: list[list[KValue]],
    ) -> list[list[KValue]]:  # fmt: skip
        """A run's pairs, for the taps of so many rows: `given`, `sources` are where the first vector's pixels begin."""
        k, s, g, sums = self.k, self.s, self.s.geometry, [list(acc) for acc in sums]
        pitch, line = k.index(s.x.strides[-1]), k.index(s.dy.strides[-1])
        if self.asks and len(pairs) == n * len(piece):
            self.ask(given, n, sources[-1])
        dy = {(q, v): k.load(given, line * q + v * s.lanes, s.lanes, mask)
              for q in sorted({q for q, _ in pairs}) for v, mask in enumerate(masks)}  # fmt: skip
        columns = sorted({q * g.strides[-1] + t * g.dilations[-1] for q, t in pairs})
        for i, source in enumerate(sources):
            for column in columns:
                for v, mask in enumerate(masks):
                    x = k.load(source, pitch * column + v * s.lanes, s.lanes, mask)
                    for q, t in pairs:
                        if q * g.strides[-1] + t * g.dilations[-1] == column:
                            at = i * len(piece) + t - piece.start
                            sums[v][at] = k.fma(x, dy[q, v], sums[v][at])
        return sums

    def ask(self, given: KValue, n: int, source: KValue) -> None:
        """Ask for what the run a line below is the first to read of dy, and of x under the last of the rows."""
        k, s, g = self.k, self.s, self.s.geometry
        for q in range(n):
            k.prefetch(given, k.index(s.dy.strides[-2] + q * s.dy.strides[-1]), level=2)
        for row in range(1, g.strides[-2] + 1):
            for column in range(n * g.strides[-1]):
                at = row * s.x.strides[-2] + column * s.x.strides[-1]
                k.prefetch(source, k.index(at), level=2)


def every(n: int, piece: range) -> Pairs:
    """All pairs of a run of n pixels and a piece of the taps."""
    return [(q, t) for q in range(n) for t in piece]


def _flat(several: Sequence[Sequence[KValue]]) -> list[KValue]:
    return [value for one in several for value in one]
