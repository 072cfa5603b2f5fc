"""The gradient of a convolution's weights: which algorithms there are for one, and its kernel call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ....ir.graph import Node
from ....ir.ops.conv_weight_gradient import ConvWeightGradient
from ....ir.types import Dim, prod
from ....kernel_ir.builder import F32PTR, Builder
from ....kernel_ir.loops import KFunc
from ...algorithm import Algorithm, candidates
from ...lowering import KernelCall, LowerContext, Scratch, lowers
from ...microkernels.table import tallest_tile, widest_tile
from ..matmul.blocking import static
from .weight_gradient_depthwise import DepthwiseGradient, is_depthwise, panel_channels
from .weight_gradient_direct import WeightGradient
from .weight_gradient_few import FewChannels
from .weight_gradient_sizes import Sizes
from .winograd.counts import MAX_SHARE, pace_of
from .winograd.gradient import SCRATCH, WinogradGradient, scratch_nbytes
from .winograd.gradient_plan import GradientPlan, channels_last, direct_cycles, plans
from .winograd.lower import MEASURED_SHARE


@lowers(ConvWeightGradient)
def lower_weight_gradient(ctx: LowerContext, node: Node) -> KernelCall:
    """The kernel call of the algorithm that is expected, or measured, to be fastest."""
    op = node.op
    assert isinstance(op, ConvWeightGradient)
    x, dy = node.operands
    dw = node.outputs[0].tensor
    outputs = dw.static_shape[0] // op.group
    vectors = min(widest_tile(ctx.target), -(-outputs // ctx.lanes))
    s = Sizes(x.tensor, dy.tensor, dw, op.geometry(x.tensor, dy.tensor), op.group, ctx.lanes,
              tallest_tile(ctx.target, vectors), vectors)  # fmt: skip
    call = ctx.pick(node, candidates(ALGORITHMS, ctx, GradientLayer(node, s)))
    flops = 2 * prod(dy.tensor.dims) * s.inputs * math.prod(s.geometry.kernel)
    nbytes = x.tensor.nbytes + dy.tensor.nbytes + dw.nbytes
    return replace(call, label=node.name, flops=flops, nbytes=nbytes)


@dataclass(frozen=True)
class GradientLayer:
    """A weight gradient and its sizes."""

    node: Node
    sizes: Sizes


class DirectGradient(Algorithm[GradientLayer]):
    """The sum over pixels, for each tap."""

    name = "direct"

    def applies(self, ctx: LowerContext, layer: GradientLayer) -> bool:
        return not is_depthwise(layer.sizes)

    def lower(self, ctx: LowerContext, layer: GradientLayer) -> KernelCall:
        node, s = layer.node, layer.sizes
        few, parts = s.merges_taps, s.groups * s.n_chunks * s.n_panels
        scratch: dict[str, Dim] = {"panel": s.block_rows * s.block_pixels * s.width}
        if few:
            scratch["lines"] = s.block_rows * s.inputs * s.line
        if s.sums_apart:
            scratch["sums"] = s.geometry.kernel[-1] * s.chunk * s.width

        def loops(k: Builder) -> FewChannels | WeightGradient:
            return FewChannels(k, s) if few else WeightGradient(k, s)

        return gradient_call(ctx, node, scratch, loops, parts if few else s.tap_rows * parts)


class FilterAlone(Algorithm[GradientLayer]):
    """One filter a channel: nothing else comes near, so nothing is counted."""

    name = "depthwise"

    def applies(self, ctx: LowerContext, layer: GradientLayer) -> bool:
        return is_depthwise(layer.sizes)

    def lower(self, ctx: LowerContext, layer: GradientLayer) -> KernelCall:
        s, n_registers = layer.sizes, ctx.target.n_registers
        panel = panel_channels(s, ctx.n_cores)
        scratch: dict[str, Dim] = {"sums": panel * math.prod(s.geometry.kernel)}
        return gradient_call(ctx, layer.node, scratch, lambda k: DepthwiseGradient(k, s, n_registers, panel),
                             -(-s.groups // panel))  # fmt: skip


class Loops(Protocol):
    """What emits a kernel's loops."""

    def emit(self) -> None: ...


def gradient_call(
    ctx: LowerContext, node: Node, scratch: Mapping[str, Dim], loops: Callable[[Builder], Loops], n_items: Dim
) -> KernelCall:  # fmt: skip
    """The call of a kernel with so many f32 elements of scratch, by name."""

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(n, F32PTR) for n in ("x", "dy", "dw", *scratch)])
        loops(k).emit()
        return k.func

    func = ctx.function("weight_gradient", node, build)
    room = [Scratch(4 * n) for n in scratch.values()]
    return KernelCall(func, (*node.operands, node.outputs[0], *room), n_items)


class TransformedGradient(Algorithm[GradientLayer]):
    """Winograd's, with one of the sizes that it may have.

    Args:
        plan: None: the best of all.
    """

    measured_share = MEASURED_SHARE * MAX_SHARE

    def __init__(
        self, name: str = "winograd", share: float = 1.0, plan: GradientPlan | None = None, max_share: float = MAX_SHARE
    ) -> None:
        self.name, self.share, self.plan, self.max_share = name, share, plan, max_share

    def applies(self, ctx: LowerContext, layer: GradientLayer) -> bool:
        one_tap = math.prod(layer.sizes.geometry.kernel) == 1
        return (ctx.fp.winograd or one_tap) and transformable(layer.sizes)

    def cost(self, ctx: LowerContext, layer: GradientLayer) -> float:
        return self.share

    def variants(self, ctx: LowerContext, layer: GradientLayer) -> Sequence[Algorithm[GradientLayer]]:
        """The best blocks of each of the best tiles, best first; with less scratch where a tile's best takes much."""
        s, pace, n_cores = layer.sizes, pace_of(ctx.machine, ctx.lanes), ctx.n_cores
        best: dict[tuple[int, ...], tuple[float, GradientPlan]] = {}
        least: dict[tuple[int, ...], int] = {}
        for cycles, plan in plans(s, ctx.target, pace, n_cores):
            tile = tuple(axis.tile for axis in plan.axes)
            taken = max(MOST_SCRATCH, sum(scratch_nbytes(plan, math.prod(s.geometry.kernel))))
            if tile not in best or (taken, cycles) < (least[tile], best[tile][0]):
                best[tile], least[tile] = (cycles, plan), taken
        direct = direct_cycles(s, pace, n_cores)
        ranked = sorted(best.values(), key=lambda pair: pair[0])[:MOST_MEASURED]
        names = ["winograd" + "x".join(str(axis.tile) for axis in plan.axes) for _, plan in ranked]
        most = MAX_SHARE if math.prod(s.geometry.kernel) > 1 else ONE_TAP_SHARE
        return [TransformedGradient(name, cycles / direct, plan, most) for name, (cycles, plan) in zip(names, ranked)]

    def lower(self, ctx: LowerContext, layer: GradientLayer) -> KernelCall:
        node, s, p = layer.node, layer.sizes, self.plan
        assert p is not None
        line = max(static(s.x.pitch) * p.axes[1].inputs, static(s.dy.pitch) * p.axes[1].tile)
        names = ["x", "dy", "dw", "zero", *SCRATCH]

        def build(name: str) -> KFunc:
            k = ctx.kernel(name, [(n, F32PTR) for n in names])
            WinogradGradient(ctx, k, s, p).emit()
            return k.func

        func = ctx.function("winograd_gradient", node, build, p)
        scratch = [Scratch(nbytes) for nbytes in scratch_nbytes(p, math.prod(s.geometry.kernel))]
        zero = ctx.weights.add(np.zeros(line, np.float32))
        return KernelCall(func, (*node.operands, node.outputs[0], zero, *scratch), s.inputs // p.chunk)


def transformable(s: Sizes) -> bool:
    """Whether Winograd's algorithms can serve a gradient: known sizes, whole vectors of channels, strides up to 2."""
    g = s.geometry
    row_major = s.dw.strides[1] == math.prod(g.kernel) and s.dw.strides[2:] == (g.kernel[-1], 1)
    return (len(g.kernel) == 2 and s.groups == 1 and max(g.strides) <= 2 and set(g.dilations) == {1}
            and s.inputs % s.lanes == 0 and s.outputs % s.lanes == 0 and channels_last(s.x) and channels_last(s.dy)
            and (s.dw.strides[0] == 1 or row_major)
            and all(isinstance(n, int) for n in (s.dy.dims[0], *g.pads_begin, *g.input, *g.output)))  # fmt: skip


ALGORITHMS: tuple[Algorithm[GradientLayer], ...] = (DirectGradient(), FilterAlone(), TransformedGradient())
MOST_MEASURED = 3  # tiles
# One tap transforms nothing: operands are packed once for all products, where the direct sum reads them again in pieces
# of a pixel, which counts as if they lay side by side. Counted at 0.86 to 1.30 of its time, the packed products took
# 0.63 to 0.93 of it in every 1×1 layer of MobileNet-v1 and ResNet50, by AVX-512 and by AVX2 (AMD EPYC, family 26 model
# 2, 2026-11-28).
ONE_TAP_SHARE = 1.4
MOST_SCRATCH = 16 << 20  # bytes of a core: it lies beside all that a step keeps; of ResNet50's layers two come near
