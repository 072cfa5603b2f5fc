"""What a function computes once, at its entry: the sizes that `dims` gives, and what is computed of them alone.

A kernel asks for the same size, stride or bound wherever it needs it. Each is computed once, by the function's first
operations, and given again to whoever asks for it: nothing in a function writes `dims`. There it is computed whatever
the function goes on to do, so what is undefined for some sizes stays where it was asked for: a division by one, which
may be 0, or become it where a product of others has more than 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from .loops import KOp, KType, Region


class _Value(Protocol):
    """What a builder makes: a value of a type, a constant where `const` is not None."""

    type: Any
    const: Any


V = TypeVar("V", bound=_Value)

_DIVISIONS = frozenset({"div", "rem", "udiv", "urem"})
_DEFINED = _DIVISIONS | {"add", "sub", "mul", "min", "max", "cmp", "select"}


class Entry(Generic[V]):
    """The first operations of one function's body.

    Attributes:
        sizes: what has been asked for, by a key of whoever asked.
    """

    def __init__(self, body: Region, make: Callable[[KType], V]) -> None:
        """`make`: a new value of a type."""
        self._body, self._make, self._n_ops = body, make, 0
        self._results: dict[tuple[Any, ...], V] = {}
        self._held: dict[int, V] = {}  # by identity: `==` of values is an operation
        self.sizes: dict[Any, V] = {}

    def holds(self, v: V) -> bool:
        """Whether a value is there or is a constant."""
        return v.const is not None or id(v) in self._held

    def takes(self, opcode: str, operands: Sequence[V]) -> bool:
        """Whether an operation may stand there: it reads sizes and constants alone, and is defined for all of them."""
        if opcode not in _DEFINED or all([v.const is not None for v in operands]):
            return False
        if opcode in _DIVISIONS and ((by := operands[1].const) is None or by <= 0):
            return False
        return all(map(self.holds, operands))

    def value(self, opcode: str, operands: Sequence[V], result_type: KType, attrs: Mapping[str, Any]) -> V:
        """The result of an operation that stands there, at most once."""
        uses = tuple((str(v.type), v.const) if v.const is not None else id(v) for v in operands)
        key = (opcode, uses, *attrs.items())
        if key not in self._results:
            result = self._results[key] = self._make(result_type)
            self._held[id(result)] = result
            made = KOp(opcode, tuple(operands), dict(attrs), [])
            made.results.append(result)
            self._body.ops.insert(self._n_ops, made)
            self._n_ops += 1
        return self._results[key]
