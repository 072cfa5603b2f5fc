"""Operators whose result shapes only the data decide: run by the runtime, their sizes are symbols bound on the way."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import I64, TensorType, Type
from .base import Any, Attr, Bool, Host, In, InferContext, NumericBoolOrStr, OptOut, Out, op


@op(since=13)
class NonZero(Host):
    """i64[rank, n]: the indices of the n elements that are not zero, or not empty, in row-major order."""

    x: In[NumericBoolOrStr]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        return [TensorType(I64, (max(1, ctx.rank(0)), ctx.fresh("NonZero")))]


@op(since=11)
class Compress(Host):
    """The slices along `axis` whose condition holds; without an axis, elements of the flattened tensor."""

    x: In[Any]
    condition: In[Bool]
    axis: Attr[int | None] = None

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        shape, kept = ctx.shape(0), ctx.fresh("Compress")
        if ctx.rank(1) != 1:
            ctx.fail("the condition must have one axis", found=ctx.types[1])
        if self.axis is None:
            return [TensorType(ctx.tensor(0).dtype, (kept,))]
        axis = ctx.axis(self.axis, len(shape))
        return [TensorType(ctx.tensor(0).dtype, (*shape[:axis], kept, *shape[axis + 1 :]))]


@op(since=11)
class Unique(Host):
    """The distinct elements (slices along `axis`), where each first occurs, the way back, and how often each occurs."""

    x: In[Any]
    y: Out
    indices: OptOut
    inverse_indices: OptOut
    counts: OptOut
    axis: Attr[int | None] = None
    sorted: Attr[int] = 1

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        tensor, count = ctx.tensor(0), ctx.fresh("Unique")
        shape = ctx.shape(0)
        if self.axis is None:
            y, length = TensorType(tensor.dtype, (count,)), tensor.numel
        else:
            axis = ctx.axis(self.axis, len(shape))
            y, length = TensorType(tensor.dtype, (*shape[:axis], count, *shape[axis + 1 :])), shape[axis]
        indices = TensorType(I64, (count,))
        return [y, indices, TensorType(I64, (length,)), indices]
