"""Operators on shapes: Reshape, Transpose, Shape, Flatten, Squeeze, Unsqueeze, Concat."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import product
from typing import Any as PyAny

import numpy as np

from ..types import (
    I64,
    Dim,
    SymDim,
    TensorType,
    evaluate,
    exact_max,
    exact_min,
    is_found,
    lower_bound,
    prod,
    symbols_of,
)
from ..types import Shape as Dims
from . import layout_policies, row_rules, work_rules
from .backward import Backward
from .base import Any, Attr, In, InferContext, Int64, Ints, Movement, Operator, Opt, Rows, Variadic, op
from .context import known_sizes

MAX_TRIED_SYMBOLS = 5
"""With so many symbols or fewer, all patterns of zeros are tried."""


class View(Movement):
    """A movement that leaves the row-major bytes as they are; derived classes give the new shape."""

    is_view = True
    row_axis = row_rules.reshaped
    layout_policy = layout_policies.Reinterpreted()

    @abstractmethod
    def view_shape(self, ctx: InferContext) -> Dims:
        """Shape of the output."""
        raise NotImplementedError(f"{self.name}.view_shape")

    def infer(self, ctx: InferContext) -> list[TensorType]:
        return [ctx.tensor(0).with_shape(self.view_shape(ctx))]

    def known(self, ctx: InferContext) -> np.ndarray | None:
        content = ctx.known(0)
        sizes = None if content is None else known_sizes(self.view_shape(ctx))
        return None if content is None or sizes is None else content.reshape(sizes)

    def index_map(self, ctx: InferContext, index: Sequence[PyAny]) -> list[PyAny]:
        linear: PyAny = 0
        for position, dim in zip(index, self.view_shape(ctx), strict=True):
            linear = linear * dim + position
        source: list[PyAny] = []
        for dim in reversed(ctx.shape(0)[1:]):
            source.insert(0, linear % dim)
            linear = linear // dim
        return [linear, *source] if ctx.rank(0) else []


@op(since=14)
class Reshape(View):
    """The same elements in another shape; -1 = what is left, 0 = the input's dimension (unless `allowzero`)."""

    data: In[Any]
    shape: In[Int64]
    allowzero: Attr[int] = 0
    shape_operand = 1

    def view_shape(self, ctx: InferContext) -> Dims:
        source = ctx.shape(0)
        if ctx.rank(1) != 1:
            ctx.fail("shape must be a vector", found=ctx.types[1])
        target = ctx.dims(1, "shape")
        if not self.allowzero:
            _refuse_other_copies(ctx, source, target)
        for i, dim in enumerate(target):
            if dim == 0 and not self.allowzero:
                if i >= len(source):
                    ctx.fail("0 in shape has no input dimension to copy", expected=f"rank > {i}", found=ctx.types[0])
                target[i] = source[i]
        wild = [i for i, dim in enumerate(target) if dim == -1]
        if len(wild) > 1 or any(isinstance(d, int) and d < -1 for d in target):
            ctx.fail("malformed shape", expected="one -1 at most, else dimensions >= 0", found=target)
        total, rest = prod(source), prod(d for d in target if d != -1)
        if wild:
            target[wild[0]] = _what_is_left(ctx, total, rest)
        else:
            ctx.equal(total, rest, "reshape changes the number of elements")
        return tuple(target)


def _refuse_other_copies(ctx: InferContext, source: Dims, target: Sequence[Dim]) -> None:
    """Constrains the symbols where an entry of the shape that is 0 at run time copies another dimension than a 0.

    The shape is taken for the result's; ONNX reads x[2,B,0] to [B,2,0] for B = 0 as [2,2,0] instead. What is no valid
    Reshape when the dimension is copied, x[1,B,4] to [B,4], is left to have no elements.
    """
    copies = [(i, d) for i, d in enumerate(target)
              if isinstance(d, SymDim) and i < len(source) and d != source[i] and lower_bound(d, 0) < 1]
    if not copies:
        return
    copied = [source[i] if i < len(source) and d == 0 else d for i, d in enumerate(target)]
    differs: Dim = 0
    for i, d in copies:
        is_zero = 1 - exact_min(d, 1)
        copied[i] = d + is_zero * source[i]
        differs = differs + is_zero * exact_min(source[i], 1)
    # 1 or 0 each; a product of minima, so that a factor min(N,1) says by itself that only an N of 0 matters
    others = prod(exact_min(d, 1) for d in copied if d != -1)
    refused = (others if -1 in copied else 1 - others) * differs
    if _is_ever_nonzero(refused, [*source, *target]):
        ctx.equal(refused, 0, "a 0 in shape copies a dimension of the input that is not 0")


def _is_ever_nonzero(dim: Dim, sizes: Sequence[Dim]) -> bool:
    """Whether `dim`, which knows of sizes only whether they are 0, can be something else; True if in doubt."""
    names = sorted(symbols_of(sizes))
    plain = all(coef > 0 and all(atom.op == "sym" for atom in mono)
                for d in sizes if isinstance(d, SymDim) for mono, coef in d.terms)
    if isinstance(dim, int) or not plain or len(names) > MAX_TRIED_SYMBOLS:
        return dim != 0
    tried = product(range(2), repeat=len(names))
    return any(evaluate(dim, dict(zip(names, values, strict=True))) for values in tried)


def _what_is_left(ctx: InferContext, total: Dim, rest: Dim) -> Dim:
    if rest == 0:
        ctx.fail("-1 in shape is ambiguous beside a 0 dimension")
    left = total % rest
    if isinstance(left, SymDim):
        ctx.equal(left, 0, "elements do not divide evenly")
    elif left:
        ctx.fail("elements do not divide evenly", expected=f"a multiple of {rest}", found=total)
    return total // rest


@op(since=13)
class Flatten(View):
    """A matrix: dimensions before `axis` times those from it on."""

    x: In[Any]
    axis: Attr[int] = 1

    def view_shape(self, ctx: InferContext) -> Dims:
        shape = ctx.shape(0)
        if not -len(shape) <= self.axis <= len(shape):
            ctx.fail("axis out of range", expected=f"[{-len(shape)}, {len(shape)}]", found=self.axis)
        axis = self.axis + len(shape) if self.axis < 0 else self.axis
        return (prod(shape[:axis]), prod(shape[axis:]))


@op(since=13)
class Squeeze(View):
    """Drops dimensions of 1: the given axes, or all that are statically 1, where a run may bring no others."""

    data: In[Any]
    axes: Opt[Int64]

    def view_shape(self, ctx: InferContext) -> Dims:
        shape = ctx.shape(0)
        if not ctx.has(1):
            if any(map(is_found, symbols_of(shape))):  # a size that only the data decide may well be 1
                ctx.unsupported("axes must be given where sizes depend on the data", ctx.types[0])
            for d in shape:
                if isinstance(d, SymDim) and lower_bound(d, 0) < 2:
                    is_other = exact_min(exact_max(d - 1, 0), 1) + exact_max(1 - d, 0)
                    ctx.equal(is_other, 1, f"without axes, {d} would be dropped where it is 1: fix it when compiling")
            return tuple(d for d in shape if d != 1)
        axes = ctx.axes(ctx.ints(1, "axes"), len(shape))
        for a in axes:
            ctx.equal(shape[a], 1, f"squeezed dimension {a} must be 1")
        return tuple(d for i, d in enumerate(shape) if i not in axes)


@op(since=13)
class Unsqueeze(View):
    """Inserts dimensions of 1 so that they stand at the given axes of the output."""

    data: In[Any]
    axes: In[Int64]

    def view_shape(self, ctx: InferContext) -> Dims:
        shape = ctx.shape(0)
        axes = ctx.ints(1, "axes")
        positions = ctx.axes(axes, len(shape) + len(axes))
        rest = iter(shape)
        return tuple(1 if i in positions else next(rest) for i in range(len(shape) + len(axes)))


@op(since=13)
class Transpose(Movement):
    """Axes in the order `perm` (reversed by default)."""

    data: In[Any]
    perm: Attr[Ints | None] = None
    layout_policy = layout_policies.Permuted()

    def order(self, rank: int) -> Ints:
        """`perm`, resolved for a tensor of this rank."""
        return self.perm if self.perm is not None else tuple(reversed(range(rank)))

    def infer(self, ctx: InferContext) -> list[TensorType]:
        shape = ctx.shape(0)
        order = self.order(len(shape))
        if sorted(order) != list(range(len(shape))):
            ctx.fail("perm is no permutation of the axes", expected=f"rank {len(shape)}", found=list(order))
        return [ctx.tensor(0).with_shape(tuple(shape[a] for a in order))]

    def known(self, ctx: InferContext) -> np.ndarray | None:
        content = ctx.known(0)
        return None if content is None else content.transpose(self.order(ctx.rank(0)))

    def index_map(self, ctx: InferContext, index: Sequence[PyAny]) -> list[PyAny]:
        order = self.order(ctx.rank(0))
        return [index[order.index(axis)] for axis in range(len(order))]

    def row_axis(self, rows: Rows) -> int:
        assert rows.given[0] is not None
        return list(self.order(rows.ctx.rank(0))).index(rows.given[0])

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """Transposed back."""
        order = self.order(back.ctx.rank(0))
        return [back.g.Transpose(back.dy, perm=[order.index(axis) for axis in range(len(order))])]


@op(since=15)
class Shape(Operator):
    """Dimensions [start, end) of the input as i64; its content is always known."""

    data: In[Any]
    start: Attr[int] = 0
    end: Attr[int | None] = None
    row_axis = row_rules.unknown
    layout_policy = layout_policies.PLAIN
    work = work_rules.writes_sizes
    fusion_root = False

    def _dims(self, ctx: InferContext) -> Dims:
        return ctx.shape(0)[slice(self.start, self.end)]

    def infer(self, ctx: InferContext) -> list[TensorType]:
        return [TensorType(I64, (len(self._dims(ctx)),))]

    def known(self, ctx: InferContext) -> np.ndarray:
        return np.array(self._dims(ctx), object)


@op(since=13)
class Concat(Movement):
    """The inputs one after the other along `axis`."""

    inputs: Variadic[Any]
    axis: Attr[int]
    layout_policy = layout_policies.AnyOrder(like_result=True)

    def infer(self, ctx: InferContext) -> list[TensorType]:
        first = list(ctx.shape(0))
        axis = ctx.axis(self.axis, len(first))
        for i in range(1, ctx.n_inputs):
            shape = ctx.shape(i)
            if len(shape) != len(first):
                ctx.fail("inputs must have equal ranks", expected=ctx.types[0], found=ctx.types[i])
            for a, dim in enumerate(shape):
                message = f"dimension {a} of input {i} must be that of input 0"
                first[a] = first[a] + dim if a == axis else ctx.equal(first[a], dim, message)
        return [ctx.tensor(0).with_shape(tuple(first))]

    def known(self, ctx: InferContext) -> np.ndarray | None:
        contents = [ctx.known(i) for i in range(ctx.n_inputs)]
        present = [c for c in contents if c is not None]
        return np.concatenate(present, self.axis) if len(present) == len(contents) else None

    def row_axis(self, rows: Rows) -> int | None:
        axis, rank = row_rules.along_axis(self, rows), rows.ctx.rank(0)
        if any(a is None and rows.ctx.rank(i) == rank for i, a in enumerate(rows.given)):
            raise rows.interact("joins rows with a shared operand")
        return axis

    def gradient(self, back: Backward) -> Sequence[PyAny]:
        """The parts."""
        g, axis = back.g, np.array([self.axis], np.int64)
        dims = [back.ctx.shape(i)[self.axis] for i in range(back.ctx.n_inputs)]
        if all(isinstance(d, int) for d in dims):
            sizes = np.array(dims, np.int64)
        else:
            sizes = g.Concat(*(g.Gather(g.Shape(x), axis) for x in back.inputs), axis=0)
        parts = g.Split(back.dy, sizes, axis=self.axis, n_outputs=back.ctx.n_inputs)
        return parts if isinstance(parts, list) else [parts]
