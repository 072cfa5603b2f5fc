"""Parts and margins of tensors: Slice, Split, Pad."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any as PyAny

import numpy as np

from ..dim import MAX_SYMBOL
from ..types import (
    Dim,
    SymDim,
    TensorType,
    at_least,
    at_most,
    ceil_div,
    dim_max,
    dim_min,
    exact_max,
    exact_min,
    guessing,
    is_found,
    lower_bound,
    symbols_of,
    upper_bound,
)
from . import layout_policies, row_rules, work_rules
from .backward import Backward, filled
from .base import Any, Attr, In, Index, InferContext, Int64, Movement, Operator, Opt, Rows, VariadicOut, op

Decides = Callable[[Dim, Dim], Dim]
FAR = 2**31 - 1  # exporters write the ends of i32 and i64 for "to the end"


@dataclass(frozen=True)
class Range:
    """Positions start, start + step, … of an axis, `count` of them."""

    start: Dim
    step: int
    count: Dim


def slice_range(start: Dim, end: Dim, step: int, size: Dim) -> Range:
    """What `[start:end:step]` takes of an axis of `size`, as ONNX defines it. `step` is not 0.

    The count holds for symbols of 0 too, unless it is one number for all others (`x[-1:]` has 1): a number serves
    kernels and broadcasts better, and the symbols are noted as positive. Where nothing is taken, `start` says nothing.
    """
    with guessing():
        is_number = isinstance(_count(start, end, step, size, dim_max, dim_min)[1], int)
    larger, smaller = (dim_max, dim_min) if is_number else (exact_max, exact_min)
    first, count = _count(start, end, step, size, larger, smaller)
    return Range(first if count != 0 else 0, step, count)


def _count(start: Dim, end: Dim, step: int, size: Dim, larger: Decides, smaller: Decides) -> tuple[Dim, Dim]:
    """The first position, and how many there are: what takes away from nothing is clamped by the count alone."""
    if step > 0:
        first, last = _from_front(start, 0, size, size), _from_front(end, 0, size, size)
        first = larger(0, first) if _may_count_from_back(start) else first
        last = last if _counts_from_back(end) else smaller(last, size)
        return first, larger(0, ceil_div(last - first, step))
    first, last = _from_front(start, 0, size - 1, size), _from_front(end, -1, size - 1, size)
    if start != -1:
        first = smaller(larger(0, first) if _may_count_from_back(start) else first, size - 1)
    last = larger(-1, last) if _may_count_from_back(end) else last
    return first, larger(0, ceil_div(first - last, -step))


def _may_count_from_back(bound: Dim) -> bool:
    return not at_least(bound, 0)


def _counts_from_back(bound: Dim) -> bool:
    return not at_least(bound, 0) and at_most(bound, -1)


def _is_found(bound: Dim) -> bool:
    """Whether it is of a size that only a run finds, which then finds its sign, too."""
    return any(map(is_found, symbols_of((bound,))))


def _from_front(bound: Dim, low: Dim, high: Dim, size: Dim) -> Dim:
    """A bound counted from the front: `low` or `high` where an exporter writes a number beyond any axis."""
    if isinstance(bound, int) and isinstance(size, SymDim) and abs(bound) >= FAR:
        return high if bound > 0 else low
    if not _may_count_from_back(bound) or _counts_from_back(bound):
        return bound + size if _may_count_from_back(bound) else bound
    return bound + size * exact_min(exact_max(-bound, 0), 1)


@op(since=13)
class Slice(Movement):
    """data[start:end:step] on some axes; bounds beyond an axis stop at it."""

    data: In[Any]
    starts: In[Index]
    ends: In[Index]
    axes: Opt[Index]
    steps: Opt[Index]
    layout_policy = layout_policies.AnyOrder(like_result=True)

    def ranges(self, ctx: InferContext) -> list[Range]:
        """What is taken of every axis of the input."""
        shape = ctx.shape(0)
        starts, ends = ctx.dims(1, "starts"), ctx.dims(2, "ends")
        axes = ctx.ints(3, "axes") if ctx.has(3) else list(range(len(starts)))
        steps = ctx.ints(4, "steps") if ctx.has(4) else [1] * len(starts)
        if not len(starts) == len(ends) == len(axes) == len(steps):
            found = [len(starts), len(ends), len(axes), len(steps)]
            ctx.fail("starts, ends, axes and steps must be of equal length", found=found)
        if 0 in steps:
            ctx.fail("step of 0", found=steps)
        taken = [Range(0, 1, d) for d in shape]
        for axis, start, end, step in zip(ctx.axes(axes, len(shape)), starts, ends, steps, strict=True):
            for bound in (start, end):
                if _may_count_from_back(bound) and not _counts_from_back(bound) and not _is_found(bound):
                    ctx.fail("the sign of a bound depends on a symbolic dimension", found=bound,
                             hint="fix the dimension when compiling")
            size = shape[axis]
            longest = max(MAX_SYMBOL, size) if isinstance(size, int) else MAX_SYMBOL  # a longer step takes one, too
            taken[axis] = slice_range(start, end, max(-longest, min(longest, step)), size)
        return taken

    def infer(self, ctx: InferContext) -> list[TensorType]:
        return [TensorType(ctx.tensor(0).dtype, tuple(r.count for r in self.ranges(ctx)), ctx.tensor(0).layout)]

    def known(self, ctx: InferContext) -> np.ndarray | None:
        content = ctx.known(0)
        if content is None:
            return None
        for axis, r in enumerate(self.ranges(ctx)):
            if isinstance(r.start, SymDim) or isinstance(r.count, SymDim):
                return None
            content = content.take([r.start + r.step * i for i in range(r.count)], axis)
        return content

    def index_map(self, ctx: InferContext, index: Sequence[PyAny]) -> list[PyAny]:
        return [i * r.step + r.start for i, r in zip(index, self.ranges(ctx), strict=True)]

    def row_axis(self, rows: Rows) -> int | None:
        axis = row_rules.same_extent(self, rows)
        steps = rows.ctx.known(4)
        if rows.ctx.has(4) and not (steps is not None and all(isinstance(s, int) and s > 0 for s in steps.flat)):
            raise rows.interact("may reverse the rows")
        return axis


@op(since=18)
class Split(Operator):
    """Consecutive parts along `axis`: of the given sizes, or `num_outputs` equal ones with a smaller last one."""

    input: In[Any]
    split: Opt[Int64]
    outputs: VariadicOut
    axis: Attr[int] = 0
    num_outputs: Attr[int | None] = None
    row_axis = row_rules.along_axis
    layout_policy = layout_policies.AnyOrder(like_result=True)
    work = work_rules.moves
    fusion_root = False

    def sizes(self, ctx: InferContext) -> tuple[int, list[Dim]]:
        """The axis, counted from the front, and the parts' sizes."""
        axis = ctx.axis(self.axis, ctx.rank(0))
        size = ctx.shape(0)[axis]
        if ctx.has(1):
            sizes = ctx.dims(1, "split")
            if any(upper_bound(s) < 0 for s in sizes):
                ctx.fail("negative size in split", found=sizes)
            total: Dim = 0
            for s in sizes:
                total = total + s
            ctx.equal(size, total, f"split must add up to dimension {axis}")
        else:
            count = self.num_outputs if self.num_outputs is not None else ctx.n_outputs
            if count < 1:
                ctx.fail("num_outputs must be positive", found=count)
            if count > ctx.n_outputs:
                ctx.fail("num_outputs must be the number of outputs", expected=ctx.n_outputs, found=count)
            part = ceil_div(size, count)
            sizes = [part] * (count - 1) + [size - part * (count - 1)]
            if upper_bound(sizes[-1]) < 0:
                ctx.fail("too many parts", expected=f"at most {size}", found=count)
        if len(sizes) != ctx.n_outputs:
            ctx.fail("split must have a size for each output", expected=ctx.n_outputs, found=len(sizes))
        return axis, sizes

    def infer(self, ctx: InferContext) -> list[TensorType]:
        axis, sizes = self.sizes(ctx)
        t = ctx.tensor(0)
        return [TensorType(t.dtype, tuple(s if a == axis else d for a, d in enumerate(t.dims)), t.layout)
                for s in sizes]

    def known(self, ctx: InferContext) -> list[np.ndarray | None] | None:
        content = ctx.known(0)
        if content is None:
            return None
        axis, sizes = self.sizes(ctx)
        if any(isinstance(s, SymDim) for s in sizes):
            return None
        return list(np.split(content, np.cumsum([int(s) for s in sizes])[:-1], axis))  # type: ignore[arg-type]

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """The parts' gradients, joined; zeros for parts without."""
        g = back.g
        parts = [filled(g, y, 0.0) if d is None else d for y, d in zip(back.outputs, back.received)]
        return [g.Concat(*parts, axis=self.axis), None][: back.ctx.n_inputs]


@op(since=13)
class Pad(Operator):
    """Margins around the data: a constant, or the data reflected, repeated at its edge or wrapped around.

    Negative widths crop.
    """

    data: In[Any]
    pads: In[Int64]
    constant_value: Opt[Any]
    axes: Opt[Index]
    mode: Attr[str] = "constant"
    layout_policy = layout_policies.AnyOrder(like_result=True)
    work = work_rules.moves
    fusion_root = False

    def widths(self, ctx: InferContext) -> list[tuple[Dim, Dim]]:
        """Elements before and after every axis of the input."""
        rank = ctx.rank(0)
        axes = ctx.axes(ctx.ints(3, "axes"), rank) if ctx.has(3) else tuple(range(rank))
        pads = ctx.dims(1, "pads")
        if len(pads) != 2 * len(axes):
            ctx.fail("pads must have two widths for each axis", expected=2 * len(axes), found=len(pads))
        widths: list[tuple[Dim, Dim]] = [(0, 0)] * rank
        for i, axis in enumerate(axes):
            widths[axis] = (pads[i], pads[i + len(axes)])
        return widths

    def infer(self, ctx: InferContext) -> list[TensorType]:
        if self.mode not in ("constant", "reflect", "edge", "wrap"):
            ctx.fail("unknown mode", expected="constant, reflect, edge or wrap", found=self.mode)
        if ctx.has(2) and any(d != 1 for d in ctx.shape(2)):
            ctx.fail("constant_value must be a scalar", found=ctx.types[2])
        t, widths = ctx.tensor(0), self.widths(ctx)
        if self.mode != "constant":
            for d, width in zip(t.dims, widths, strict=True):
                _repeatable(ctx, d, *width)
        shape = tuple(d + before + after for d, (before, after) in zip(t.dims, widths, strict=True))
        if any(upper_bound(d) < 0 for d in shape):
            ctx.fail("pads crop more than there is", expected=t, found=widths)
        return [TensorType(t.dtype, shape, t.layout)]

    def row_axis(self, rows: Rows) -> int | None:
        axis = row_rules.same_extent(self, rows)
        if not _leaves_alone(rows.ctx, rows.first("changes the rows")):
            raise rows.interact("may shift the rows")
        return axis

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """What lies inside constant margins, their sum for the constant; other elements to where they are copies of."""
        g, widths = back.g, self.widths(back.ctx)
        none = [None] * (back.ctx.n_inputs - 1)
        if self.mode != "constant":
            if not back.ctx.tensor(0).is_static or any(isinstance(w, SymDim) for pair in widths for w in pair):
                back.refuse("margins of open sizes", back.ctx.types[0])
            shape = back.ctx.tensor(0).static_shape
            places = np.arange(math.prod(shape)).reshape(shape)
            return [back.scattered(_padded(places, widths, self.mode)), *none]
        if any(isinstance(w, SymDim) for pair in widths for w in pair):
            back.refuse("margins of open widths", widths)
        dx = g.Pad(back.dy, np.array([-pair[i] for i in (0, 1) for pair in widths], np.int64))
        if 2 in back.wanted:
            every = np.arange(back.ctx.rank(0), dtype=np.int64)
            rest = g.Sub(g.ReduceSum(back.dy, every, keepdims=0), g.ReduceSum(dx, every, keepdims=0))
            none[1] = g.Reshape(rest, back.shape_of(2))
        return [dx, *none]


def _padded(places: np.ndarray, widths: Sequence[tuple[Dim, Dim]], mode: str) -> np.ndarray:
    """numpy's padding, where negative widths crop first."""
    for axis, (before, after) in enumerate(widths):
        assert isinstance(before, int) and isinstance(after, int)
        size = places.shape[axis]
        places = places.take(range(max(-before, 0), size - max(-after, 0)), axis)
        grown = [(0, 0)] * places.ndim
        grown[axis] = (max(before, 0), max(after, 0))
        places = np.pad(places, grown, mode=mode)  # type: ignore[call-overload]
    return places


def kept_size(size: Dim, before: Dim, after: Dim) -> Dim:
    """What an axis keeps of `size` elements where negative widths crop it."""
    return size + exact_min(before, 0) + exact_min(after, 0)


def _repeatable(ctx: InferContext, size: Dim, before: Dim, after: Dim) -> None:
    """Sees to it that an axis has an element that a margin can repeat, after what is cropped."""
    margin = exact_max(before, 0) + exact_max(after, 0)
    kept = kept_size(size, before, after)
    if margin == 0 or at_least(kept, 1):
        return
    message = "an empty axis has nothing to repeat"
    if upper_bound(kept) < 1 and lower_bound(margin, 0) > 0:
        ctx.fail(message, found=ctx.types[0])
    wanted = exact_min(margin, 1)
    ctx.equal(wanted * exact_max(exact_min(kept, 1), 0), wanted, message)


def _leaves_alone(ctx: InferContext, axis: int) -> bool:
    """Whether a Pad is known to add nothing along `axis`."""
    pads = ctx.known(1)
    if pads is None:
        return False
    rank, amounts = ctx.rank(0), list(pads.flat)
    given = ctx.known(3)
    axes = list(range(rank)) if not ctx.has(3) else None if given is None else [int(a) % rank for a in given]
    if axes is None or len(amounts) != 2 * len(axes):
        return False
    return axis not in axes or amounts[axes.index(axis)] == 0 == amounts[axes.index(axis) + len(axes)]
