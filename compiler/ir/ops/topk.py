"""TopK: the largest or smallest elements of every line along an axis."""

from __future__ import annotations

from ..types import I64, SymDim, TensorType, prod, upper_bound
from . import layout_policies, row_rules, work_rules
from .base import Attr, In, InferContext, Int64, Numeric, Operator, Out, op


@op(since=11)
class TopK(Operator):
    """The k largest (smallest) elements along `axis`, in order, and their indices; equal ones by lower index."""

    x: In[Numeric]
    k: In[Int64]
    values: Out
    indices: Out
    axis: Attr[int] = -1
    largest: Attr[int] = 1
    sorted: Attr[int] = 1
    row_axis = row_rules.along_axis
    layout_policy = layout_policies.PLAIN
    work = work_rules.moves
    fusion_root = False

    def infer(self, ctx: InferContext) -> list[TensorType]:
        if prod(ctx.shape(1)) != 1:
            ctx.fail("k must be one number", found=ctx.types[1])
        shape, k = ctx.shape(0), ctx.dims(1, "k")[0]
        axis = ctx.axis(self.axis, len(shape))
        if upper_bound(k) < 0:
            ctx.fail("k must not be negative", found=k)
        size = shape[axis]
        if not isinstance(size, SymDim) and not isinstance(k, SymDim) and k > size:
            ctx.fail("k is larger than the axis", expected=f"at most {size}", found=k)
        result = tuple(k if a == axis else d for a, d in enumerate(shape))
        return [ctx.tensor(0).with_shape(result), TensorType(I64, result)]
