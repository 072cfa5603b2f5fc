"""Winograd's minimal filtering for convolutions of few taps: 1.4 to 4 times fewer multiplications than the direct sum.

Lavin and Gray, "Fast algorithms for convolutional neural networks" (CVPR 2016), for kernels of any size, strides 1 and
2. Channels-last; constant weights are transformed at compile time, computed ones in every call (`weights`). Owns which
layers it serves, with which pairs of axis algorithms, and how they are blocked; the counts that rank them are
`counts`', the loops `emit`'s, the matrices `axes`'s.

Error: an output y of a tile mixes what the tile's window of the input holds, and nothing else. With u = 2⁻²⁴,

    |ŷ − y| ≤ c · n·u/(1 − n·u) · Σ_channels (max |x| in the tile's window) · (Σ_taps |w|)
    c = c_height · c_width,    n = channels + 2 + roundings_height + roundings_width          (`error_bound`)

where an axis has c = max_i Σ_ξ |A_iξ| · max_k |G_ξk| · Σ_j |B_jξ| (`Axis.amplification`): 1 for the direct sum, 4 for
F(2, 3), 29.3 for F(4, 3), at most 208 alone and MOST_AMPLIFICATION for two. Derivation: y = Aᵀ (Σ_c U_c ⊙ V_c) A with
U = G w Gᵀ and V = Bᵀ x B. Each x_jl and w_km of the tile reaches y on ways through one pair of points (ξ, η) each, with
the factor A_iξ G_ξk B_jξ · A_i'η G_ηm B_lη, and on each way it meets at most n roundings, each a factor 1 + δ with
|δ| ≤ u: those of both transforms, one of U (made in f64), and the fused multiply-adds over the channels. So the error
is at most n·u/(1 − n·u) times the sum of all ways' magnitudes; |x| ≤ its maximum, |G_ξk G_ηm| ≤ the rows' maxima, and
the sum over j, l, ξ and η gives c. With a stride each tap belongs to one phase: their largest c serves. The bias and
the fused tail round as they do elsewhere; what underflows costs some 2⁻¹⁴⁹ more. Inputs beyond 2¹²⁸ / `growth` overflow
in Bᵀ x B: a tile of such is not finite, as with an infinity or a NaN in its window. Computed weights meet f32 roundings
for U's one: those of G along both axes, and two of the factors; near the greatest of f32 their transforms may overflow.

Products of bf16 (`Bf16Conv`) take F(2, 3) along both axes alone, whose Bᵀ has no factors but 0 and ±1: transforms are
of f32 and are rounded to bf16 once, to the nearest, ties to even, as are constant weights' G w Gᵀ; the sums are f32's.
With b = 2⁻⁸ each way meets two roundings more, one of U and one of V:

    |ŷ − y| ≤ c · ((1 + b)² / (1 − n·u) − 1) · Σ_channels (max |x| in the tile's window) · (Σ_taps |w|) + z
    c = 16,    z = 9 · 2⁻¹²⁶ · Σ_channels (Σ_taps |w| + 4 max |x| + 2)

which is about c times the 2b of direct products of operands that are rounded. z is of denormals, which the rounding and
the instruction may take for zeros: each row of Aᵀ adds three points, and |U| ≤ Σ|w|, |V| ≤ 4 max |x|. In practice the
error is BF16_TILE_ERROR of the window's largest number.

So a pixel that is small beside another one in its window loses what the large one's rounding errors take: in practice
TILE_ERROR of the large one, by far less than the bound, as errors of random signs cancel. `--fp strict` forbids all.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from .....ir.bands import greatest
from .....ir.call_rows import ALONE, CallRows
from .....ir.types import BF16, F32, DType, SymDim, ceil_div
from .....kernel_ir.loops import KFunc, PtrType
from .....targets.target import Target
from ....fusion import Fusion
from ....lowering import KernelCall, LowerContext, Operand, Scratch
from ....microkernels.table import emitter_of, tallest_tile
from ...matmul.blocking import size_hint, static
from ..layer import ConvAlgorithm, ConvLayer
from ..weights import ConvShape, NamedOperand
from . import counts
from .axes import Axis, Matrix, as_array, axis_algorithm
from .emit import WinogradKernel
from .plan import Plan, panels_of
from .weights import computed_operands, row_major, transform_weights

UNIT_ROUNDOFF, BF16_ROUNDOFF = 2.0**-24, 2.0**-8  # of f32, of bf16
MOST_AMPLIFICATION = 2600  # c of whatever is offered
TILE_ERROR = 2e-5  # of max |x| in the window · the root of Σ w²: seen of random inputs of any scale, up to 512 channels
SMALL_TILE_ERROR = 4e-6  # the same of two outputs along each axis, up to seven taps, five along one
BF16_TILE_ERROR = 1.2e-2  # the same of products of bf16
MEASURED_SHARE = 1.3  # times what is worth choosing: a count of cycles may err so far
MOST_CANDIDATES = 3  # tiles that are measured; chosen, not measured itself: each takes a part of the tuning time
OTHER_BLOCKS = {"long": counts.LONG_BLOCK, "short": 2 * counts.SHORT_BLOCK}
"""Tiles of a work item that may be faster than the planned ones."""


def applies(s: ConvShape, target: Target) -> bool:
    """Whether the algorithm can serve a layer at all."""
    g, dtype = s.geometry, s.x.tensor.dtype
    typed = dtype == F32 or dtype == s.w.tensor.dtype == BF16
    return (s.rank == 2 and s.groups == 1 and g.dilations == (1, 1) and typed and s.y.dtype == F32
            and bool(algorithms(s)) and s.channels_last_input
            and s.group_inputs % target.f32_lanes == 0 and s.group_outputs % target.f32_lanes == 0
            and all(isinstance(p, int) for p in (*g.pads_begin, *g.pads_end))
            and _holds(s))  # fmt: skip


def is_tiled(ctx: LowerContext, layer: ConvLayer) -> bool:
    """Whether register tiles of f32 or of pairs of bf16 serve a layer, and its rounding may differ from plain sums'."""
    return (layer.is_indirect(ctx) or layer.has_pairs(ctx)) and not layer.is_exact(ctx)


def _holds(s: ConvShape) -> bool:
    """Whether transformed weights are no infinities; of computed ones a kernel asks that they lie as it turns them."""
    if not s.constant:
        return row_major(s)
    assert s.w.data is not None
    rounded_up = 1 + BF16_ROUNDOFF if s.x.tensor.dtype == BF16 else 1.0
    return greatest(s.w.data) * rounded_up <= greatest_weight(algorithms(s))


def algorithms(s: ConvShape) -> list[tuple[Axis, Axis]]:
    """The pairs of axis algorithms that save multiplications and keep the error bound."""
    return [axes_of(s, algorithm) for algorithm in counts.algorithms(layers_of(s, ALONE)[0])]


def is_open(s: ConvShape) -> bool:
    """Whether only a run knows how large the images are."""
    return any(isinstance(d, SymDim) for d in s.geometry.output)


def counted_dtype(s: ConvShape) -> DType:
    """Of the products that are counted: whole numbers take half of f32's time and bytes all along, and count as f32."""
    return BF16 if s.x.tensor.dtype == BF16 else F32


def layers_of(s: ConvShape, calls: CallRows) -> list[counts.Layer]:
    """With each of the numbers of images that the layer is chosen for."""
    (taps_h, taps_w), (stride_h, stride_w) = s.geometry.kernel, s.geometry.strides
    height, width = (size_hint(d) for d in s.geometry.output)
    one = counts.Layer(1, s.group_inputs, s.group_outputs, (taps_h, taps_w), (stride_h, stride_w), (height, width),
                       not s.constant, counted_dtype(s))  # fmt: skip
    return [replace(one, images=n) for n in calls.of(s.x.tensor.dims[0])]


def axes_of(s: ConvShape, algorithm: counts.Algorithm) -> tuple[Axis, Axis]:
    """The algorithms of both axes."""
    sizes = zip(algorithm.tile, s.geometry.kernel, s.geometry.strides, strict=True)
    height, width = (axis_algorithm(outputs, taps, stride) for outputs, taps, stride in sizes)
    return height, width


def error_bound(axes: tuple[Axis, Axis], channels: int, computed: bool = False, dtype: DType = F32) -> float:
    """Of an output's error, see above: a share of Σ_channels (max |x| in its tile's window) · (Σ_taps |w|).

    Args:
        computed: whether the weights are transformed when the model runs, in f32. dtype: of what the products multiply.
    """
    roundings = channels + 2 + sum(axis.roundings for axis in axes)
    roundings += 1 + sum(axis.weight_roundings for axis in axes) if computed else 0
    each = roundings * UNIT_ROUNDOFF / (1 - roundings * UNIT_ROUNDOFF)
    of_both = (1 + BF16_ROUNDOFF) ** 2 if dtype == BF16 else 1.0
    return math.prod(axis.amplification for axis in axes) * (of_both * (1 + each) - 1)


def growth(axes: tuple[Axis, Axis]) -> float:
    """How much larger than the largest input of its window a transformed input can be."""
    return math.prod(max(_row_sum(phase.bt) for phase in axis.phases) for axis in axes)


def greatest_weight(offered: list[tuple[Axis, Axis]]) -> float:
    """The greatest magnitude of weights whose transforms f32 holds by any of the algorithms."""
    most = max(math.prod(max(_row_sum(phase.g) for phase in axis.phases) for axis in axes) for axes in offered)
    return float(np.finfo(np.float32).max) / most


def _row_sum(matrix: Matrix) -> float:
    """The greatest sum of a row's magnitudes."""
    return float(np.abs(as_array(matrix)).sum(axis=1).max())


def name_of(axes: tuple[Axis, Axis]) -> str:
    """`winograd4x4`: by the outputs of a tile."""
    return f"winograd{axes[0].outputs}x{axes[1].outputs}"


class WinogradAlgorithm(ConvAlgorithm):
    """Winograd's algorithms, as many as come near the one that the count of cycles takes for the fastest."""

    name = "winograd"

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        s = layer.shape
        sizes_alike = not (is_open(s) and s.constant)  # else by_size.py has a way for each
        return sizes_alike and is_tiled(ctx, layer) and applies(s, ctx.target)

    def variants(self, ctx: LowerContext, layer: ConvLayer) -> list[ConvAlgorithm]:
        """The best tiles, best first; then the first of them in blocks of other lengths for other caches."""
        s = layer.shape
        layers, pace = layers_of(s, ctx.calls), counts.pace_of(ctx.machine, ctx.lanes, counted_dtype(s))
        direct = counts.most_cycles(layers, ctx.lanes, pace) / counts.MAX_SHARE
        ranked = counts.ranked(layers, ctx.lanes, pace)
        shares = [(cycles / direct, axes_of(s, algorithm)) for cycles, algorithm in ranked]
        near = [(cost, axes) for cost, axes in shares if cost < WinogradTiles.measured_share][:MOST_CANDIDATES]
        found: list[ConvAlgorithm] = [WinogradTiles(name_of(axes), axes, cost) for cost, axes in near]
        if not found:
            return []
        cost, best = shares[0]
        planned = plan(ctx, s, best).block
        return found + [WinogradTiles(f"{name_of(best)}-{name}", best, cost, block)
                        for name, block in OTHER_BLOCKS.items() if block != planned]  # fmt: skip

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        return self.variants(ctx, layer)[0].lower(ctx, layer)


class WinogradTiles(WinogradAlgorithm):
    """One of Winograd's algorithms.

    Args:
        axes: algorithms of both axes. share: of the direct convolution's cycles. block: see `lower_winograd`.
    """

    max_share = counts.MAX_SHARE
    measured_share = MEASURED_SHARE * counts.MAX_SHARE

    def __init__(self, name: str, axes: tuple[Axis, Axis], share: float, block: int = 0) -> None:
        self.name, self.axes, self.share, self.block = name, axes, share, block

    def cost(self, ctx: LowerContext, layer: ConvLayer) -> float:
        return self.share

    def variants(self, ctx: LowerContext, layer: ConvLayer) -> list[ConvAlgorithm]:
        return [self]

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        return lower_winograd(ctx, layer.fusion, layer.shape, self.axes, self.block)


def plan(ctx: LowerContext, s: ConvShape, axes: tuple[Axis, Axis]) -> Plan:
    """Blocking of a layer."""
    target, lanes, dtype = ctx.target, ctx.lanes, s.x.tensor.dtype
    vectors, panels = panels_of(s.group_outputs, target, dtype)
    tiles = (ceil_div(s.geometry.output[0], axes[0].outputs), ceil_div(s.geometry.output[1], axes[1].outputs))
    algorithm = counts.Algorithm((axes[0].outputs, axes[1].outputs), (axes[0].points, axes[1].points))
    pace = counts.pace_of(ctx.machine, lanes, counted_dtype(s))
    block = counts.block_tiles(tuple(layers_of(s, ctx.calls)), algorithm, lanes, pace)
    return Plan(axes, tiles, block, vectors, lanes, tallest_tile(target, vectors, dtype), panels,
                emitter_of(target, dtype))  # fmt: skip


def lower_winograd(
    ctx: LowerContext, fusion: Fusion, s: ConvShape, axes: tuple[Axis, Axis], block: int = 0
) -> KernelCall:
    """The kernel call of a layer that `applies`, with one of its `algorithms`.

    Args:
        block: tiles of a work item; 0: as planned.
    """
    p = plan(ctx, s, axes)
    return kernel_call(ctx, fusion, s, replace(p, block=block) if block else p)


def kernel_call(
    ctx: LowerContext, fusion: Fusion, s: ConvShape, p: Plan, kernel: type[WinogradKernel] = WinogradKernel,
    scale: int = 1,
) -> KernelCall:  # fmt: skip
    """The call of a planned kernel.

    Args:
        kernel: who writes it. scale: of the transformed weights, which must be constant unless it is 1.
    """
    element, sums = p.emitter.element, PtrType(p.emitter.sums)
    pixels, numbers = PtrType(element), p.points * p.block
    zeros = np.zeros(p.axes[1].inputs * static(s.x.tensor.pitch), element.numpy)
    named: list[NamedOperand] = [
        ("x", pixels, s.x), ("bias", sums, _bias(ctx, s, p)), ("zero", pixels, ctx.weights.add(zeros)),
        ("v", pixels, Scratch(element.nbytes * numbers * s.group_inputs)), ("m", sums, Scratch(4 * numbers * p.width)),
        *_weights(ctx, s, p, scale),
    ]  # fmt: skip

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, t) for n, t, _ in named] + fusion.params())
        kernel(ctx, k, fusion, s, p).emit()
        return k.func

    func = ctx.function("winograd", fusion.node, build, p)
    return KernelCall(func, (*(o for _, _, o in named), *fusion.operands()), p.work(s.x.tensor.dims[0]))


def _bias(ctx: LowerContext, s: ConvShape, p: Plan) -> Operand:
    """What outputs begin with: the bias or zeros, of all panels where it is constant."""
    if s.b is not None and (s.b.data is None or s.b.producer is not None):
        return s.b
    whole = np.zeros(p.panels * p.width, p.emitter.sums.numpy)
    if s.b is not None and s.b.data is not None:
        whole[: s.b.data.size] = s.b.data
    return ctx.weights.add(whole)


def _weights(ctx: LowerContext, s: ConvShape, p: Plan, scale: int) -> list[NamedOperand]:
    """Transformed weights, or what it takes to transform them."""
    if not s.constant:
        return computed_operands(s, p)
    assert s.w.data is not None
    element, emitter = p.emitter.b_element, p.emitter
    assert element.numpy is not None
    shape = (p.panels, p.points, s.group_inputs // emitter.k_step, p.width * emitter.width)
    made = ctx.weights.make(shape, element.numpy, partial(transform_weights, s.w.data, p, scale=scale))
    return [("u", PtrType(element), made)]
