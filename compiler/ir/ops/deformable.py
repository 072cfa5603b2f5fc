"""DeformConv: a product of weights and samples at positions that are moved by offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import Type, prod
from . import layout_policies
from .base import Attr, Composite, Float, In, InferContext, Ints, Operator, Opt, Rows, op
from .casting import as_float, cast_to
from .geometry import WindowGeometry, require_windows, window_geometry
from .work_rules import Shapes, Work

TAP_FLOPS = 4  # of each element that is weighed


@op(domain="parax")
class DeformedWindows(Operator):
    """What each tap of a deformed window reads of x [N, C, *size]: [N, C·taps, positions].

    offset: [N, offset_group·taps·axes, *positions], what is added to a tap's place on each axis; channels are in
    `offset_group` groups that share offsets. mask: [N, offset_group·taps, *positions], a factor. Between elements the
    sample is interpolated linearly, beyond them it is 0.
    """

    x: In[Float]
    offset: In[Float]
    mask: Opt[Float]
    kernel_shape: Attr[Ints]
    strides: Attr[Ints]
    pads: Attr[Ints]
    dilations: Attr[Ints]
    offset_group: Attr[int]
    layout_policy = layout_policies.PLAIN
    fusion_root = False

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return int(np.prod(self.kernel_shape, dtype=np.int64))

    def infer(self, ctx: InferContext) -> list[Type]:
        (n, channels), positions = ctx.shape(0)[:2], ctx.shape(1)[2:]
        return [ctx.tensor(0).with_shape((n, channels * self.taps, prod(positions)))]

    def row_axis(self, rows: Rows) -> int | None:
        """Each image by itself."""
        if any(axis != 0 for i, axis in enumerate(rows.given) if rows.ctx.has(i)):
            raise rows.interact("rows are not on axis 0 of all operands")
        return 0

    def work(self, shapes: Shapes) -> Work:
        return Work("pool", shapes.y_elements * TAP_FLOPS * 2 ** len(self.kernel_shape))


@op(since=19)
class DeformConv(Composite):
    """A convolution whose windows' taps are moved by offsets (Dai et al., "Deformable Convolutional Networks", 2017)
    and weighed by a mask (Zhu et al., "Deformable ConvNets v2", 2018), over any number of spatial axes.

    x: [N, C, *size]; w: [M, C / group, *kernel]; offset, mask: as DeformedWindows; b: [M].
    """

    x: In[Float]
    w: In[Float]
    offset: In[Float]
    b: Opt[Float]
    mask: Opt[Float]
    dilations: Attr[Ints | None] = None
    group: Attr[int] = 1
    kernel_shape: Attr[Ints | None] = None
    offset_group: Attr[int] = 1
    pads: Attr[Ints | None] = None
    strides: Attr[Ints | None] = None

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        x, w, both = ctx.shape(0), ctx.shape(1), f"{ctx.types[0]}, {ctx.types[1]}"
        if len(x) < 3 or len(w) != len(x):
            ctx.fail("x must be [N, C, *size] and w [M, C / group, *kernel]", found=both)
        if not all(isinstance(d, int) for d in (x[1], *w)):
            ctx.unsupported("channels and kernel must be known at compile time", found=both)
        if 0 in w[2:]:
            ctx.fail("a kernel must have elements", found=ctx.types[1])
        if self.kernel_shape is not None and tuple(self.kernel_shape) != w[2:]:
            ctx.fail("kernel_shape is not that of w", expected=w[2:], found=list(self.kernel_shape))
        if self.group < 1 or x[1] != w[1] * self.group or w[0] % self.group:
            ctx.fail("group must divide channels in and out", expected=f"{w[1]}·group channels in", found=self.group)
        if self.offset_group < 1 or x[1] % self.offset_group:
            ctx.fail("offset_group must divide the channels", expected=f"a divisor of {x[1]}", found=self.offset_group)
        geometry = self._geometry(ctx)
        require_windows(ctx, geometry, "NOTSET")
        self._check_positions(ctx, geometry)
        if ctx.has(3):
            if ctx.rank(3) != 1:
                ctx.fail("b must be a vector", found=ctx.types[3])
            ctx.equal(ctx.shape(3)[0], w[0], "b must have a number for each channel out")
        return super().infer(ctx)

    def _geometry(self, ctx: InferContext) -> WindowGeometry:
        kernel = ctx.shape(1)[2:]
        return window_geometry(ctx.shape(0)[2:], kernel, strides=self.strides, pads=self.pads,  # type: ignore[arg-type]
                               dilations=self.dilations)  # fmt: skip

    def _check_positions(self, ctx: InferContext, geometry: WindowGeometry) -> None:
        """Offsets and mask have numbers for each group, tap and position."""
        taps = prod(geometry.kernel) * self.offset_group
        for i, name, numbers in ((2, "offset", taps * geometry.rank), (4, "mask", taps)):
            if not ctx.has(i):
                continue
            shape, wanted = ctx.shape(i), (ctx.shape(0)[0], numbers, *geometry.output)
            if len(shape) != len(wanted):
                ctx.fail(f"{name} has another rank than x", expected=wanted, found=ctx.types[i])
            for axis, (a, b) in enumerate(zip(wanted, shape, strict=True)):
                ctx.equal(a, b, f"axis {axis} of {name} must fit x, the kernel, strides, pads and dilations")

    def expand(self, g: PyAny, x: PyAny, w: PyAny, offset: PyAny, b: PyAny = None, mask: PyAny = None) -> PyAny:
        rank, (out, in_, *kernel) = x.tensor.rank - 2, w.tensor.dims
        windows = DeformedWindows(kernel_shape=tuple(kernel), strides=self.strides or (1,) * rank,
                                  pads=self.pads or (0,) * 2 * rank, dilations=self.dilations or (1,) * rank,
                                  offset_group=self.offset_group)  # fmt: skip
        given = [as_float(g, v) for v in (x, offset, mask) if v is not None]
        columns = g.add(windows, given)
        depth, weights = in_ * prod(kernel), as_float(g, w)
        if self.group == 1:
            y = g.MatMul(g.Reshape(weights, np.array([out, depth], np.int64), allowzero=1), columns)
        else:
            each = np.array([self.group, out // self.group, depth], np.int64)
            parts = _reshaped(g, columns, x, [self.group, depth], g.Shape(columns, start=2))
            y = g.MatMul(g.Reshape(weights, each, allowzero=1), parts)
        y = _reshaped(g, y, x, [out], g.Shape(offset, start=2))
        if b is not None:
            y = g.Add(y, g.Reshape(as_float(g, b), np.array([out] + [1] * rank, np.int64), allowzero=1))
        return cast_to(g, y, x.type.dtype)


def _reshaped(g: PyAny, y: PyAny, x: PyAny, middle: list[int], rest: PyAny) -> PyAny:
    """y as [batch of x, *middle, *rest]."""
    shape = g.Concat(g.Shape(x, start=0, end=1), g.const(np.array(middle, np.int64)), rest, axis=0)
    return g.Reshape(y, shape, allowzero=1)
