"""The inverted residual block (Sandler et al., MobileNetV2, 2018) in one kernel: 1×1, depthwise, 1×1 convolution.

    next = 0
    for (image, band of output rows) in work items:
        for input rows the band's filters meet, from `next` on:
            expanded row → ring[row mod R], with the first tail                      # tiles from the block's input
        depthwise rows of the band, from the ring → scratch [pixel][channel]
        for panel of the last weights:  for tile of pixels:  tile(...), from scratch

The expanded tensor, the largest of a network, is never stored: the ring holds the R rows that one band meets, in L2.
Bands follow one another on a core, so that each row is expanded once; only the rows between the ranges of two cores
are expanded by both.
"""

from __future__ import annotations

from dataclasses import replace

from ....ir.types import Dim, ceil_div, exact_max
from ....kernel_ir.builder import F32PTR, I64PTR, Builder, KValue
from ....kernel_ir.loops import KFunc
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Scratch
from ...microkernels.table import tallest_tile
from ..matmul.balance import ITEM_CYCLES, TILE_CYCLES
from ..matmul.blocking import Product, plan_product, static
from ..matmul.gemm import Operands, ProductEmitter
from ..matmul.pack import packed_panels
from ..tail import tail_of
from .bands import BandEmitter, Bands, bands_of, pixel_offsets, write_pixel_offsets
from .depthwise import Depthwise, depthwise_weights
from .separable import PAD, ScratchEpilogue, pointwise_product
from .spatial import SpatialAxis, lines_of
from .weights import ConvShape, NamedOperand, bias_operand, conv_weights, emit_panel, weight_operands


class RingDepthwise(Depthwise):
    """Reads its input from a ring of `size` rows: row number r of all images is at r mod size."""

    def read_from(self, ring: KValue, size: KValue) -> None:
        """Where the input is."""
        self.source, self.size = ring, size

    def corner_row(self, number: KValue) -> KValue:
        """See Depthwise; here a row of the ring."""
        above = self.size * static(self.rows.pad)  # the padding's rows have negative numbers
        return self.k.urem(number + above, self.size)

    def input_row(self, corner: KValue, kh: KValue) -> KValue:
        """See Depthwise."""
        slot = corner + kh * self.rows.dilation
        slot = self.k.select(slot >= self.size, slot - self.size, slot)
        return slot * (self.k.index(self.line.input) * self.inputs)


def lower_inverted(ctx: LowerContext, first: Fusion, depthwise: Fusion, fusion: Fusion) -> KernelCall:
    """The kernel call; work items are bands of output rows."""
    e, d, s = ConvShape.of(first), ConvShape.of(depthwise), ConvShape.of(fusion)
    rows, line = lines_of(d)
    p = pointwise_product(ctx, s)
    bands = inverted_bands(ctx, p, rows, line, (e.group_inputs, d.groups, s.group_outputs))
    p = replace(p, row_block=bands.most_pixels, panels_per_item=p.n_panels)
    q = plan_product(ctx, 1, line.input, d.groups, 1, e.group_inputs)
    q = replace(q, row_block=q.rows, panels_per_item=q.n_panels)
    ring_rows = rows_under(rows, bands.rows)
    pitch = ceil_div(s.group_inputs, PAD) * PAD + PAD
    weights, padded = depthwise_weights(ctx, d)
    operands: list[NamedOperand] = [
        ("x", F32PTR, e.x),
        ("spread", F32PTR, packed_panels(ctx, conv_weights(e, True), q.kinds, q.lanes)),
        ("before", *bias_operand(ctx, e)[1:]),
        ("x_table", I64PTR, pixel_offsets(ctx, q.rows, e.group_inputs)),
        ("ring", F32PTR, Scratch(ring_pixels(ctx, rows, line, bands, d.groups) * (d.groups * 4))),
        ("filter", F32PTR, weights),
        ("start", *bias_operand(ctx, d)[1:]),
        ("a", F32PTR, Scratch(bands.most_pixels * (pitch * 4))),
        *weight_operands(ctx, s, p, taps_outside=True),
        bias_operand(ctx, s),
        ("table", I64PTR, pixel_offsets(ctx, bands.most_pixels, pitch)),
        ("partial", F32PTR, Scratch(exact_max(p.partial_nbytes, q.partial_nbytes))),
    ]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        ring_size = k.index(ring_rows)
        write_pixel_offsets(k, k["x_table"], q.rows, e.group_inputs)
        write_pixel_offsets(k, k["table"], bands.most_pixels, pitch)

        def expand(row: KValue, _: list[KValue]) -> None:
            expand_row(k, ctx, first, q, row, ring_size)

        given = Operands(
            a=k["a"], zero=k["a"], table=k["table"], partial=k["partial"], fill_table=lambda outer, row0, count: None,
            panel=lambda group, kind, number, column: emit_panel(k, ctx, s, p, kind, group, column, taps_outside=True),
            bias=lambda column: k.gep(k["bias"], column) if s.b is not None else k["bias"],
            row_base=lambda group: k.index(0), pitch=s.y.pitch,
        )  # fmt: skip
        last = BandEmitter(k, ctx, p, tail_of(fusion, ctx.symbols), given, bands)

        def item(index: KValue, carried: list[KValue]) -> list[KValue]:
            (row0, count), (top, n) = last.rows_of(index), bands.place(k, index)
            begin, end = met_rows(k, rows, top, n)
            k.for_(k.max(begin, carried[0]), end, 1, [], expand)
            epilogue = ScratchEpilogue(k, depthwise, k["a"], pitch, row0)
            part = RingDepthwise(k, ctx, d, rows, line, padded, epilogue, k["filter"], k["start"])
            part.read_from(k["ring"], ring_size)
            part.emit(top, top + n)
            last.panels(k.index(0), row0, count, k.index(0), k.index(p.n_panels))
            return [k.max(end, carried[0])]

        k.for_(k["begin"], k["end"], 1, [k.index(0)], item)
        return k.func

    func = ctx.function("inverted", fusion.node, build)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), s.y.dims[0] * bands.count)


def expand_row(k: Builder, ctx: LowerContext, first: Fusion, q: Product, row: KValue, ring_rows: KValue) -> None:
    """Input row `row`, counted over all images, through the first convolution into its place in the ring."""
    e = ConvShape.of(first)
    depth, width = e.group_inputs, k.index(q.rows)
    given = Operands(
        a=k.gep(k["x"], row * (width * depth)), zero=k["x"], table=k["x_table"], partial=k["partial"],
        fill_table=lambda outer, row0, count: None,
        panel=lambda group, kind, number, column: k.gep(k["spread"], column * depth),
        bias=lambda column: k.gep(k["before"], column) if e.b is not None else k["before"],
        row_base=lambda group: k.urem(row, ring_rows) * width, pitch=e.group_outputs, result=k["ring"],
    )  # fmt: skip
    product = ProductEmitter(k, ctx, q, tail_of(first, ctx.symbols), given)
    product.panels(k.index(0), k.index(0), width, k.index(0), k.index(q.n_panels))


def rows_under(rows: SpatialAxis, n: Dim) -> Dim:
    """Input rows that the filters of `n` output rows meet, padding included."""
    return (n - 1) * rows.stride + (rows.kernel - 1) * rows.dilation + 1


def inverted_bands(
    ctx: LowerContext, p: Product, rows: SpatialAxis, line: SpatialAxis, channels: tuple[int, int, int]
) -> Bands:
    """The bands of an image of any size; `channels`: see `band_rows`."""

    def chosen(rows: SpatialAxis, line: SpatialAxis) -> int:
        return band_rows(ctx, replace(p, segment=static(rows.output) * static(line.output)), rows, line, channels)

    room = ring_room(ctx, channels[1])
    most_rows = (room // exact_max(1, line.input) - rows_under(rows, 1)) // rows.stride + 1
    return bands_of(rows, line, chosen, most_rows, room)


def ring_room(ctx: LowerContext, between: int) -> int:
    """Pixels of so many channels that a ring should have at most."""
    return max(1, ctx.target.l2_nbytes // 4 // (between * 4))


def ring_pixels(ctx: LowerContext, rows: SpatialAxis, line: SpatialAxis, bands: Bands, between: int) -> Dim:
    """Pixels of the ring: only a band of one row may need more than there is room for."""
    if isinstance(bands.rows, int):
        return rows_under(rows, bands.rows) * line.input
    return exact_max(ring_room(ctx, between), rows_under(rows, 1) * line.input)


def met_rows(k: Builder, rows: SpatialAxis, top: KValue, n: KValue) -> tuple[KValue, KValue]:
    """The input rows [begin, end), counted over all images, that output rows [top, top + n) of one image read."""
    image = k.udiv(top, k.index(rows.output))
    corner = (top - image * k.index(rows.output)) * rows.stride - k.index(rows.pad)
    size = k.index(rows.input)
    under = n * rows.stride + ((rows.kernel - 1) * rows.dilation + 1 - rows.stride)
    return image * size + k.max(corner, 0), image * size + k.max(k.min(corner + under, size), 0)


def band_rows(
    ctx: LowerContext, p: Product, rows: SpatialAxis, line: SpatialAxis, channels: tuple[int, int, int]
) -> int:
    """Output rows of a work item.

    Short bands keep what they read and write in a quarter of L2 and let cores finish together; tall ones fill the
    tiles of the last product.

    Args:
        channels: of the block's input, between, and of its result.
    """
    inputs, between, outputs = channels
    height, width, wide = static(rows.output), static(line.output), static(line.input)
    row = between * (wide * rows.stride * inputs + width * (rows.kernel * line.kernel + outputs)) / ctx.lanes
    again = between * wide * inputs * max(0, static(rows_under(rows, 1)) - rows.stride) / ctx.lanes
    tallest = tallest_tile(ctx.target, max(kind.vectors for kind in p.kinds))
    room = ctx.target.l2_nbytes // 4

    def cost(n: int) -> float:
        items = ceil_div(height, n)
        item = n * row + ITEM_CYCLES + static(p.n_panels) * TILE_CYCLES * ceil_div(n * width, tallest)
        return sum(cores * (ceil_div(items, cores) * item + again) for cores in ctx.cores)

    fits = [n for n in range(1, height + 1) if static(rows_under(rows, n)) * wide * between * 4 <= room]
    return min(fits or [1], key=cost)
