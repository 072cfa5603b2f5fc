"""Grouped 1×1 convolutions with few outputs per group (ShuffleNet): quads of output channels of neighbouring pixels.

    for block of pixels in work items:
        for tile of pixels:  for group:
            acc[quad][vector] = bias                                # a vector: a quad of channels × lanes / 4 pixels
            for k in steps of 4:  x[vector] = inputs k … k + 3 of each of the vector's pixels
                for j in 0 … 3:  for quad, vector:  acc[quad][vector] += w[k + j][quad] · splat of each pixel's x[j]
            the quads of a pixel side by side;  epilogue

A register of 16 channels is filled badly by groups of 12, 17 or 20; in blocks of four lanes no more than three are
wasted, and the one shuffle that splats an input within each block serves all quads. It must not know of other kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ....ir.types import F32, ceil_div, prod
from ....kernel_ir.builder import F32PTR, Builder, KValue
from ....kernel_ir.loops import KFunc
from ....targets.target import Target
from ...fusion import Epilogue, Fusion
from ...lowering import KernelCall, LowerContext
from ..matmul.blocking import MIN_ITEMS, static
from ..matmul.tile import LINE
from ..tail import tail_of
from .layer import ConvAlgorithm, ConvLayer, tiles_of
from .pixel_vectorised import MAX_SHARE, cycles_by_channels
from .weights import ConvShape, NamedOperand

QUAD = 4  # lanes: a shuffle within 128 bits is the cheapest
MOST_VECTORS = 8  # of pixels in a tile: chosen, not measured
MOST_QUADS = 5  # of a group: more fill registers well enough one group at a time
ITEM_PIXELS = 48  # of a work item, or fewer where an image has fewer than MIN_ITEMS times as many
# Of 2026-11-21; SHUFFLES counts instructions, for the others the history names no CPU or command of a measurement.
SHUFFLES = 1.75  # of a vector of pixels and input: one that splats, three for four inputs that gather
EFFICIENCY = 0.95  # of the loop over inputs
TILE_CYCLES, PIECE_CYCLES = 5, 0.6  # to start and end a tile; to store a piece of a pixel


class QuadsAlgorithm(ConvAlgorithm):
    """Quads of output channels, where they beat the other kernels of small groups."""

    name = "quads"
    max_share = MAX_SHARE

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        return layer.is_single(ctx) and quads_of(layer.fusion, layer.shape, ctx.target) is not None

    def cost(self, ctx: LowerContext, layer: ConvLayer) -> float:
        q, target = quads_of(layer.fusion, layer.shape, ctx.target), ctx.target
        assert q is not None
        wide = layer.wide(target)
        pixels, outputs = static(prod(wide.geometry.output)), wide.group_outputs
        multiply_adds = pixels * wide.groups * outputs * wide.group_inputs * wide.taps
        lanes, _ = tiles_of(target, wide)
        direct = cycles_by_channels(target, lanes, outputs, pixels, multiply_adds, wide.groups == 1)
        return q.cycles(layer.shape, target) / direct if direct else 1.0

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        q = quads_of(layer.fusion, layer.shape, ctx.target)
        assert q is not None
        return lower_quads(ctx, layer.fusion, layer.shape, q)


@dataclass(frozen=True)
class Quads:
    """A tile.

    Attributes:
        lanes: of a register. quads: of a group's outputs. vectors: registers of pixels for each quad.
    """

    lanes: int
    quads: int
    vectors: int

    @property
    def side(self) -> int:
        """Pixels of a register."""
        return self.lanes // QUAD

    @property
    def pixels(self) -> int:
        return self.side * self.vectors

    def cycles(self, s: ConvShape, target: Target) -> float:
        """Of one image."""
        multiplied = self.vectors * self.quads / target.multiply_adds(self.lanes)
        held = self.vectors * (self.quads + SHUFFLES) / target.core.vector_operations[32 * self.lanes]
        per_input = max(multiplied, held, target.core.latency) / EFFICIENCY
        pieces = self.pixels * len(self.pieces(s.group_outputs))
        tiles = ceil_div(static(prod(s.geometry.output)), self.pixels) * s.groups
        return tiles * (s.group_inputs * per_input + TILE_CYCLES + PIECE_CYCLES * pieces)

    def pieces(self, outputs: int) -> list[tuple[int, int]]:
        """(first, how many): a pixel's outputs in powers of two up to a register."""
        found, done = [], 0
        while done < outputs:
            n = 1 << min((outputs - done).bit_length() - 1, self.lanes.bit_length() - 1)
            found.append((done, n))
            done += n
        return found


def quads_of(fusion: Fusion, s: ConvShape, target: Target) -> Quads | None:
    """The tile of a layer, None if this kernel does not serve it; the tail is written out for each pixel of a tile."""
    ready = s.tiled and s.constant and s.channels_last_input and s.pointwise and s.x.tensor.has_rows
    pixels = prod(s.geometry.output)
    constant_bias = s.b is None or (s.b.data is not None and s.b.producer is None)
    if not ready or not constant_bias or s.groups == 1 or s.x.tensor.dtype != F32 or not isinstance(pixels, int):
        return None
    lanes, quads = target.f32_lanes, ceil_div(s.group_outputs, QUAD)
    if lanes < 2 * QUAD or quads > MOST_QUADS or tail_of(fusion, ()).heavy:
        return None
    fits = [v for v in range(1, MOST_VECTORS + 1) if quads * v + v + min(v, quads) + 1 <= target.n_registers]
    if not fits:
        return None
    least = min(fits[-1], math.ceil(target.core.latency * target.multiply_adds(lanes) / quads))
    even = [v for v in fits if v >= least and pixels % (v * lanes // QUAD) == 0]
    return Quads(lanes, quads, (even or fits)[-1])


def packed_weights(s: ConvShape, q: Quads) -> np.ndarray:
    """[group][input][quads of outputs], zeros beyond the last output."""
    assert s.w.data is not None
    w = s.w.data.reshape(s.groups, s.group_outputs, s.group_inputs)
    out = np.zeros((s.groups, s.group_inputs, q.quads * QUAD), np.float32)
    out[:, :, : s.group_outputs] = w.swapaxes(1, 2)
    return out


def packed_bias(s: ConvShape, q: Quads) -> np.ndarray:
    """[group][quads of outputs]."""
    out = np.zeros((s.groups, q.quads * QUAD), np.float32)
    if s.b is not None and s.b.data is not None:
        out[:, : s.group_outputs] = s.b.data.astype(np.float32).reshape(s.groups, s.group_outputs)
    return out


def lower_quads(ctx: LowerContext, fusion: Fusion, s: ConvShape, q: Quads) -> KernelCall:
    """The kernel call; work items are blocks of pixels of all images."""
    rows = s.y.dims[0] * prod(s.geometry.output)
    tiles = static(prod(s.geometry.output)) // q.pixels
    block = q.pixels * max(1, min(ITEM_PIXELS // q.pixels, tiles // MIN_ITEMS))
    operands: list[NamedOperand] = [
        ("x", F32PTR, s.x),
        ("w", F32PTR, ctx.weights.add(packed_weights(s, q))),
        ("bias", F32PTR, ctx.weights.add(packed_bias(s, q))),
    ]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in operands] + fusion.params())
        QuadTiles(k, s, q, Epilogue(k, fusion), ctx.target.has_fma).emit(block, k.index(rows))
        return k.func

    func = ctx.function("conv_quads", fusion.node, build)
    return KernelCall(func, (*(o for _, _, o in operands), *fusion.operands()), ceil_div(rows, block))


class QuadTiles:
    """Emits the loops of one layer; its weights and bias are the kernel's `w` and `bias`."""

    def __init__(self, k: Builder, s: ConvShape, q: Quads, epilogue: Epilogue, has_fma: bool) -> None:
        self.k, self.s, self.q, self.epilogue, self.has_fma = k, s, q, epilogue, has_fma

    def emit(self, block: int, rows: KValue) -> None:
        """The loop over blocks of `block` pixels, of `rows` in all."""
        k, q = self.k, self.q
        pixels = prod(self.s.geometry.output)
        even = static(pixels) % q.pixels == 0

        def item(index: KValue, _: list[KValue]) -> None:
            first = index * block
            end = k.min(first + block, rows)
            whole = end if even else end - k.urem(end - first, q.pixels)
            k.for_(first, whole, q.pixels, [], lambda row, _: self.groups(row, q.vectors, None))
            if not even:
                k.for_(whole, end, q.side, [], lambda row, _: self.groups(row, 1, end))

        k.for_(k["begin"], k["end"], 1, [], item)

    def groups(self, row: KValue, vectors: int, end: KValue | None) -> None:
        """All groups of the pixels from `row` on, of which those from `end` on are not there."""
        k, s, q = self.k, self.s, self.q
        step = k.index(s.x.tensor.pitch)
        pixels = [row + p for p in range(vectors * q.side)]
        at = [(pixel if end is None else k.min(pixel, end - 1)) * step for pixel in pixels]

        def group(g: KValue, _: list[KValue]) -> None:
            width = q.quads * QUAD
            bias = [self.quad(k["bias"], g * width + i * QUAD) for i in range(q.quads)]
            acc = [b for b in bias for _ in range(vectors)]
            source = [a + g * s.group_inputs for a in at]
            w = g * (s.group_inputs * width)
            whole = s.group_inputs // QUAD * QUAD

            def four(c: KValue, acc: list[KValue]) -> list[KValue]:
                self.prefetch(row + len(pixels), len(pixels), g, c)
                x = [self.gathered([k.load(k["x"], a + c, QUAD) for a in self.of(source, v)]) for v in range(vectors)]
                for j in range(QUAD):
                    lanes = [lane // QUAD * QUAD + j for lane in range(q.lanes)]
                    acc = self.step(w + (c + j) * width, [partial(k.shuffle, v, v, lanes) for v in x], acc)
                return acc

            acc = k.for_(0, whole, QUAD, acc, four)
            for c in range(whole, s.group_inputs):

                def splats(v: int, c: int = c) -> KValue:
                    return self.gathered([k.splat(k.load(k["x"], a + c), QUAD) for a in self.of(source, v)])

                acc = self.step(w + c * width, [partial(splats, v) for v in range(vectors)], acc)
            self.finish(pixels, g * s.group_outputs, vectors, end, acc)

        k.for_(0, s.groups, 1, [], group)

    def prefetch(self, row: KValue, n: int, g: KValue, c: KValue) -> None:
        """Ask for inputs of the next `n` pixels: four steps of k read a line of each, and ask for it of a quarter."""
        k, s = self.k, self.s
        quarter, step = ceil_div(n, QUAD), k.index(s.x.tensor.pitch)
        part = k.urem(k.udiv(c, QUAD), LINE // QUAD)
        at = (row + part * quarter) * step + g * s.group_inputs + (c - part * QUAD)
        for i in range(quarter):
            k.prefetch(k["x"], at + step * i, level=2)

    def of(self, pixels: list[KValue], vector: int) -> list[KValue]:
        """A vector's share of the pixels."""
        return pixels[vector * self.q.side : (vector + 1) * self.q.side]

    def quad(self, ptr: KValue, at: KValue) -> KValue:
        """Four elements, in each block of a register."""
        value = self.k.load(ptr, at, QUAD)
        return self.k.shuffle(value, value, [lane % QUAD for lane in range(self.q.lanes)])

    def gathered(self, parts: list[KValue]) -> KValue:
        """Vectors, a power of two, behind each other."""
        while len(parts) > 1:
            parts = [self.k.shuffle(a, b, range(2 * a.lanes)) for a, b in zip(parts[::2], parts[1::2])]
        return parts[0]

    def step(self, w: KValue, x: list[Callable[[], KValue]], acc: list[KValue]) -> list[KValue]:
        """One input channel of the group; the fewer ones of weights and inputs stay in registers."""
        k, q, vectors = self.k, self.q, len(x)
        acc = list(acc)

        def add(i: int, v: int, weight: KValue, value: KValue) -> None:
            n = i * vectors + v
            acc[n] = k.fma(value, weight, acc[n]) if self.has_fma else acc[n] + value * weight

        if vectors <= q.quads:
            values = [get() for get in x]
            for i in range(q.quads):
                weight = self.quad(k["w"], w + i * QUAD)
                for v in range(vectors):
                    add(i, v, weight, values[v])
        else:
            weights = [self.quad(k["w"], w + i * QUAD) for i in range(q.quads)]
            for v in range(vectors):
                value = x[v]()
                for i in range(q.quads):
                    add(i, v, weights[i], value)
        return acc

    def finish(self, pixels: list[KValue], column: KValue, vectors: int, end: KValue | None, acc: list[KValue]) -> None:
        """Run the tail and store, pixel by pixel in pieces of a power of two of channels."""
        k, q = self.k, self.q
        for p, pixel in enumerate(pixels):
            own = [acc[i * vectors + p // q.side] for i in range(q.quads)]
            block = p % q.side * QUAD

            def pixel_done(own: list[KValue] = own, block: int = block, pixel: KValue = pixel) -> None:
                for first, n in q.pieces(self.s.group_outputs):
                    self.epilogue.apply(pixel, column + first, self.piece(own, block, first, n))

            if end is None:
                pixel_done()
            else:
                k.if_(pixel < end, pixel_done)

    def piece(self, own: list[KValue], block: int, first: int, n: int) -> KValue:
        """Outputs [first, first + n) of the pixel in lanes from `block` on."""
        k, i = self.k, first // QUAD
        if n == 1:
            return k.extract(own[i], block + first % QUAD)
        if n <= QUAD:
            return k.shuffle(own[i], own[i], [block + first % QUAD + lane for lane in range(n)])
        if n == 2 * QUAD:
            lanes = [block + lane for lane in range(QUAD)]
            return k.shuffle(own[i], own[i + 1], lanes + [self.q.lanes + lane for lane in lanes])
        return self.gathered([self.piece(own, block, first + at, n // 2) for at in (0, n // 2)])
