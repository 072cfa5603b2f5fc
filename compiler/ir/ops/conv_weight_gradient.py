"""The gradient of a convolution's weights as an operator of its own: sums over images and pixels, per tap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import TensorType
from . import layout_policies, row_rules
from .attributes import Ints
from .backward import Backward
from .base import Attr, Contraction, Float32, In, InferContext, Shapes, Work, op
from .conv_gradients import input_gradient
from .geometry import WindowGeometry


@op(domain="parax")
class ConvWeightGradient(Contraction):
    """dw[m, c, k] = Σ over n, j of x[n, c, s·j + d·k - p] · dy[n, m, j], x 0 outside; [M, C / group, kernel...].

    x: [N, C, spatial...], dy: [N, M, output...], f32. All attributes are given; `pads` are those at the beginnings.
    """

    x: In[Float32]
    dy: In[Float32]
    kernel_shape: Attr[Ints]
    strides: Attr[Ints]
    pads: Attr[Ints]
    dilations: Attr[Ints]
    group: Attr[int] = 1
    row_axis = row_rules.unknown
    layout_policy = layout_policies.WeightGradient()
    fusion_root = False

    def geometry(self, x: TensorType, dy: TensorType) -> WindowGeometry:
        """The window of the convolution; its pads at the ends are not needed and given as those at the beginnings."""
        return WindowGeometry(self.kernel_shape, self.strides, self.dilations, self.pads, self.pads,
                              tuple(x.dims[2:]), tuple(dy.dims[2:]))  # fmt: skip

    def infer(self, ctx: InferContext) -> list[TensorType]:
        x, dy = ctx.shape(0), ctx.shape(1)
        rank = len(self.kernel_shape)
        if not len(x) - 2 == len(dy) - 2 == len(self.strides) == len(self.pads) == len(self.dilations) == rank:
            ctx.fail("x, dy and the attributes must be of one rank", found=f"{ctx.types[0]} and {ctx.types[1]}")
        ctx.equal(x[0], dy[0], "x and dy must have the same number of images")
        channels, outputs = x[1], dy[1]
        known = isinstance(channels, int) and isinstance(outputs, int)
        if not known or channels % self.group or outputs % self.group:
            ctx.fail("channels must be known multiples of group", found=f"{ctx.types[0]} and {ctx.types[1]}")
        return [ctx.tensor(0).with_shape((outputs, channels // self.group, *self.kernel_shape))]

    def work(self, shapes: Shapes) -> Work:
        products = math.prod(shapes.operand(1)) * (shapes.operand(0)[1] // self.group) * math.prod(self.kernel_shape)
        return Work("conv-transpose", 2 * products)  # of the same rate: the other gradient of Conv

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """Linear in both: of dy it is the convolution of x by what is received, of x the input's gradient by that."""
        g, (x, dy), weights = back.g, back.inputs, back.dy
        s = self.geometry(back.ctx.tensor(0), back.ctx.tensor(1))
        dx = ddy = None
        if 0 in back.wanted:
            dx = input_gradient(back, x, weights, dy, s, self.group)
        if 1 in back.wanted:
            ddy = self._convolved(back, g, x, weights, s)
        return [dx, ddy]

    def _convolved(self, back: Backward, g: PyAny, x: PyAny, weights: PyAny, s: WindowGeometry) -> PyAny:
        """The convolution that this is of, over as many places as dy has."""
        ends: list[int] = []
        for n, o, k, t, d, p in zip(s.input, s.output, s.kernel, s.strides, s.dilations, self.pads, strict=True):
            end = (o - 1) * t + (k - 1) * d + 1 - n - p
            if not isinstance(end, int):
                back.refuse("a convolution's weights' gradient over open sizes", list(s.input))
            ends.append(end)
        if min(ends, default=0) < 0:  # what no window met
            rank = len(ends)
            x = g.Pad(x, np.array([0] * (rank + 4) + [min(e, 0) for e in ends], np.int64))
        return g.Conv(x, weights, strides=list(self.strides), dilations=list(self.dilations), group=self.group,
                      pads=[*self.pads, *(max(e, 0) for e in ends)])  # fmt: skip
