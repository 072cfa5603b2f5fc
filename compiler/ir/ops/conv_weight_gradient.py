"""The gradient of a convolution's weights as an operator of its own: sums over images and pixels, per tap."""

from __future__ import annotations

import math

from ..types import TensorType
from . import layout_policies, row_rules
from .attributes import Ints
from .base import Attr, Contraction, Float32, In, InferContext, Shapes, Work, op
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
