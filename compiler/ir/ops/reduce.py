"""Reductions along axes, ArgMax, ArgMin, and running sums and products."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import BOOL, I64, DType, TensorType, Type
from . import layout_policies, work_rules
from .base import (
    CATALOGUE,
    Accumulation,
    Attr,
    Composite,
    Float,
    Host,
    In,
    Index,
    InferContext,
    Int64,
    Numeric,
    NumericOrBool,
    Operator,
    Opt,
    Reduce,
    Rows,
    op,
)
from .casting import as_float, cast_to


def lowest(dtype: DType) -> float | int:
    """The least value of an element type, -inf for floats."""
    return -math.inf if dtype.is_float else 0 if dtype == BOOL or not dtype.is_signed else -(2 ** (dtype.bits - 1))


def highest(dtype: DType) -> float | int:
    """The greatest value of an element type, inf for floats."""
    if dtype.is_float:
        return math.inf
    return 1 if dtype == BOOL else 2 ** (dtype.bits - dtype.is_signed) - 1


def through_float(e: PyAny, x: PyAny, fn: str) -> PyAny:
    """A float function of an integer, as onnx.reference has it: computed in f64 and truncated."""
    if x.dtype.is_float:
        return getattr(e, fn)(x)
    return e.cast(getattr(e, fn)(e.cast(x, DType.from_name("f64"))), x.dtype)


class Summing(Accumulation):
    """Adds `map` of the elements."""

    def init(self, e: PyAny, dtype: DType) -> PyAny:
        return 0

    def combine(self, e: PyAny, acc: PyAny, x: PyAny) -> PyAny:
        return acc + x


class Multiplying(Accumulation):
    """Multiplies `map` of the elements."""

    def init(self, e: PyAny, dtype: DType) -> PyAny:
        return 1

    def combine(self, e: PyAny, acc: PyAny, x: PyAny) -> PyAny:
        return acc * x


@op(since=13)
class ReduceSum(Summing, Reduce):
    """sum x."""

    x: In[Numeric]
    axes: Opt[Int64]
    noop_with_empty_axes: Attr[int] = 0


@op(since=18)
class ReduceMean(Summing, Reduce):
    """sum x / count; integers round towards zero."""

    x: In[Numeric]
    axes: Opt[Int64]
    noop_with_empty_axes: Attr[int] = 0

    def finish(self, e: PyAny, acc: PyAny, count: PyAny) -> PyAny:
        return acc / count


@op(since=18)
class ReduceL1(Summing, Reduce):
    """sum |x|."""

    x: In[Numeric]
    axes: Opt[Int64]
    noop_with_empty_axes: Attr[int] = 0

    def map(self, e: PyAny, x: PyAny) -> PyAny:
        return e.abs(x) if x.dtype.is_signed else x


@op(since=18)
class ReduceSumSquare(Summing, Reduce):
    """sum x²."""

    x: In[Numeric]
    axes: Opt[Int64]
    noop_with_empty_axes: Attr[int] = 0

    def map(self, e: PyAny, x: PyAny) -> PyAny:
        return x * x


@op(since=18)
class ReduceL2(Summing, Reduce):
    """sqrt(sum x²)."""

    x: In[Numeric]
    axes: Opt[Int64]
    noop_with_empty_axes: Attr[int] = 0

    def map(self, e: PyAny, x: PyAny) -> PyAny:
        return x * x

    def finish(self, e: PyAny, acc: PyAny, count: PyAny) -> PyAny:
        return through_float(e, acc, "sqrt")


@op(since=18)
class ReduceLogSum(Summing, Reduce):
    """log(sum x)."""

    x: In[Numeric]
    axes: Opt[Int64]
    noop_with_empty_axes: Attr[int] = 0

    def finish(self, e: PyAny, acc: PyAny, count: PyAny) -> PyAny:
        return through_float(e, acc, "log")


@op(since=18)
class ReduceProd(Multiplying, Reduce):
    """The product."""

    x: In[Numeric]
    axes: Opt[Int64]
    noop_with_empty_axes: Attr[int] = 0

    def known(self, ctx: InferContext) -> np.ndarray | None:
        content = ctx.known(0)
        if content is None or any(isinstance(item, float) for item in content.flat):
            return None
        product = np.prod(content, axis=self.reduced_axes(ctx), keepdims=bool(self.keepdims))
        return np.asarray(product, object)


@op(since=20)
class ReduceMax(Reduce):
    """The greatest; NaN if there is one; the least value of the type if there are no elements."""

    x: In[NumericOrBool]
    axes: Opt[Int64]
    noop_with_empty_axes: Attr[int] = 0

    def init(self, e: PyAny, dtype: DType) -> PyAny:
        return lowest(dtype)

    def combine(self, e: PyAny, acc: PyAny, x: PyAny) -> PyAny:
        return e.max(acc, x)


@op(since=20)
class ReduceMin(Reduce):
    """The least; NaN if there is one; the greatest value of the type if there are no elements."""

    x: In[NumericOrBool]
    axes: Opt[Int64]
    noop_with_empty_axes: Attr[int] = 0

    def init(self, e: PyAny, dtype: DType) -> PyAny:
        return highest(dtype)

    def combine(self, e: PyAny, acc: PyAny, x: PyAny) -> PyAny:
        return e.min(acc, x)


@op(since=18)
class ReduceLogSumExp(Composite):
    """log(sum(exp x)) = m + log(sum(exp(x - m))) with m = max x, or 0 where that is infinite."""

    x: In[Float]
    axes: Opt[Int64]
    keepdims: Attr[int] = 1
    noop_with_empty_axes: Attr[int] = 0

    def expand(self, g: PyAny, x: PyAny, axes: PyAny = None) -> PyAny:
        noop, wide = self.noop_with_empty_axes, as_float(g, x)  # where sums of many have their digits
        greatest = g.ReduceMax(wide, axes, noop_with_empty_axes=noop)
        m = g.Where(g.IsInf(greatest), np.zeros((), wide.type.dtype.numpy), greatest)
        total = g.ReduceSum(g.Exp(g.Sub(wide, m)), axes, noop_with_empty_axes=noop)
        result = g.Add(g.Log(total), m)
        # a sum over axes of size 1 drops them and leaves the values alone
        if not self.keepdims:
            result = g.ReduceSum(result, axes, keepdims=0, noop_with_empty_axes=noop)
        return cast_to(g, result, x.type.dtype)


class ArgReduce(Operator):
    """Position of an extreme along one axis; `better` says when a later element takes over.

    NaN is more extreme than all numbers, as in numpy and onnx.reference (ONNX Runtime passes over it, or not, by its
    place): where ReduceMax gives NaN, ArgMax gives the place of the first one.
    """

    axis: int
    keepdims: int
    select_last_index: int
    layout_policy = layout_policies.PLAIN
    work = work_rules.reduces
    fusion_root = False

    @abstractmethod
    def better(self, e: PyAny, x: PyAny, best: PyAny) -> PyAny:
        """Whether `x`, which comes after `best`, replaces it."""
        raise NotImplementedError(f"{self.name}.better")

    @abstractmethod
    def worst(self, dtype: DType) -> float | int:
        """What every element beats or equals."""
        raise NotImplementedError(f"{self.name}.worst")

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        shape = ctx.shape(0)
        axis = ctx.axis(self.axis, len(shape))
        if shape[axis] == 0:
            ctx.fail("no extreme along an empty axis", expected=f"axis {axis} not empty", found=ctx.tensor(0))
        kept = (1,) if self.keepdims else ()
        return [TensorType(I64, (*shape[:axis], *kept, *shape[axis + 1 :]))]

    def row_axis(self, rows: Rows) -> int:
        own, a = self.axis % rows.ctx.rank(0), rows.given[0]
        if a is None or a == own:
            raise rows.interact("reduces over the rows")
        return a if self.keepdims or a < own else a - 1


def _takes_over(x: PyAny, best: PyAny, beats: PyAny, last: int) -> PyAny:
    """`beats`, or x is NaN and `best` is not (or comes before it, where the last one counts)."""
    if not x.dtype.is_float:
        return beats
    return beats | (x != x) if last else beats | ((x != x) & (best == best))


@op(since=13)
class ArgMax(ArgReduce):
    """Position of the greatest element, of the first one unless `select_last_index`."""

    x: In[Numeric]
    axis: Attr[int] = 0
    keepdims: Attr[int] = 1
    select_last_index: Attr[int] = 0

    def better(self, e: PyAny, x: PyAny, best: PyAny) -> PyAny:
        return _takes_over(x, best, x >= best if self.select_last_index else x > best, self.select_last_index)

    def worst(self, dtype: DType) -> float | int:
        return lowest(dtype)


@op(since=13)
class ArgMin(ArgReduce):
    """Position of the least element, of the first one unless `select_last_index`."""

    x: In[Numeric]
    axis: Attr[int] = 0
    keepdims: Attr[int] = 1
    select_last_index: Attr[int] = 0

    def better(self, e: PyAny, x: PyAny, best: PyAny) -> PyAny:
        return _takes_over(x, best, x <= best if self.select_last_index else x < best, self.select_last_index)

    def worst(self, dtype: DType) -> float | int:
        return highest(dtype)


class Cumulative(Accumulation):
    """Running results along an axis; `exclusive` leaves out the element itself, `reverse` runs from the end."""

    exclusive: Attr[int] = 0
    reverse: Attr[int] = 0
    layout_policy = layout_policies.PLAIN
    work = work_rules.reduces
    fusion_root = False

    def running_axis(self, ctx: InferContext) -> int | None:
        """The axis, counted from the front; None if only the run knows it."""
        if ctx.shape(1) not in ((), (1,)):
            ctx.fail("axis must be one number", found=ctx.tensor(1))
        if ctx.known(1) is None:
            return None
        return ctx.axis(ctx.ints(1, "axis")[0], ctx.rank(0))

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if self.exclusive not in (0, 1) or self.reverse not in (0, 1):
            ctx.fail("exclusive and reverse are flags", expected="0 or 1", found=(self.exclusive, self.reverse))
        self.running_axis(ctx)
        return [ctx.tensor(0)]

    def row_axis(self, rows: Rows) -> int:
        """Along another axis, which has to be known."""
        along, a = self.running_axis(rows.ctx), rows.given[0]
        if along is None or a is None or a == along or rows.given[1] is not None:
            raise rows.interact("may run over the rows")
        return a


@op(since=14)
class CumSum(Summing, Cumulative):
    """Running sums."""

    x: In[Numeric]
    axis: In[Index]


@op(since=26)
class CumProd(Multiplying, Cumulative):
    """Running products."""

    x: In[Numeric]
    axis: In[Index]


@op(domain="parax")
class ReduceAtRuntime(Host):
    """The ONNX reduction `kind` along axes that only the run knows; how many they are must be known."""

    x: In[NumericOrBool]
    axes: In[Int64]
    kind: Attr[str]
    keepdims: Attr[int] = 1

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        shape, axes = ctx.shape(0), ctx.shape(1)
        if not CATALOGUE["", self.kind].signature.input_spec(0).group.accepts(ctx.tensor(0)):
            ctx.unsupported("input x has the wrong type", ctx.tensor(0))
        if len(axes) != 1 or not isinstance(axes[0], int):
            ctx.unsupported("the number of axes must be known at compile time", ctx.tensor(1))
        if axes[0] > len(shape):
            ctx.fail("more axes than the tensor has", expected=len(shape), found=axes[0])
        rank = len(shape) if self.keepdims else len(shape) - axes[0]
        sizes = [ctx.fresh(f"Reduce_{i}") for i in range(rank)]
        kept = tuple(1 if self.keepdims and shape[i] == 1 else d for i, d in enumerate(sizes))
        return [TensorType(ctx.tensor(0).dtype, kept)]
