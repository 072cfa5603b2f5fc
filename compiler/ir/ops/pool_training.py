"""MaxPool in training: it keeps which tap of each window was the greatest, a byte each; its gradient needs no more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any as PyAny

from ..types import U8, TensorType, Type
from . import layout_policies, row_rules
from .attributes import Ints
from .backward import Backward
from .base import Attr, Float, In, InferContext, Operator, Out, Rows, Shapes, Work, op
from .geometry import WindowGeometry
from .pool import Maximum, MaxPool
from .widening import Byte


@op(domain="parax")
class TrainingMaxPool(Maximum):
    """MaxPool of at most 256 taps that gives, behind its result, the number of the first greatest tap of each window,
    u8 of y's shape. Taps count from 0, in row-major order of the kernel, those in the padding too."""

    x: In[Float]
    y: Out
    taps: Out

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        (y,) = super().infer(ctx)
        assert isinstance(y, TensorType)
        return [y, y.with_dtype(U8)]

    def row_axis(self, rows: Rows) -> int | None:
        return 0 if rows.given[0] == 0 and rows.output > 0 else super().row_axis(rows)

    def first_alone(self) -> MaxPool:
        return MaxPool(**self.explicit_attributes())

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """To the element that each window's greatest came from."""
        s = self.geometry(back.ctx)
        made = MaxPoolGradient(kernel_shape=s.kernel, strides=s.strides, pads=tuple(s.pads_begin),
                               dilations=s.dilations, sizes=tuple(s.input))  # fmt: skip
        return [back.g.add(made, [back.dy, back.outputs[1]])]


@op(domain="parax")
class MaxPoolGradient(Operator):
    """dx[n, c, i] = Σ dy[n, c, j] over the windows j whose greatest element lies at i; [N, C, sizes...].

    dy: [N, C, output...]; taps: of its shape, as `TrainingMaxPool` gives them. All attributes are given; `pads` are
    those at the beginnings, `sizes` the spatial ones of the pool's input.
    """

    dy: In[Float]
    taps: In[Byte]
    kernel_shape: Attr[Ints]
    strides: Attr[Ints]
    pads: Attr[Ints]
    dilations: Attr[Ints]
    sizes: Attr[Ints]
    row_axis = row_rules.unknown
    layout_policy = layout_policies.AllChannelsLast()
    fusion_root = True

    def geometry(self, dy: TensorType) -> WindowGeometry:
        """The pool's window; its pads at the ends are not needed and given as those at the beginnings."""
        return WindowGeometry(self.kernel_shape, self.strides, self.dilations, self.pads, self.pads, self.sizes,
                              tuple(dy.dims[2:]))  # fmt: skip

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        dy, rank = ctx.shape(0), len(self.kernel_shape)
        if not len(dy) - 2 == len(self.strides) == len(self.pads) == len(self.dilations) == len(self.sizes) == rank:
            ctx.fail("dy and the attributes must be of one rank", found=ctx.tensor(0))
        if len(ctx.shape(1)) != len(dy):
            ctx.fail("taps must have dy's shape", expected=ctx.tensor(0), found=ctx.tensor(1))
        for a, b in zip(dy, ctx.shape(1), strict=True):
            ctx.equal(a, b, "taps must have dy's shape")
        return [ctx.tensor(0).with_shape((*dy[:2], *self.sizes))]

    def work(self, shapes: Shapes) -> Work:
        """Each element looks at every window that it lies in."""
        met = math.prod(max(1, k // s) for k, s in zip(self.kernel_shape, self.strides, strict=True))
        return Work("pool", shapes.y_elements * met)
