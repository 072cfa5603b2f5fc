"""AffineGrid: the positions that GridSample reads where an image is moved by affine maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any as PyAny

import numpy as np

from ..types import Type
from .base import Attr, Composite, Float, In, InferContext, Int64, op
from .casting import as_float, cast_to

Count = Callable[[PyAny], PyAny]
"""From a scalar n, i64, to the vector 0, 1, …, n - 1."""


@op(since=20)
class AffineGrid(Composite):
    """theta[n] · (position, 1) for every position of an image: [N, H, W, 2] or [N, D, H, W, 3].

    theta: [N, 2, 3] or [N, 3, 4]; size: (N, C, H, W) or (N, C, D, H, W). Positions are -1 to 1, last axis first: the
    centres of the first and the last element with `align_corners`, else their outer edges. (Jaderberg et al., "Spatial
    Transformer Networks", 2015.)
    """

    theta: In[Float]
    size: In[Int64]
    align_corners: Attr[int] = 0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        theta, size = ctx.shape(0), ctx.shape(1)
        if len(theta) != 3 or theta[1:] not in ((2, 3), (3, 4)):
            ctx.fail("theta must be [N, 2, 3] or [N, 3, 4]", found=ctx.types[0])
        rank = theta[1]
        if size != (rank + 2,):
            ctx.fail("size must be N, C and the size of the image", expected=f"{rank} sizes behind these",
                     found=ctx.types[1])  # fmt: skip
        sizes = ctx.dims(1, "size")
        ctx.equal(sizes[0], theta[0], "theta must have a map for each image of size")
        if any(isinstance(d, int) and d < 0 for d in sizes):
            ctx.fail("negative size", found=sizes)
        return super().infer(ctx)

    def expand(self, g: PyAny, theta: PyAny, size: PyAny) -> PyAny:
        zero, one = g.const(np.array(0, np.int64)), g.const(np.array(1, np.int64))
        return affine_grid(g, theta, size, bool(self.align_corners), lambda n: g.Range(zero, n, one))


def affine_grid(g: PyAny, theta: PyAny, size: PyAny, align_corners: bool, count: Count) -> PyAny:
    """The grid, where `count` makes ranges of the sizes."""
    maps = as_float(g, theta)
    rank, dtype = theta.tensor.dims[1], maps.type.dtype

    def column(j: int) -> PyAny:
        """What multiplies the j-th coordinate of a position, [N, 1, …, rank]."""
        return g.Unsqueeze(g.Gather(maps, g.const(np.array(j, np.int64)), axis=2), np.arange(1, rank + 1))

    y = column(rank)
    for j in range(rank):
        axis = rank - 1 - j
        n = g.Gather(size, g.const(np.array(axis + 2, np.int64)), axis=0)
        at = _positions(g, g.Cast(count(n), to=dtype), g.Cast(n, to=dtype), align_corners)
        shaped = g.Reshape(at, np.array([-1] + [1] * (rank - axis), np.int64))
        y = g.Add(y, g.Mul(column(j), shaped))
    return cast_to(g, y, theta.type.dtype)


def _positions(g: PyAny, i: PyAny, n: PyAny, align_corners: bool) -> PyAny:
    """The coordinates of elements i of n: (2i + 1 - n) / n, or (2i - (n - 1)) / (n - 1), and 0 of one alone."""
    one, two = (g.const(x, i.type.dtype) for x in (1.0, 2.0))
    if not align_corners:
        return g.Div(g.Sub(g.Add(g.Mul(i, two), one), n), n)
    last = g.Sub(n, one)
    return g.Div(g.Sub(g.Mul(i, two), last), g.Max(last, one))
