"""Normalisation by the statistics of the batch, as in training: what BatchNormalization with training_mode expands to.

The batch is cut into parts of equally many rows, whose statistics are joined (Chan, Golub, LeVeque 1983): cores work on
parts, and the parts follow from sizes alone, so that no bit depends on who worked on which.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import F32, F64, Dim, DType, Shape, TensorType, Type
from . import layout_policies, row_rules, work_rules
from .backward import Backward
from .base import Attr, Composite, Float, Float2, In, InferContext, Operator, Out, op
from .casting import as_float, cast_to

PART = 1024  # elements of a channel from which on a part is worth a work item of its own
MOST_PARTS = 64
FIRST = np.zeros(1, np.int64)  # the axis of the parts


class Wide(Float):
    """What statistics are kept in."""


def wide_type(dtype: DType) -> DType:
    """What elements of that type are summed in."""
    return F64 if dtype == F64 else F32


def parts_of(shape: Shape) -> tuple[Dim, Dim]:
    """How many parts the rows of [N, C, …] are cut into, and rows of each; parts of one row where N is open."""
    n, inner = shape[0], [d for d in shape[2:] if isinstance(d, int)]
    if not isinstance(n, int):
        return (n, 1) if len(shape) > 2 and (len(inner) < len(shape) - 2 or math.prod(inner) >= 16) else (1, n)
    most = max(1, min(MOST_PARTS, n * math.prod(inner) // PART))
    parts = max(p for p in range(1, most + 1) if n % p == 0)
    return parts, n // parts


class OverBatch(Operator):
    """A few numbers for each part and channel of [N, C, …]: [parts, C] each, in f32 (f64 of f64)."""

    row_axis = row_rules.unknown
    layout_policy = layout_policies.LikeFirst()
    fusion_root = False

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        shape = ctx.shape(0)
        if len(shape) < 2:
            ctx.fail("statistics of a batch need [N, C, ...]", found=ctx.tensor(0))
        ctx.require_elements((shape[0], *shape[2:]), (), "a batch without elements has no statistics")
        partial = TensorType(wide_type(ctx.tensor(0).dtype), (parts_of(shape)[0], shape[1]))
        return [partial] * 3


@op(domain="parax")
class BatchStatistics(OverBatch):
    """Of each part and channel: an element, how far the mean is from it, and the variance.

    The element's distance from the mean is known exactly enough where the mean itself, in so many digits, is not.
    """

    x: In[Float]
    shift: Out
    distance: Out
    variance: Out
    work = work_rules.per_element("reduce", 3)


@op(domain="parax")
class BatchGradientSums(OverBatch):
    """Σ dy and Σ dy (x - mean) · inv_std of each part and channel; shift + distance = mean and inv_std are [C]."""

    x: In[Float]
    dy: In[Float2]
    shift: In[Wide]
    distance: In[Wide]
    inv_std: In[Wide]
    total: Out
    total_by_normal: Out
    work = work_rules.per_element("reduce", 4)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if len(ctx.shape(0)) != len(ctx.shape(1)):
            ctx.fail("dy must have x's shape", expected=ctx.tensor(0), found=ctx.tensor(1))
        for a, b in zip(ctx.shape(0), ctx.shape(1), strict=True):
            ctx.equal(a, b, "dy must have x's shape")
        return super().infer(ctx)[:2]


@op(domain="parax")
class NormalizeBatch(Composite):
    """(x - mean) · inv_std · scale + b, with inv_std = 1 / sqrt(variance + epsilon) and the batch's own statistics.

    x is [N, C, …]. Mean (also as shift + distance, see `BatchStatistics`), variance and inv_std, [C], are results, so
    that the gradient need not compute them again.
    """

    x: In[Float]
    scale: In[Float2]
    b: In[Float2]
    y: Out
    mean: Out
    variance: Out
    shift: Out
    distance: Out
    inv_std: Out
    epsilon: Attr[float] = 1e-5
    layout_policy = layout_policies.FollowFirst()
    work = work_rules.per_element("norm", work_rules.NORM_FLOPS)

    def expand(self, g: PyAny, x: PyAny, scale: PyAny, b: PyAny) -> PyAny:
        shift, distance, variance = joined_statistics(g, x)
        inv_std = g.Reciprocal(g.Sqrt(g.Add(variance, self.epsilon)))
        scale, b = (cast_to(g, v, shift.type.dtype) for v in (scale, b))
        slope, level = (_by_channel(g, v, x) for v in (g.Mul(scale, inv_std), b))
        y = g.Add(g.Mul(_centred(g, x, shift, distance), slope), level)
        return [cast_to(g, y, x.type.dtype), g.Add(shift, distance), variance, shift, distance, inv_std]

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """With n = (x - mean) r, r = inv_std, m elements in a channel, and what mean and variance receive themselves:

            db = Σ dy        dscale = Σ dy n        dx = scale r (dy - db / m - n dscale / m)
                                                         + dmean / m + 2 (x - mean) dvariance / m
        """
        dy, dmean, dvariance, *inner = back.received
        if dy is None or any(d is not None for d in inner):
            back.refuse("a batch's statistics alone")
        g, (x, scale, b), (shift, distance, r) = back.g, back.inputs, back.outputs[3:]
        dy, wide = as_float(g, dy), r.type.dtype
        db, dscale = (_total(g, v) for v in g.BatchGradientSums(x, dy, shift, distance, r, n_outputs=2))
        found = [None, cast_to(g, dscale, scale.type.dtype), cast_to(g, db, b.type.dtype)]
        if 0 in back.wanted:
            a, m = g.Mul(cast_to(g, scale, wide), r), _elements_a_channel(g, x, wide)
            slope, level = g.Mul(g.Mul(a, r), dscale), g.Mul(a, db)
            slope = slope if dvariance is None else g.Sub(slope, g.Mul(dvariance, 2.0))
            level = level if dmean is None else g.Sub(level, dmean)
            slope, level = (_by_channel(g, g.Div(v, m), x) for v in (slope, level))
            steep = g.Sub(g.Mul(dy, _by_channel(g, a, x)), g.Mul(_centred(g, x, shift, distance), slope))
            found[0] = cast_to(g, g.Sub(steep, level), x.type.dtype)
        return found


def joined_statistics(g: PyAny, x: PyAny) -> tuple[PyAny, PyAny, PyAny]:
    """Shift, distance and population variance of each channel, [C].

    Parts are of one size, so that their weights are equal; means are compared as distances from the first part's shift.
    """
    shifts, distances, variances = g.BatchStatistics(x, n_outputs=3)
    if shifts.tensor.dims[0] == 1:
        return g.Squeeze(shifts, FIRST), g.Squeeze(distances, FIRST), g.Squeeze(variances, FIRST)
    shift = g.Gather(shifts, FIRST)
    means = g.Add(g.Sub(shifts, shift), distances)
    distance = g.ReduceMean(means, FIRST)
    apart = g.Sub(means, distance)
    between = g.ReduceMean(g.Mul(apart, apart), FIRST, keepdims=0)
    variance = g.Add(g.ReduceMean(variances, FIRST, keepdims=0), between)
    return g.Squeeze(shift, FIRST), g.Squeeze(distance, FIRST), variance


def _centred(g: PyAny, x: PyAny, shift: PyAny, distance: PyAny) -> PyAny:
    """x - mean, without the rounding of the mean: both differences are of numbers that are near."""
    near = g.Sub(as_float(g, x), _by_channel(g, shift, x))
    return g.Sub(near, _by_channel(g, distance, x))


def _total(g: PyAny, parts: PyAny) -> PyAny:
    return g.Squeeze(parts, FIRST) if parts.tensor.dims[0] == 1 else g.ReduceSum(parts, FIRST, keepdims=0)


def _by_channel(g: PyAny, v: PyAny, x: PyAny) -> PyAny:
    """[C] as [C, 1, …], so that it broadcasts along axis 1 of x."""
    spatial = x.type.rank - 2
    return g.Unsqueeze(v, np.arange(1, spatial + 1, dtype=np.int64)) if spatial else v


def _elements_a_channel(g: PyAny, x: PyAny, dtype: DType) -> PyAny:
    dims = [x.tensor.dims[0], *x.tensor.dims[2:]]
    if all(isinstance(d, int) for d in dims):
        return g.const(np.asarray(math.prod(dims)), dtype)
    sizes = g.Gather(g.Shape(x), np.array([0, *range(2, len(x.tensor.dims))], np.int64))
    return g.Cast(g.ReduceProd(sizes, keepdims=0), to=dtype)
