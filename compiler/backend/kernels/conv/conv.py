"""Conv: which algorithm takes a layer, and the indirect convolution (Dukhan, 2019) over channels-last tensors.

    rows = output pixels, columns = output channels of a group, taps = kernel positions, k = input channels

1×1 kernels without padding are the same product with one tap. Few input channels or an input that is not
channels-last: `conv_gather`. One channel per group: `depthwise`, a few: `conv_groups`. Few output channels:
`conv_narrow`, of 1×1 groups: `conv_quads`. Other element types and layouts: the plain kernel.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....ir.graph import Node
from ....ir.ops.contraction import Conv, IntegralConv
from ....ir.types import prod
from ....kernel_ir.builder import F32, F32PTR, I64PTR, Builder, KValue
from ....kernel_ir.loops import KFunc
from ....targets.target import Target
from ...fusion import Fusion
from ...lowering import Candidates, KernelCall, LowerContext, Scratch, lowers
from ...microkernels.table import tallest_tile
from ..matmul.blocking import LEAST_SEGMENT, PanelKind, Product, best_lanes, plan_product, static
from ..matmul.gemm import Operands, ProductEmitter
from ..matmul.strassen import lower as strassen
from ..tail import tail_of
from .cost import FEW_CHANNELS
from .depthwise import is_depthwise, lower_depthwise
from .gather import lower_gathered
from .groups import arrangement, lower_groups
from .inverted import lower_inverted
from .pixel_shape import Narrow, narrow_conv
from .pixel_vectorised import WORTH, cycles_by_channels, lower_narrow, pays
from .pixel_vectorised import cycles as narrow_cycles
from .pixel_vectorised import plan as narrow_plan
from .plain import lower_plain
from .quads import lower_quads, quads_of
from .separable import chained, lower_separable
from .tables import fill_offsets
from .weights import (
    ConvShape,
    NamedOperand,
    bias_operand,
    constant_bias,
    constant_operands,
    conv_weights,
    emit_panel,
    weight_operands,
)
from .winograd import lower as winograd

PANEL_VECTORS = 2  # groups up to that many registers wide are panels side by side


def _is_exact(fusion: Fusion, ctx: LowerContext) -> bool:
    """Whether no algorithm may be used whose rounding differs from plain sums of products."""
    return not ctx.fp.winograd or isinstance(fusion.root.op, IntegralConv)


@lowers(Conv, windows="rows", read="any")
def lower_conv(ctx: LowerContext, node: Node) -> KernelCall:
    """The kernel call of a (fused) convolution."""
    parts = chained(node)
    if parts:
        sizes = [(part.result.tensor, part.root_inputs[1]) for part in parts]
        flops = sum(2 * prod(y.dims) * prod(w.tensor.dims[1:]) for y, w in sizes if w is not None)
        nbytes = sum((v.tensor.nbytes for v in {*node.operands, *node.outputs}), start=0)
        call = lower_separable(ctx, *parts) if len(parts) == 2 else lower_inverted(ctx, *parts)
        return replace(call, label=node.name, flops=flops, nbytes=nbytes)
    fusion = Fusion.of(node)
    s = ConvShape.of(fusion)
    y = fusion.result.tensor
    flops = 2 * prod(y.dims) * (s.group_inputs * s.taps)
    nbytes = sum((v.tensor.nbytes for v in {*node.operands, *node.outputs}), start=0)
    return replace(ctx.pick(node, candidates(ctx, fusion, s)), label=node.name, flops=flops, nbytes=nbytes)


def candidates(ctx: LowerContext, fusion: Fusion, s: ConvShape) -> Candidates:
    """The algorithms that can serve a layer, by name, the one expected to be fastest first."""
    if not s.tiled or s.group_inputs * s.taps == 0:  # sums of nothing have no panels
        return {"plain": lambda c: lower_plain(c, fusion, s)}
    if is_depthwise(s):
        return {"depthwise": lambda c: lower_depthwise(c, fusion, s)}
    wide = s.merge_groups(ctx.lanes)
    own = wide if ctx.fp.merged_groups else s
    indirect = s.x.tensor.dtype == F32 and s.channels_last_input and own.group_inputs >= FEW_CHANNELS
    small = arrangement(s, ctx.target)
    first: Candidates = {"groups": lambda c: lower_groups(c, fusion, s, small)} if small is not None else {}
    narrow = narrow_conv(fusion, s) if small is None else None
    if narrow is not None and pays(narrow, ctx.target, best_lanes(ctx.target, wide.group_outputs), wide.merged):
        first = {"narrow": lambda c: lower_narrow(c, fusion, narrow)}
    quads = quads_of(fusion, s, ctx.target)
    if quads is not None and quads.cycles(s, ctx.target) < WORTH * _cycles(wide, ctx.target, narrow if first else None):
        first = {"quads": lambda c: lower_quads(c, fusion, s, quads), **first}
    if not indirect:
        return {**first, "gathered": lambda c: lower_gathered(c, fusion, own)}
    direct: Candidates = {**first, "direct": lambda c: lower_indirect(c, fusion, own)}
    if s.constant:
        direct["direct-short"] = lambda c: lower_indirect(c, fusion, own, row_share=0.5)
        direct["direct-long"] = lambda c: lower_indirect(c, fusion, own, row_share=2)
    if not _is_exact(fusion, ctx) and has_halves(s):
        return strassen.candidates(ctx, blocks(ctx, s)[0], direct, lambda c, p: by_strassen(c, fusion, s, p))
    if _is_exact(fusion, ctx) or not winograd.applies(s, ctx.target):
        return direct
    return winograd.candidates(ctx, fusion, s, direct)


def _cycles(s: ConvShape, target: Target, narrow: Narrow | None) -> float:
    """Of one image, with pixels along the registers where `narrow` is given, else with channels."""
    sizes = None if narrow is None else narrow_plan(narrow, target)
    if narrow is not None and sizes is not None:
        return narrow_cycles(narrow, target, sizes)
    pixels, outputs = static(prod(s.geometry.output)), s.group_outputs
    multiply_adds = pixels * s.groups * outputs * s.group_inputs * s.taps
    return cycles_by_channels(target, best_lanes(target, outputs), outputs, pixels, multiply_adds, s.groups == 1)


def has_halves(s: ConvShape) -> bool:
    """Whether a layer is one product of constant weights whose rows are pixels as they lie."""
    g = s.geometry
    unpadded = all(p == 0 for p in (*g.pads_begin, *g.pads_end))
    return s.taps == 1 and s.groups == 1 and unpadded and constant_operands(s)


def by_strassen(ctx: LowerContext, fusion: Fusion, s: ConvShape, p: Product) -> KernelCall:
    """A layer that `has_halves` by Strassen's algorithm."""
    product = strassen.Strassen(ctx, p, conv_weights(s, taps_outside=True)[0, 0], constant_bias(s))
    return product.lower(ctx, fusion, tail_of(fusion, ctx.symbols), [("a", F32PTR, s.x)],
                         lambda k: indirect_operands(k, ctx, s, p, False))  # fmt: skip


def lower_indirect(ctx: LowerContext, fusion: Fusion, s: ConvShape, row_share: float = 1) -> KernelCall:
    """Input channels are contiguous: every tap of every output pixel is a row of A.

    Args:
        row_share: rows of a work item, against what the plan of the product takes.
    """
    p, own = blocks(ctx, s)
    p = _with_blocks(ctx, p, row_share)
    packed = p if own is None else replace(p, kinds=(own,))
    tail = tail_of(fusion, ctx.symbols)
    zeros = ctx.weights.add(np.zeros(s.group_inputs, np.float32))
    operands: list[NamedOperand] = [
        ("a", F32PTR, s.x),
        ("zeros", F32PTR, zeros),
        *weight_operands(ctx, s, packed, taps_outside=True),
        bias_operand(ctx, s),
        ("table", I64PTR, Scratch(8 * p.table_entries)),
        ("partial", F32PTR, Scratch(p.partial_nbytes)),
    ]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        ProductEmitter(k, ctx, p, tail, indirect_operands(k, ctx, s, p, own is not None)).emit()
        return k.func

    func = ctx.function("conv", fusion.node, build, s.constant, p.row_block)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), p.work)


def blocks(ctx: LowerContext, s: ConvShape) -> tuple[Product, PanelKind | None]:
    """How an indirect convolution is blocked; and the panel of a group, where groups are the panels of one product."""
    pixels = prod(s.geometry.output)
    rows = s.y.dims[0] * pixels
    segment = pixels if isinstance(pixels, int) and pixels >= LEAST_SEGMENT else 0
    lanes = best_lanes(ctx.target, s.group_outputs)
    vectors = s.group_outputs // lanes
    if s.groups > 1 and s.constant and vectors * lanes == s.group_outputs and vectors <= PANEL_VECTORS:
        own = PanelKind(vectors, False, 0, 1, 0)  # groups share the table of offsets
        p = plan_product(
            ctx,
            1,
            rows,
            s.groups * s.group_outputs,
            s.taps,
            s.group_inputs,
            lanes=lanes,
            kinds=(replace(own, count=s.groups),),
            segment=segment,
        )
        return p, own
    p = plan_product(
        ctx,
        s.groups,
        rows,
        s.group_outputs,
        s.taps,
        s.group_inputs,
        lanes=lanes,
        whole_rows=0 if s.constant else 384,
        segment=segment if s.constant else 0,
    )
    return p, None


def _with_blocks(ctx: LowerContext, p: Product, row_share: float) -> Product:
    """The product with work items of `row_share` times the rows: whole tiles, within an image where blocks are."""
    if row_share == 1 or not isinstance(p.row_block, int):
        return p
    tallest = max(tallest_tile(ctx.target, kind.vectors) for kind in p.kinds)
    block = max(1, round(p.row_block * row_share / tallest)) * tallest
    return replace(p, row_block=min(block, p.segment) if p.segment else block)


def indirect_operands(k: Builder, ctx: LowerContext, s: ConvShape, p: Product, side_by_side: bool) -> Operands:
    """Where the tiles of an indirect convolution find their operands."""
    walk = s.walk()

    def panel(group: KValue, kind: PanelKind, number: KValue, column: KValue) -> KValue:
        at = (number, k.index(0)) if side_by_side else (group, column)
        return emit_panel(k, ctx, s, p, kind, *at, taps_outside=True)

    def fill(group: KValue, row0: KValue, count: KValue) -> None:
        base = group * s.group_inputs
        if s.pointwise and s.x.tensor.has_rows:
            step = s.x.tensor.pitch
            k.for_(0, count, 1, [], lambda i, _: k.store(k["table"], i, base + (row0 + i) * k.index(step)))
        else:
            fill_offsets(k, walk, k["table"], k.index(p.row_block), row0, count, base)

    return Operands(
        a=k["a"],
        zero=k["zeros"],
        table=k["table"],
        partial=k["partial"],
        fill_table=fill,
        panel=panel,
        bias=lambda column: k.gep(k["bias"], column) if s.b is not None else k["bias"],
        row_base=lambda group: k.index(0),
        pitch=s.y.pitch,
        column_base=lambda group: group * s.group_outputs,
        a_shift=(lambda number: number * s.group_inputs) if side_by_side else None,
    )
