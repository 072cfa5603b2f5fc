"""A depthwise convolution and the 1×1 convolution that reads it, in one kernel.

    for (image, band of output rows) in work items:
        depthwise rows of the band → scratch [pixel][channel], with the depthwise tail      # in L2
        for panel of the pointwise weights:  for tile of pixels:  tile(...), from scratch

The tensor between the two is never stored: on large images that saves two passes over memory, and on all of them a
barrier. A band is chosen so that its scratch stays in L2 beside a panel of weights, and that cores finish together.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from ....ir.graph import Node
from ....ir.ops.base import Contraction
from ....ir.types import ceil_div, prod
from ....kernel_ir.builder import F32PTR, I64PTR, Builder, KValue
from ....kernel_ir.loops import KFunc
from ...fusion import Epilogue, Fusion, evaluate_body
from ...lowering import KernelCall, LowerContext, Scratch
from ..matmul.blocking import Product, plan_product, product_shape, static
from ..matmul.gemm import Operands
from ..matmul.tile import LINE
from ..tail import tail_of
from .bands import BandEmitter, Bands, bands_of, pixel_offsets, write_pixel_offsets
from .depthwise import Depthwise, depthwise_weights
from .layer import tiles_of
from .spatial import SpatialAxis, lines_of
from .weights import (
    ConvShape,
    NamedOperand,
    bias_operand,
    emit_panel,
    weight_operands,
)

PAD = 16  # f32 elements between pixels of the scratch, so that those of 2ⁿ channels do not meet in few sets of L1
MOST_PIXELS = 512  # of a band
LINE_CYCLES = 4  # to fetch a line of the input from L2 or beyond
STREAM_CYCLES = 1  # that a line of weights which do not fit L2 delays the tiles, although it was asked for ahead


def chained(node: Node) -> list[Fusion]:
    """Take a block of convolutions that read each other apart: each with its tail; empty if it is but one."""
    nodes = list(node.body) if node.body is not None else []
    roots = [i for i, n in enumerate(nodes) if isinstance(n.op, Contraction)]
    if len(roots) < 2:
        return []
    assert node.body is not None
    outer = dict(zip(node.body.inputs, node.operands))
    used = {v for n in nodes[roots[-1] + 1 :] for v in n.inputs}
    extras = [(b, outer[b]) for b in node.body.inputs if b in used]
    results = list(zip(node.body.outputs, node.outputs))
    parts = []
    for begin, end in pairwise([*roots, len(nodes)]):
        root, is_last = nodes[begin], end == len(nodes)
        inputs = [None if v is None else outer.get(v, v) for v in root.inputs]
        between = None if is_last else nodes[end].inputs[0]
        outputs = results if between is None else [(between, between)]
        parts.append(Fusion(node, root, nodes[begin + 1 : end], root.outputs[0], inputs, extras if is_last else [],
                            outputs))  # fmt: skip
    return parts


class ScratchEpilogue(Epilogue):
    """Stores results of the depthwise part into the core's scratch; pixels count from `first` on."""

    def __init__(self, k: Builder, fusion: Fusion, scratch: KValue, pitch: int, first: KValue) -> None:
        super().__init__(k, fusion)
        self.scratch, self.pitch, self.first = scratch, pitch, first

    def apply(self, row: KValue, column: KValue, value: KValue, mask: KValue | None = None) -> None:
        """See Epilogue."""
        values = self.fusion.rooted(self.k, value)
        evaluate_body(self.k, self.fusion.tail, values)
        ((result, _),) = self.fusion.outputs
        at = (row - self.first) * self.pitch + column
        self.k.store(self.scratch, at, self.k.splat(values[result], value.lanes), mask)


def pointwise_product(ctx: LowerContext, s: ConvShape) -> Product:
    """Of a pointwise convolution behind a depthwise one, image by image."""
    pixels, (lanes, emitter) = prod(s.geometry.output), tiles_of(ctx.target, s)
    return plan_product(ctx, 1, s.y.dims[0] * pixels, s.group_outputs, 1, s.group_inputs // emitter.k_step,
                        segment=pixels if isinstance(pixels, int) else 0, lanes=lanes, emitter=emitter)  # fmt: skip


def lower_separable(ctx: LowerContext, depthwise: Fusion, fusion: Fusion) -> KernelCall:
    """The kernel call of a depthwise and a pointwise convolution; work items are bands of output rows."""
    d, s = ConvShape.of(depthwise), ConvShape.of(fusion)
    rows, line = lines_of(d)
    p = pointwise_product(ctx, s)
    bands = separable_bands(ctx, p, rows, line, d.groups)
    p = replace(p, row_block=bands.most_pixels, panels_per_item=p.n_panels)
    pitch = ceil_div(s.group_inputs, PAD) * PAD + PAD
    weights, padded = depthwise_weights(ctx, d)
    operands: list[NamedOperand] = [
        ("x", F32PTR, d.x),
        ("filter", F32PTR, weights),
        ("start", *bias_operand(ctx, d)[1:]),
        ("a", F32PTR, Scratch(bands.most_pixels * (pitch * 4))),
        ("table", I64PTR, pixel_offsets(ctx, bands.most_pixels, pitch)),
        *weight_operands(ctx, s, p, taps_outside=True),
        bias_operand(ctx, s),
        ("partial", F32PTR, Scratch(p.partial_nbytes)),
    ]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        write_pixel_offsets(k, k["table"], bands.most_pixels, pitch)

        def fill(outer: KValue, row0: KValue, count: KValue) -> None:
            epilogue, width = ScratchEpilogue(k, depthwise, k["a"], pitch, row0), k.index(bands.width)
            top = k.udiv(row0, width)
            part = Depthwise(k, ctx, d, rows, line, padded, epilogue, k["filter"], k["start"])
            part.emit(top, top + k.udiv(count, width))

        given = Operands(
            a=k["a"], zero=k["a"], table=k["table"], partial=k["partial"], fill_table=fill,
            panel=lambda group, kind, number, column: emit_panel(k, ctx, s, p, kind, group, column, taps_outside=True),
            bias=lambda column: k.gep(k["bias"], column) if s.b is not None else k["bias"],
            row_base=lambda group: k.index(0), pitch=s.y.pitch,
        )  # fmt: skip
        tail = tail_of(fusion, ctx.symbols)
        BandEmitter(k, ctx, p, tail, given, bands).emit()
        return k.func

    func = ctx.function("separable", fusion.node, build)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), s.y.dims[0] * bands.count)


def separable_bands(ctx: LowerContext, p: Product, rows: SpatialAxis, line: SpatialAxis, channels: int) -> Bands:
    """The bands of an image of any size."""

    def chosen(rows: SpatialAxis, line: SpatialAxis) -> int:
        return band_rows(ctx, replace(p, segment=static(rows.output) * static(line.output)), rows, line, channels)

    most_pixels = max(1, min(MOST_PIXELS, ctx.target.l2_nbytes // 4 // (4 * channels)))
    return bands_of(rows, line, chosen, most_pixels, most_pixels)


def band_rows(ctx: LowerContext, p: Product, rows: SpatialAxis, line: SpatialAxis, channels: int) -> int:
    """Output rows of a work item.

    Tall bands read fewer input rows twice and use the weights more often; short ones leave what they read and write in
    half of L2 and keep cores busy.
    """
    shape, width = product_shape(ctx, p), static(line.output)
    height, depth, columns = static(rows.output), static(p.kc) * p.emitter.k_step, static(p.columns)
    row = static(line.input) * channels  # elements of an input row
    halo = max(0, (rows.kernel - 1) * rows.dilation + 1 - rows.stride) * row
    streamed = depth * columns if depth * columns * 4 > ctx.target.l2_nbytes // 2 else 0

    def cost(n: int) -> float:
        here = halo + n * (rows.stride * row + width * (channels + columns))
        spilled = max(0, here - ctx.target.l2_nbytes // 8)
        lines = (halo + spilled) * LINE_CYCLES + streamed * STREAM_CYCLES
        return shape.cost(n * width, len(shape.widths)) + ceil_div(height, n) * len(ctx.cores) * lines / LINE

    room = ctx.target.l2_nbytes // 4
    fits = [n for n in range(1, height + 1) if n * width <= MOST_PIXELS and n * width * channels * 4 <= room]
    return min(fits or [1], key=cost)
