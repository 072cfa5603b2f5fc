"""Tensors made from few numbers or by repetition: Expand, Tile, ConstantOfShape, Range, EyeLike, OneHot, Trilu."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import I64, Dim, DType, SymDim, TensorType, ceil_div, dim_max, prod, upper_bound
from ..types import Shape as Dims
from . import layout_policies, row_rules, work_rules
from .backward import Backward
from .base import (
    Any,
    Any2,
    Attr,
    In,
    InferContext,
    Int64,
    Movement,
    Numeric,
    Numeric2,
    NumericOrBool,
    Operator,
    Opt,
    Rows,
    op,
)
from .context import KNOWN_LIMIT, known_sizes
from .interfaces import IndexRange


def requested_shape(ctx: InferContext, i: int, what: str) -> Dims:
    """The shape that operand i, a vector, asks for."""
    if ctx.rank(i) != 1:
        ctx.fail(f"{what} must be a vector", found=ctx.types[i])
    shape = tuple(ctx.dims(i, what))
    if any(upper_bound(d) < 0 for d in shape):
        ctx.fail(f"negative dimension in {what}", found=list(shape))
    return shape


@op(since=13)
class Expand(Movement):
    """The input broadcast together with a shape."""

    input: In[Any]
    shape: In[Int64]
    row_axis = row_rules.same_extent
    shape_operand = 1
    repeats_elements = True
    layout_policy = layout_policies.AnyOrder()

    def infer(self, ctx: InferContext) -> list[TensorType]:
        return [ctx.tensor(0).with_shape(ctx.broadcast(ctx.shape(0), requested_shape(ctx, 1, "shape")))]

    def known(self, ctx: InferContext) -> np.ndarray | None:
        content = ctx.known(0)
        sizes = known_sizes(ctx.broadcast(ctx.shape(0), requested_shape(ctx, 1, "shape")))
        return None if content is None or sizes is None else np.broadcast_to(content, sizes)

    def index_map(self, ctx: InferContext, index: Sequence[PyAny]) -> list[PyAny]:
        shape = ctx.shape(0)
        return [0 if d == 1 else i for d, i in zip(shape, index[len(index) - len(shape) :], strict=True)]

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """The sum over the copies."""
        return [back.reduced_to(back.dy, 0), None]


@op(since=13)
class Tile(Movement):
    """The input repeated along every axis."""

    input: In[Any]
    repeats: In[Int64]
    row_axis = row_rules.same_extent
    shape_operand = 1
    repeats_elements = True
    layout_policy = layout_policies.AnyOrder()

    def counts(self, ctx: InferContext) -> list[Dim]:
        """How often each axis is repeated."""
        counts = ctx.dims(1, "repeats")
        if len(counts) != ctx.rank(0):
            ctx.fail("repeats must have a count for each axis", expected=ctx.rank(0), found=len(counts))
        if any(upper_bound(c) < 0 for c in counts):
            ctx.fail("negative repeats", found=counts)
        return counts

    def infer(self, ctx: InferContext) -> list[TensorType]:
        counts = self.counts(ctx)
        return [ctx.tensor(0).with_shape(tuple(d * c for d, c in zip(ctx.shape(0), counts, strict=True)))]

    def known(self, ctx: InferContext) -> np.ndarray | None:
        content, counts = ctx.known(0), self.counts(ctx)
        fixed = [c for c in counts if isinstance(c, int)]
        if content is None or len(fixed) < len(counts):
            return None
        small = known_sizes(tuple(d * c for d, c in zip(content.shape, fixed, strict=True))) is not None
        return np.tile(content, fixed) if small else None

    def index_map(self, ctx: InferContext, index: Sequence[PyAny]) -> list[PyAny]:
        return [i % d for i, d in zip(index, ctx.shape(0), strict=True)]


@op(since=9)
class ConstantOfShape(Operator):
    """One value (f32 0 by default) in every element."""

    input: In[Int64]
    value: Attr[np.ndarray | None] = None
    row_axis = row_rules.unknown
    shape_operand = 0
    repeats_elements = True
    layout_policy = layout_policies.PLAIN
    work = work_rules.moves
    fusion_root = False

    def element(self) -> np.ndarray:
        """The value, as an array of one element."""
        return np.zeros(1, np.float32) if self.value is None else self.value.reshape(-1)

    def infer(self, ctx: InferContext) -> list[TensorType]:
        if self.element().size != 1:
            ctx.fail("value must have one element", found=self.element().size)
        return [TensorType(DType.from_numpy(self.element().dtype), requested_shape(ctx, 0, "shape"))]

    def known(self, ctx: InferContext) -> np.ndarray | None:
        shape, value = requested_shape(ctx, 0, "shape"), self.element()[0]
        sizes = known_sizes(shape)
        return None if sizes is None or value.dtype.kind not in "iub" else np.full(sizes, value.item(), object)


@op(since=11)
class Range(Operator):
    """start, start + delta, … as long as it is before limit."""

    start: In[Numeric]
    limit: In[Numeric]
    delta: In[Numeric]
    row_axis = row_rules.unknown
    layout_policy = layout_policies.PLAIN
    work = work_rules.moves
    fusion_root = False

    def count(self, ctx: InferContext) -> Dim:
        """How many numbers there are."""
        if any(prod(ctx.shape(i)) != 1 for i in range(3)):
            ctx.fail("start, limit and delta must be scalars", found=ctx.types)
        if ctx.tensor(0).dtype.is_float:
            constants = [ctx.data(i) for i in range(3)]
            if any(c is None for c in constants):
                ctx.unsupported("start, limit and delta must be known at compile time", found=ctx.types)
            start, limit, delta = (float(c.reshape(-1)[0]) for c in constants if c is not None)
            if delta == 0 or not all(map(math.isfinite, (start, limit, delta))):
                ctx.fail("start, limit and delta must be finite and delta not 0", found=[start, limit, delta])
            return math.ceil(max(0.0, min((limit - start) / delta, 2.0**63)))  # f64 may overflow
        first, last, step = (ctx.dims(i, what)[0] for i, what in enumerate(("start", "limit", "delta")))
        if step == 0 or isinstance(step, SymDim):
            ctx.fail("delta must be a number other than 0", found=step)
        return dim_max(0, ceil_div(last - first, step) if step > 0 else ceil_div(first - last, -step))

    def infer(self, ctx: InferContext) -> list[TensorType]:
        return [TensorType(ctx.tensor(0).dtype, (self.count(ctx),))]

    def known(self, ctx: InferContext) -> np.ndarray | None:
        count = self.count(ctx)
        if ctx.tensor(0).dtype.is_float or isinstance(count, SymDim) or count > KNOWN_LIMIT:
            return None
        first, step = ctx.dims(0, "start")[0], ctx.dims(2, "delta")[0]
        out = np.empty(count, object)
        for i in range(count):
            out[i] = first + step * i
        return out


@op(since=9)
class EyeLike(Operator):
    """A matrix of the input's shape with ones on diagonal `k` and zeros elsewhere."""

    input: In[NumericOrBool]
    dtype: Attr[DType | None] = None
    k: Attr[int] = 0
    row_axis = row_rules.unknown
    layout_policy = layout_policies.PLAIN
    work = work_rules.moves
    fusion_root = False

    def infer(self, ctx: InferContext) -> list[TensorType]:
        if ctx.rank(0) != 2:
            ctx.fail("input must be a matrix", found=ctx.types[0])
        return [TensorType(self.dtype or ctx.tensor(0).dtype, ctx.shape(0))]


@op(since=11)
class OneHot(Operator):
    """A new axis of length `depth`: values[1] at the index, values[0] elsewhere; indices beyond it are nowhere."""

    indices: In[Numeric]
    depth: In[Numeric2]
    values: In[Any]
    axis: Attr[int] = -1
    layout_policy = layout_policies.PLAIN
    work = work_rules.moves
    fusion_root = False

    def depth_of(self, ctx: InferContext) -> Dim:
        """The length of the new axis."""
        if prod(ctx.shape(1)) != 1:
            ctx.fail("depth must be one number", found=ctx.types[1])
        constant = ctx.data(1)
        if constant is not None and constant.dtype.kind == "f":
            number = float(constant.reshape(-1)[0])
            if not math.isfinite(number):
                ctx.fail("depth must be a number", found=number)
            return int(number)
        return ctx.dims(1, "depth")[0]

    def infer(self, ctx: InferContext) -> list[TensorType]:
        shape, depth = ctx.shape(0), self.depth_of(ctx)
        axis = ctx.axis(self.axis, len(shape) + 1)
        if upper_bound(depth) < 1:
            ctx.fail("depth must be positive", found=depth)
        if ctx.shape(2) != (2,):
            ctx.fail("values must be [off, on]", found=ctx.types[2])
        return [TensorType(ctx.tensor(2).dtype, (*shape[:axis], depth, *shape[axis:]))]

    def row_axis(self, rows: Rows) -> int:
        a = rows.first("rows lie elsewhere than in the indices")
        return a if a < self.axis % rows.result.rank else a + 1

    def index_range(self, ctx: InferContext) -> IndexRange | None:
        depth = ctx.known(1)
        return None if depth is None or depth.size != 1 else IndexRange(0, -depth.flat[0], depth.flat[0] - 1)


@op(since=14)
class Trilu(Operator):
    """The upper (or lower) triangle of the last two axes from diagonal `k` on, zeros elsewhere."""

    input: In[NumericOrBool]
    k: Opt[Int64]
    upper: Attr[int] = 1
    layout_policy = layout_policies.PLAIN
    work = work_rules.moves
    fusion_root = False

    def infer(self, ctx: InferContext) -> list[TensorType]:
        if ctx.rank(0) < 2:
            ctx.fail("input must have two axes at least", found=ctx.types[0])
        if ctx.has(1) and prod(ctx.shape(1)) != 1:
            ctx.fail("k must be a scalar", found=ctx.types[1])
        return [ctx.tensor(0)]

    def row_axis(self, rows: Rows) -> int:
        a = rows.first("the triangle depends on the row's number")
        if a >= rows.ctx.rank(0) - 2:
            raise rows.interact("the triangle depends on the row's number")
        return a


@op(since=13)
class Size(Operator):
    """The number of elements; always known."""

    data: In[Any2]
    row_axis = row_rules.unknown
    layout_policy = layout_policies.PLAIN
    work = work_rules.writes_sizes
    fusion_root = False

    def infer(self, ctx: InferContext) -> list[TensorType]:
        ctx.shape(0)
        return [TensorType(I64, ())]

    def known(self, ctx: InferContext) -> np.ndarray:
        out = np.empty((), object)
        out[()] = prod(ctx.shape(0))
        return out


