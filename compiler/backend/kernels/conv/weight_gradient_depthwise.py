"""The gradient of a depthwise convolution's weights: one filter a channel, so that vectors go over channels.

    for work item: taps along the last axis, panel of channels
        for block of output rows:
            for row, pixel:     load dy once, for each tap of the line: accumulator += x · dy

Accumulators of all taps of a line stay in registers; pixels for which only some of them are inside of x are at the ends
of a line and taken tap by tap. A work item owns its part of the result and sums it block after block, as in
`weight_gradient.py`, with the same bound.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....kernel_ir.builder import F32, Builder, KValue
from ....kernel_ir.loops import KType
from .weight_gradient_sizes import Sizes, input_row, output_row, place, split

BLOCK_ROWS = 8  # lines that are summed by themselves; chosen, not measured
FREE = 4  # registers that are not accumulators: dy, x, and two more


def is_depthwise(s: Sizes) -> bool:
    """Whether these loops serve a gradient: one filter a channel, channels innermost everywhere."""
    innermost = s.x.strides[1] == s.dy.strides[1] == s.dw.strides[0] == 1
    return s.groups > 1 and s.inputs == s.outputs == 1 and innermost


def panel_vectors(s: Sizes, n_registers: int) -> int:
    """Vectors of channels of a work item."""
    room = max(1, (n_registers - FREE) // max(1, s.geometry.kernel[-1] + 1))
    return min(room, -(-s.groups // s.lanes))


class DepthwiseGradient:
    """The loops. See the file."""

    def __init__(self, k: Builder, s: Sizes, vectors: int) -> None:
        self.k, self.s, self.vectors = k, s, vectors
        self.n_panels = -(-s.groups // (vectors * s.lanes))

    def emit(self) -> None:
        """All work items of the call."""
        k, s = self.k, self.s

        def item(number: KValue, _: list[KValue]) -> None:
            taps, panel = k.udiv(number, self.n_panels), k.urem(number, self.n_panels)
            self.outer = split(k, taps, s.geometry.kernel[:-1])
            first = panel * (self.vectors * s.lanes)
            self.channels = [first + j * s.lanes for j in range(self.vectors)]
            left = [k.max(k.min(k.index(s.groups) - c, s.lanes), 0) for c in self.channels]
            self.masks = [k.tail_mask(n, s.lanes) if s.groups % (self.vectors * s.lanes) else None for n in left]
            n_rows = k.index(s.rows)
            self.clear()
            k.for_(0, n_rows, BLOCK_ROWS, [], lambda r, _: self.block(r, k.min(r + BLOCK_ROWS, n_rows)))

        k.for_(k["begin"], k["end"], 1, [], item)

    @property
    def taps(self) -> int:
        """Of a line."""
        return self.s.geometry.kernel[-1]

    def zeros(self) -> list[KValue]:
        return [self.k.const(0.0, KType(F32, self.s.lanes))] * (self.taps * self.vectors)

    def clear(self) -> None:
        """The item's part of the result becomes 0, which blocks are added to."""
        self.store(self.zeros())

    def store(self, values: Sequence[KValue], add: bool = False) -> None:
        """One value for each tap and vector."""
        k, s = self.k, self.s
        for i, value in enumerate(values):
            t, j = divmod(i, self.vectors)
            at = place(k, s, [*self.outer, k.index(t)], self.channels[j], k.index(0))
            old = k.load(k["dw"], at, s.lanes, self.masks[j]) if add else None
            k.store(k["dw"], at, value if old is None else old + value, self.masks[j])

    def block(self, r0: KValue, r1: KValue) -> None:
        """Lines [r0, r1)."""
        self.store(self.k.for_(r0, r1, 1, self.zeros(), self.row), add=True)

    def row(self, r: KValue, acc: list[KValue]) -> list[KValue]:
        """One line: what all taps meet together, then the ends tap by tap."""
        k, s, g = self.k, self.s, self.s.geometry
        base, valid = input_row(k, s, r, self.outer)
        source, given = k.gep(k["x"], base), k.gep(k["dy"], output_row(k, s, r))
        stride, line = g.strides[-1], k.index(g.output[-1])
        shifts = [k.index(t * g.dilations[-1]) - k.index(g.pads_begin[-1]) for t in range(self.taps)]
        lows = [k.udiv(k.max(k.index(0) - shift + (stride - 1), 0), stride) for shift in shifts]
        ends = [k.udiv(k.max(k.index(g.input[-1]) - shift + (stride - 1), 0), stride) for shift in shifts]
        highs = [k.min(line, end) for end in ends]
        low, high = lows[0], highs[-1]  # the first tap begins last, the last one ends first
        high = k.max(high, low)

        def at(w: KValue, acc: list[KValue], taps: Sequence[int]) -> list[KValue]:
            for j, c in enumerate(self.channels):
                dy = k.load(given, w * k.index(s.dy.strides[-1]) + c, s.lanes, self.masks[j])
                for t in taps:
                    x = k.load(source, (w * stride + shifts[t]) * k.index(s.x.strides[-1]) + c, s.lanes, self.masks[j])
                    acc[t * self.vectors + j] = k.fma(x, dy, acc[t * self.vectors + j])
            return acc

        every = range(self.taps)
        acc = k.for_(low, k.select(valid, high, low), 1, acc, lambda w, a: at(w, list(a), every))
        for t in every:
            for begin, end in ((lows[t], k.min(low, highs[t])), (k.max(high, lows[t]), highs[t])):
                stop = k.select(valid, k.max(end, begin), begin)
                acc = k.for_(begin, stop, 1, acc, lambda w, a, t=t: at(w, list(a), [t]))
        return acc
