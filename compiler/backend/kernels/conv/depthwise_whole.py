"""Depthwise convolution of whole numbers: the loops of `depthwise`, over bytes or i16 that become f32 when loaded.

Sums of that few products are whole numbers below 2^24, and exact in f32. A pixel is loaded once for all outputs that it
meets, so that its conversion is a small part; a quarter of f32's memory is read. Where padding is a zero point, pixels
less that zero point are multiplied, so that padding needs no products; what the zero point gives alone is in the bias.
"""

from __future__ import annotations

import numpy as np

from ....ir.ops.quantised_products import EXACT, heaviest, is_depthwise
from ....ir.ops.widening import ByteConv, WideningConv
from ....ir.types import I32
from ....kernel_ir.builder import F32, F32PTR, KValue
from ....kernel_ir.loops import KType
from ...lowering import KernelCall, LowerContext
from ..matmul.blocking import padded_columns
from .depthwise import Depthwise, lower_depthwise
from .layer import ConvAlgorithm, ConvLayer
from .weights import ConvShape

GREATEST = 255  # of activations, less their zero points or not


class WholeDepthwiseAlgorithm(ConvAlgorithm):
    """One constant filter a channel, along one or two axes, whose sums are exact in f32."""

    name = "widening-depthwise"

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        s = layer.shape
        if not isinstance(layer.fusion.root.op, WideningConv) or not s.constant or s.taps == 0 or s.rank > 2:
            return False
        if not is_depthwise(s.groups, s.w.tensor) or (s.b is not None and s.b.data is None):
            return False
        exact = np.abs(_start(layer)).max(initial=0) + GREATEST * heaviest(_filters(s)) < EXACT
        return bool(exact) and s.channels_last_input and s.y.axis_order == s.last_order

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        start = _start(layer)
        bias = np.zeros(padded_columns(start.size, ctx.lanes), np.float32)
        bias[: start.size] = start
        margin = _margin(layer)

        class Loops(_WholeDepthwise):
            zero = margin

        return lower_depthwise(ctx, layer.fusion, layer.shape, loops=Loops,
                               bias=("bias", F32PTR, ctx.weights.add(bias)))  # fmt: skip


def _margin(layer: ConvLayer) -> int:
    op = layer.fusion.root.op
    return op.margin if isinstance(op, ByteConv) else 0


def _filters(s: ConvShape) -> np.ndarray:
    assert s.w.data is not None
    return s.w.data


def _start(layer: ConvLayer) -> np.ndarray:
    """The bias, with what padding's number gives in the place of every pixel."""
    s, w = layer.shape, _filters(layer.shape)
    start = _margin(layer) * w.reshape(len(w), -1).sum(axis=1, dtype=np.int64)
    return start if s.b is None or s.b.data is None else start + s.b.data.reshape(-1)


class _WholeDepthwise(Depthwise):
    """The loops for whole numbers; `zero`: what padding consists of."""

    zero = 0

    def bias_of(self, c: KValue, mask: KValue | None) -> KValue:
        return self.k.load(self.bias, c, self.lanes)  # padded to whole vectors

    def pixel(self, first: KValue, column: int, c: KValue, mask: KValue | None) -> KValue:
        k = self.k
        value = k.cast(k.load(self.source, first + c + column * self.inputs, self.lanes, mask), F32)
        return value - float(self.zero) if self.zero else value

    def finish(
        self, row: KValue, start: KValue, c: KValue, mask: KValue | None, acc: list[KValue], place: str
    ) -> None:
        k = self.k
        whole = [k.op("cast", (value,), KType(I32, value.lanes), in_range=True) for value in acc]
        super().finish(row, start, c, mask, whole, place)
