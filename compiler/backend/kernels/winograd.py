"""Winograd's minimal filtering for convolutions of few taps: 1.4 to 4 times fewer multiplications than the direct sum.

Lavin and Gray, "Fast algorithms for convolutional neural networks" (CVPR 2016), for kernels of any size, strides 1 and
2. Channels-last; weights are transformed at compile time. Owns which layers it serves, with which pair of axis
algorithms, and how they are blocked; the loops are `winograd_kernel`'s, the matrices `winograd_axes`'s.

Error: an output of F(4×4, 3×3) sums products of magnitude up to ~20 times those of the direct sum, so the relative
error is near 1e-5 in f32; F(2×2, 3×3) loses hardly anything. The bounds below are tested. `--fp strict` forbids
them all.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial

import numpy as np

from ...ir.kernel_builder import F32, F32PTR
from ...ir.loops import KFunc
from ...ir.target import Target
from ...ir.types import ceil_div
from ..fusion import Fusion
from ..lowering import Candidates, KernelCall, LowerContext, Scratch
from .blocking import size_hint, static
from .conv_weights import ConvShape
from .pack import pad_vector
from .tile import most_rows
from .winograd_axes import Axis, as_array, axis_algorithm
from .winograd_kernel import Plan, WinogradKernel

OUTPUTS = (4, 3, 2)  # of a tile along an axis with several taps
ERROR_BOUND = 2e-5  # of the largest output, for up to 512 channels
SMALL_ERROR_BOUND = 4e-6  # the same with two outputs along each axis, of at most five taps along one
MOST_POINTS = 8  # of one phase along an axis, where both axes are transformed: beyond, the error passes the bound
MOST_POINTS_ALONE = 9  # along the only transformed axis: the errors of two multiply
L2_SHARE = 0.72  # of the second-level cache for V and M of one block
LONG_BLOCK = 64  # tiles, where the weights do not stay in the cache from block to block
SHORT_BLOCK = 12  # tiles: shorter ones read the weights too often
MIN_ITEMS = 8  # work items wanted of a single image
STREAMED_NBYTES = 16 << 20  # transformed weights from this on do not
HIDDEN_NBYTES = 8 << 20  # of weights whose way from memory hides behind multiply-adds
GEMM_CYCLES = 1.06  # per multiply-add of a vector, small products and their results' way to the cache included
TRANSFORM_CYCLES = 6.0  # of one point of one tile and vector of channels, on each side
CYCLES_PER_BYTE = 0.13  # of the other weights, read by one core while it multiplies
WORTH = 0.95  # of the direct convolution's time, or it is not worth the memory
WORTH_MEASURING = 1.3  # times that: a count of cycles may err so far
MOST_CANDIDATES = 3
WASTE = {4: 1.0, 3: 1.01, 2: 1.05, 1: 1.3}  # of a panel of so many quarters of the widest


def applies(s: ConvShape, target: Target) -> bool:
    """Whether the algorithm can serve a layer at all."""
    g = s.geometry
    return (s.constant and s.rank == 2 and s.groups == 1 and g.dilations == (1, 1) and bool(algorithms(s))
            and s.channels_last_input and s.x.tensor.dtype == F32 and s.y.dtype == F32
            and s.group_inputs % target.f32_lanes == 0 and s.group_outputs % target.f32_lanes == 0
            and all(isinstance(p, int) for p in (*g.pads_begin, *g.pads_end)))  # fmt: skip


def algorithms(s: ConvShape) -> list[tuple[Axis, Axis]]:
    """The pairs of axis algorithms that save multiplications and keep the error bound."""
    g = s.geometry
    pairs = []
    for sizes in itertools.product(*(OUTPUTS if taps > 1 else (1,) for taps in g.kernel)):
        axes = [axis_algorithm(m, taps, stride) for m, taps, stride in zip(sizes, g.kernel, g.strides, strict=True)]
        saves = axes[0].points * axes[1].points < s.taps * sizes[0] * sizes[1]
        most = MOST_POINTS_ALONE if 1 in g.kernel else MOST_POINTS
        if saves and max(phase.points for a in axes for phase in a.phases) <= most:
            pairs.append((axes[0], axes[1]))
    return pairs


def name_of(axes: tuple[Axis, Axis]) -> str:
    """`winograd4x4`: by the outputs of a tile."""
    return f"winograd{axes[0].outputs}x{axes[1].outputs}"


def cycles(s: ConvShape, axes: tuple[Axis, Axis], rows: int, lanes: int) -> float:
    """What a call takes one core, about, for `rows` images where their number is symbolic."""
    points, pairs = axes[0].points * axes[1].points, s.group_inputs * s.group_outputs
    counts = [-(-size_hint(d) // a.outputs) for d, a in zip(s.geometry.output, axes, strict=True)]
    tiles = _images(s, rows) * counts[0] * counts[1]
    transforms = TRANSFORM_CYCLES * points * tiles * (s.group_inputs + s.group_outputs) / lanes
    streamed = CYCLES_PER_BYTE * max(0, 4 * points * pairs - HIDDEN_NBYTES)
    return GEMM_CYCLES * points * tiles * pairs / lanes + transforms + streamed


def direct_cycles(s: ConvShape, rows: int, lanes: int) -> float:
    """The same of a direct convolution, whose weights come from memory in time."""
    pixels = _images(s, rows) * math.prod(size_hint(d) for d in s.geometry.output)
    return s.taps * pixels * s.group_inputs * s.group_outputs / lanes


def candidates(ctx: LowerContext, fusion: Fusion, s: ConvShape, direct: Candidates) -> Candidates:
    """The algorithms that may beat the direct convolution, and that one, best first by the count of cycles.

    Args:
        s: of a layer that `applies`. direct: ways to do without, best first.
    """
    counts: list[tuple[float, Candidates]] = [(WORTH * direct_cycles(s, ctx.rows, ctx.lanes), direct)]
    most = WORTH_MEASURING * counts[0][0]
    found = sorted(((cycles(s, axes, ctx.rows, ctx.lanes), axes) for axes in algorithms(s)), key=lambda pair: pair[0])
    for cost, axes in [pair for pair in found if pair[0] < most][:MOST_CANDIDATES]:
        counts.append((cost, {name_of(axes): partial(lower_winograd, fusion=fusion, s=s, axes=axes)}))
    best = found[0][1]  # a block of other length may suit the caches better
    if plan(s, ctx.target, best, ctx.rows).block != LONG_BLOCK and found[0][0] < most:
        long = partial(lower_winograd, fusion=fusion, s=s, axes=best, block=LONG_BLOCK)
        counts.append((math.inf, {f"{name_of(best)}-long": long}))
    ranked = sorted(counts, key=lambda pair: pair[0])
    return {name: make for _, own in ranked for name, make in own.items()}


def _images(s: ConvShape, rows: int) -> int:
    d = s.x.tensor.dims[0]
    return d if isinstance(d, int) else rows


def plan(s: ConvShape, target: Target, axes: tuple[Axis, Axis], rows: int = 1) -> Plan:
    """Blocking of a layer, for calls that bring `rows` images where their number is symbolic."""
    lanes = target.f32_lanes
    needed = ceil_div(s.group_outputs, lanes)
    widest = 4 if target.n_registers >= 32 else 2
    vectors = min(range(1, widest + 1), key=lambda v: ceil_div(needed, v) * v * WASTE[v * 4 // widest])
    tiles = (ceil_div(s.geometry.output[0], axes[0].outputs), ceil_div(s.geometry.output[1], axes[1].outputs))
    height, panels = most_rows(target, vectors), ceil_div(needed, vectors)
    points = axes[0].points * axes[1].points
    fits = int(L2_SHARE * target.l2_nbytes) // (4 * points * (s.group_inputs + vectors * lanes))
    block = max(2 * height, min(fits // height * height, LONG_BLOCK))
    if 4 * points * s.group_inputs * s.group_outputs >= STREAMED_NBYTES:
        block = LONG_BLOCK
    elif isinstance(tiles[0], int) and isinstance(tiles[1], int):
        items = MIN_ITEMS if _images(s, rows) == 1 else 1
        block = _even_block(tiles[0] * tiles[1], max(fits, 2 * height), panels, items)
    return Plan(axes, tiles, block, vectors, lanes, height, panels)


def _even_block(tiles: int, most: int, panels: int, items: int) -> int:
    """Tiles of a block: equal parts of an image, in a number of items that two cores share evenly, at least `items`."""
    blocks = max(-(-tiles // min(most, LONG_BLOCK)), min(-(-items // panels), tiles // SHORT_BLOCK), 1)
    if blocks * panels % 2 and tiles > SHORT_BLOCK:
        blocks += 1
    return -(-tiles // blocks)


def transform_weights(w: np.ndarray, p: Plan) -> np.ndarray:
    """[Co, Ci, h, w] → G g Gᵀ as [panel, ξ, Ci, width], zeros beyond the last output channel."""
    inputs = w.shape[1]
    result = np.zeros((p.panels, p.points, inputs, p.width), np.float32)
    pairs = itertools.product(*(axis.phases for axis in p.axes))
    taps = [(a.first, b.first, np.kron(as_array(a.g), as_array(b.g))) for a, b in pairs]
    for panel in range(p.panels):
        part = w[panel * p.width : (panel + 1) * p.width].astype(np.float64).transpose(2, 3, 1, 0)
        point = 0
        for top, left, both in taps:  # vec(G g Gᵀ) = (G ⊗ G) vec(g)
            own = part[top :: p.axes[0].stride, left :: p.axes[1].stride]
            u = both @ own.reshape(both.shape[1], -1)
            result[panel, point : point + len(u), :, : part.shape[3]] = u.reshape(len(u), inputs, -1)
            point += len(u)
    return result


def lower_winograd(
    ctx: LowerContext, fusion: Fusion, s: ConvShape, axes: tuple[Axis, Axis], block: int = 0
) -> KernelCall:
    """The kernel call of a layer that `applies`, with one of its `algorithms`.

    Args:
        block: tiles of a work item; 0: as planned.
    """
    p = plan(s, ctx.target, axes, ctx.rows)
    p = replace(p, block=block) if block else p
    assert s.w.data is not None
    bias = np.zeros(p.panels * p.width, np.float32)
    constant_bias = s.b is None or s.b.data is not None
    if s.b is not None and s.b.data is not None:
        bias = pad_vector(s.b.data.astype(np.float32), p.panels * p.width)
    operands = [
        s.x,
        ctx.weights.add(transform_weights(s.w.data, p)),
        ctx.weights.add(bias) if constant_bias else s.b,
        ctx.weights.add(np.zeros(p.axes[1].inputs * static(s.x.tensor.pitch), np.float32)),
        Scratch(4 * p.points * p.block * s.group_inputs),
        Scratch(4 * p.points * p.block * p.width),
    ]

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, F32PTR) for n in WinogradKernel.PARAMS] + fusion.params())
        WinogradKernel(ctx, k, fusion, s, p).emit()
        return k.func

    func = ctx.function("winograd", fusion.node, build, p)
    return KernelCall(func, (*operands, *fusion.operands()), p.work(s.x.tensor.dims[0]))  # type: ignore[arg-type]
