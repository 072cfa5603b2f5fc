"""Convolutions with few output channels: output pixels, not channels, lie along the registers.

    for (image, block of lines) in work items:
        planes = the input lines under the block, a line of columns per channel, zeros around        # stay in L2
        for output line of the block:
            for chunk of the line's outputs (channels × phases):  for run of pixels:  tile(...)
            tail;  [output][pixel] → the channels-last line of the result

A register of output channels is filled to cout / lanes at most; one of pixels always is, for a transposition of the
input and one of the result. Owns whether that pays, and the sizes; `narrow_shape` which layers can be served,
`narrow_lines` the loops.
"""

from __future__ import annotations

import itertools
from collections import Counter
from itertools import pairwise

import numpy as np

from ....ir.types import ceil_div
from ....kernel_ir.builder import F32PTR, I64PTR
from ....kernel_ir.loops import KFunc
from ....targets.target import Target
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, Scratch
from ...microkernels.registers import most_outer
from ...microkernels.table import widest_tile
from ..matmul.blocking import MIN_ITEMS, panel_kinds, static
from ..tail import tail_of
from .groups import arrangement
from .layer import ConvAlgorithm, ConvLayer, tiles_of
from .pixel_lines import Lines, staged_nelements
from .pixel_shape import Chunk, Narrow, Sizes, narrow_conv
from .spatial import run_lengths
from .weights import NamedOperand

L2_SHARE = 0.6  # of the second-level cache for the planes of a work item
MOST_PLANES_NBYTES = 2 << 20  # under one output line: beyond L2, but read line after line
MOST_OUTPUTS = 96  # channels of a group × phases: the tiles' calls are written out; chosen, not measured
MOST_REACH = 64  # columns that the filter reads beyond the pixels on either side
TILES = range(1, 11)  # vectors of pixels of a tile
# Of 2026-11-21; the history names no CPU or command of a measurement.
CONTENTION = 1.25  # loads that take so much of the time of the multiply-adds hold them up
TRANSPOSED_CYCLES = 0.33  # per element of the input
RESULT_CYCLES = 0.55  # per element of the result: staged, transposed, stored
TILE_CYCLES = 25  # to start and end a tile
TRANSPOSED_AT_ONCE = 0.26  # the same where a line's planes stay in L1
MAX_SHARE = 0.95  # of the time of the kernel with channels along the registers, or that is taken
PANEL_SHARE = 0.92  # of the multiply-adds that fill its registers, at which that kernel works
LONE_SHARE = 0.75  # where panels of one register, two of which could be multiplied a cycle, wait for their sums
GROUP_SHARE = 0.85  # of that, where each group has panels of its own


class PixelVectorisedAlgorithm(ConvAlgorithm):
    """Pixels along the registers, where channels fill them badly."""

    name = "narrow"
    max_share = MAX_SHARE

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        if not layer.is_single(ctx) or arrangement(layer.shape, ctx.target) is not None:
            return False
        n = narrow_conv(layer.fusion, layer.shape)
        return n is not None and has_sizes(n, ctx.target)

    def cost(self, ctx: LowerContext, layer: ConvLayer) -> float:
        n, wide = narrow_conv(layer.fusion, layer.shape), layer.wide(ctx.target)
        assert n is not None
        return share(n, ctx.target, tiles_of(ctx.target, wide)[0], wide.merged)

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        n = narrow_conv(layer.fusion, layer.shape)
        assert n is not None
        return lower_narrow(ctx, layer.fusion, n)


def choose_tile(n: Narrow, target: Target) -> tuple[int, int, float]:
    """Lanes and vectors of pixels of a tile, and the cycles of all tiles of an image."""
    full = target.f32_lanes
    pairs = [(lanes, vectors) for lanes in ((full, full // 2) if target.splits_wide else (full,)) for vectors in TILES]
    found = [(line_cycles(n, target, *p), *p) for p in pairs if most_outer(target, p[1]) > 0]
    cost, lanes, vectors = min(found, key=lambda p: (p[0], -p[1], p[2]))
    return lanes, vectors, cost * n.n_lines * n.groups


def line_cycles(n: Narrow, target: Target, lanes: int, vectors: int) -> float:
    """Of a group's tiles of all phases of a line: multiply-adds, loads or latency, whichever holds them up."""
    per_cycle, latency = target.multiply_adds(lanes), target.core.latency
    crossing = 1 + lanes / 16  # loads of pixels that lie across two cache lines
    steps = n.inputs * sum(len(p.taps) for p in n.lines)
    total = 0.0
    for chunk in chunks(n, target, vectors):
        aligned = sum((chunk.shift + shift) % lanes == 0 for shift, _ in chunk.reads)
        reads = aligned + (len(chunk.reads) - aligned) * crossing
        for run, count in runs(n, lanes, vectors):
            loads = run * reads + 0.5 * per_cycle * len(chunk.feeds)
            slots = max(run * len(chunk.feeds), CONTENTION * loads, latency * per_cycle * len(chunk.reads))
            total += count * (slots / per_cycle * steps + TILE_CYCLES * len(n.lines))
    return total


def runs(n: Narrow, lanes: int, vectors: int) -> list[tuple[int, int]]:
    """A line's tiles, nearly equal: (vectors of one, how many)."""
    return list(Counter(run_lengths(ceil_div(n.pixels, lanes), vectors)).items())


def chunks(n: Narrow, target: Target, vectors: int) -> list[Chunk]:
    """The outputs of a group's line in chunks whose sums, for so many vectors of pixels, fit the registers."""
    most = most_outer(target, vectors)
    each = n.weights.shape[1]
    channels, phases = [range(each)], [range(r, r + 1) for r in range(len(n.columns))]
    if len(n.columns) * each <= most:
        phases = [range(len(n.columns))]
    elif each > most:
        ends = [each * i // ceil_div(each, most) for i in range(ceil_div(each, most) + 1)]
        channels = [range(low, high) for low, high in pairwise(ends)]
    return [
        Chunk.of(n.columns, [(r, c) for r in phase for c in own], n.outputs) for phase in phases for own in channels
    ]


def plan(n: Narrow, target: Target) -> Sizes | None:
    """Sizes of a work item and its scratch; None where the planes under a single line are too large."""
    lanes, vectors, _ = choose_tile(n, target)
    shifts = [s for p in n.columns for s in p.shifts] or [0]
    unit = target.f32_lanes
    left = ceil_div(max(0, -min(shifts)), unit) * unit
    pixels = ceil_div(n.pixels, lanes) * lanes
    reach = max(ceil_div(n.width, unit) * unit, pixels + max(0, *shifts))
    pitch = left + ceil_div(reach, unit) * unit
    pitch += unit if pitch % 128 == 0 else 0  # channels' lines apart by a large power of two meet in few sets of L1
    offsets = [s for p in n.lines for s in p.shifts] or [0]
    span = max(offsets) - min(offsets) + 1
    line = 4 * pitch * n.inputs * (1 if n.pointwise else n.groups)
    most = int(L2_SHARE * target.l2_nbytes) // line - span + 1
    if line * span > MOST_PLANES_NBYTES or max(map(abs, shifts)) > MOST_REACH:
        return None
    block = max(1, min(most, ceil_div(n.n_lines, MIN_ITEMS)))
    return Sizes(lanes, vectors, left, pitch, block, span, min(offsets), ceil_div(pixels, unit) * unit)


def cycles(n: Narrow, target: Target, sizes: Sizes) -> float:
    """Of one image."""
    again = (sizes.block + sizes.span - 1) / sizes.block
    elements = n.height * n.width * n.groups * n.inputs
    transposed = elements * (TRANSPOSED_AT_ONCE if n.pointwise else TRANSPOSED_CYCLES * again)
    return choose_tile(n, target)[2] + transposed + RESULT_CYCLES * n.out_height * n.out_width * n.outputs


def cycles_by_channels(
    target: Target, lanes: int, outputs: int, pixels: int, multiply_adds: float, alone: bool
) -> float:
    """Of one image, by the kernel with channels along registers of `lanes`.

    Args:
        outputs: of a group as that kernel takes it. multiply_adds: with those of zeros between merged groups.
        alone: no group beside it.
    """
    kinds = panel_kinds(outputs, lanes, widest_tile(target, pixels))
    share = {kind.vectors: LONE_SHARE if kind.vectors == 1 and lanes < 16 else PANEL_SHARE for kind in kinds}
    filled = sum(kind.vectors * static(kind.count) / share[kind.vectors] for kind in kinds) * lanes / outputs
    per_cycle = target.multiply_adds(target.f32_lanes) * target.f32_lanes
    return multiply_adds * filled / per_cycle / (1 if alone else GROUP_SHARE)


def has_sizes(n: Narrow, target: Target) -> bool:
    """Whether the layer's tiles and planes are small enough."""
    return n.weights.shape[1] * len(n.columns) <= MOST_OUTPUTS and plan(n, target) is not None


def share(n: Narrow, target: Target, lanes: int, merged: int = 1) -> float:
    """The time of a layer that `has_sizes`, in times of that with channels along registers of `lanes`.

    Args:
        merged: groups that the kernel of channels takes as one, multiplying the zeros between them.
    """
    outputs, multiply_adds = n.weights.shape[1] * merged, n.multiply_adds * merged
    other = cycles_by_channels(target, lanes, outputs, n.pixels, multiply_adds, n.groups == merged)
    sizes = plan(n, target)
    assert sizes is not None
    return cycles(n, target, sizes) / other if other else 1.0


def lower_narrow(ctx: LowerContext, fusion: Fusion, n: Narrow) -> KernelCall:
    """The kernel call; `n` is one that `has_sizes`."""
    sizes = plan(n, ctx.target)
    assert sizes is not None
    tail = tail_of(fusion, ctx.symbols)
    parts, tiles = chunks(n, ctx.target, sizes.vectors), runs(n, sizes.lanes, sizes.vectors)
    rows = len(n.columns) * n.outputs
    scratch = {
        "planes": sizes.pitch * n.inputs * (1 if n.pointwise else (sizes.block + sizes.span - 1) * n.groups),
        "sums": rows * sizes.pixels,
        "staged": staged_nelements(rows, sizes.pixels, ctx.lanes),
    }
    phases = np.array([(p.shifts[0] if p.shifts else sizes.first, len(p.taps)) for p in n.lines], np.int64)
    bias = np.zeros(n.outputs, np.float32) if n.bias is None else n.bias
    operands: list[NamedOperand] = [
        ("x", F32PTR, n.x),
        ("w", F32PTR, ctx.weights.add(packed(n, parts))),
        ("bias", F32PTR, ctx.weights.add(bias)),
        ("phases", I64PTR, ctx.weights.add(phases)),
        *((name, F32PTR, Scratch(4 * nelements)) for name, nelements in scratch.items()),
    ]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        Lines(k, ctx, n, sizes, tail, parts, tiles).emit()
        return k.func

    func = ctx.function("conv_narrow", fusion.node, build)
    work = n.y.dims[0] * ceil_div(n.n_lines, sizes.block)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), work)


def packed(n: Narrow, parts: list[Chunk]) -> np.ndarray:
    """The filters as [line phase][group][chunk][line tap][input channel][feed], as many line taps for every phase."""
    out = []
    for line, group, part in itertools.product(n.lines, n.weights, parts):
        own = np.zeros((n.most_line_taps, n.inputs, len(part.feeds)), np.float32)
        for e, (phase, channel, at) in enumerate(part.feeds):
            for i, tap in enumerate(line.taps):
                own[i, :, e] = group[channel, :, tap, n.columns[phase].taps[at]]
        out.append(own.reshape(-1))
    return np.concatenate(out)
