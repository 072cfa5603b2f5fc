"""Convolutions of bf16 and of bytes by matrix registers: the indirect convolution over copied rows.

    rows = output pixels, columns = output channels of a group, taps = kernel positions, k = input channels

Of kernels of several pixels, the block's rows are copied once, with their padding, and each tap is read there, or each
line of taps at once (`regions`). Pixels of a pointwise kernel may be read where they are. Else every tap of every pixel
is copied, its channels filled up with zeros to whole steps, so that few of them waste the registers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....ir.types import BF16, DType, prod
from ....kernel_ir.builder import I64PTR
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Scratch
from ...microkernels.emitter import Emitter
from ...microkernels.table import emitter_of, products_of_f32s
from ..matmul.blocking import LEAST_SEGMENT, static
from ..matmul.matrix_loops import MatrixEmitter, PlacedEmitter, Rows, SpacedEmitter
from ..matmul.matrix_products import copied_elements, placed_steps, plan_matrices
from ..matmul.matrix_tile import LANES
from ..matmul.pack import packed_panels
from ..tail import tail_of
from .indirect import has_spaced_rows, indirect_operands
from .layer import ConvAlgorithm, ConvLayer
from .regions import Region, RegionReader, region_of
from .weights import ConvShape, NamedOperand, bias_operand, conv_weights

# Of a group where every tap is copied. On an Emerald Rapids, one core of two, in times of f32's speed (medians of 25 in
# turn, 2026-11-29), bf16 and bytes by matrix registers, bytes by VPDPBUSD: 56² × 8 → 64 1 × 1 0.63, 0.81, 1.34; × 16 →
# 96 0.81, 1.24, 1.78; × 24 → 144 1.11, 1.27, 2.09; 28² × 16 → 32 3 × 3 1.56, 1.76, 2.77, read by lines 3.81, 5.81.
LEAST_INPUTS, LEAST_BYTES = 16, 32


class MatricesAlgorithm(ConvAlgorithm):
    """Wherever the target has matrix registers for the inputs' type."""

    name = "matrices"

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        s = layer.shape
        narrow = s.x.tensor.dtype == s.w.tensor.dtype == BF16
        if not narrow or not s.constant or not layer.is_multiplied or not s.channels_last_input:
            return False
        return bool(emitter_of(ctx.target, BF16).matrices) and fills_registers(ctx, s, BF16, LEAST_INPUTS)

    def cost(self, ctx: LowerContext, layer: ConvLayer) -> float:
        return 1 / products_of_f32s(ctx.target, BF16)

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        return lower_matrices(ctx, layer.fusion, layer.shape, BF16)


def fills_registers(ctx: LowerContext, s: ConvShape, input_type: DType, least: int) -> bool:
    """Whether there are enough inputs for what reading them takes; `least`: where every tap is copied."""
    return s.group_inputs >= least or region_of(s, emitter_of(ctx.target, input_type)) is not None


def _placed(s: ConvShape, emitter: Emitter) -> Emitter | None:
    """The steps of a pointwise layer whose inputs are read where they are."""
    spaced = has_spaced_rows(s) and s.groups == 1 and isinstance(s.x.tensor.pitch, int)
    return placed_steps(emitter, s.group_inputs, s.group_outputs) if spaced else None


def lower_matrices(
    ctx: LowerContext, fusion: Fusion, s: ConvShape, input_type: DType, margin: int = 0
) -> KernelCall:
    """The kernel call; channels of a pixel lie side by side. `margin`: what padding consists of."""
    emitter = emitter_of(ctx.target, input_type)
    region, placed = region_of(s, emitter), _placed(s, emitter)
    if region is None:
        emitter = placed or emitter.for_depth(s.group_inputs)
    else:
        s, emitter = region.shape, region.emitter
    return lower_blocks(ctx, fusion, s, input_type, emitter, conv_weights(s, True), region, margin=margin,
                        placed=placed is not None)  # fmt: skip


def lower_blocks(ctx: LowerContext, fusion: Fusion, s: ConvShape, input_type: DType, emitter: Emitter,
                 filters: np.ndarray, region: Region | None, reads: type[RegionReader] = RegionReader,
                 margin: int = 0, placed: bool = False) -> KernelCall:  # fmt: skip
    """The kernel call of a layer by its taps.

    Args:
        filters: [group, tap, inputs of one, output channel].
        region, reads: where taps are read, and what copies them there; None: each is copied by itself, unless it is
            read where it is, which is what `placed` says, of a pointwise layer.
    """
    pixels = prod(s.geometry.output)
    segment = pixels if isinstance(pixels, int) and pixels >= LEAST_SEGMENT else 0
    p = plan_matrices(ctx, s.groups, s.y.dims[0] * pixels, s.group_outputs, s.taps, s.group_inputs, input_type, emitter,
                      segment if region is None else static(pixels))  # fmt: skip
    if region is not None:
        p = replace(p, row_block=region.block(static(p.row_block)))
    copied = 1 if placed else copied_elements(p) if region is None else region.elements(static(p.row_block))
    tail = tail_of(fusion, ctx.symbols)
    weights = packed_panels(ctx, _by_steps(filters, emitter), p.kinds, LANES, emitter=emitter)
    operands: list[NamedOperand] = [
        ("a", PtrType(s.x.tensor.dtype), s.x),
        ("w", PtrType(emitter.b_element), weights),
        bias_operand(ctx, s, emitter.sums),
        ("table", I64PTR, Scratch(8 * p.table_entries)),
        ("partial", PtrType(emitter.sums), Scratch(64)),
        ("copy", PtrType(emitter.element), Scratch(copied * emitter.element.nbytes)),
        ("koff", I64PTR, ctx.weights.add(np.zeros(1, np.int64) if region is None else region.taps())),
    ]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        own = indirect_operands(k, ctx, s, p, False, "a" if placed else "copy", "copy")
        if placed:
            PlacedEmitter(k, ctx, p, tail, replace(own, koff=k["koff"]), row_pitch=static(s.x.tensor.pitch)).emit()
        elif region is None:
            source = Rows(k["a"], s.group_inputs, margin=margin)
            MatrixEmitter(k, ctx, p, tail, own, source=source).emit()
        else:
            reader = reads(k, region, k["a"], k["copy"], k["table"], margin)
            SpacedEmitter(k, ctx, p, tail, replace(own, fill_table=reader.begin, koff=k["koff"]),
                          row_pitch=region.row_pitch, segment=region.segment).emit()  # fmt: skip
        return k.func

    func = ctx.function("conv", fusion.node, build, p.row_block, input_type, margin)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), p.work)


def _by_steps(weights: np.ndarray, emitter: Emitter) -> np.ndarray:
    """[group, tap, channel, output channel] as [group, K, output channel], the channels of a tap in whole steps."""
    groups, taps, inputs, outputs = weights.shape
    whole = np.zeros((groups, taps, -(-inputs // emitter.k_step) * emitter.k_step, outputs), weights.dtype)
    whole[:, :, :inputs] = weights
    return whole.reshape(groups, -1, outputs)
