"""Softmax, LogSoftmax and Hardmax along one axis (the meaning since opset 13)."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import Type
from . import layout_policies, row_rules, work_rules
from .base import Attr, Float, In, InferContext, Operator, op


class AlongAxis(Operator):
    """Works on each line along `axis`; the output has the input's type and layout."""

    axis: int
    row_axis = row_rules.along_axis
    work = work_rules.per_element("softmax", work_rules.SOFTMAX_FLOPS)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        ctx.axis(self.axis, ctx.rank(0))
        return [ctx.tensor(0)]


@op(since=13)
class Softmax(AlongAxis):
    """exp(x - max x) / sum exp(x - max x)."""

    x: In[Float]
    axis: Attr[int] = -1
    layout_policy = layout_policies.FollowFirst()
    fusion_root = True


@op(since=13)
class LogSoftmax(AlongAxis):
    """x - max x - log(sum exp(x - max x))."""

    x: In[Float]
    axis: Attr[int] = -1
    layout_policy = layout_policies.FollowFirst()
    fusion_root = False


@op(since=13)
class Hardmax(AlongAxis):
    """1 at the first greatest element, 0 elsewhere."""

    x: In[Float]
    axis: Attr[int] = -1
    layout_policy = layout_policies.PLAIN
    fusion_root = False
