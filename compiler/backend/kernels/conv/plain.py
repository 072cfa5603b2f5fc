"""Convolution as plain loops over images, output rows, groups' channels and taps: every type and layout."""

from __future__ import annotations

from ....ir.ops.widening import ByteConv
from ....ir.types import prod
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import Fusion, register_dtype
from ...lowering import KernelCall, LowerContext, Operand
from ..plain import Term, emit_plain, strided_load
from .layer import ConvAlgorithm, ConvLayer
from .weights import ConvShape


class PlainAlgorithm(ConvAlgorithm):
    """What no register tile serves."""

    name = "plain"

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        return not layer.shape.tiled or layer.shape.group_inputs * layer.shape.taps == 0  # sums of nothing: no panels

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        return lower_plain(ctx, layer.fusion, layer.shape)


def lower_plain(ctx: LowerContext, fusion: Fusion, s: ConvShape) -> KernelCall:
    """The kernel call; one lane at a time, since neighbouring outputs share neither weights nor input."""
    y = s.y
    operands: list[tuple[str, PtrType, Operand]] = [
        ("x", PtrType(s.x.tensor.dtype), s.x),
        ("w", PtrType(s.w.tensor.dtype), s.w),
    ]
    if s.b is not None:
        operands.append(("b", PtrType(s.b.tensor.dtype), s.b))
    dtype = register_dtype(y.dtype)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        emitter = PlainConv(k, s, fusion.root.op.margin if isinstance(fusion.root.op, ByteConv) else 0)

        def start(index: list[KValue], column: KValue, lanes: int, mask: KValue | None) -> KValue:
            if s.b is None:
                return k.const(0, dtype)
            channel = emitter.full(index, column)[1]
            return k.cast(strided_load(k, k["b"], channel, 0, lanes, mask), dtype)

        emit_plain(k, fusion, dtype, 1, (s.group_inputs, *s.geometry.kernel), emitter.term, start)
        return k.func

    work = prod(y.dims[a] for a in y.axis_order[:-1])
    func = ctx.function("plain_conv", fusion.node, build)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), work)


class PlainConv:
    """Addresses of one product; `margin`: what padding consists of."""

    def __init__(self, k: Builder, s: ConvShape, margin: int = 0) -> None:
        self.k, self.s, self.margin = k, s, margin

    def full(self, index: list[KValue], column: KValue) -> list[KValue]:
        """The output index with its innermost axis."""
        out = list(index)
        out[self.s.y.axis_order[-1]] = column
        return out

    def term(self, index: list[KValue], column: KValue, inside: list[KValue]) -> Term:
        """Input and weight under (channel of the group, tap...)."""
        k, s, g = self.k, self.s, self.s.geometry
        image, channel, *out = self.full(index, column)
        c, *tap = inside
        xs, ws = s.x.tensor.strides, s.w.tensor.strides
        x_at = image * k.index(xs[0]) + (k.udiv(channel, s.group_outputs) * s.group_inputs + c) * k.index(xs[1])
        w_at = channel * k.index(ws[0]) + c * k.index(ws[1])
        valid: KValue = k.index(0) == 0
        for d in range(g.rank):
            at = out[d] * g.strides[d] + tap[d] * g.dilations[d] - k.index(g.pads_begin[d])
            valid = valid & (at >= 0) & (at < k.index(g.input[d]))
            x_at = x_at + at * k.index(xs[2 + d])
            w_at = w_at + tap[d] * k.index(ws[2 + d])
        return Term(x_at, w_at, 0, 0, valid, self.margin)
