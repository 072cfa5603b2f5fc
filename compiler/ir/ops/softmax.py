"""Softmax, LogSoftmax and Hardmax along one axis (the meaning since opset 13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import Type
from . import layout_policies, row_rules, work_rules
from .backward import Backward
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

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """y (dy - Σ y dy)."""
        g, y = back.g, back.outputs[0]
        total = g.ReduceSum(g.Mul(y, back.dy), np.array([self.axis], np.int64), keepdims=1)
        return [g.Mul(y, g.Sub(back.dy, total))]


@op(since=13)
class LogSoftmax(AlongAxis):
    """x - max x - log(sum exp(x - max x))."""

    x: In[Float]
    axis: Attr[int] = -1
    layout_policy = layout_policies.FollowFirst()
    fusion_root = False

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """dy - e^y Σ dy."""
        g = back.g
        total = g.ReduceSum(back.dy, np.array([self.axis], np.int64), keepdims=1)
        return [g.Sub(back.dy, g.Mul(g.Exp(back.outputs[0]), total))]


@op(since=13)
class Hardmax(AlongAxis):
    """1 at the first greatest element, 0 elsewhere."""

    x: In[Float]
    axis: Attr[int] = -1
    layout_policy = layout_policies.PLAIN
    fusion_root = False
