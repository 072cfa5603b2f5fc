"""Names and sizes in the text of step_text.py: variables for values and symbols, constants, dimensions as text.

Owns how a value is named, never the plan's own names: those stand in constants. Knows no step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .dims import Dim, dim_code, symbols_of
from .manifest import Constraint, Symbol, TensorSpec

FIT = 0x101  # numpy's flags: C-contiguous, aligned


class Unwritten(Exception):
    """The text cannot express a plan."""


class Operand(NamedTuple):
    """A value in the text.

    Attributes:
        var: its variable. spec: what it is known to be: fit for native code, of this type and shape; None: anything.
        fresh: native results that it may be, each memory of its own; None: maybe an input, a constant or a view.
    """

    var: str
    spec: TensorSpec | None = None
    fresh: frozenset[str] | None = None


class Names:
    """The variables and constants of one text.

    Attributes:
        constants: what the text's names stand for.
        late: symbols that a run binds, whose variables are None until then. early: those of the inputs' shapes that the
            text computes with.
    """

    def __init__(self, symbols: Sequence[Symbol]) -> None:
        self.constants: dict[str, Any] = {}
        self._texts = {symbol.name: f"s{i}" for i, symbol in enumerate(symbols)}
        self._static = {symbol.name for symbol in symbols if symbol.input is not None}
        self._known: dict[tuple[str, object], str] = {}
        self._count = 0
        self.late = [self._texts[s.name] for s in symbols if s.input is None]
        self._late_names = [s.name for s in symbols if s.input is None]
        self.early: dict[str, str] = {}
        self.constants["now"] = self._now

    def _now(self, values: Mapping[str, int], *found: int | None) -> dict[str, int]:
        """All symbols' values at some place."""
        late = {name: value for name, value in zip(self._late_names, found, strict=True) if value is not None}
        return {**values, **late}

    def new(self, prefix: str) -> str:
        """A name that nothing has."""
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, thing: object, key: object = None) -> str:
        """The name of something that the text uses; of one key, one name."""
        known = None if key is None else (type(thing).__name__, key)
        if known is not None and known in self._known:
            return self._known[known]
        name = self.new("c")
        self.constants[name] = thing
        if known is not None:
            self._known[known] = name
        return name

    def symbol(self, name: str) -> str:
        """The variable of a symbol."""
        if name in self._static:
            self.early[self._texts[name]] = name
        return self._texts[name]

    def is_static(self, dims: Iterable[Dim]) -> bool:
        """Whether the inputs' shapes alone decide."""
        return symbols_of(("+", *dims, 0, 0)) <= self._static

    def holds_always(self, constraint: Constraint) -> bool:
        """Whether a constraint is about the inputs' shapes alone, so that it is checked once."""
        return self.is_static((constraint.left, constraint.right))

    @property
    def values(self) -> str:
        """The text of all symbols' values."""
        return f"now({', '.join(['values', *self.late])})" if self.late else "values"

    def dim(self, dim: Dim) -> str:
        """A dimension's text."""
        text = dim_code(dim, {name: self.symbol(name) for name in symbols_of(dim)})
        return text if text is not None else f"evaluate({self.constant(dim, ('dim', dim))}, {self.values})"

    def shape(self, dims: Sequence[Dim]) -> str:
        """A shape's text, which checks nothing."""
        return "(" + "".join(self.dim(dim) + ", " for dim in dims) + ")"

    def agree(self, found: TensorSpec | None, wanted: TensorSpec | None) -> bool:
        """Whether what is known of a value is all that a place wants."""
        if wanted is None or not wanted.is_tensor:
            return True
        if found is None or found.dtype != wanted.dtype:
            return False
        return wanted.dims is None or (found.dims == wanted.dims and self.is_static(wanted.dims))


def joint(operands: Collection[Operand]) -> frozenset[str] | None:
    """The native results that one of several values may be."""
    found: frozenset[str] = frozenset()
    for operand in operands:
        if operand.fresh is None:
            return None
        found |= operand.fresh
    return found


def are_apart(operands: Sequence[Operand]) -> bool:
    """Whether values are memory of their own, each another."""
    seen: set[str] = set()
    for operand in operands:
        if operand.fresh is None or seen & operand.fresh:
            return False
        seen |= operand.fresh
    return True


def tuple_text(items: Iterable[str]) -> str:
    """Python's text of a tuple."""
    return "(" + "".join(f"{item}, " for item in items) + ")"
