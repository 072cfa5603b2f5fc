"""Blocks of channels to blocks of pixels and back: DepthToSpace, SpaceToDepth."""

from __future__ import annotations

from ..types import Dim, SymDim, TensorType
from . import layout_policies, row_rules, work_rules
from .base import Any, Attr, In, InferContext, Operator, op

Strided = tuple[tuple[Dim, ...], tuple[Dim, ...], tuple[Dim, ...]]


def _check(ctx: InferContext, blocksize: int, mode: str) -> tuple[Dim, ...]:
    if mode not in ("DCR", "CRD"):
        ctx.fail("unknown mode", expected="DCR or CRD", found=mode)
    if ctx.rank(0) != 4:
        ctx.fail("input must be [batch, channels, height, width]", found=ctx.types[0])
    if blocksize < 1:
        ctx.fail("blocksize must be positive", found=blocksize)
    return ctx.shape(0)


@op(since=13)
class DepthToSpace(Operator):
    """x[n, channels, h, w] → y[n, c, h·b + i, w·b + j]; channels are (i, j, c) in mode DCR, (c, i, j) in CRD."""

    input: In[Any]
    blocksize: Attr[int]
    mode: Attr[str] = "DCR"
    row_axis = row_rules.batch_first
    layout_policy = layout_policies.AnyOrder()
    work = work_rules.moves
    fusion_root = False

    def infer(self, ctx: InferContext) -> list[TensorType]:
        n, c, h, w = _check(ctx, self.blocksize, self.mode)
        b = self.blocksize
        if isinstance(c, SymDim) or c % (b * b):
            ctx.fail("channels must be a multiple of blocksize squared", expected=f"a multiple of {b * b}", found=c)
        return [ctx.tensor(0).with_shape((n, c // (b * b), h * b, w * b))]

    def strided(self, x: TensorType, y: TensorType) -> Strided:
        """The copy as sizes, strides in x and strides in y of the axes (n, c, h, i, w, j)."""
        b, c = self.blocksize, y.dims[1]
        (xn, xc, xh, xw), (yn, yc, yh, yw) = x.strides, y.strides
        ci, cj, cc = (b * c * xc, c * xc, xc) if self.mode == "DCR" else (b * xc, xc, b * b * xc)
        sizes = (y.dims[0], c, x.dims[2], b, x.dims[3], b)
        return sizes, (xn, cc, xh, ci, xw, cj), (yn, yc, yh * b, yh, yw * b, yw)


@op(since=13)
class SpaceToDepth(Operator):
    """x[n, c, h·b + i, w·b + j] → y[n, channels, h, w]; channels are (i, j, c) in mode DCR, (c, i, j) in CRD."""

    input: In[Any]
    blocksize: Attr[int]
    mode: Attr[str] = "DCR"
    row_axis = row_rules.batch_first
    layout_policy = layout_policies.AnyOrder()
    work = work_rules.moves
    fusion_root = False

    def infer(self, ctx: InferContext) -> list[TensorType]:
        n, c, h, w = _check(ctx, self.blocksize, self.mode)
        b = self.blocksize
        for size in (h, w):
            if isinstance(size, int) and size % b:
                ctx.fail("height and width must be multiples of blocksize", expected=f"a multiple of {b}", found=size)
            if isinstance(size, SymDim):
                ctx.equal(size % b, 0, "height and width must be multiples of blocksize")
        return [ctx.tensor(0).with_shape((n, c * (b * b), h // b, w // b))]

    def strided(self, x: TensorType, y: TensorType) -> Strided:
        """The copy as sizes, strides in x and strides in y of the axes (n, c, h, i, w, j)."""
        b, c = self.blocksize, x.dims[1]
        (xn, xc, xh, xw), (yn, yc, yh, yw) = x.strides, y.strides
        sizes = (x.dims[0], c, y.dims[2], b, y.dims[3], b)
        ci, cj, cc = (b * c * yc, c * yc, yc) if self.mode == "DCR" else (b * yc, yc, b * b * yc)
        return sizes, (xn, xc, xh * b, xh, xw * b, xw), (yn, cc, yh, ci, yw, cj)
