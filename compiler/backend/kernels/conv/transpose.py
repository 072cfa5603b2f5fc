"""ConvTranspose, written as a gather: every output pixel sums the taps that land on it.

Along an axis with stride s, output o is reached by tap t from input i = (o + pad - t · dilation) / s if that is whole.
So outputs of one phase (o + pad) mod s share their taps, and consecutive ones read consecutive inputs: a phase of an
output line is an indirect convolution of stride 1 whose rows lie s apart in the result. Weights are stored phase by
phase; which taps a phase has is a small constant table.

    for (image, group, output line, block) in work items:
        for phase of the line:  table of input offsets;  for panel:  tiles of rows
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from ....ir.graph import Node
from ....ir.ops.contraction import ConvTranspose
from ....ir.ops.geometry import WindowGeometry
from ....ir.types import BF16, F32, Dim, DType, ceil_div, lower_bound, prod
from ....kernel_ir.builder import F32PTR, I64PTR, Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...algorithm import Algorithm, candidates
from ...fusion import Fusion, register_dtype
from ...lowering import KernelCall, LowerContext, Operand, Scratch, lowers
from ...microkernels.table import emitter_of, products_of_f32s, without_matrices
from ..matmul.blocking import PanelKind, Product, best_lanes, padded_columns, plan_product, static
from ..matmul.gemm import Operands, ProductEmitter
from ..matmul.pack import packed_panels, pad_vector
from ..plain import Term, decompose, emit_plain, strided_load
from ..tail import Tail, tail_of
from . import depthwise_transposed, pixel_vectorised
from .pixel_shape import Narrow, narrow_transposed
from .transposed_matrices import lower_lines, serves_lines
from .transposed_shape import Transposed
from .weights import NamedOperand

ROW_BLOCK = 96  # outputs of a phase in a work item, as in `matmul.blocking`; chosen, not measured


@lowers(ConvTranspose, windows="rows")
def lower_conv_transpose(ctx: LowerContext, node: Node) -> KernelCall:
    """The kernel call of a (fused) transposed convolution."""
    fusion = Fusion.of(node)
    s = Transposed.of(fusion)
    call = ctx.pick(node, candidates(ALGORITHMS, ctx, TransposedLayer(fusion, s)))
    flops = 2 * prod(s.x.tensor.dims) * (s.group_outputs * int(np.prod(s.geometry.kernel)))
    nbytes = sum((v.tensor.nbytes for v in {*node.operands, *node.outputs}), start=0)
    return replace(call, label=node.name, flops=flops, nbytes=nbytes)


@dataclass(frozen=True)
class TransposedLayer:
    """A transposed convolution with what is fused to it, and its sizes."""

    fusion: Fusion
    shape: Transposed

    @property
    def narrow(self) -> Narrow | None:
        """With pixels along the registers, where its loops can do that."""
        s = self.shape
        return narrow_transposed(self.fusion, s.x, s.w, s.b, s.geometry, s.groups)


TransposedAlgorithm = Algorithm[TransposedLayer]


class PlainAlgorithm(TransposedAlgorithm):
    """What no register tile serves."""

    name = "plain"

    def applies(self, ctx: LowerContext, layer: TransposedLayer) -> bool:
        s = layer.shape
        return not s.is_depthwise and (not s.tiled or s.group_inputs == 0)  # sums of nothing have no panels

    def lower(self, ctx: LowerContext, layer: TransposedLayer) -> KernelCall:
        return lower_plain_transpose(ctx, layer.fusion, layer.shape)


class DepthwiseAlgorithm(TransposedAlgorithm):
    """One filter a channel: nothing else comes near, so nothing is counted."""

    name = "depthwise"

    def applies(self, ctx: LowerContext, layer: TransposedLayer) -> bool:
        return layer.shape.is_depthwise

    def lower(self, ctx: LowerContext, layer: TransposedLayer) -> KernelCall:
        return depthwise_transposed.lower_depthwise_transposed(ctx, layer.fusion, layer.shape.as_conv)


class PhasesAlgorithm(TransposedAlgorithm):
    """Phases as indirect convolutions: what the other one is compared with; of bf16, by tiles of pairs of channels."""

    name = "phases"

    def applies(self, ctx: LowerContext, layer: TransposedLayer) -> bool:
        s = layer.shape
        return s.tiled and s.group_inputs > 0 and not s.is_depthwise

    def lower(self, ctx: LowerContext, layer: TransposedLayer) -> KernelCall:
        return lower_phases(ctx, layer.fusion, layer.shape, BF16 if layer.shape.has_pairs else F32)


class PixelVectorisedAlgorithm(PhasesAlgorithm):
    """Pixels along the registers, where channels fill them badly."""

    name = "narrow"
    max_share = pixel_vectorised.MAX_SHARE

    def applies(self, ctx: LowerContext, layer: TransposedLayer) -> bool:
        if not super().applies(ctx, layer):
            return False
        return layer.narrow is not None and pixel_vectorised.has_sizes(layer.narrow, ctx.target)

    def cost(self, ctx: LowerContext, layer: TransposedLayer) -> float:
        assert layer.narrow is not None
        return pixel_vectorised.share(layer.narrow, ctx.target, best_lanes(ctx.target, layer.shape.group_outputs))

    def lower(self, ctx: LowerContext, layer: TransposedLayer) -> KernelCall:
        assert layer.narrow is not None
        return pixel_vectorised.lower_narrow(ctx, layer.fusion, layer.narrow)


class MatricesAlgorithm(TransposedAlgorithm):
    """Filters that do not overlap, where the target has matrix registers for bf16."""

    name = "matrices"

    def applies(self, ctx: LowerContext, layer: TransposedLayer) -> bool:
        s = layer.shape
        served = s.tiled and s.has_pairs and s.groups == 1 and serves_lines(s.geometry)
        return served and bool(emitter_of(ctx.target, BF16).matrices)

    def cost(self, ctx: LowerContext, layer: TransposedLayer) -> float:
        return 1 / products_of_f32s(ctx.target, BF16)

    def lower(self, ctx: LowerContext, layer: TransposedLayer) -> KernelCall:
        return lower_lines(ctx, layer.fusion, layer.shape)


ALGORITHMS: tuple[TransposedAlgorithm, ...] = (
    PlainAlgorithm(), DepthwiseAlgorithm(), PhasesAlgorithm(), PixelVectorisedAlgorithm(), MatricesAlgorithm()
)  # fmt: skip
"""In the order in which they replace each other (`algorithm.candidates`)."""


@dataclass(frozen=True)
class Phases:
    """Which taps land on which phase.

    Attributes:
        order: taps (flat number) phase by phase. starts: first tap of each phase, and the end. shifts: per tap in
            that order and axis, the input position for quotient 0.
    """

    order: tuple[int, ...]
    starts: np.ndarray
    shifts: np.ndarray

    @property
    def most(self) -> int:
        return max(1, int(np.diff(self.starts).max()))


def plan_phases(g: WindowGeometry) -> Phases:
    """Sort all taps by phase."""
    taps = list(itertools.product(*(range(n) for n in g.kernel)))
    order: list[int] = []
    starts, shifts = [0], []
    for phase in itertools.product(*(range(s) for s in g.strides)):
        for number, tap in enumerate(taps):
            behind = [t * d - r for t, d, r in zip(tap, g.dilations, phase)]
            if all(n % s == 0 for n, s in zip(behind, g.strides)):
                order.append(number)
                shifts.append([-n // s for n, s in zip(behind, g.strides)])
        starts.append(len(order))
    table = np.array(shifts, np.int64).reshape(-1, g.rank)
    return Phases(tuple(order), np.array(starts, np.int64), table)


def lower_phases(ctx: LowerContext, fusion: Fusion, s: Transposed, input_type: DType = F32) -> KernelCall:
    """The kernel on the register tile of an input type; tiles of vectors, as they alone read pixels where they are."""
    ctx = replace(ctx, target=without_matrices(ctx.target))
    g, phases, emitter = s.geometry, plan_phases(s.geometry), emitter_of(ctx.target, input_type)
    n_rows = ceil_div(g.output[-1], g.strides[-1])
    outer, lanes = s.y.tensor.dims[0] * s.groups, best_lanes(ctx.target, s.group_outputs)
    p = plan_product(ctx, outer, n_rows, s.group_outputs, phases.most, s.group_inputs // emitter.k_step, lanes=lanes,
                     input_type=input_type)  # fmt: skip
    block = min(n_rows, ROW_BLOCK) if isinstance(n_rows, int) else ROW_BLOCK
    p = replace(p, rows_known=False, row_block=block, panels_per_item=p.n_panels)
    tail = tail_of(fusion, ctx.symbols)
    assert s.w.data is not None
    w = s.w.data.reshape(s.groups, s.group_inputs, s.group_outputs, -1).transpose(0, 3, 1, 2)
    bias = np.zeros(4 * ctx.lanes, np.float32)
    if s.b is not None and s.b.data is not None:
        bias = pad_vector(s.b.data.astype(np.float32), padded_columns(s.groups * s.group_outputs, ctx.lanes))
    operands: list[NamedOperand] = [
        ("a", PtrType(emitter.element), s.x),
        ("zero", PtrType(emitter.element), ctx.weights.add(np.zeros(s.group_inputs, emitter.element.numpy))),
        ("w", PtrType(emitter.b_element), packed_panels(ctx, w, p.kinds, p.lanes, order=phases.order, emitter=emitter)),
        ("bias", F32PTR, ctx.weights.add(bias)),
        ("starts", I64PTR, ctx.weights.add(phases.starts)),
        ("shifts", I64PTR, ctx.weights.add(phases.shifts)),
        ("table", I64PTR, Scratch(8 * p.table_entries)),
        ("partial", F32PTR, Scratch(p.partial_nbytes)),
    ]
    n_blocks = ceil_div(n_rows, block)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        TransposedEmitter(k, ctx, s, p, tail, len(phases.order), n_blocks).emit()
        return k.func

    func = ctx.function("conv_transpose", fusion.node, build, input_type)
    work = s.y.tensor.dims[0] * s.groups * prod(g.output[:-1]) * n_blocks
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), work)


def quotient(k: Builder, place: KValue, pad: Dim, stride: int) -> KValue:
    """floor((place + pad) / stride), below 0 where a negative pad is a margin."""
    margin = max(0, math.ceil(-lower_bound(pad) / stride))
    return k.udiv(place + (k.index(pad) + margin * stride), stride) - margin


class TransposedEmitter:
    """Emits the loops over output lines and phases."""

    def __init__(
        self, k: Builder, ctx: LowerContext, s: Transposed, p: Product, tail: Tail, n_taps: int, n_blocks: Dim
    ) -> None:
        self.k, self.ctx, self.s, self.p, self.tail, self.n_taps, self.n_blocks = k, ctx, s, p, tail, n_taps, n_blocks

    def emit(self) -> None:
        """The loop over work items."""
        k, g = self.k, self.s.geometry
        sizes = (1 << 62, self.s.groups, *g.output[:-1], self.n_blocks)

        def item(index: KValue, _: list[KValue]) -> None:
            image, group, *lines, block = decompose(k, index, range(len(sizes)), sizes)
            quotients = [quotient(k, o, p, s) for o, p, s in zip(lines, g.pads_begin, g.strides)]
            number = k.index(0)
            for o, p, q, s in zip(lines, g.pads_begin, quotients, g.strides):
                number = number * s + (o + k.index(p) - q * s)
            y_line = image
            for o, n in zip(lines, g.output):
                y_line = y_line * k.index(n) + o
            stride = g.strides[-1]
            k.for_(
                0,
                stride,
                1,
                [],
                lambda r, _: self.phase(
                    image, group, quotients, number * stride + r, r, block, y_line * k.index(g.output[-1])
                ),
            )

        k.for_(k["begin"], k["end"], 1, [], item)

    def phase(
        self,
        image: KValue,
        group: KValue,
        quotients: list[KValue],
        number: KValue,
        r: KValue,
        block: KValue,
        y_line: KValue,
    ) -> None:
        """One block of the outputs of an output line whose phase is r."""
        k, s, g, p = self.k, self.s, self.s.geometry, self.p
        stride, pad = g.strides[-1], static(g.pads_begin[-1])
        before = r - (pad % stride)
        first = k.select(before < 0, before + stride, before)
        column = quotient(k, first, pad, stride)
        total = k.udiv(k.max(k.index(g.output[-1]) - first, 0) + (stride - 1), stride)
        row0 = block * k.index(p.row_block)
        count = k.min(total - row0, k.index(p.row_block))
        start = k.load(k["starts"], number)
        taps = k.load(k["starts"], number + 1) - start
        base = image * k.index(s.x.tensor.strides[0]) + group * s.group_inputs

        def tiles() -> None:
            k.for_(0, taps, 1, [], lambda t, _: self.offsets(t, start, base, [*quotients, column + row0], count))
            emitter = ProductEmitter(k, self.ctx, p, self.tail, self.operands(group, start, y_line + first), taps)
            emitter.panels(k.index(0), row0, count, k.index(0), k.index(p.n_panels))

        k.if_(count > 0, tiles)

    def offsets(self, t: KValue, start: KValue, base: KValue, quotients: list[KValue], count: KValue) -> None:
        """The block's row of the offset table for one tap."""
        k, g, strides = self.k, self.s.geometry, self.s.x.tensor.strides[2:]
        positions = [q + k.load(k["shifts"], (start + t) * g.rank + d) for d, q in enumerate(quotients)]
        valid: KValue = k.index(0) == 0
        for d, at in enumerate(positions[:-1]):
            base = base + at * k.index(strides[d])
            valid = valid & (at >= 0) & (at < k.index(g.input[d]))
        last, step = positions[-1], k.index(strides[-1])

        def row(i: KValue, _: list[KValue]) -> None:
            inside = valid & (last + i >= 0) & (last + i < k.index(g.input[-1]))
            k.store(k["table"], t * k.index(self.p.row_block) + i, k.select(inside, base + (last + i) * step, -1))

        k.for_(0, count, 1, [], row)

    def operands(self, group: KValue, start: KValue, y_first: KValue) -> Operands:
        k, s, p = self.k, self.s, self.p
        padded, depth = padded_columns(s.group_outputs, p.lanes), static(p.kc) * p.emitter.width

        def panel(_: KValue, kind: PanelKind, number: KValue, column: KValue) -> KValue:
            width = kind.vectors * p.lanes
            at = (group * padded + column) * (self.n_taps * depth) + start * (depth * width)
            return k.gep(k["w"], at)

        return Operands(
            a=k["a"],
            zero=k["zero"],
            table=k["table"],
            partial=k["partial"],
            fill_table=lambda outer, row0, count: None,
            panel=panel,
            bias=lambda column: k.gep(k["bias"], column) if s.b is not None else k["bias"],
            row_base=lambda outer: y_first,
            pitch=s.y.tensor.pitch,
            row_step=s.geometry.strides[-1],
            column_base=lambda outer: group * s.group_outputs,
        )


def lower_plain_transpose(ctx: LowerContext, fusion: Fusion, s: Transposed) -> KernelCall:
    """One output at a time: every type and layout."""
    y, g = s.y.tensor, s.geometry
    operands: list[tuple[str, PtrType, Operand]] = [
        ("x", PtrType(s.x.tensor.dtype), s.x),
        ("w", PtrType(s.w.tensor.dtype), s.w),
    ]
    if s.b is not None:
        operands.append(("b", PtrType(s.b.tensor.dtype), s.b))
    dtype = register_dtype(y.dtype)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())

        def full(index: list[KValue], column: KValue) -> list[KValue]:
            return [column if a == y.axis_order[-1] else i for a, i in enumerate(index)]

        def term(index: list[KValue], column: KValue, inside: list[KValue]) -> Term:
            image, channel, *out = full(index, column)
            c, *tap = inside
            xs, ws = s.x.tensor.strides, s.w.tensor.strides
            group = k.udiv(channel, s.group_outputs)
            source = group * s.group_inputs + c
            x_at = image * k.index(xs[0]) + source * k.index(xs[1])
            w_at = source * k.index(ws[0]) + (channel - group * s.group_outputs) * k.index(ws[1])
            valid: KValue = k.index(0) == 0
            for d in range(g.rank):
                at = out[d] + k.index(g.pads_begin[d]) - tap[d] * g.dilations[d]
                from_ = k.udiv(k.max(at, 0), g.strides[d])
                valid = valid & (at >= 0) & (from_ * g.strides[d] == at) & (from_ < k.index(g.input[d]))
                x_at, w_at = x_at + from_ * k.index(xs[2 + d]), w_at + tap[d] * k.index(ws[2 + d])
            return Term(x_at, w_at, 0, 0, valid)

        def start(index: list[KValue], column: KValue, lanes: int, mask: KValue | None) -> KValue:
            if s.b is None:
                return k.const(0, dtype)
            return k.cast(strided_load(k, k["b"], full(index, column)[1], 0, lanes, mask), dtype)

        emit_plain(k, fusion, dtype, 1, (s.group_inputs, *g.kernel), term, start)
        return k.func

    func = ctx.function("plain_conv_transpose", fusion.node, build)
    work = prod(y.dims[a] for a in y.axis_order[:-1])
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), work)
