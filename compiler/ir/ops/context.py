"""What an operator may look at while its output types are inferred. Knows types and values, not how graphs are kept."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ....errors import InvalidModel, UnsupportedOp
from ..types import (
    Dim,
    DType,
    Shape,
    SymDim,
    TensorType,
    Type,
    at_least,
    exact_max,
    exact_min,
    is_one_or_empty,
    lower_bound,
    prod,
    symbol,
    upper_bound,
)
from ..types import shape_text as _shape_text

KNOWN_LIMIT = 1024
"""Integer contents of tensors with more elements than this are not tracked."""

MOST_WRITTEN = 1 << 62
"""Manifests have no larger numbers."""

Constraint = tuple[Dim, Dim, str]


def known_sizes(shape: Shape) -> tuple[int, ...] | None:
    """A shape that content can be known of: numbers alone (a product of 0 may have symbols beside the 0), and small."""
    sizes = tuple(d for d in shape if isinstance(d, int))
    return sizes if len(sizes) == len(shape) and math.prod(d for d in sizes if d) <= KNOWN_LIMIT else None


class InferContext:
    """Operands of one node: `types[i]`, `known(i)`, `data(i)` (None where omitted or unknown), bodies, constraints."""

    def __init__(
        self,
        where: str,
        values: Sequence[Any],
        n_outputs: int,
        bodies: Mapping[str, Any] | None = None,
        expand: Callable[[Any, InferContext], list[Any]] | None = None,
        scope: str = "",
    ) -> None:
        """`values`: objects with .type, .known and .data, or None; `expand` infers a Composite (see graph.py).

        `scope` is unique to the node and makes the names of its fresh symbols.
        """
        self.where, self.n_outputs, self.bodies = where, n_outputs, dict(bodies or {})
        self.scope = scope
        self.fresh_symbols: set[str] = set()
        self._values = values
        self._expand = expand
        self._expansion: list[Any] | None = None
        self.types: list[Type | None] = [None if v is None else v.type for v in values]
        self.constraints: list[Constraint] = []

    @property
    def n_inputs(self) -> int:
        return len(self._values)

    def has(self, i: int) -> bool:
        """True iff operand i is given."""
        return i < len(self._values) and self._values[i] is not None

    def known(self, i: int) -> np.ndarray | None:
        """Integer (or symbolic) content of operand i: object array of Dims, None if unknown."""
        return self._values[i].known if self.has(i) else None

    def data(self, i: int) -> np.ndarray | None:
        """Content of operand i if it is a constant."""
        return self._values[i].data if self.has(i) else None

    def value(self, i: int) -> Any:
        """The operand itself (None if omitted)."""
        return self._values[i] if self.has(i) else None

    def tensor(self, i: int) -> TensorType:
        """Type of operand i, which must be a tensor."""
        type_ = self.types[i] if i < len(self.types) else None
        if not isinstance(type_, TensorType):
            self.fail(f"input {i} must be a tensor", found=type_)
        return type_

    def shape(self, i: int) -> Shape:
        """Shape of operand i, whose rank must be known."""
        tensor = self.tensor(i)
        if tensor.shape is None:
            self.unsupported(f"rank of input {i} is unknown", hint="give the input's shape with --shape")
        return tensor.shape

    def rank(self, i: int) -> int:
        return len(self.shape(i))

    def dims(self, i: int, what: str) -> list[Dim]:
        """Known content of the 1-D (or scalar) integer operand i; unsupported if it is not known at compile time."""
        known = self.known(i)
        if known is None or not self.is_exact(i):
            self.unsupported(f"{what} must be known at compile time", self.types[i] if self.has(i) else "nothing")
        return list(known.ravel())

    def ints(self, i: int, what: str) -> list[int]:
        """As `dims`, but the content must be plain integers."""
        dims = self.dims(i, what)
        numbers = [int(d) for d in dims if not isinstance(d, SymDim)]
        if len(numbers) != len(dims):
            self.unsupported(f"{what} must not depend on a symbolic dimension", _shape_text(tuple(dims)))
        return numbers

    def fail(self, message: str, expected: object = None, found: object = None, hint: str | None = None) -> NoReturn:
        """Raises InvalidModel that names the node."""
        raise InvalidModel(message, where=self.where, expected=expected, found=found, hint=hint)

    def unsupported(self, message: str, found: object = None, hint: str | None = None) -> NoReturn:
        """Raises UnsupportedOp that names the node: the model is sound, but parax needs to know more of it."""
        raise UnsupportedOp(message, where=self.where, found=found, hint=hint)

    def axis(self, axis: int, rank: int, what: str = "axis") -> int:
        """`axis` counted from the front, in [0, rank)."""
        if not -rank <= axis < rank:
            self.fail(f"{what} out of range", expected=f"[{-rank}, {rank})", found=axis)
        return axis + rank if axis < 0 else axis

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Axes counted from the front, in the given order, without duplicates."""
        resolved = tuple(self.axis(a, rank) for a in axes)
        if len(set(resolved)) != len(resolved):
            self.fail("duplicate axes", found=list(axes))
        return resolved

    def equal(self, a: Dim, b: Dim, message: str) -> Dim:
        """The common value of two dims that must agree: an int if one is; else the first.

        Fails if they can never agree; what only the run can tell becomes a constraint of the graph.
        """
        if a == b:
            return a
        difference = a - b
        never = lower_bound(difference) > 0 or upper_bound(difference) < 0
        if never and not (0 in (a, b) and isinstance(difference, SymDim)):  # a symbol may be 0
            self.fail(message, expected=a, found=b)
        self.constraints.append((a, b, f"{self.where}: {message}"))
        return b if isinstance(b, int) else a

    def require_elements(self, axes: Shape, result: Shape, message: str) -> None:
        """Sees to it that none of the axes is empty where the result is not.

        Symbols of inputs are noted (`noting_positive`); a size that only a run finds becomes a constraint.
        """
        if 0 in axes and 0 not in result:
            self.fail(message, found=self.types[0])
        for dim in axes:
            if dim != 0 and not at_least(dim, 1):
                wanted = prod(exact_min(d, 1) for d in result)
                self.equal(wanted * exact_min(dim, 1), wanted, message)

    def hold(self, content: np.ndarray, dtype: DType) -> None:
        """Constrains the symbols in a known content to sizes for which the element type holds it."""
        low, high = (min(max(bound, -MOST_WRITTEN), MOST_WRITTEN) for bound in dtype.whole_range)
        for dim in content.flat:
            if isinstance(dim, SymDim):
                clamped = exact_max(exact_min(dim, high), low)
                if clamped != dim:
                    message = f"{self.where}: {dim}, computed in {dtype}, must lie between {low} and {high}"
                    self.constraints.append((clamped, dim, message))

    def is_exact(self, i: int) -> bool:
        """Whether what is known of operand i is what a run gives, and not rounded; asked where floats become sizes.

        Constrains the symbols in it and in all floats that it was computed of, which are otherwise free: a run may
        well round a size that it only divides by. False where nothing tells what it was computed of.
        """
        pending, seen = [self._values[i]] if self.has(i) else [], set()
        while pending:
            value = pending.pop()
            if value in seen or not _has_rounded_sizes(value):
                continue
            if value.producer is None:
                return False
            self.hold(value.known, value.type.dtype)
            seen.add(value)
            pending += value.producer.operands
        return True

    def broadcast(self, *shapes: Shape) -> Shape:
        """The numpy broadcast of shapes: 1 gives way; a symbol must equal other symbols and ints > 1 at run time."""
        rank = max((len(s) for s in shapes), default=0)
        out: list[Dim] = [1] * rank
        for shape in shapes:
            for i, dim in enumerate(shape, rank - len(shape)):
                if out[i] == 1:
                    out[i] = dim
                elif dim != 1 and dim != out[i]:
                    out[i] = self._broadcast_dim(out[i], dim, shapes)
        return tuple(out)

    def _broadcast_dim(self, a: Dim, b: Dim, shapes: Sequence[Shape]) -> Dim:
        shown = " and ".join(_shape_text(s) for s in shapes)
        if isinstance(a, int) and isinstance(b, int):
            self.fail("shapes do not broadcast", expected="equal dimensions or 1", found=shown)
        if is_one_or_empty(a) or is_one_or_empty(b):  # kernels must know which it is
            self.unsupported("a dimension that a run may find to be 0 or 1 broadcasts", shown)
        return self.equal(a, b, f"shapes {shown} do not broadcast")

    def fresh(self, hint: str) -> SymDim:
        """A new symbol for a size that only the data decide, e.g. `NonZero.7`; the same on every inference."""
        return self.fresh_as(re.sub(r"[^A-Za-z0-9_.]", "_", f"{hint}.{self.scope}"))

    def fresh_as(self, name: str) -> SymDim:
        """The symbol of that name, for a size that only the data decide: of what the node does in another's place."""
        self.fresh_symbols.add(name)
        return symbol(name)

    def expansion(self, op: Any) -> list[Any]:
        """Output values of a Composite's expansion in a scratch graph, built once."""
        if self._expansion is None:
            assert self._expand is not None
            self._expansion = self._expand(op, self)
        return self._expansion


def _has_rounded_sizes(value: Any) -> bool:
    return (
        isinstance(value.type, TensorType)
        and value.type.dtype.is_float
        and value.known is not None
        and any(isinstance(d, SymDim) for d in value.known.flat)
    )
