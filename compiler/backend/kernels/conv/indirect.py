"""The indirect convolution (Dukhan, 2019) over channels-last tensors: a product whose rows are found through a table.

    rows = output pixels, columns = output channels of a group, taps = kernel positions, k = input channels

1×1 kernels without padding are the same product with one tap.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ....ir.types import F32, DType, prod
from ....kernel_ir.builder import I64PTR, Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Scratch
from ...microkernels.emitter import Emitter
from ...microkernels.table import tallest_tile
from ..matmul.blocking import LEAST_SEGMENT, PanelKind, Product, plan_product
from ..matmul.gemm import Operands, ProductEmitter
from ..tail import tail_of
from .layer import ConvAlgorithm, ConvLayer, tiles_of
from .tables import fill_offsets
from .weights import (
    ConvShape,
    NamedOperand,
    bias_operand,
    emit_panel,
    weight_operands,
)

PANEL_VECTORS = 2  # groups up to that many registers wide are panels side by side


class DirectAlgorithm(ConvAlgorithm):
    """The indirect convolution: what other algorithms are compared with.

    Args:
        row_share: rows of a work item, against what the plan of the product takes; any but 1 only where it is measured.
    """

    def __init__(self, name: str, row_share: float = 1) -> None:
        self.name, self.row_share = name, row_share
        self.max_share, self.measured_share = (1.0, 0.0) if row_share == 1 else (0.0, math.inf)

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        if not layer.is_indirect(ctx):
            return False
        return self.row_share == 1 or (layer.shape.constant and self._cuts_otherwise(ctx, layer.own(ctx)))

    def _cuts_otherwise(self, ctx: LowerContext, s: ConvShape) -> bool:
        """Whether it is another kernel than that of the plan of the product."""
        p, _ = blocks(ctx, s, F32, *tiles_of(ctx.target, s, F32), by_rows=True)
        return _with_blocks(ctx, p, self.row_share) != p

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        return lower_indirect(ctx, layer.fusion, layer.own(ctx), self.row_share)


def lower_indirect(ctx: LowerContext, fusion: Fusion, s: ConvShape, row_share: float = 1,
                   input_type: DType = F32, margin: int = 0) -> KernelCall:  # fmt: skip
    """Input channels are contiguous: every tap of every output pixel is a row of A.

    Args:
        row_share: rows of a work item, against what the plan of the product takes.
        input_type: of the tiles; where they take several channels in a step, those of a pixel are whole steps.
        margin: what padding consists of.
    """
    p, own = blocks(ctx, s, input_type, *tiles_of(ctx.target, s, input_type), by_rows=s.constant)
    p, emitter = _with_blocks(ctx, p.spaced(s.x.tensor.pitch) if has_spaced_rows(s) else p, row_share), p.emitter
    packed = p if own is None else replace(p, kinds=(own,))
    tail = tail_of(fusion, ctx.symbols)
    element = PtrType(emitter.element)
    zeros = ctx.weights.add(np.full(s.group_inputs, margin, emitter.element.numpy))
    operands: list[NamedOperand] = [
        ("a", element, s.x),
        ("zeros", element, zeros),
        *weight_operands(ctx, s, packed, taps_outside=True),
        bias_operand(ctx, s, emitter.sums),
        ("table", I64PTR, Scratch(8 * p.table_entries)),
        ("partial", PtrType(emitter.sums), Scratch(p.partial_nbytes)),
    ]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        ProductEmitter(k, ctx, p, tail, indirect_operands(k, ctx, s, p, own is not None)).emit()
        return k.func

    func = ctx.function("conv", fusion.node, build, s.constant, p.row_block, input_type)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), p.work)


def blocks(
    ctx: LowerContext, s: ConvShape, input_type: DType, lanes: int, emitter: Emitter, by_rows: bool = False
) -> tuple[Product, PanelKind | None]:
    """How an indirect convolution is blocked by the tiles of `tiles_of`; and the panel of a group, where groups are
    the panels of one product.

    Args:
        by_rows: see `plan_product`.
    """
    pixels = prod(s.geometry.output)
    rows = s.y.dims[0] * pixels
    segment = pixels if isinstance(pixels, int) and pixels >= LEAST_SEGMENT else 0
    vectors, depth = s.group_outputs // lanes, s.group_inputs // emitter.k_step
    if s.groups > 1 and s.constant and vectors * lanes == s.group_outputs and vectors <= PANEL_VECTORS:
        own = PanelKind(vectors, False, 0, 1, 0)  # groups share the table of offsets
        p = plan_product(
            ctx,
            1,
            rows,
            s.groups * s.group_outputs,
            s.taps,
            depth,
            lanes=lanes,
            kinds=(replace(own, count=s.groups),),
            segment=segment,
            input_type=input_type,
            emitter=emitter,
            by_rows=by_rows,
        )
        return p, own
    p = plan_product(
        ctx,
        s.groups,
        rows,
        s.group_outputs,
        s.taps,
        depth,
        lanes=lanes,
        whole_rows=0 if s.constant else 384,
        segment=segment if s.constant else 0,
        input_type=input_type,
        emitter=emitter,
        by_rows=by_rows,
    )
    return p, None


def has_spaced_rows(s: ConvShape) -> bool:
    """Whether rows of A are an input's pixels in their order, so that all neighbouring ones are equally far apart."""
    return s.pointwise and s.x.tensor.has_rows


def _with_blocks(ctx: LowerContext, p: Product, row_share: float) -> Product:
    """The product with work items of `row_share` times the rows: whole tiles, within an image where blocks are."""
    if row_share == 1 or not isinstance(p.row_block, int):
        return p
    tallest = max(tallest_tile(ctx.target, kind.vectors) for kind in p.kinds)
    block = max(1, round(p.row_block * row_share / tallest)) * tallest
    return replace(p, row_block=min(block, p.segment) if p.segment else block)


def indirect_operands(k: Builder, ctx: LowerContext, s: ConvShape, p: Product, side_by_side: bool, a: str = "a",
                      zeros: str = "zeros") -> Operands:  # fmt: skip
    """Where the tiles of an indirect convolution find their operands; `a`, `zeros`: parameters of the kernel."""
    walk = s.walk()

    def panel(group: KValue, kind: PanelKind, number: KValue, column: KValue) -> KValue:
        at = (number, k.index(0)) if side_by_side else (group, column)
        return emit_panel(k, ctx, s, p, kind, *at, taps_outside=True)

    def fill(group: KValue, row0: KValue, count: KValue) -> None:
        base = group * s.group_inputs
        if has_spaced_rows(s):
            step = s.x.tensor.pitch
            k.for_(0, count, 1, [], lambda i, _: k.store(k["table"], i, base + (row0 + i) * k.index(step)))
        else:
            fill_offsets(k, walk, k["table"], k.index(p.row_block), row0, count, base)

    return Operands(
        a=k[a],
        zero=k[zeros],
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
