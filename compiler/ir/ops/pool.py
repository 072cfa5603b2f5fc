"""Pools: reductions over a sliding window, and over all spatial axes at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any as PyAny
from typing import ClassVar

import numpy as np

from ..types import I8, I64, U8, DType, TensorType, Type
from . import layout_policies
from .backward import Backward
from .base import (
    CATALOGUE,
    Attr,
    Float,
    In,
    InferContext,
    Ints,
    Operator,
    OptOut,
    Out,
    Reduce,
    Shapes,
    Window,
    Work,
    op,
)
from .geometry import WindowGeometry, require_windows, window_geometry
from .reduce import Summing, lowest
from .signature import TypeGroup

MOST_TAPS = 256
"""Of a window, for a byte to tell them apart."""


class FloatOrByte(TypeGroup):
    """What MaxPool takes."""

    dtypes = Float.dtypes | {I8, U8}


class Pool(Window):
    """A pool over [N, C, spatial...]; subclasses declare the attributes and the three expressions."""

    kernel_shape: Attr[Ints]
    auto_pad: Attr[str] = "NOTSET"
    ceil_mode: Attr[int] = 0
    dilations: Attr[Ints] = None  # type: ignore[assignment]
    pads: Attr[Ints] = None  # type: ignore[assignment]
    strides: Attr[Ints] = None  # type: ignore[assignment]

    def geometry(self, ctx: InferContext) -> WindowGeometry:
        """The window over input 0."""
        shape = ctx.shape(0)
        if len(shape) < 3:
            ctx.fail("a pool needs [N, C, spatial...]", found=ctx.tensor(0))
        if len(self.kernel_shape) != len(shape) - 2:
            ctx.fail("malformed kernel_shape", expected=f"{len(shape) - 2} sizes", found=list(self.kernel_shape))
        g = window_geometry(
            shape[2:],
            self.kernel_shape,
            strides=self.strides,
            pads=self.pads,
            dilations=self.dilations,
            auto_pad=self.auto_pad,
            ceil_mode=bool(self.ceil_mode),
        )
        for pad in (g.pads_begin, g.pads_end):
            for p, extent in zip(pad, g.extent, strict=True):
                if isinstance(p, int) and p >= extent:
                    ctx.fail("a window may lie in the padding alone", expected=f"pads < {extent}", found=p)
        return g

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        t, geometry = ctx.tensor(0), self.geometry(ctx)
        require_windows(ctx, geometry, self.auto_pad)
        return [TensorType(t.dtype, (*t.dims[:2], *geometry.output), t.layout)]

    def work(self, shapes: Shapes) -> Work:
        return Work("pool", shapes.y_elements * math.prod(self.kernel_shape))


class Maximum(Pool):
    """The greatest element of each window; NaN if there is one, as in ReduceMax (ONNX leaves it open, and ONNX Runtime
    passes over it, or not, by its place)."""

    keeps_order = True

    def init(self, e: PyAny, dtype: DType) -> PyAny:
        return lowest(dtype)

    def combine(self, e: PyAny, acc: PyAny, x: PyAny) -> PyAny:
        return e.max(x, acc)


@op(since=12)
class MaxPool(Maximum):
    """See `Maximum`. Indices: its position in the whole tensor, in ONNX's element order (`storage_order` 1: the spatial
    axes count column by column)."""

    x: In[FloatOrByte]
    y: Out
    indices: OptOut
    storage_order: Attr[int] = 0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        (y,) = super().infer(ctx)
        assert isinstance(y, TensorType)
        return [y, TensorType(I64, y.shape, y.layout)]

    def training_form(self, ctx: InferContext) -> Operator | None:
        """See pool_training.py: for floats, known sizes and windows whose taps a byte can tell apart."""
        known = ctx.tensor(0).dtype.is_float and all(isinstance(n, int) for n in ctx.shape(0)[2:])
        if not known or ctx.n_outputs > 1 or math.prod(self.kernel_shape) > MOST_TAPS:
            return None
        given = {name: value for name, value in self.explicit_attributes().items() if name != "storage_order"}
        return CATALOGUE["parax", "TrainingMaxPool"](**given)

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """To the element of each window that its greatest came from, the first one where there are several."""
        if back.received[1:] and back.received[1] is not None:
            back.refuse("the places of a pool")
        g, x = back.g, back.inputs[0]
        _, places = g.add(self.replace(storage_order=0), [x], n_outputs=2)
        count = g.ReduceProd(back.shape_of(0), keepdims=1)
        zeros = g.Expand(g.const(np.zeros(()), back.ctx.tensor(0).dtype), count)
        flat = np.array([-1], np.int64)
        summed = g.ScatterElements(zeros, g.Reshape(places, flat), g.Reshape(back.dy, flat), reduction="add")
        return [g.Reshape(summed, back.shape_of(0))]


@op(since=19)
class AveragePool(Summing, Pool):
    """The mean of each window, over the elements inside the input, or over the padding too (count_include_pad)."""

    x: In[Float]
    count_include_pad: Attr[int] = 0

    def finish(self, e: PyAny, acc: PyAny, count: PyAny) -> PyAny:
        return acc / count

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """Each window's share to all of its elements: the transposed convolution of the shares with ones."""
        t, s = back.ctx.tensor(0), self.geometry(back.ctx)
        channels = t.dims[1]
        if not isinstance(channels, int) or not all(isinstance(d, int) for d in t.dims[2:]):
            back.refuse("a pool over open sizes", t)
        g, dtype = back.g, t.dtype
        counts = g.const(self.counts(s).astype(dtype.numpy))
        filters = g.const(np.ones((channels, 1, *s.kernel)).astype(dtype.numpy))
        reach = [(o - 1) * step + (k - 1) * d + 1 for o, step, k, d in zip(s.output, s.strides, s.kernel, s.dilations)]
        whole = g.ConvTranspose(g.Div(back.dy, counts), filters, strides=list(s.strides), dilations=list(s.dilations),
                                group=channels)  # fmt: skip
        margins = [n - r + b for n, r, b in zip(s.input, reach, s.pads_begin)]  # behind the last window, or cut off
        pads = [0, 0, *(-b for b in s.pads_begin), 0, 0, *margins]
        return [g.Pad(whole, np.array(pads, np.int64))]

    def counts(self, s: WindowGeometry) -> np.ndarray:
        """How many elements each window's mean is of: [1, 1, output...]. Sizes are known."""
        total = np.ones((1, 1, *([1] * len(s.kernel))))
        for axis, (n, o, k, step, d, b, e) in enumerate(
            zip(s.input, s.output, s.kernel, s.strides, s.dilations, s.pads_begin, s.pads_end), 2
        ):
            at = np.arange(o)[:, None] * step + np.arange(k) * d - b
            low, high = (-b, n + e) if self.count_include_pad else (0, n)
            along = ((at >= low) & (at < high)).sum(1)
            total = total * along.reshape([-1 if a == axis else 1 for a in range(total.ndim)])
        return total


@op(since=18)
class LpPool(Summing, Pool):
    """(sum |x|^p)^(1/p) of each window."""

    x: In[Float]
    p: Attr[int] = 2

    def map(self, e: PyAny, x: PyAny) -> PyAny:
        return power(e, x, self.p)

    def finish(self, e: PyAny, acc: PyAny, count: PyAny) -> PyAny:
        return root(e, acc, self.p)


def power(e: PyAny, x: PyAny, p: int) -> PyAny:
    """|x|^p."""
    return e.abs(x) if p == 1 else x * x if p == 2 else e.pow(e.abs(x), float(p))


def root(e: PyAny, x: PyAny, p: int) -> PyAny:
    """x^(1/p)."""
    return x if p == 1 else e.sqrt(x) if p == 2 else e.pow(x, 1.0 / p)


class GlobalPool(Summing, Reduce):
    """Reduces all spatial axes of [N, C, spatial...] to size 1."""

    keepdims: ClassVar[int] = 1  # type: ignore[misc]
    layout_policy = layout_policies.KeptAxes(reads_any=True)

    def reduced_axes(self, ctx: InferContext) -> tuple[int, ...]:
        if ctx.rank(0) < 3:
            ctx.fail("a pool needs [N, C, spatial...]", found=ctx.tensor(0))
        return tuple(range(2, ctx.rank(0)))



@op(since=1)
class GlobalAveragePool(GlobalPool):
    """The mean of each channel."""

    x: In[Float]
    fusion_root = True

    def finish(self, e: PyAny, acc: PyAny, count: PyAny) -> PyAny:
        return acc / count


@op(since=1)
class GlobalMaxPool(GlobalPool):
    """The greatest element of each channel."""

    x: In[Float]
    fusion_root = True

    def init(self, e: PyAny, dtype: DType) -> PyAny:
        return lowest(dtype)

    def combine(self, e: PyAny, acc: PyAny, x: PyAny) -> PyAny:
        return e.max(acc, x)


@op(since=2)
class GlobalLpPool(GlobalPool):
    """(sum |x|^p)^(1/p) of each channel."""

    x: In[Float]
    p: Attr[int] = 2

    def map(self, e: PyAny, x: PyAny) -> PyAny:
        return power(e, x, self.p)

    def finish(self, e: PyAny, acc: PyAny, count: PyAny) -> PyAny:
        return root(e, acc, self.p)
