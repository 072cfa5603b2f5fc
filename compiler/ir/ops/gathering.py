"""Elements picked or placed by index: Gather, GatherElements, GatherND, ScatterElements, ScatterND, ReverseSequence.

Indices count from the end where negative. Constant ones are checked when compiling, others by the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

import numpy as np

from ..types import I64, Dim, SymDim, TensorType, dim_max
from . import layout_policies, row_rules, work_rules
from .backward import Backward
from .base import Any, Attr, In, Index, InferContext, Int64, Operator, Rows, op
from .interfaces import IndexRange


def check_indices(ctx: InferContext, i: int, size: Dim, part: int | None = None) -> None:
    """Fails if operand i is a constant with an index beyond an axis of `size`.

    Args:
        part: look only at this position of the operand's last axis (GatherND, ScatterND).
    """
    data = ctx.data(i)
    if data is None or isinstance(size, SymDim):
        return
    indices = data if part is None else data[..., part]
    if indices.size and (indices.min() < -size or indices.max() >= size):
        bad = indices[(indices < -size) | (indices >= size)]
        ctx.fail("index out of range", expected=f"[{-size}, {size})", found=int(bad.reshape(-1)[0]))


def positions(ctx: InferContext, axis: int) -> IndexRange | None:
    """Of operand 1 along an axis of operand 0."""
    if not ctx.rank(0):
        return None
    size = ctx.shape(0)[axis]
    return IndexRange(1, -size, size - 1)


@op(since=13)
class Gather(Operator):
    """Slices of `data` along `axis`, one for each index."""

    data: In[Any]
    indices: In[Index]
    axis: Attr[int] = 0
    layout_policy = layout_policies.AnyOrder(picks=True)
    work = work_rules.looks_up
    fusion_root = False
    picks_elements = True

    def infer(self, ctx: InferContext) -> list[TensorType]:
        shape = ctx.shape(0)
        axis = ctx.axis(self.axis, len(shape))
        check_indices(ctx, 1, shape[axis])
        return [ctx.tensor(0).with_shape((*shape[:axis], *ctx.shape(1), *shape[axis + 1 :]))]

    def known(self, ctx: InferContext) -> np.ndarray | None:
        content, indices = ctx.known(0), ctx.known(1)
        if content is None or indices is None or any(isinstance(i, SymDim) for i in indices.flat):
            return None
        size = content.shape[self.axis]
        if any(not -size <= int(i) < size for i in indices.flat):
            return None
        return np.asarray(content.take(indices.astype(np.int64), self.axis), object)

    def row_axis(self, rows: Rows) -> int:
        data, index = rows.given
        axis = self.axis % rows.ctx.rank(0)
        if data is None and index is not None:
            return axis + index
        if index is None and data is not None and data != axis:
            return data if data < axis else data + rows.ctx.rank(1) - 1
        raise rows.interact("gathers across the rows")

    def index_range(self, ctx: InferContext) -> IndexRange | None:
        return positions(ctx, self.axis)

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """Slices added up where they came from."""
        g, axis = back.g, self.axis % back.ctx.rank(0)
        shape = back.ctx.shape(0)
        zeros = back.zeros(0)
        rank, taken = len(shape), back.ctx.rank(1)
        front = [*range(axis, axis + taken), *range(axis), *range(axis + taken, rank - 1 + taken)]
        first = [axis, *(a for a in range(rank) if a != axis)]
        indices = g.Unsqueeze(g.Cast(back.inputs[1], to=I64), np.array([-1], np.int64))
        rows = g.Transpose(back.dy, perm=front) if front != sorted(front) else back.dy
        if axis == 0:
            return [g.ScatterND(zeros, indices, rows, reduction="add"), None]
        summed = g.ScatterND(g.Transpose(zeros, perm=first), indices, rows, reduction="add")
        return [g.Transpose(summed, perm=[first.index(a) for a in range(rank)]), None]


@op(since=13)
class GatherElements(Operator):
    """y[.., i, ..] = data[.., indices[.., i, ..], ..] along `axis`."""

    data: In[Any]
    indices: In[Index]
    axis: Attr[int] = 0
    row_axis = row_rules.by_elements
    layout_policy = layout_policies.PLAIN
    work = work_rules.looks_up
    fusion_root = False

    def infer(self, ctx: InferContext) -> list[TensorType]:
        axis = check_elements(ctx, self.axis)
        check_indices(ctx, 1, ctx.shape(0)[axis])
        return [ctx.tensor(0).with_shape(ctx.shape(1))]

    def index_range(self, ctx: InferContext) -> IndexRange | None:
        return positions(ctx, self.axis)

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """Elements added up where they came from."""
        g = back.g
        zeros = back.zeros(0)
        return [g.ScatterElements(zeros, back.inputs[1], back.dy, axis=self.axis, reduction="add"), None]


def check_elements(ctx: InferContext, axis: int) -> int:
    """The axis, counted from the front; fails unless indices (operand 1) fit inside data (operand 0) on the others."""
    data, indices = ctx.shape(0), ctx.shape(1)
    axis = ctx.axis(axis, len(data))
    if len(indices) != len(data):
        ctx.fail("indices must have the rank of data", expected=ctx.types[0], found=ctx.types[1])
    for a, (have, want) in enumerate(zip(data, indices, strict=True)):
        if a != axis and isinstance(have, int) and isinstance(want, int) and want > have:
            ctx.fail(f"indices reach beyond dimension {a} of data", expected=f"at most {have}", found=want)
        if a != axis and dim_max(have, want) != have:  # only the run can tell
            message = f"{ctx.where}: indices reach beyond dimension {a} of data"
            ctx.constraints.append((dim_max(have, want), have, message))
    return axis


@op(since=13)
class GatherND(Operator):
    """Slices of `data` at the coordinates in the last axis of `indices`, after `batch_dims` common axes."""

    data: In[Any]
    indices: In[Int64]
    batch_dims: Attr[int] = 0
    layout_policy = layout_policies.PLAIN
    work = work_rules.looks_up
    fusion_root = False

    def infer(self, ctx: InferContext) -> list[TensorType]:
        data, indices, b = ctx.shape(0), ctx.shape(1), self.batch_dims
        if not 0 <= b < min(len(data), len(indices)):
            ctx.fail("batch_dims out of range", expected=f"[0, {min(len(data), len(indices))})", found=b)
        length = coordinates(ctx, len(data) - b)
        batch = tuple(ctx.equal(data[a], indices[a], f"dimension {a} of data and indices must agree") for a in range(b))
        for j in range(length):
            check_indices(ctx, 1, data[b + j], j)
        return [ctx.tensor(0).with_shape((*batch, *indices[b:-1], *data[b + length :]))]

    def row_axis(self, rows: Rows) -> int:
        """Rows among the common axes of data and indices, or of indices into shared data."""
        data, index = rows.given
        common = self.batch_dims
        if index is None or index == rows.ctx.rank(1) - 1 or data != (index if index < common else None):
            raise rows.interact("gathers across the rows")
        return index

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """Slices added up where they came from."""
        if self.batch_dims:
            back.refuse("slices gathered batch by batch", self.batch_dims)
        g = back.g
        zeros = back.zeros(0)
        return [g.ScatterND(zeros, back.inputs[1], back.dy, reduction="add"), None]


def coordinates(ctx: InferContext, rank: int) -> int:
    """The static length of the last axis of operand 1, at most `rank`."""
    if ctx.rank(1) < 1:
        ctx.fail("indices must have an axis at least", found=ctx.types[1])
    length = ctx.shape(1)[-1]
    if isinstance(length, SymDim) or not 0 < length <= rank:
        ctx.fail("wrong number of coordinates in the last axis of indices", expected=f"1 to {rank}", found=length)
    return length


REDUCTIONS = ("none", "add", "mul", "max", "min")


class Scatter(Operator):
    """A copy of `data` with `updates` put, or combined by `reduction`, where `indices` say."""

    data: In[Any]
    layout_policy = layout_policies.PLAIN
    work = work_rules.looks_up
    fusion_root = False

    def check_types(self, ctx: InferContext) -> None:
        """Fails for an unknown reduction."""
        reduction = self.reduction  # type: ignore[attr-defined]
        if reduction not in REDUCTIONS:
            ctx.fail("unknown reduction", expected=", ".join(REDUCTIONS), found=reduction)


@op(since=18)
class ScatterElements(Scatter):
    """y = data; y[.., indices[.., i, ..], ..] = updates[.., i, ..] along `axis`."""

    data: In[Any]
    indices: In[Index]
    updates: In[Any]
    axis: Attr[int] = 0
    reduction: Attr[str] = "none"
    row_axis = row_rules.by_elements

    def infer(self, ctx: InferContext) -> list[TensorType]:
        self.check_types(ctx)
        axis = check_elements(ctx, self.axis)
        check_indices(ctx, 1, ctx.shape(0)[axis])
        if ctx.rank(2) != ctx.rank(1):
            ctx.fail("updates must have the shape of indices", expected=ctx.types[1], found=ctx.types[2])
        for a, (x, y) in enumerate(zip(ctx.shape(1), ctx.shape(2), strict=True)):
            ctx.equal(x, y, f"dimension {a} of indices and updates must agree")
        return [ctx.tensor(0).with_shape(ctx.shape(0))]

    def index_range(self, ctx: InferContext) -> IndexRange | None:
        return positions(ctx, self.axis)

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """What was written over gets nothing, what was written gets what is there. Places are written once (ONNX)."""
        if self.reduction not in ("none", "add"):
            back.refuse("elements that are combined", self.reduction)
        g, dy, indices = back.g, back.dy, back.inputs[1]
        kept = dy
        if self.reduction == "none":
            zeros = back.zeros(2)
            kept = g.ScatterElements(dy, indices, zeros, axis=self.axis)
        return [kept, None, g.GatherElements(dy, indices, axis=self.axis)]


@op(since=18)
class ScatterND(Scatter):
    """y = data; y[coordinates] = update for each row of `indices`; rows go in order."""

    data: In[Any]
    indices: In[Int64]
    updates: In[Any]
    reduction: Attr[str] = "none"
    row_axis = row_rules.unknown

    def infer(self, ctx: InferContext) -> list[TensorType]:
        self.check_types(ctx)
        data, indices, updates = ctx.shape(0), ctx.shape(1), ctx.shape(2)
        length = coordinates(ctx, len(data))
        wanted = (*indices[:-1], *data[length:])
        if len(wanted) != len(updates):
            expected = TensorType(ctx.tensor(2).dtype, wanted)
            ctx.fail("updates have the wrong rank", expected=expected, found=ctx.types[2])
        for a, (x, y) in enumerate(zip(wanted, updates, strict=True)):
            ctx.equal(x, y, f"dimension {a} of updates does not fit indices and data")
        for j in range(length):
            check_indices(ctx, 1, data[j], j)
        return [ctx.tensor(0).with_shape(data)]

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """As ScatterElements, slice by slice."""
        if self.reduction not in ("none", "add"):
            back.refuse("slices that are combined", self.reduction)
        g, dy, indices = back.g, back.dy, back.inputs[1]
        kept = dy
        if self.reduction == "none":
            zeros = back.zeros(2)
            kept = g.ScatterND(dy, indices, zeros)
        return [kept, None, g.GatherND(dy, indices)]


@op(since=10)
class ReverseSequence(Operator):
    """Reverses the first sequence_lens[b] steps of every sequence b; the rest stays."""

    input: In[Any]
    sequence_lens: In[Int64]
    batch_axis: Attr[int] = 1
    time_axis: Attr[int] = 0
    layout_policy = layout_policies.PLAIN
    work = work_rules.moves
    fusion_root = False

    def infer(self, ctx: InferContext) -> list[TensorType]:
        shape = ctx.shape(0)
        batch, time = (ctx.axis(a, len(shape), w) for a, w in ((self.batch_axis, "batch_axis"),
                                                               (self.time_axis, "time_axis")))
        if batch == time:
            ctx.fail("batch_axis and time_axis must differ", found=batch)
        if ctx.rank(1) != 1:
            ctx.fail("sequence_lens must be a vector", found=ctx.types[1])
        ctx.equal(shape[batch], ctx.shape(1)[0], "sequence_lens must have a length for each sequence")
        return [ctx.tensor(0).with_shape(shape)]

    def row_axis(self, rows: Rows) -> int:
        """Rows are the sequences, or an axis that is neither theirs nor the steps'."""
        rank, a = rows.ctx.rank(0), rows.given[0]
        if a is None or a == self.time_axis % rank or rows.given[1] != (0 if a == self.batch_axis % rank else None):
            raise rows.interact("reverses the rows, or rows lack lengths of their own")
        return a

    def index_range(self, ctx: InferContext) -> IndexRange | None:
        return IndexRange(1, 1, ctx.shape(0)[self.time_axis])
