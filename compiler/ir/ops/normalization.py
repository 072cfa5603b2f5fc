"""Normalisations. Those with a kernel of their own keep a whole row in cache; the rest expand into other operators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any as PyAny
from typing import ClassVar

import numpy as np

from ..types import F32, Dim, TensorType, Type
from . import layout_policies, row_rules, work_rules
from .backward import Backward
from .base import Attr, Composite, Float, Float2, In, InferContext, Ints, Operator, Opt, OptOut, Out, Rows, op
from .casting import as_float, cast_to


class Statistic(Float):
    """A third type variable over Float."""


@op(since=15)
class BatchNormalization(Composite):
    """(x - mean) / sqrt(var + epsilon) * scale + b per channel (axis 1): x * s + (b - mean * s).

    A tensor of one axis has one channel. In training mode mean and (population) variance are the batch's own, and the
    running ones, further results, come nearer to them: old * momentum + new * (1 - momentum).
    """

    x: In[Float]
    scale: In[Float2]
    b: In[Float2]
    mean: In[Statistic]
    var: In[Statistic]
    y: Out
    running_mean: OptOut
    running_var: OptOut
    epsilon: Attr[float] = 1e-5
    momentum: Attr[float] = 0.9
    training_mode: Attr[int] = 0
    row_axis = row_rules.batch_first
    layout_policy = layout_policies.FollowFirst()
    work = work_rules.per_element("norm", work_rules.NORM_FLOPS)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if self.training_mode not in (0, 1):
            ctx.fail("training_mode is a flag", expected="0 or 1", found=self.training_mode)
        if ctx.n_outputs > 1 and not self.training_mode:
            ctx.unsupported("running statistics outside of training_mode")
        shape = ctx.shape(0)
        if not shape:
            ctx.fail("BatchNormalization needs [N, C, ...] or [N]", found=ctx.tensor(0))
        for i, name in ((1, "scale"), (2, "B"), (3, "input_mean"), (4, "input_var")):
            per_channel(ctx, i, shape[1] if len(shape) > 1 else 1, name)
        if not self.training_mode:
            return [ctx.tensor(0)]
        ctx.require_elements((shape[0], *shape[2:]), (), "a batch without elements has no statistics")
        return [ctx.tensor(0), ctx.tensor(3), ctx.tensor(4)]

    def expand(self, g: PyAny, x: PyAny, scale: PyAny, b: PyAny, mean: PyAny, var: PyAny) -> PyAny:
        if self.training_mode:
            return self._of_batch(g, x, scale, b, mean, var)
        wide = max((F32, *(v.type.dtype for v in (x, scale, mean))), key=lambda dtype: dtype.bits)
        scale, b, mean, var = (cast_to(g, v, wide) for v in (scale, b, mean, var))
        s = g.Div(scale, g.Sqrt(g.Add(var, self.epsilon)))
        t = g.Sub(b, g.Mul(mean, s))
        return scaled_and_shifted(g, x, *(along_channels(g, v, x) for v in (s, t)))

    def _of_batch(self, g: PyAny, x: PyAny, scale: PyAny, b: PyAny, mean: PyAny, var: PyAny) -> list[PyAny]:
        one_channel = np.array([1], np.int64) if x.type.rank == 1 else None
        batch = x if one_channel is None else g.Unsqueeze(x, one_channel)
        y, *new = g.NormalizeBatch(batch, scale, b, epsilon=self.epsilon, n_outputs=6)
        running = [self._nearer(g, a, z) for a, z in zip((mean, var), new[:2], strict=True)]
        return [y if one_channel is None else g.Squeeze(y, one_channel), *running]

    def _nearer(self, g: PyAny, old: PyAny, new: PyAny) -> PyAny:
        """A running statistic after this batch, computed in the wider of the two types."""
        wide = max(old.type.dtype, new.type.dtype, key=lambda dtype: dtype.bits)
        kept, taken = (g.const(share, wide) for share in (self.momentum, 1 - self.momentum))
        moved = g.Add(g.Mul(cast_to(g, old, wide), kept), g.Mul(cast_to(g, new, wide), taken))
        return cast_to(g, moved, old.type.dtype)


def scaled_and_shifted(g: PyAny, x: PyAny, s: PyAny, t: PyAny) -> PyAny:
    """x · s + t, where both broadcast to x; halves in f32, as they may be beyond f16 where the result is not."""
    wide = as_float(g, x)
    s, t = (cast_to(g, v, wide.type.dtype) for v in (s, t))
    return cast_to(g, g.Add(g.Mul(wide, s), t), x.type.dtype)


def per_channel(ctx: InferContext, i: int, channels: Dim, name: str) -> None:
    """Fails unless operand i is a vector with one element per channel."""
    shape = ctx.shape(i)
    if len(shape) != 1:
        ctx.fail(f"{name} must be a vector", expected=f"[{channels}]", found=ctx.tensor(i))
    ctx.equal(channels, shape[0], f"{name} needs one element per channel")


def along_channels(g: PyAny, v: PyAny, x: PyAny) -> PyAny:
    """A per-channel vector [C] as [C, 1, ...], so that it broadcasts along axis 1 of `x`."""
    spatial = x.type.rank - 2
    return g.Reshape(v, [-1] + [1] * spatial) if spatial > 0 else v


class Normalize(Operator):
    """Scales lines of the tensor by their own statistics. The kernel computes in f32 (f64 for f64).

    Attributes:
        centred: whether the mean is taken away first.
    """

    centred: ClassVar[bool] = True

    epsilon: float
    work = work_rules.per_element("norm", work_rules.NORM_FLOPS)

    @abstractmethod
    def normalized_axes(self, rank: int) -> tuple[int, ...]:
        """The axes over which the statistics run."""
        raise NotImplementedError(f"{self.name}.normalized_axes")

    def scale_like(self, g: PyAny, scale: PyAny, x: PyAny) -> PyAny:
        """The scale in a shape that broadcasts to x."""
        return scale

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """With n = (x - mean) r, r = 1 / sqrt(var + epsilon), u = dy · scale:

            dx = r (u - mean u - n mean(u n))          dscale = Σ dy n          db = Σ dy

        and without mean u where the mean was not taken away.
        """
        if any(d is not None for d in back.received[1:]):
            back.refuse("a normalisation's statistics")
        g, dy, (x, scale, *_) = back.g, back.dy, back.inputs
        axes = np.array(self.normalized_axes(back.ctx.rank(0)), np.int64)
        centred = g.Sub(x, g.ReduceMean(x, axes)) if self.centred else x
        variance = g.ReduceMean(g.Mul(centred, centred), axes)
        r = g.Reciprocal(g.Sqrt(g.Add(variance, self.epsilon)))
        n, wide = g.Mul(centred, r), self.scale_like(g, scale, x)
        u = g.Mul(dy, wide)
        inner = g.Sub(u, g.Mul(n, g.ReduceMean(g.Mul(u, n), axes)))
        dx = g.Mul(r, g.Sub(inner, g.ReduceMean(u, axes)) if self.centred else inner)
        parts = [g.Mul(dy, n) if 1 in back.wanted else None, dy if 2 in back.wanted else None]
        return [dx, *(None if d is None else self._to_channels(back, d, i) for i, d in enumerate(parts, 1))]

    def _to_channels(self, back: Backward, d: PyAny, i: int) -> PyAny:
        """The gradient of the scale or the bias from that of every element."""
        return back.reduced_to(d, i)


@op(since=6)
class InstanceNormalization(Normalize):
    """(x - mean) / sqrt(var + epsilon) * scale + b, statistics over the spatial axes of each sample and channel."""

    x: In[Float]
    scale: In[Float]
    b: In[Float]
    epsilon: Attr[float] = 1e-5
    row_axis = row_rules.batch_first
    layout_policy = layout_policies.FollowFirst()
    fusion_root = True

    def normalized_axes(self, rank: int) -> tuple[int, ...]:
        return tuple(range(2, rank))

    def scale_like(self, g: PyAny, scale: PyAny, x: PyAny) -> PyAny:
        return along_channels(g, scale, x)

    def _to_channels(self, back: Backward, d: PyAny, i: int) -> PyAny:
        axes = np.array([0, *range(2, back.ctx.rank(0))], np.int64)
        return back.g.ReduceSum(d, axes, keepdims=0)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.rank(0) < 3:
            ctx.fail("InstanceNormalization needs [N, C, spatial...]", found=ctx.tensor(0))
        per_channel(ctx, 1, ctx.shape(0)[1], "scale")
        per_channel(ctx, 2, ctx.shape(0)[1], "B")
        return [ctx.tensor(0)]


class NormalizeLast(Normalize):
    """Statistics over the axes from `axis` on."""

    axis: int
    stash_type: int
    layout_policy = layout_policies.LastAxisInnermost()

    def normalized_axes(self, rank: int) -> tuple[int, ...]:
        return tuple(range(self.axis % rank if rank else 0, rank))

    def check(self, ctx: InferContext) -> tuple[Dim, ...]:
        """The shape of the statistics; fails on a bad axis or a scale or bias that does not broadcast."""
        shape = ctx.shape(0)
        axis = ctx.axis(self.axis, len(shape))
        if self.stash_type != 1:
            ctx.unsupported("stash_type other than 1 (float)", self.stash_type)
        for i in (1, 2):
            if ctx.has(i) and len(ctx.shape(i)) > len(shape):
                ctx.fail("scale and bias must broadcast to x", expected=ctx.tensor(0), found=ctx.tensor(i))
            for own, dim in zip(reversed(shape), reversed(ctx.shape(i)) if ctx.has(i) else (), strict=False):
                if dim != 1:
                    ctx.equal(own, dim, "scale and bias must broadcast to x")
        return (*shape[:axis], *[1] * (len(shape) - axis))

    def row_axis(self, rows: Rows) -> int:
        a = rows.first("normalises over the rows")
        if a >= self.axis % rows.ctx.rank(0):
            raise rows.interact("normalises over the rows")
        return a


@op(since=17)
class LayerNormalization(NormalizeLast):
    """(x - mean) / sqrt(var + epsilon) * scale + b over the axes from `axis` on; also mean and 1 / sqrt(var + eps)."""

    x: In[Float]
    scale: In[Float]
    b: Opt[Float]
    y: Out
    mean: OptOut
    inv_std_dev: OptOut
    axis: Attr[int] = -1
    epsilon: Attr[float] = 1e-5
    stash_type: Attr[int] = 1
    fusion_root = True
    zeros_by_default = (2,)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        statistics = TensorType(F32, self.check(ctx))
        return [ctx.tensor(0), statistics, statistics]


@op(since=23)
class RMSNormalization(NormalizeLast):
    """x / sqrt(mean(x²) + epsilon) * scale over the axes from `axis` on."""

    x: In[Float]
    scale: In[Float2]
    axis: Attr[int] = -1
    epsilon: Attr[float] = 1e-5
    stash_type: Attr[int] = 1
    centred = False
    fusion_root = False

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        self.check(ctx)
        return [ctx.tensor(0).with_dtype(ctx.tensor(1).dtype)]


@op(since=21)
class GroupNormalization(Composite):
    """Instance normalisation of [N, groups, the rest], then scale and bias per channel."""

    x: In[Float]
    scale: In[Float]
    bias: In[Float]
    num_groups: Attr[int]
    epsilon: Attr[float] = 1e-5
    stash_type: Attr[int] = 1
    row_axis = row_rules.batch_first

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        shape = ctx.shape(0)
        if len(shape) < 3:
            ctx.fail("GroupNormalization needs [N, C, spatial...]", found=ctx.tensor(0))
        if self.num_groups < 1 or (isinstance(shape[1], int) and shape[1] % self.num_groups):
            ctx.fail("channels must divide into groups", expected=f"C % num_groups = 0, C = {shape[1]}",
                     found=self.num_groups)
        per_channel(ctx, 1, shape[1], "scale")
        per_channel(ctx, 2, shape[1], "bias")
        return [ctx.tensor(0)]

    def expand(self, g: PyAny, x: PyAny, scale: PyAny, bias: PyAny) -> PyAny:
        dtype = x.type.dtype.numpy
        ones, zeros = np.ones(self.num_groups, dtype), np.zeros(self.num_groups, dtype)
        dims = x.type.dims
        if 0 in dims:  # there is nothing to normalise, and -1 would be ambiguous
            y = x
        else:
            groups = g.Reshape(x, [0, self.num_groups, -1])
            normal = g.InstanceNormalization(groups, ones, zeros, epsilon=self.epsilon)
            open_dims = sum(not isinstance(d, int) for d in dims[1:])
            back = [0, *(d if isinstance(d, int) else -1 for d in dims[1:])] if open_dims < 2 else g.Shape(x)
            y = g.Reshape(normal, back)
        return g.Add(g.Mul(y, along_channels(g, scale, x)), along_channels(g, bias, x))


@op(since=22)
class LpNormalization(Composite):
    """x / ||x||_p along an axis, 0 where the norm is 0; p is 1 or 2."""

    x: In[Float]
    axis: Attr[int] = -1
    p: Attr[int] = 2

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        ctx.axis(self.axis, ctx.rank(0))
        if self.p not in (1, 2):
            ctx.fail("unknown norm", expected="p = 1 or 2", found=self.p)
        return [ctx.tensor(0)]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        wide = as_float(g, x)  # where every norm has its digits
        norm = (g.ReduceL1 if self.p == 1 else g.ReduceL2)(wide, [self.axis])
        zero = np.zeros((), wide.type.dtype.numpy)
        return cast_to(g, g.Where(g.Equal(norm, zero), zero, g.Div(wide, norm)), x.type.dtype)


@op(since=13)
class LRN(Composite):
    """x / (bias + alpha / size * sum of x² over `size` neighbouring channels)^beta (Krizhevsky et al., 2012).

    The mean over neighbours, zeros beyond the ends, is an average pool over the channels.
    """

    x: In[Float]
    size: Attr[int]
    alpha: Attr[float] = 1e-4
    beta: Attr[float] = 0.75
    bias: Attr[float] = 1.0
    row_axis = row_rules.batch_first
    layout_policy = layout_policies.FollowFirst()

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.rank(0) < 3:
            ctx.fail("LRN needs [N, C, spatial...]", found=ctx.tensor(0))
        if self.size < 1:
            ctx.fail("size must be positive", expected=">= 1", found=self.size)
        return [ctx.tensor(0)]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        before, after = (self.size - 1) // 2, self.size // 2
        rest = [0] * (x.type.rank - 2)
        window = {"kernel_shape": [self.size] + [1] * len(rest), "pads": [before, *rest, after, *rest]}
        wide = as_float(g, x)
        mean = g.AveragePool(g.Unsqueeze(g.Mul(wide, wide), [1]), count_include_pad=1, **window)
        beta = g.const(self.beta, wide.tensor.dtype)
        y = g.Div(wide, g.Pow(g.Add(g.Mul(g.Squeeze(mean, [1]), self.alpha), self.bias), beta))
        return cast_to(g, y, x.type.dtype)


@op(since=13)
class MeanVarianceNormalization(Composite):
    """(x - mean) / (sqrt(mean(x²) - mean²) + 1e-9) over `axes`, the variance taken about the mean."""

    x: In[Float]
    axes: Attr[Ints] = (0, 2, 3)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        ctx.axes(self.axes, ctx.rank(0))
        return [ctx.tensor(0)]

    def expand(self, g: PyAny, x: PyAny) -> PyAny:
        wide = as_float(g, x)  # where 1e-9 is not 0
        centred = g.Sub(wide, g.ReduceMean(wide, list(self.axes)))
        variance = g.ReduceMean(g.Mul(centred, centred), list(self.axes))
        y = g.Div(centred, g.Add(g.Sqrt(variance), 1e-9))
        return cast_to(g, y, x.type.dtype)
