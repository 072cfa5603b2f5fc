"""Convolution of few channels in bf16, as of an image: two columns of a filter's line in a step.

Channels of a pixel are no whole pairs, or too few for runs of them; neighbouring pixels of a line are. So the copy of
the input's lines (`gather`) holds at every place the pixel there and the next one: a line of a filter of K columns is
ceil(K / 2) steps. An odd filter's last column is alone: it reads a second copy, of each pixel and a zero, so that no
infinity beside a window is multiplied by a weight that is not there. Errors are those of `microkernels/bf16.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....ir.types import BF16, I32, U16, U32
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import PtrType
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext
from ...microkernels.table import emitter_of
from ..matmul.blocking import Product
from ..matmul.pack import packed_panels
from ..plain import strided_load
from .gather import Gathering, PlaneCopier, Planes, lower_gathered
from .layer import ConvAlgorithm, ConvLayer
from .weights import ConvShape, NamedOperand


class ColumnPairsAlgorithm(ConvAlgorithm):
    """Pairs of columns, of filters that are constant, where the target multiplies pairs in vectors."""

    name = "bf16-columns"

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        s, g = layer.shape, layer.shape.geometry
        narrow = s.x.tensor.dtype == s.w.tensor.dtype == BF16 and emitter_of(ctx.target, BF16).weave is not None
        if not narrow or not layer.is_multiplied or layer.has_pairs(ctx) or not s.constant or s.groups > 1:
            return False
        return g.rank > 1 and g.kernel[-1] > 1 and g.dilations[-1] == 1

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        return lower_column_pairs(ctx, layer.fusion, layer.shape)


def lower_column_pairs(ctx: LowerContext, fusion: Fusion, s: ConvShape) -> KernelCall:
    """The kernel call of a convolution of one group along two axes or more."""
    return lower_gathered(ctx, fusion, s, ColumnPairs(BF16))


class ColumnPairs(Gathering):
    """Steps of two neighbouring columns of a line."""

    def columns(self, kernel: int, dilation: int) -> tuple[tuple[int, int], ...]:
        pairs = [(0, column) for column in range(0, kernel - 1, 2)]
        return (*pairs, (1, kernel - 1)) if kernel % 2 else tuple(pairs)

    def operands(self, ctx: LowerContext, s: ConvShape, p: Product) -> list[NamedOperand]:
        """Weights [output, channel, …, column], a column of zeros behind an odd number of them."""
        assert s.w.data is not None
        w = s.w.data
        if w.shape[-1] % 2:
            w = np.concatenate([w, np.zeros((*w.shape[:-1], 1), w.dtype)], axis=-1)
        packed = packed_panels(ctx, w.reshape(len(w), -1).T[None], p.kinds, p.lanes, emitter=p.emitter)
        return [("w", PtrType(p.emitter.b_element), packed)]

    def copier(self, k: Builder, s: ConvShape, planes: Planes, lanes: int) -> PlaneCopier:
        return PairCopier(k, s, planes, lanes)


class PairCopier(PlaneCopier):
    """Emits the copy of input rows of bf16 as pairs, the pixel at a place in the lower half."""

    def line(self, corner: KValue, source: KValue, target: KValue, valid: KValue) -> None:
        k, planes, length = self.k, self.planes, self.planes.sizes[-1]
        copies = [(target + k.index(planes.plane) * (planes.channels * copy)) * planes.width
                  for copy in range(planes.copies)]  # fmt: skip

        def put(i: KValue, bits: list[KValue]) -> None:
            for place, value in zip(copies, bits, strict=True):
                k.store(k["planes"], place + i * planes.width, k.bitcast(value, BF16))

        def pixels(i: KValue, _: list[KValue]) -> None:
            here = self.pixels(source, corner + i)
            put(i, [here | (self.pixels(source, corner + i + 1) << 16), here][: planes.copies])

        def nothing(i: KValue, _: list[KValue]) -> None:
            put(i, [k.splat(k.const(0, U32), self.lanes)] * planes.copies)

        def lines(body: Callable[[KValue, list[KValue]], None]) -> Callable[[], list[KValue]]:
            return lambda: k.for_(0, k.index(length), self.lanes, [], body)

        k.if_(valid, lines(pixels), lines(nothing))

    def pixels(self, source: KValue, at: KValue) -> KValue:
        """The bits of a vector of a line's pixels from number `at` on, zeros where there are none."""
        k, lanes, last = self.k, self.lanes, self.s.geometry.rank - 1
        step, width = self.s.x.tensor.strides[2 + last], k.cast(k.index(self.s.geometry.input[last]), I32)
        numbers = k.splat(k.cast(at, I32), lanes) + k.ramp(lanes, I32)
        mask = (numbers >= 0) & (numbers < k.splat(width, lanes))
        found = strided_load(k, k["x"], source + at * k.index(step), step, lanes, mask)
        return k.cast(k.bitcast(found, U16), U32)
