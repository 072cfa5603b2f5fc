"""TensorScatter: new entries of a cache, where each sample of a batch has its own place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import Type, lower_bound
from .base import Any, Attr, Composite, In, InferContext, Int64, Opt, op

_MODES = ("linear", "circular")


@op(since=24)
class TensorScatter(Composite):
    """The cache with `update` from write_indices[sample] on along `axis`; circular: what is beyond comes first."""

    past_cache: In[Any]
    update: In[Any]
    write_indices: Opt[Int64]
    axis: Attr[int] = -2
    mode: Attr[str] = "linear"

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if self.mode not in _MODES:
            ctx.fail("unknown mode", expected=" or ".join(_MODES), found=self.mode)
        cache, update = ctx.shape(0), ctx.shape(1)
        if len(cache) != len(update):
            ctx.fail("past_cache and update must have the same rank", expected=len(cache), found=len(update))
        axis = ctx.axis(self.axis, len(cache))
        if axis == 0:
            ctx.fail("axis must not be the batch", expected="1 or more", found=self.axis)
        for a, (old, new) in enumerate(zip(cache, update)):
            if a != axis:
                ctx.equal(old, new, "past_cache and update must agree apart from axis")
        if lower_bound(update[axis] - cache[axis]) > 0:
            ctx.fail("update is longer than the cache", expected=f"at most {cache[axis]}", found=update[axis])
        if ctx.has(2):
            if ctx.rank(2) != 1:
                ctx.fail("write_indices must be a vector", found=ctx.types[2])
            ctx.equal(ctx.shape(2)[0], cache[0], "write_indices must have one number for each sample")
        return [ctx.tensor(0)]

    def expand(self, g: PyAny, past_cache: PyAny, update: PyAny, write_indices: PyAny = None) -> PyAny:
        rank = past_cache.tensor.rank
        axis = self.axis % rank
        zero, one = g.const(np.array(0, np.int64)), g.const(np.array(1, np.int64))
        none = np.zeros(0, np.int64)
        length = g.Reshape(g.Shape(update, start=axis, end=axis + 1), none)
        at = g.Reshape(g.Range(zero, length, one), np.array([-1] + [1] * (rank - 1 - axis), np.int64))
        if write_indices is not None:
            at = g.Add(at, g.Reshape(write_indices, np.array([-1] + [1] * (rank - 1), np.int64)))
        if self.mode == "circular":
            at = g.Mod(at, g.Reshape(g.Shape(past_cache, start=axis, end=axis + 1), none))
        return g.ScatterElements(past_cache, g.Expand(at, g.Shape(update)), update, axis=axis)
