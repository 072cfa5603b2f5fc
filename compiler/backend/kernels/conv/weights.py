"""A convolution's sizes, and its weights and bias as the register tile reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ....ir.graph import Value
from ....ir.ops.contraction import Conv
from ....ir.ops.geometry import WindowGeometry
from ....ir.types import BF16, F16, DType, TensorType
from ....kernel_ir.builder import F32, F32PTR, Builder, KValue
from ....kernel_ir.loops import PtrType
from ...fusion import Fusion
from ...lowering import LowerContext, Operand, Scratch
from ..matmul.blocking import PanelKind, Product, padded_columns, static
from ..matmul.pack import copy_function, packed_panels
from ..matmul.woven import Columns, rows_scratch, weave_panel
from .tables import Walk

NamedOperand = tuple[str, PtrType, Operand]


@dataclass(frozen=True)
class ConvShape:
    """Operands and sizes of a Conv root.

    Attributes:
        group_inputs, group_outputs: channels of one group. merged: how many of the model's groups make one here.
        line: pixels that a tap reads, one after the other, whose channels are `group_inputs` together.
    """

    x: Value
    w: Value
    b: Value | None
    y: TensorType
    geometry: WindowGeometry
    groups: int
    group_inputs: int
    group_outputs: int
    merged: int = 1
    line: int = 1

    @staticmethod
    def of(fusion: Fusion) -> ConvShape:
        """Read a fusion's root."""
        op = fusion.root.op
        assert isinstance(op, Conv)
        x, w, *rest = fusion.root_inputs
        assert x is not None and w is not None
        b = rest[0] if rest else None
        weights = w.tensor.static_shape
        geometry = op.geometry(x.tensor, w.tensor)
        return ConvShape(x, w, b, fusion.result.tensor, geometry, op.group, weights[1], weights[0] // op.group)

    def merge_groups(self, lanes: int) -> ConvShape:
        """Small groups side by side as one, with zeros between them: their columns would not fill a register alone."""
        if self.groups == 1 or not self.constant or self.group_outputs >= lanes:
            return self
        n = next(
            n
            for n in range(1, self.groups + 1)
            if self.groups % n == 0 and (n * self.group_outputs >= lanes or n == self.groups)
        )
        return replace(
            self,
            groups=self.groups // n,
            group_inputs=self.group_inputs * n,
            group_outputs=self.group_outputs * n,
            merged=n,
        )

    def by_lines(self) -> ConvShape:
        """With the lines of a filter as its taps, where their pixels lie side by side, and none is padding."""
        g, inputs = self.geometry, self.group_inputs
        padded = g.pads_begin[-1] != 0 or g.pads_end[-1] != 0
        return self if padded or self.x.tensor.strides[-1] != inputs else self.lines()

    def lines(self) -> ConvShape:
        """The same of a copy where pixels lie side by side, and what is padding stands there."""
        g, inputs = self.geometry, self.group_inputs
        if g.dilations[-1] != 1 or self.groups > 1 or not self.channels_last_input:
            return self
        lines = replace(g, kernel=(*g.kernel[:-1], 1))
        return replace(self, geometry=lines, group_inputs=inputs * g.kernel[-1], line=g.kernel[-1])

    @property
    def rank(self) -> int:
        return self.geometry.rank

    @property
    def taps(self) -> int:
        return int(np.prod(self.geometry.kernel))

    @property
    def constant(self) -> bool:
        """Whether the weights are known at compile time."""
        return self.w.data is not None and self.w.producer is None

    @property
    def channels_last_input(self) -> bool:
        return self.x.tensor.strides[1] == 1 and self.x.tensor.axis_order == self.last_order

    @property
    def last_order(self) -> tuple[int, ...]:
        """Axes of a channels-last tensor in memory order."""
        return (0, *range(2, self.rank + 2), 1)

    @property
    def tiled(self) -> bool:
        """Whether the register tile applies: floating point, f32 accumulation, channels-last result."""
        values = [self.x, self.w] + ([self.b] if self.b is not None else [])
        if self.y.dtype not in (F32, F16, BF16) or any(v.tensor.dtype not in (F32, F16, BF16) for v in values):
            return False
        if not self.constant and self.w.tensor.layout is not None and not self.reads_filters:
            return False
        bias_ready = self.b is None or self.b.data is not None or self.b.tensor.dtype == F32
        return bias_ready and self.y.axis_order == self.last_order

    @property
    def pointwise(self) -> bool:
        return self.geometry.is_pointwise and self.line == 1

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel has filters of its own along one or two axes, constant or as they are read."""
        single = self.group_inputs == 1 and self.groups > 1
        return self.tiled and single and self.channels_last_input and self.rank <= 2 and (
            self.constant or self.reads_filters)  # fmt: skip

    @property
    def reads_filters(self) -> bool:
        """Whether computed weights lie as a depthwise kernel reads them: [tap][channel], f32."""
        w, single = self.w.tensor, self.group_inputs == 1 and self.groups > 1
        if self.constant or not single or self.rank > 2 or not self.channels_last_input or w.dtype != F32:
            return False
        channels, kernel = self.groups * self.group_outputs, self.geometry.kernel
        apart = [channels * int(np.prod(kernel[d + 1 :])) for d in range(self.rank)]
        return w.strides[0] == 1 and [*w.strides[2:]] == apart

    def walk(self) -> Walk:
        """How output pixels find their input."""
        g, strides = self.geometry, self.x.tensor.strides
        return Walk(
            g.output, g.input, g.kernel, g.strides, g.dilations, g.pads_begin, g.pads_end, strides[2:], strides[0]
        )


def conv_weights(s: ConvShape, taps_outside: bool) -> np.ndarray:
    """Constant weights as [group, tap, channel, output channel] or [group, channel, tap, output channel].

    A view of the model's, but where groups are merged: those are small.
    """
    assert s.w.data is not None
    w = s.w.data if s.merged == 1 else _spread(s, s.w.data.astype(np.float32))
    if s.line > 1:  # [..., channel, tap, pixel] → [..., pixel, channel, tap]
        channels = s.group_inputs // s.line
        w = np.moveaxis(w.reshape(s.groups, s.group_outputs, channels, s.taps, s.line), -1, 2)
    w = w.reshape(s.groups, s.group_outputs, s.group_inputs, s.taps)
    return w.transpose((0, 3, 2, 1) if taps_outside else (0, 2, 3, 1))


def _spread(s: ConvShape, w: np.ndarray) -> np.ndarray:
    """Merged groups' weights with zeros between them."""
    n = s.merged
    own = w.reshape(s.groups, n, s.group_outputs // n, s.group_inputs // n, s.taps)
    spread = np.zeros((s.groups, n, s.group_outputs // n, n, s.group_inputs // n, s.taps), np.float32)
    for i in range(n):
        spread[:, i, :, i] = own[:, i]
    return spread


def weight_operands(ctx: LowerContext, s: ConvShape, p: Product, taps_outside: bool) -> list[NamedOperand]:
    """The packed weights, or the weights and scratch for one panel."""
    if s.constant:
        emitter, weights = p.emitter, conv_weights(s, taps_outside)
        if emitter.k_step > 1:  # one depth of whole steps
            weights = weights.reshape(s.groups, -1, s.group_outputs)
        packed = packed_panels(ctx, weights, p.kinds, p.lanes, emitter=emitter)
        return [("w", PtrType(emitter.b_element), packed)]
    width = max(kind.vectors for kind in p.kinds) * p.lanes
    room = Scratch(s.taps * (s.group_inputs // p.emitter.k_step) * width * 4)
    found: list[NamedOperand] = [("w", PtrType(s.w.tensor.dtype), s.w), ("wpack", PtrType(p.emitter.b_element), room)]
    if p.emitter.weave is not None:
        found.append(("rows", F32PTR, rows_scratch(s.taps, width, p.emitter)))
    return found


def constant_operands(s: ConvShape) -> bool:
    """Whether weights and bias, if there is one, are known at compile time."""
    return s.constant and (s.b is None or (s.b.data is not None and s.b.producer is None))


def constant_bias(s: ConvShape) -> np.ndarray | None:
    """The bias of a layer with `constant_operands`, as f32."""
    return None if s.b is None or s.b.data is None else s.b.data.astype(np.float32)


def bias_operand(ctx: LowerContext, s: ConvShape, sums: DType = F32) -> NamedOperand:
    """The start of accumulators of a type: the bias, or zeros for one panel."""
    pointer = PtrType(sums)
    if s.b is None:
        return "bias", pointer, ctx.weights.add(np.zeros(4 * ctx.lanes, sums.numpy))
    if s.b.data is None or s.b.producer is not None:
        return "bias", pointer, s.b
    bias = np.zeros(padded_columns(s.groups * s.group_outputs, ctx.lanes), sums.numpy)
    bias[: s.b.data.size] = s.b.data.reshape(-1)
    return "bias", pointer, ctx.weights.add(bias)


def emit_panel(
    k: Builder,
    ctx: LowerContext,
    s: ConvShape,
    p: Product,
    kind: PanelKind,
    group: KValue,
    column: KValue,
    taps_outside: bool,
) -> KValue:
    """Pointer to a packed panel; weights that are not constant are packed here."""
    depth = s.taps * s.group_inputs
    if s.constant:
        packed = p.taps * static(p.kc) * p.emitter.width
        return k.gep(k["w"], (group * padded_columns(s.group_outputs, p.lanes) + column) * packed)
    width = kind.vectors * p.lanes
    n_step, c_step, *tap_steps = s.w.tensor.strides
    tap_step = tap_steps[-1] if tap_steps else 1
    base = (group * s.group_outputs + column) * k.index(n_step)
    valid = k.min(s.group_outputs - column, width)
    if p.emitter.weave is not None:
        return _woven_panel(k, ctx, s, p, Columns(k.gep(k["w"], base), valid, 1, n_step, "transposed"), width)
    one = k.const(1.0, F32)
    if taps_outside:
        copy = copy_function(ctx, s.w.tensor.dtype, "transposed" if c_step == 1 else "strided", p.lanes)

        def tap(t: KValue, _: list[KValue]) -> None:
            k.call(
                copy,
                [
                    k.gep(k["w"], base + t * k.index(tap_step)),
                    k.gep(k["wpack"], t * (s.group_inputs * width)),
                    k.index(s.group_inputs),
                    valid,
                    k.index(c_step),
                    k.index(n_step),
                    k.index(width),
                    k.index(width),
                    one,
                ],
            )

        k.for_(0, s.taps, 1, [], tap)
    else:
        copy = copy_function(ctx, s.w.tensor.dtype, "transposed", p.lanes)
        k.call(
            copy,
            [
                k.gep(k["w"], base),
                k["wpack"],
                k.index(depth),
                valid,
                k.index(1),
                k.index(n_step),
                k.index(width),
                k.index(width),
                one,
            ],
        )
    return k["wpack"]


def _woven_panel(k: Builder, ctx: LowerContext, s: ConvShape, p: Product, columns: Columns, width: int) -> KValue:
    """A panel of computed weights for tiles that take several channels in a step."""
    depth = k.index(s.group_inputs)
    weave_panel(k, ctx, columns, depth, s.taps, width, p.lanes, p.emitter, k["rows"], k["wpack"])
    return k["wpack"]

