"""Convolution with few input channels, or an input that is not channels-last f32: the first layer of most networks.

Each work item copies the input rows under a block of output rows into scratch, padded, one plane per channel, as f32.
There every product of channel and tap is at a fixed offset `koff[k]` from an output pixel's corner, so that one loop
over k = (channel, tap) serves all taps without tests for padding. Tiles that take two inputs in a step find two columns
of a tap's line at a place (`gather_pairs`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ....ir.types import Dim, DType, SymDim, ceil_div, prod
from ....kernel_ir.builder import F32, F32PTR, I64PTR, Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Operand, Scratch
from ...microkernels.table import emitter_of
from ..matmul.blocking import Product, best_lanes, plan_product, size_hint, static
from ..matmul.gemm import Operands, ProductEmitter
from ..plain import strided_load
from ..tail import tail_of
from .layer import ConvAlgorithm, ConvLayer
from .tables import Walk, fill_offsets
from .weights import ConvShape, NamedOperand, bias_operand, emit_panel, weight_operands

SCRATCH_NBYTES = 160 << 10  # of the copied rows, which stay in any second-level cache; chosen, not measured


class GatheredAlgorithm(ConvAlgorithm):
    """Few input channels, or an input that the indirect convolution cannot read."""

    name = "gathered"

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        return layer.is_single(ctx) and not layer.is_indirect(ctx)

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        return lower_gathered(ctx, layer.fusion, layer.own(ctx), PLAIN)


@dataclass(frozen=True)
class Planes:
    """The padded copy [channel][first axis][other axes] of the input under a block of output rows, or several of them.

    Attributes:
        block: output positions of the first spatial axis per work item. sizes: of the copy's spatial axes (the last
            one rounded up to whole vectors).
        columns: where a line of a filter finds its steps: (which copy, how many places from the corner on).
        width: elements of A at a place, four bytes together.
    """

    block: int
    channels: int
    sizes: tuple[Dim, ...]
    columns: tuple[tuple[int, int], ...]
    width: int

    @property
    def plane(self) -> Dim:
        return prod(self.sizes)

    @property
    def copies(self) -> int:
        return 1 + max(copy for copy, _ in self.columns)

    @property
    def nbytes(self) -> Dim:
        return self.plane * (4 * self.channels * self.copies)

    @property
    def strides(self) -> tuple[Dim, ...]:
        return tuple(prod(self.sizes[i + 1 :]) for i in range(len(self.sizes)))


@dataclass(frozen=True)
class Gathering:
    """What is copied, and how tiles read it: steps of one element.

    Attributes:
        input_type: of the tiles.
    """

    input_type: DType = F32

    def columns(self, kernel: int, dilation: int) -> tuple[tuple[int, int], ...]:
        """`Planes.columns` of a filter's last axis."""
        return tuple((0, column * dilation) for column in range(kernel))

    def operands(self, ctx: LowerContext, s: ConvShape, p: Product) -> list[NamedOperand]:
        """The weights, as `emit_panel` finds panels in them, or what it packs them with."""
        return weight_operands(ctx, s, p, taps_outside=False)

    def copier(self, k: Builder, s: ConvShape, planes: Planes, lanes: int) -> PlaneCopier:
        """What fills the planes."""
        return PlaneCopier(k, s, planes, lanes)


PLAIN = Gathering()


def plan_planes(s: ConvShape, lanes: int, how: Gathering, width: int) -> Planes:
    """As many output rows as leave work for a few cores and keep the copy in L2."""
    g = s.geometry
    inner = tuple((o - 1) * st + e for o, st, e in zip(g.output[1:], g.strides[1:], g.extent[1:]))
    if inner:
        inner = (*inner[:-1], ceil_div(inner[-1], lanes) * lanes + lanes)

    columns = how.columns(g.kernel[-1], g.dilations[-1])

    def planes(block: int) -> Planes:
        return Planes(block, s.group_inputs, ((block - 1) * g.strides[0] + g.extent[0], *inner), columns, width)

    rows = size_hint(g.output[0])
    block = max(1, rows // 8) if inner else min(rows, 96)
    while block > 1 and size_hint(planes(block).nbytes) > SCRATCH_NBYTES:
        block -= 1
    return planes(block)


def lower_gathered(ctx: LowerContext, fusion: Fusion, s: ConvShape, how: Gathering) -> KernelCall:
    """The kernel call; outer items are (image, group), rows the output pixels of one image."""
    g, emitter = s.geometry, emitter_of(ctx.target, how.input_type)
    planes = plan_planes(s, ctx.lanes, how, emitter.width)
    depth = s.group_inputs * (s.taps // g.kernel[-1]) * len(planes.columns)
    outer = s.y.dims[0] * s.groups
    pixels = prod(g.output)
    p = plan_product(
        ctx, outer, pixels, s.group_outputs, 1, depth, indexed=True, lanes=best_lanes(ctx.target, s.group_outputs),
        input_type=how.input_type,
    )  # fmt: skip
    row_block = prod(g.output[1:]) * planes.block
    p = replace(p, row_block=row_block, panels_per_item=p.n_panels)
    tail = tail_of(fusion, ctx.symbols)
    offsets = k_offsets(s, planes)
    koff: NamedOperand = ("koff", I64PTR, Scratch(8 * depth) if offsets is None else ctx.weights.add(offsets))
    operands = [
        ("x", PtrType(s.x.tensor.dtype), s.x),
        *how.operands(ctx, s, p),
        bias_operand(ctx, s),
        koff,
        ("planes", PtrType(emitter.element), Scratch(planes.nbytes)),
        ("table", I64PTR, rows_operand(ctx, s, planes, p.table_entries)),
        ("partial", F32PTR, Scratch(p.partial_nbytes)),
    ]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        ProductEmitter(k, ctx, p, tail, gathered_operands(k, ctx, s, p, planes, how)).emit()
        return k.func

    func = ctx.function("conv_gather", fusion.node, build, s.constant, how.input_type)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), p.work)


def gathered_operands(k: Builder, ctx: LowerContext, s: ConvShape, p: Product, planes: Planes,
                      how: Gathering) -> Operands:  # fmt: skip
    """Where the tiles find their operands; each work item first fills the planes."""
    g = s.geometry
    fixed = k_offsets(s, planes) is not None
    pixels = prod(g.output)
    copier = how.copier(k, s, planes, ctx.lanes)

    def group_of(item: KValue) -> KValue:
        return k.urem(item, s.groups)

    def fill(item: KValue, row0: KValue, count: KValue) -> None:
        image = k.udiv(item, s.groups)
        first = k.udiv(row0, k.index(prod(g.output[1:])))
        copier.copy(image, group_of(item), first)
        if not fixed:
            copier.write_k_offsets()
        if not isinstance(p.table_entries, int) or not fixed:
            fill_offsets(k, corners(s, planes), k["table"], k.index(1), k.index(0), count, k.index(0))

    return Operands(
        a=k["planes"],
        zero=k["planes"],
        table=k["table"],
        partial=k["partial"],
        koff=k["koff"],
        fill_table=fill,
        panel=lambda item, kind, panel, column: emit_panel(k, ctx, s, p, kind, group_of(item), column, False),
        bias=lambda column: k.gep(k["bias"], column) if s.b is not None else k["bias"],
        row_base=lambda item: k.udiv(item, s.groups) * k.index(pixels),
        pitch=s.y.pitch,
        column_base=lambda item: group_of(item) * s.group_outputs,
    )


def corners(s: ConvShape, planes: Planes) -> Walk:
    """Output pixels of a block → their corner in the planes: a window of one tap without padding."""
    g = s.geometry
    ones, zeros = (1,) * g.rank, (0,) * g.rank
    steps = tuple(stride * planes.width for stride in planes.strides)
    return Walk(g.output, planes.sizes, ones, g.strides, ones, zeros, zeros, steps, 0)


def k_offsets(s: ConvShape, planes: Planes) -> np.ndarray | None:
    """Elements from a corner to each step of k, (channel, line of the filter, step of the line); None if the planes'
    size is symbolic.
    """
    g = s.geometry
    if any(isinstance(n, SymDim) for n in planes.sizes):
        return None
    offsets = np.arange(s.group_inputs, dtype=np.int64) * static(planes.plane)
    for size, dilation, stride in zip(g.kernel[:-1], g.dilations, planes.strides):
        offsets = (offsets[:, None] + np.arange(size, dtype=np.int64) * (dilation * static(stride))).reshape(-1)
    whole = s.group_inputs * static(planes.plane)
    along = np.array([copy * whole + place for copy, place in planes.columns], np.int64)
    return (offsets[:, None] + along).reshape(-1) * planes.width


def rows_operand(ctx: LowerContext, s: ConvShape, planes: Planes, n_rows: Dim) -> Operand:
    """The corners of a block's output pixels: the same for all blocks, a constant if the sizes are."""
    if isinstance(n_rows, SymDim) or k_offsets(s, planes) is None:
        return Scratch(8 * n_rows)
    steps = [stride * static(n) * planes.width for stride, n in zip(s.geometry.strides, planes.strides)]
    sizes = (planes.block, *s.geometry.output[1:])
    corner = np.zeros(1, np.int64)
    for size, step in zip(sizes, steps):
        corner = (corner[:, None] + np.arange(static(size), dtype=np.int64) * step).reshape(-1)
    return ctx.weights.add(corner)


class PlaneCopier:
    """Emits the copy of input rows into the planes."""

    def __init__(self, k: Builder, s: ConvShape, planes: Planes, lanes: int) -> None:
        self.k, self.s, self.planes, self.lanes = k, s, planes, lanes

    def copy(self, image: KValue, group: KValue, first: KValue) -> None:
        """Fill all planes for the output rows from `first` on."""
        k, s, g = self.k, self.s, self.s.geometry
        strides = s.x.tensor.strides
        base = image * k.index(strides[0]) + group * s.group_inputs * k.index(strides[1])
        corner = [first * g.strides[0] - k.index(g.pads_begin[0]), *(k.index(0) - k.index(p) for p in g.pads_begin[1:])]

        def channel(c: KValue, _: list[KValue]) -> None:
            self.axis(0, corner, base + c * k.index(strides[1]), c * k.index(self.planes.plane), k.index(0) == 0)

        k.for_(0, s.group_inputs, 1, [], channel)

    def write_k_offsets(self) -> None:
        """`k_offsets` at run time, for planes of symbolic size."""
        k, g, planes = self.k, self.s.geometry, self.planes
        sizes = (self.s.group_inputs, *g.kernel[:-1])
        steps = [k.index(planes.plane)]
        steps += [k.index(stride) * dilation for stride, dilation in zip(planes.strides, g.dilations[:-1])]
        whole = k.index(planes.plane) * self.s.group_inputs

        def loop(d: int, at: KValue, offset: KValue) -> None:
            if d == len(sizes):
                for i, (copy, place) in enumerate(planes.columns):
                    to = at * len(planes.columns) + i
                    k.store(k["koff"], to, (offset + whole * copy + place) * planes.width)
                return
            k.for_(0, sizes[d], 1, [], lambda i, _: loop(d + 1, at * sizes[d] + i, offset + i * steps[d]))

        loop(0, k.index(0), k.index(0))

    def axis(self, d: int, corner: list[KValue], source: KValue, target: KValue, valid: KValue) -> None:
        """Copy along spatial axis d and those inside it; rows outside the input become zeros."""
        k, g = self.k, self.s.geometry
        stride, size = self.s.x.tensor.strides[2 + d], self.planes.sizes[d]
        if d == g.rank - 1 and d > 0:
            self.line(corner[d], source, target, valid)
            return

        def one(i: KValue, _: list[KValue]) -> None:
            at = corner[d] + i
            inside = (at >= 0) & (at < k.index(g.input[d])) & valid
            from_, to = source + at * k.index(stride), target + i * k.index(self.planes.strides[d])
            if d < g.rank - 1:
                self.axis(d + 1, corner, from_, to, inside)
                return
            value = k.if_(inside, lambda: [k.cast(k.load(k["x"], from_), F32)], lambda: [k.const(0.0, F32)])[0]
            k.store(k["planes"], to, value)

        k.for_(0, k.index(size), 1, [], one)

    def line(self, corner: KValue, source: KValue, target: KValue, valid: KValue) -> None:
        """One line of the last axis: zeros, then the input's elements from -corner on."""
        k, lanes, g = self.k, self.lanes, self.s.geometry
        zero = k.splat(k.const(0.0, F32), lanes)
        planes, last = k["planes"], g.rank - 1
        step, length = self.s.x.tensor.strides[1 + g.rank], k.index(self.planes.sizes[last])
        k.for_(0, length, lanes, [], lambda i, _: k.store(planes, target + i, zero))
        count = k.min(k.index(g.input[last]), length + corner)
        to = target - corner

        def piece(i: KValue, mask: KValue | None) -> None:
            value = strided_load(k, k["x"], source + i * k.index(step), step, lanes, mask)
            k.store(planes, to + i, k.cast(value, F32), mask)

        def elements() -> None:
            whole = k.udiv(k.max(count, 0), lanes) * lanes
            k.for_(0, whole, lanes, [], lambda i, _: piece(i, None))
            k.for_(whole, count, lanes, [], lambda i, _: piece(i, k.tail_mask(count - i, lanes)))

        k.if_(valid, elements)
