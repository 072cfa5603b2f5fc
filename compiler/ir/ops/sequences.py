"""Operators of sequences and optionals whose length only the run knows. All run on the host.

Where it is known the importer leaves nothing of them (frontend/sequences.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..types import (
    BOOL,
    I64,
    NO_ELEMENT,
    VARYING,
    Dim,
    DType,
    OptionalType,
    SequenceType,
    Shape,
    TensorType,
    Type,
    covering,
    in_sequence,
    parse_type,
)
from .base import Any, Attr, Host, In, Index, InferContext, Mixed, Opt, Strs, Variadic, op


def _sequence(ctx: InferContext, i: int = 0) -> SequenceType:
    found = ctx.types[i]
    if not isinstance(found, SequenceType):
        ctx.fail(f"input {i} must be a sequence", found=found)
    return found


def _tensors(ctx: InferContext, i: int = 0) -> TensorType:
    """The type of a sequence's elements, which must be tensors."""
    elem = _sequence(ctx, i).elem
    if not isinstance(elem, TensorType):
        ctx.fail(f"input {i} must be a sequence of tensors", found=ctx.types[i])
    return elem


def _taken_out(ctx: InferContext, elem: Type) -> Type:
    """The type of an element: a fresh symbol for each size that elements do not share."""
    if not isinstance(elem, TensorType) or elem.shape is None:
        return elem
    if elem.shape == NO_ELEMENT:
        return TensorType(elem.dtype, None)
    dims = (ctx.fresh(f"element_{axis}") if dim == VARYING else dim for axis, dim in enumerate(elem.shape))
    return TensorType(elem.dtype, tuple(dims))


def _check_position(ctx: InferContext, i: int) -> None:
    if ctx.has(i):
        dims = ctx.tensor(i).shape
        if dims is not None and any(isinstance(d, int) and d != 1 for d in dims):
            ctx.fail("the position must be one integer", expected="i32 or i64", found=ctx.types[i])


@op(since=11)
class SequenceConstruct(Host):
    """The operands, in order."""

    elements: Variadic[Mixed]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        elem: Type | None = None
        for i, type_ in enumerate(ctx.types):
            if type_ is None:
                ctx.fail(f"input {i} is missing")
            own = in_sequence(type_)
            elem = own if elem is None else covering(elem, own)
            if elem is None:
                ctx.fail("a sequence's elements must be of one type", expected=ctx.types[0], found=type_)
        assert elem is not None
        return [SequenceType(elem)]


@op(since=11)
class SequenceEmpty(Host):
    """A sequence of no tensors of the element type."""

    dtype: Attr[DType] = DType.from_code(1)

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        return [SequenceType(TensorType(self.dtype, NO_ELEMENT))]


@op(since=11)
class SequenceInsert(Host):
    """The sequence with a tensor before `position`, or at its end."""

    x: In[Mixed]
    tensor: In[Any]
    position: Opt[Index]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        _check_position(ctx, 2)
        joined = covering(_tensors(ctx), in_sequence(ctx.tensor(1)))
        if joined is None:
            ctx.fail("a sequence's tensors must be of one element type", expected=_tensors(ctx), found=ctx.types[1])
        return [SequenceType(joined)]


@op(since=11)
class SequenceErase(Host):
    """The sequence without the element at `position`, or without its last."""

    x: In[Mixed]
    position: Opt[Index]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        _check_position(ctx, 1)
        return [_sequence(ctx)]


@op(since=11)
class SequenceAt(Host):
    """The element at `position`."""

    x: In[Mixed]
    position: In[Index]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        _check_position(ctx, 1)
        return [_taken_out(ctx, _sequence(ctx).elem)]


@op(since=11)
class SequenceLength(Host):
    """How many elements there are."""

    x: In[Mixed]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        _sequence(ctx)
        return [TensorType(I64, ())]


@op(since=11)
class SplitToSequence(Host):
    """Pieces of x along `axis`: of one given size, the last one smaller; of given sizes; or of one row each.

    Without `keepdims`, pieces for which no size is given lose the axis.
    """

    x: In[Any]
    split: Opt[Index]
    axis: Attr[int] = 0
    keepdims: Attr[int] = 1

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        tensor = ctx.tensor(0)
        if tensor.shape is None:
            return [SequenceType(tensor)]
        axis = ctx.axis(self.axis, tensor.rank)
        if ctx.has(1) and ctx.tensor(1).shape is not None and ctx.rank(1) > 1:
            ctx.fail("split must be one integer, or a list of them", found=ctx.types[1])
        before, behind = tensor.dims[:axis], tensor.dims[axis + 1 :]
        if ctx.has(1):
            shape: Shape = (*before, VARYING, *behind)
        else:
            shape = (*before, *((1,) if self.keepdims else ()), *behind)
        return [SequenceType(in_sequence(TensorType(tensor.dtype, shape)))]


@op(since=11)
class ConcatFromSequence(Host):
    """The elements joined along `axis`, a new one on request."""

    x: In[Mixed]
    axis: Attr[int]
    new_axis: Attr[int] = 0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if self.new_axis not in (0, 1):
            ctx.fail("new_axis must be 0 or 1", found=self.new_axis)
        elem = _tensors(ctx)
        if elem.shape is None or elem.shape == NO_ELEMENT:
            return [TensorType(elem.dtype, None)]
        rank = elem.rank + self.new_axis
        if not rank:
            ctx.fail("numbers without an axis can only be joined along a new one", found=ctx.types[0])
        axis = ctx.axis(self.axis, rank)
        dims: list[Dim] = [ctx.fresh(f"joined_{a}") if dim == VARYING else dim for a, dim in enumerate(elem.shape)]
        dims[axis : axis + 1 - self.new_axis] = [ctx.fresh("joined")]
        return [TensorType(elem.dtype, tuple(dims))]


@op(since=15)
class Optional(Host):
    """The operand as an optional, or an empty one of the type."""

    x: Opt[Mixed]
    type: Attr[Strs] = ()

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        if ctx.has(0):
            given = ctx.types[0]
            assert given is not None
            return [OptionalType(in_sequence(given))]
        if len(self.type) != 1:
            ctx.fail("an optional of nothing needs the attribute type")
        return [OptionalType(parse_type(self.type[0]))]


@op(since=15)
class OptionalHasElement(Host):
    """Whether an optional has an element."""

    x: Opt[Mixed]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        return [TensorType(BOOL, ())]


@op(since=15)
class OptionalGetElement(Host):
    """An optional's element."""

    x: In[Mixed]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        given = ctx.types[0]
        if not isinstance(given, OptionalType):
            ctx.fail("input 0 must be an optional", found=given)
        return [_taken_out(ctx, given.elem)]
