"""Winograd's algorithm where only a run knows the images' size: one algorithm for large images, another for small ones.

Of a large image many tiles share the transformed weights, which are up to four times those of the model; of a small one
few do, and reading them takes longer than the products that they save. Both ways and their weights are in the plan; a
call takes one by the pixels of its results, whatever the batch, so that an image's bits depend on itself alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from .....ir.types import Dim, SymDim, exact_min, prod
from .....kernel_ir.builder import KValue
from .....kernel_ir.loops import KFunc, PtrType
from ....lowering import KernelCall, LowerContext, Operand
from ..indirect import lower_indirect
from ..layer import ConvAlgorithm, ConvLayer
from ..weights import ConvShape
from . import counts
from .lower import applies, axes_of, counted_dtype, is_open, is_tiled, lower_winograd

SIDES = (64, 128, 224, 448, 896)
"""Sizes of a model's images that a layer is chosen for, all as important, where nobody bounds them."""


@dataclass(frozen=True)
class Choice:
    """The algorithm of images of at least `threshold` result pixels, and of those of fewer; None: direct.

    Attributes:
        share: cycles of all sizes, against the direct algorithm's. blocks: tiles of a work item of both.
    """

    large: counts.Algorithm | None
    small: counts.Algorithm | None
    threshold: int
    share: float
    blocks: tuple[int, int]


class WinogradBySize(ConvAlgorithm):
    """One way for large and one for small images."""

    name = "by-size"

    def applies(self, ctx: LowerContext, layer: ConvLayer) -> bool:
        s = layer.shape
        return is_open(s) and s.constant and is_tiled(ctx, layer) and applies(s, ctx.target)

    def cost(self, ctx: LowerContext, layer: ConvLayer) -> float:
        return choice_of(ctx, layer.shape).share

    def lower(self, ctx: LowerContext, layer: ConvLayer) -> KernelCall:
        choice = choice_of(ctx, layer.shape)
        large, small = (self._way(ctx, layer, *way) for way in zip((choice.large, choice.small), choice.blocks))
        pixels = prod(layer.shape.geometry.output)
        return large if choice.large == choice.small else either(ctx, layer, pixels, choice.threshold, large, small)

    def _way(self, ctx: LowerContext, layer: ConvLayer, algorithm: counts.Algorithm | None, block: int) -> KernelCall:
        if algorithm is None:
            return lower_indirect(ctx, layer.fusion, layer.own(ctx), input_type=layer.shape.x.tensor.dtype)
        return lower_winograd(ctx, layer.fusion, layer.shape, axes_of(layer.shape, algorithm), block)


def either(
    ctx: LowerContext, layer: ConvLayer, size: Dim, threshold: int, large: KernelCall, small: KernelCall
) -> KernelCall:
    """The call of one of two kernels that compute the same: of the first where `size` is at least the threshold."""
    operands: list[Operand] = []
    places: list[list[int]] = []
    types: list[PtrType] = []
    for call in (large, small):
        places.append([])
        for operand, param in zip(call.operands, call.func.params):
            places[-1].append(len(operands))
            operands.append(operand)
            assert isinstance(param.type, PtrType)
            types.append(param.type)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, [(f"o{i}", t) for i, t in enumerate(types)])
        rest = [k[n] for n in ("dims", "sync", "begin", "end")]

        def way(call: KernelCall, own: Sequence[int]) -> list[KValue]:
            k.call(call.func, [*(k[f"o{i}"] for i in own), *rest])
            return []

        k.if_(k.index(size) >= threshold, lambda: way(large, places[0]), lambda: way(small, places[1]))
        return k.func

    func = ctx.function("by_size", layer.fusion.node, build, large.func.name, small.func.name, threshold)
    is_large = exact_min(1, size // threshold)
    return replace(large, func=func, operands=tuple(operands), work=large.work * is_large + small.work * (1 - is_large))


def choice_of(ctx: LowerContext, s: ConvShape) -> Choice:
    """The two ways that take fewest cycles over all sizes."""
    (taps_h, taps_w), (stride_h, stride_w) = s.geometry.kernel, s.geometry.strides
    sized: dict[int, tuple[counts.Layer, ...]] = {}
    dtype = counted_dtype(s)
    for size in _sizes(ctx, s):
        height, width = (_at(d, size) for d in s.geometry.output)
        one = counts.Layer(1, s.group_inputs, s.group_outputs, (taps_h, taps_w), (stride_h, stride_w), (height, width),
                           dtype=dtype)  # fmt: skip
        sized[height * width] = tuple(replace(one, images=n) for n in ctx.calls.of(s.x.tensor.dims[0]))
    return _choose(tuple(sorted(sized.items())), ctx.lanes, counts.pace_of(ctx.machine, ctx.lanes, dtype))


def _sizes(ctx: LowerContext, s: ConvShape) -> list[dict[str, int]]:
    """What the image's symbols are in each of the sizes: as many between a symbol's bounds, each as much larger."""
    bounds = {name: (max(1, least), most) for name, least, most in ctx.calls.bounds}
    symbols = {name for d in s.geometry.output if isinstance(d, SymDim) for name in d.symbols()}
    found: list[dict[str, int]] = []
    for i, side in enumerate(SIDES):
        share = i / (len(SIDES) - 1)
        size = {name: side if name not in bounds else round(bounds[name][0] ** (1 - share) * bounds[name][1] ** share)
                for name in symbols}  # fmt: skip
        found += [size] if size not in found else []
    return found


def _at(dim: Dim, size: dict[str, int]) -> int:
    return max(1, dim.evaluate(size)) if isinstance(dim, SymDim) else dim


@lru_cache(1 << 10)
def _choose(sized: tuple[tuple[int, tuple[counts.Layer, ...]], ...], lanes: int, pace: counts.Pace) -> Choice:
    """Args: sized: pixels of results, and the layer with the numbers of images that it is chosen for; by pixels."""
    shares: list[dict[counts.Algorithm | None, float]] = []
    for _, layers in sized:
        most = counts.most_cycles(layers, lanes, pace)
        cycles: dict[counts.Algorithm | None, float] = {a: n for n, a in counts.ranked(layers, lanes, pace)}
        shares.append({None: counts.MAX_SHARE, **{a: counts.MAX_SHARE * n / most for a, n in cycles.items()}})
    ways = [(large, small, first) for small in shares[0] for large in shares[0]
            for first in (range(1, len(sized)) if small != large else (0,))]  # fmt: skip

    def share(way: tuple[counts.Algorithm | None, counts.Algorithm | None, int]) -> float:
        of_large, of_small, begin = way
        return math.fsum([*(x[of_small] for x in shares[:begin]), *(x[of_large] for x in shares[begin:])])

    large, small, first = min(ways, key=share)
    threshold = 0 if first == 0 else math.isqrt(sized[first - 1][0] * sized[first][0])
    blocks = [0 if a is None else counts.block_tiles(tuple(layer for _, own in reversed(part) for layer in own), a,
                                                     lanes, pace)
              for a, part in ((large, sized[first:]), (small, sized[:first] or sized))]  # fmt: skip
    return Choice(large, small, max(1, threshold), share((large, small, first)) / len(sized), (blocks[0], blocks[1]))
