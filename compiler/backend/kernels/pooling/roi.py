"""RoiAlign and MaxRoiPool: a work item for each bin of a region, vectors of channels.

    for region, row, column (work items):
        for vectors of channels, a few at once:
            for each sample (or element) of the bin: combine the vectors that lie there

Positions are computed once for the few vectors. Channels-last, a vector is one load; else lanes are gathered. Follows
ONNX Runtime's roialign.cc and roi_pool.cc operation by operation, so that samples fall between the same elements; what
lies outside is not read, and not, as there, the first element times 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ....ir.graph import Node
from ....ir.ops.roi import MOST_SAMPLES, MaxRoiPool, OverRegions, RoiAlign
from ....ir.types import I64, DType, TensorType, prod
from ....kernel_ir.builder import Builder, KValue
from ....kernel_ir.loops import KFunc, PtrType
from ...fusion import register_dtype
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import decode, strided_index

AT_ONCE = 4  # vectors of channels
MOST_POSITION = float(1 << 40)  # of a corner: beyond any image

Load = Callable[[KValue, "KValue | None"], KValue]
"""One vector of channels, widened, of the element at an offset of the image; zeros where the flag is off."""
Combine = Callable[[KValue, Load], KValue]
Region = Callable[[KValue, Sequence[KValue]], "Window"]
"""From a region's number and a bin's place to what is in the bin."""


@dataclass(frozen=True)
class Window:
    """What one bin combines.

    Attributes:
        image: its offset in x. rows, columns: from and to, of samples or elements.
        visit: a row → a column → what combines on: the values combined so far, and how to load, → these with the
            column's.
        finish: makes the result of the values combined. init: the first of these.
    """

    image: KValue
    rows: tuple[KValue, KValue]
    columns: tuple[KValue, KValue]
    visit: Callable[[KValue], Callable[[KValue], Combine]]
    finish: Callable[[KValue], KValue]
    init: float


@lowers(RoiAlign)
def lower_roi_align(ctx: LowerContext, node: Node) -> KernelCall:
    """Samples between elements."""
    site = ctx.error_site(node, f"an image's number is out of range, or a bin has more than {MOST_SAMPLES} samples "
                                "along an axis")
    return _lower(ctx, node, site, lambda k, x, y: _Aligned(k, node, x, y, site).region)


@lowers(MaxRoiPool)
def lower_max_roi_pool(ctx: LowerContext, node: Node) -> KernelCall:
    """Whole elements."""
    site = ctx.error_site(node, "an image's number is out of range")
    return _lower(ctx, node, site, lambda k, x, y: _Pooled(k, node, x, y, site).region)


def _lower(ctx: LowerContext, node: Node, site: int,
           make: Callable[[Builder, TensorType, TensorType], Region]) -> KernelCall:
    assert isinstance(node.op, OverRegions)
    names = ("x", "rois", "images")[: len(node.operands)]
    x, y = node.operands[0].tensor, node.output.tensor
    sizes = (y.dims[0], *y.dims[2:])

    def build(name: str) -> KFunc:
        params = [*zip(names, (v.tensor for v in node.operands)), ("y", y)]
        k = ctx.kernel(name, [(n, PtrType(t.dtype)) for n, t in params])
        region = make(k, x, y)

        def item(work: KValue, _: list[KValue]) -> None:
            n, *bin_ = decode(k, work, sizes)
            window = region(n, bin_)
            at = n * k.index(y.strides[0])
            for i, stride in zip(bin_, y.strides[2:]):
                at = at + i * k.index(stride)
            _channels(k, x, y, ctx.lanes, window, at)

        k.for_(k["begin"], k["end"], 1, [], item)
        return k.func

    func = ctx.function("roi", node, build, site)
    return KernelCall(func, (*node.operands, node.output), prod(sizes), node.name, nbytes=x.nbytes + y.nbytes)


def _channels(k: Builder, x: TensorType, y: TensorType, lanes: int, window: Window, at: KValue) -> None:
    """All channels of a bin, whose first result is y[at]."""
    wide = register_dtype(x.dtype)
    (step, to), channels = (x.strides[1], y.strides[1]), k.index(x.dims[1])

    def several(first: KValue, count: int, mask: KValue | None) -> None:
        starts = [first + i * lanes for i in range(count)]

        def load(start: KValue) -> Load:
            def vector(offset: KValue, inside: KValue | None) -> KValue:
                place = window.image + offset + start * k.index(step)
                if step == 1:
                    value = k.load(k["x"], place, lanes, mask)
                else:
                    value = k.gather(k["x"], strided_index(k, place, step, lanes), mask)
                value = k.cast(value, wide)
                return value if inside is None else k.select(inside, value, 0)

            return vector

        loads = [load(start) for start in starts]

        def row(i: KValue, totals: list[KValue]) -> list[KValue]:
            columns = window.visit(i)

            def column(j: KValue, totals: list[KValue]) -> list[KValue]:
                combine = columns(j)
                return [combine(total, one) for total, one in zip(totals, loads)]

            return k.for_(*window.columns, 1, totals, column)

        init = k.splat(k.const(window.init, wide), lanes)
        totals = k.for_(*window.rows, 1, [init] * count, row)
        for start, total in zip(starts, totals):
            value, place = k.cast(window.finish(total), y.dtype), at + start * k.index(to)
            if to == 1:
                k.store(k["y"], place, value, mask)
            else:
                k.scatter(k["y"], strided_index(k, place, to, lanes), value, mask)

    block = AT_ONCE * lanes
    blocks = k.udiv(channels, block) * block
    whole = k.udiv(channels, lanes) * lanes
    k.for_(0, blocks, block, [], lambda c, _: several(c, AT_ONCE, None))
    k.for_(blocks, whole, lanes, [], lambda c, _: several(c, 1, None))
    k.if_(whole < channels, lambda: several(whole, 1, k.tail_mask(channels - whole, lanes)))


class _Regions:
    """What both kinds of regions share: an image's size, its number checked."""

    def __init__(self, k: Builder, node: Node, x: TensorType, y: TensorType, site: int) -> None:
        self.k, self.x, self.y, self.site, self.op = k, x, y, site, node.op
        self.rois = node.operands[1].tensor
        self.real: DType = register_dtype(x.dtype)
        self.size = [k.index(d) for d in x.dims[2:]]
        self.strides = [k.index(s) for s in x.strides[2:]]
        self.per_image = k.index(x.strides[0])

    def image(self, number: KValue) -> KValue:
        """Where an image of that number, i64, starts in x; out of range, an error and the first."""
        k = self.k
        good = (number >= 0) & (number < k.index(self.x.dims[0]))
        k.if_(~good, lambda: k.fail(self.site))
        return k.select(good, number, 0) * self.per_image

    def corner(self, region: KValue, i: int) -> KValue:
        """A number of a region, times the scale."""
        k = self.k
        value = k.load(k["rois"], region * k.index(self.rois.strides[0]) + k.index(self.rois.strides[1]) * i)
        return k.cast(value, self.real) * float(np.float32(self.op.spatial_scale))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Axis:
    """A region along one axis: where it begins, how long a bin is, how many samples that has."""

    start: KValue
    length: KValue
    samples: KValue


class _Aligned(_Regions):
    """RoiAlign's bins."""

    op: RoiAlign

    def region(self, n: KValue, bin_: Sequence[KValue]) -> Window:
        """Bin `bin_` of region n."""
        k = self.k
        image = self.image(k.load(k["images"], n))
        axes = [self._axis(n, a, bins) for a, bins in enumerate((self.op.output_height, self.op.output_width))]
        count = k.cast(k.max(axes[0].samples * axes[1].samples, 1), self.real)
        average = self.op.mode == "avg"

        def visit(i: KValue) -> Callable[[KValue], Combine]:
            row = self._sample(axes[0], 0, bin_[0], i)
            return lambda j: self._combine(row, self._sample(axes[1], 1, bin_[1], j))

        rows, columns = ((k.index(0), axis.samples) for axis in axes)

        def finish(total: KValue) -> KValue:
            if average:
                return total / count
            return k.select((axes[0].samples > 0) & (axes[1].samples > 0), total, 0)

        return Window(image, rows, columns, visit, finish, 0.0 if average else -np.inf)

    def _combine(self, row: _Between, column: _Between) -> Combine:
        k = self.k
        inside = row.inside & column.inside

        def combine(total: KValue, load: Load) -> KValue:
            a, b, c, d = (load(r + c, inside) * (p * q) for r, p in zip(row.offsets, row.weights)
                          for c, q in zip(column.offsets, column.weights))
            if self.op.mode == "avg":
                return total + (((a + b) + c) + d)
            return k.max(total, k.max(k.max(a, b), k.max(c, d)))

        return combine

    def _axis(self, n: KValue, axis: int, bins: int) -> _Axis:
        k, op = self.k, self.op
        start, end = self.corner(n, 1 - axis), self.corner(n, 3 - axis)
        if op.coordinate_transformation_mode == "half_pixel":
            start, end = start - 0.5, end - 0.5
            length = end - start
        else:
            length = end - start
            length = k.select(length < 1, 1, length)  # NaN stays
        length = length / bins
        if op.sampling_ratio:
            return _Axis(start, length, k.index(op.sampling_ratio))
        samples = k.cast(k.math("ceil", length), I64)
        k.if_(samples > MOST_SAMPLES, lambda: k.fail(self.site))
        return _Axis(start, length, k.select(samples > MOST_SAMPLES, 0, k.max(samples, 0)))

    def _sample(self, axis: _Axis, number: int, bin_: KValue, i: KValue) -> _Between:
        """Sample i of a bin along axis `number` of the image."""
        k, real = self.k, self.real
        position = (axis.start + k.cast(bin_, real) * axis.length) + (
            (k.cast(i, real) + 0.5) * axis.length) / k.cast(axis.samples, real)
        size = self.size[number]
        n = k.cast(size, real)
        inside = ~((position < -1) | (position > n))
        at = k.select(position < 0, 0, position)
        low = k.min(k.max(k.cast(at, I64), 0), size - 1)
        last = low >= size - 1
        high = k.select(last, low, low + 1)
        beyond = k.select(last, 0, at - k.cast(low, real))
        stride = self.strides[number]
        return _Between((low * stride, high * stride), (1 - beyond, beyond), inside)


@dataclass(frozen=True)
class _Between:
    """The elements on both sides of a position along an axis: offsets, weights, whether the position counts."""

    offsets: tuple[KValue, KValue]
    weights: tuple[KValue, KValue]
    inside: KValue


class _Pooled(_Regions):
    """MaxRoiPool's bins."""

    op: MaxRoiPool

    def region(self, n: KValue, bin_: Sequence[KValue]) -> Window:
        """Bin `bin_` of region n."""
        k = self.k
        number = k.cast(k.load(k["rois"], n * k.index(self.rois.strides[0])), self.real)
        image = self.image(k.select(number > -1, k.cast(number, I64), -1))  # -0.5 is image 0, as integers are cut off
        rows, columns = (self._range(n, a, bin_[a], bins) for a, bins in enumerate(self.op.pooled_shape))
        filled = (rows[0] < rows[1]) & (columns[0] < columns[1])

        def visit(i: KValue) -> Callable[[KValue], Combine]:
            return lambda j: lambda best, load: k.max(best, load(i * self.strides[0] + j * self.strides[1], None))

        return Window(image, rows, columns, visit, lambda best: k.select(filled, best, 0), -np.inf)

    def _range(self, n: KValue, axis: int, bin_: KValue, bins: int) -> tuple[KValue, KValue]:
        """Elements from and to along an axis."""
        k, size = self.k, self.size[axis]
        first, last = (self._rounded(self.corner(n, i - axis)) for i in (2, 4))
        length = k.cast(k.max(last - first + 1, 1), self.real) / bins
        number = k.cast(bin_, self.real)
        begin = k.cast(k.math("floor", number * length), I64) + first
        end = k.cast(k.math("ceil", (number + 1) * length), I64) + first
        return k.clip(begin, 0, size), k.clip(end, 0, size)

    def _rounded(self, value: KValue) -> KValue:
        """Halves away from 0, within a range whose sums no i64 leaves."""
        k = self.k
        whole = k.math("trunc", value)
        rest = k.math("abs", value - whole)
        away = k.select(value < 0, -1.0, k.const(1, value))
        rounded = k.select(rest >= 0.5, whole + away, whole)
        return k.cast(k.clip(rounded, -MOST_POSITION, MOST_POSITION), I64)


