"""Sampling at given positions and back: GridSample, Col2Im, MaxUnpool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

from ..types import Dim, SymDim, TensorType, prod, upper_bound
from . import layout_policies, row_rules, work_rules
from .base import Attr, Composite, Float, Float2, In, InferContext, Int64, Ints, Numeric, Operator, Opt, op


@op(since=20)
class GridSample(Operator):
    """y[n, c, p] = x[n, c, grid[n, p]]: positions in [-1, 1], last axis first, interpolated according to `mode`."""

    x: In[Numeric]
    grid: In[Float]
    align_corners: Attr[int] = 0
    mode: Attr[str] = "linear"
    padding_mode: Attr[str] = "zeros"
    row_axis = row_rules.batch_first
    layout_policy = layout_policies.PLAIN
    work = work_rules.moves
    fusion_root = False

    def infer(self, ctx: InferContext) -> list[TensorType]:
        for name, known in (("mode", ("linear", "nearest", "cubic")),
                            ("padding_mode", ("zeros", "border", "reflection"))):  # fmt: skip
            if getattr(self, name) not in known:
                ctx.fail(f"unknown {name}", expected=", ".join(known), found=getattr(self, name))
        x, grid = ctx.shape(0), ctx.shape(1)
        if len(x) < 3 or len(grid) != len(x):
            ctx.fail("x and grid must have the same rank >= 3", found=ctx.types)
        if grid[-1] != len(x) - 2:
            ctx.fail("the last axis of grid must hold a position", expected=len(x) - 2, found=grid[-1])
        n = ctx.equal(x[0], grid[0], "x and grid must have equal batches")
        result = (n, x[1], *grid[1:-1])
        ctx.require_elements(x[2:], result, "an empty axis cannot be sampled")
        return [ctx.tensor(0).with_shape(result)]


@op(since=18)
class Col2Im(Operator):
    """The sum of blocks laid over an image: the reverse of cutting it into windows."""

    x: In[Numeric]
    image_shape: In[Int64]
    block_shape: In[Int64]
    dilations: Attr[Ints | None] = None
    pads: Attr[Ints | None] = None
    strides: Attr[Ints | None] = None
    row_axis = row_rules.batch_first
    layout_policy = layout_policies.PLAIN
    work = work_rules.moves
    fusion_root = False

    def windows(self, ctx: InferContext) -> list[tuple[Dim, int, int, int, int, Dim]]:
        """Per axis: image size, block size, dilation, pad before, stride, number of windows."""
        image, block = ctx.dims(1, "image_shape"), ctx.ints(2, "block_shape")
        rank = len(image)
        dilations, strides = self.dilations or (1,) * rank, self.strides or (1,) * rank
        pads = self.pads or (0,) * 2 * rank
        if not len(block) == len(dilations) == len(strides) == rank or len(pads) != 2 * rank:
            ctx.fail("block_shape, dilations, strides and pads must fit image_shape", found=image)
        if min((*block, *dilations, *strides), default=1) < 1:
            ctx.fail("block_shape, dilations and strides must be positive", found=[block, dilations, strides])
        found = []
        for i, size in enumerate(image):
            room = size + pads[i] + pads[i + rank] - dilations[i] * (block[i] - 1) - 1
            found.append((size, block[i], dilations[i], pads[i], strides[i], room // strides[i] + 1))
        return found

    def infer(self, ctx: InferContext) -> list[TensorType]:
        x, windows = ctx.shape(0), self.windows(ctx)
        if len(x) != 3:
            ctx.fail("x must be [batch, channels and block, windows]", found=ctx.types[0])
        taps = prod(w[1] for w in windows)
        if isinstance(x[1], SymDim) or x[1] % taps:
            ctx.fail("axis 1 must be a multiple of the block", expected=f"a multiple of {taps}", found=x[1])
        ctx.equal(x[2], prod(w[5] for w in windows), "axis 2 must have an entry for each window")
        return [ctx.tensor(0).with_shape((x[0], x[1] // taps, *(w[0] for w in windows)))]


@op(since=11)
class MaxUnpool(Composite):
    """Zeros with the pooled values put back where their maxima were; indices count in the shape that pooling implies.

    `output_shape` then adds zeros at the ends.
    """

    x: In[Float2]
    indices: In[Int64]
    output_shape: Opt[Int64]
    kernel_shape: Attr[Ints]
    pads: Attr[Ints | None] = None
    strides: Attr[Ints | None] = None

    def shape(self, x: TensorType) -> list[Dim]:
        """The shape that pooling implies."""
        rank = x.rank - 2
        strides, pads = self.strides or (1,) * rank, self.pads or (0,) * 2 * rank
        spatial = [(d - 1) * strides[i] - pads[i] - pads[i + rank] + self.kernel_shape[i]
                   for i, d in enumerate(x.dims[2:])]
        return [*x.dims[:2], *spatial]

    def infer(self, ctx: InferContext) -> Sequence[PyAny]:
        rank = ctx.rank(0) - 2
        if rank < 1 or len(self.kernel_shape) != rank or len(self.strides or self.kernel_shape) != rank:
            ctx.fail("kernel_shape and strides must fit x", expected=rank, found=list(self.kernel_shape))
        shape = self.shape(ctx.tensor(0))
        wanted = ctx.dims(2, "output_shape") if ctx.has(2) else shape
        if len(wanted) != len(shape):
            ctx.fail("output_shape must have the rank of x", expected=len(shape), found=wanted)
        if any(isinstance(d, SymDim) for d in (*shape, *wanted)):
            ctx.unsupported("MaxUnpool of symbolic dimensions", found=ctx.types[0])
        if any(upper_bound(w) < upper_bound(d) for w, d in zip(wanted, shape, strict=True)):
            ctx.fail("output_shape is too small", expected=f"at least {shape}", found=wanted)
        return [ctx.tensor(0).with_shape(tuple(wanted))]

    def expand(self, g: PyAny, x: PyAny, indices: PyAny, output_shape: PyAny = None) -> PyAny:
        shape = self.shape(x.tensor)
        zeros = g.Expand(g.const([0], x.tensor.dtype), [prod(shape)])
        flat = g.ScatterElements(zeros, g.Reshape(indices, [-1]), g.Reshape(x, [-1]), axis=0)
        y = g.Reshape(flat, shape)
        if output_shape is None:
            return y
        return g.Pad(y, [*[0] * len(shape), *(w - d for w, d in zip(output_shape.known.ravel(), shape, strict=True))])


