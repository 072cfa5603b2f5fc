"""Weights of a Winograd convolution as its products read them: U = G g Gᵀ, [panel, ξ, input channel, output channel].

Constant weights are transformed when the plan is made. Computed ones, those of a model that is trained, at the
beginning of each call, by all of its cores, before they meet:

    for panel of output channels, chunk of input channels:
        turn the taps of all of the chunk's channels round            [channel][tap][output channel], in scratch
        for channel, vector of the panel:  U = G g Gᵀ                  one store to each point

Where all tiles are one block, each panel is read once: its work item transforms it into scratch of the core's own, and
nobody meets.

G is emitted without the common factor of a row, so that its coefficients are f32 numbers; the factors of a point's two
rows are multiplied in f64 and take its value in the end: two roundings more.
"""

from __future__ import annotations

import itertools

import numpy as np

from .....ir.mapped import forget
from .....ir.types import F32, Dim
from .....kernel_ir.builder import F32PTR, I64PTR, Builder, KValue
from .....kernel_ir.synchronisation import meet
from ....lowering import BarrierSlot, LowerContext, Scratch, SharedScratch
from ...matmul.pack import copy_function
from ..weights import ConvShape, NamedOperand
from .axes import Phase, as_array, emit_product
from .plan import Plan

CHUNK_NBYTES = 16 << 10  # of turned weights, which stay in the first-level cache


def row_major(s: ConvShape) -> bool:
    """Whether the taps of an output channel lie side by side, as computed weights must."""
    inner = [1]
    for n in reversed(s.w.tensor.static_shape[2:]):
        inner.append(inner[-1] * n)
    return s.w.tensor.dtype == F32 and [*s.w.tensor.strides[1:]] == inner[::-1]


def transform_weights(w: np.ndarray, p: Plan, result: np.ndarray, scale: int = 1) -> None:
    """[Co, Ci, h, w] → scale · G g Gᵀ as register tiles read it, [panel, ξ, step of Ci, width · elements of a step].

    A panel at a time: those are f64, and of more points than taps.

    Args:
        result: where it goes; it has zeros beyond the last output channel.
    """
    inputs = w.shape[1]
    pairs = itertools.product(*(axis.phases for axis in p.axes))
    taps = [(a.first, b.first, np.kron(as_array(a.g), as_array(b.g))) for a, b in pairs]
    for panel in range(p.panels):
        given = w[panel * p.width : (panel + 1) * p.width]
        part = given.astype(np.float64).transpose(2, 3, 1, 0)
        forget(given)
        point = 0
        for top, left, both in taps:  # vec(G g Gᵀ) = (G ⊗ G) vec(g)
            own = part[top :: p.axes[0].stride, left :: p.axes[1].stride]
            u = (scale * both @ own.reshape(both.shape[1], -1)).reshape(len(both), inputs, -1)
            columns = p.emitter.pack_columns(u.astype(np.float32))
            result[panel, point : point + len(u), :, : columns.shape[2]] = columns
            point += len(u)


def computed_operands(s: ConvShape, p: Plan) -> list[NamedOperand]:
    """The weights, where their transforms go, and what cores need for them."""
    panel = 4 * p.points * s.group_inputs * p.width
    given: list[NamedOperand] = [("w", F32PTR, s.w), ("turned", F32PTR, Scratch(4 * _chunk(s, p) * s.taps * p.width))]
    if is_one_block(s, p):
        return [*given, ("u", F32PTR, Scratch(panel))]
    return [*given, ("u", F32PTR, SharedScratch(panel * p.panels)), ("meeting", I64PTR, BarrierSlot())]


def is_one_block(s: ConvShape, p: Plan) -> bool:
    """Whether computed weights are transformed panel by panel, as no second block reads them again."""
    tiles = s.x.tensor.dims[0] * p.per_image
    return not s.constant and isinstance(tiles, int) and tiles <= p.block


def _chunk(s: ConvShape, p: Plan) -> int:
    """Input channels that are turned at a time."""
    return max(1, min(s.group_inputs, CHUNK_NBYTES // (4 * s.taps * p.width)))


class ComputedWeights:
    """The loops of the transform; a core has the part of it that it has of the call's work items, or a panel's."""

    def __init__(self, ctx: LowerContext, k: Builder, s: ConvShape, p: Plan, work: Dim) -> None:
        self.ctx, self.k, self.s, self.p, self.work = ctx, k, s, p, work
        self.chunk = _chunk(s, p)
        self.chunks = -(-s.group_inputs // self.chunk)
        self.one_block = is_one_block(s, p)

    def emit(self) -> None:
        """Transform this core's part, then wait for the others'; nothing where each panel is transformed by itself."""
        if self.one_block:
            return
        k = self.k
        parts, work = self.p.panels * self.chunks, k.index(self.work)
        first, last = (k.udiv(edge * parts, work) for edge in (k["begin"], k["end"]))
        k.for_(first, last, 1, [], lambda n, _: self._part(k.udiv(n, self.chunks), k.urem(n, self.chunks)))
        meet(k, k["meeting"], k["end"] - k["begin"], self.work)

    def of_panel(self, panel: KValue) -> KValue:
        """The transformed weights of a panel."""
        if not self.one_block:
            return self.k.gep(self.k["u"], panel * (self.p.points * self.s.group_inputs * self.p.width))
        self.k.for_(0, self.chunks, 1, [], lambda chunk, _: self._part(panel, chunk))
        return self.k["u"]

    def _part(self, panel: KValue, chunk: KValue) -> None:
        k, s = self.k, self.s
        c0 = chunk * self.chunk
        count = k.min(k.index(s.group_inputs) - c0, self.chunk)
        self._turn(panel, c0, count)
        k.for_(0, count, 1, [], lambda c, _: self._channel(panel, c0 + c, c))

    def _turn(self, panel: KValue, c0: KValue, count: KValue) -> None:
        k, s, p = self.k, self.s, self.p
        apart = k.index(s.w.tensor.strides[0])
        source = k.gep(k["w"], panel * p.width * apart + c0 * s.taps)
        valid = k.min(k.index(s.group_outputs) - panel * p.width, p.width)
        copy = copy_function(self.ctx, F32, "transposed", p.lanes)
        k.call(copy, [source, k["turned"], count * s.taps, valid, k.index(1), apart, k.index(p.width),
                      k.index(p.width), k.const(1.0, F32)])  # fmt: skip

    def _channel(self, panel: KValue, channel: KValue, c: KValue) -> None:
        """One input channel's points for all vectors of the panel."""
        k, s, p = self.k, self.s, self.p
        taps = k.gep(k["turned"], c * (s.taps * p.width))
        first = k.index(0) if self.one_block else panel * p.points * s.group_inputs
        target = k.gep(k["u"], (first + channel) * p.width)

        def vector(lane: KValue, _: list[KValue]) -> None:
            point = 0
            for high, wide in itertools.product(*(axis.phases for axis in p.axes)):
                for value in self._transformed(taps, lane, high, wide):
                    k.store(target, point * (s.group_inputs * p.width) + lane, value, align=4 * p.lanes)
                    point += 1

        k.for_(0, p.width, p.lanes, [], vector)

    def _transformed(self, taps: KValue, lane: KValue, high: Phase, wide: Phase) -> list[KValue]:
        """G g Gᵀ of one vector of output channels and one phase of each axis, point after point."""
        k, p = self.k, self.p
        rows, columns = p.axes
        turned = []
        for j in range(len(wide.g[0])):
            at = [(high.first + i * rows.stride) * columns.taps + wide.first + j * columns.stride
                  for i in range(len(high.g[0]))]  # fmt: skip
            own = [k.load(taps, lane + a * p.width, p.lanes, align=4 * p.lanes) for a in at]
            turned.append(emit_product(k, high.bare_g, own))
        found = []
        for i in range(high.points):
            bare = emit_product(k, wide.bare_g, [column[i] for column in turned])
            scales = [float(high.g_factors[i] * factor) for factor in wide.g_factors]
            found += [value * scale if scale != 1 else value for value, scale in zip(bare, scales, strict=True)]
        return found
