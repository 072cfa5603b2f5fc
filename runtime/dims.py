"""Dimension expressions of a manifest: check, evaluate, print. Knows nothing of plans or arrays.

The JSON form is `int | "N" | [op, a, b, ...]` with op one of + * // % max min. A checked expression is the same
thing with tuples for lists, so that it is immutable and hashable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import reduce

from ..errors import CorruptPlan, InvalidInput

Dim = int | str | tuple  # a checked expression
MAX_DEPTH = 64
MAX_NODES = 4096
MAX_INT = 1 << 62

_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": max,
    "min": min,
}
_TWO_OPERANDS = ("//", "%")


def checked_dim(raw: object, symbols: Collection[str], where: str) -> Dim:
    """The immutable form of a JSON dimension.

    Raises:
        CorruptPlan: not an expression of this format, an unknown symbol, or too large.
    """
    budget = [MAX_NODES]
    return _checked(raw, symbols, where, MAX_DEPTH, budget)


def _checked(raw: object, symbols: Collection[str], where: str, depth: int, budget: list[int]) -> Dim:
    budget[0] -= 1
    if depth == 0 or budget[0] < 0:
        raise CorruptPlan("dimension expression too large", where=where)
    if isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) <= MAX_INT:
        return raw
    if isinstance(raw, str) and raw in symbols:
        return raw
    if isinstance(raw, (list, tuple)) and len(raw) >= 3 and isinstance(raw[0], str) and raw[0] in _BINARY:
        if raw[0] in _TWO_OPERANDS and len(raw) != 3:
            raise CorruptPlan("malformed dimension", where=where, expected=f"two operands of {raw[0]}", found=raw)
        return (raw[0], *(_checked(part, symbols, where, depth - 1, budget) for part in raw[1:]))
    expected = "an integer, a symbol or [op, a, b]"
    raise CorruptPlan("malformed dimension", where=where, expected=expected, found=repr(raw)[:80])


def evaluate(dim: Dim, env: Mapping[str, int]) -> int:
    """The value of a checked dimension under values of the symbols.

    Raises:
        InvalidInput: a division by zero (a symbol took a value that the model gives no meaning to).
        KeyError: a symbol without a value.
    """
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        return env[dim]
    try:
        return reduce(_BINARY[dim[0]], [evaluate(part, env) for part in dim[1:]])
    except ZeroDivisionError:
        raise InvalidInput("a dimension divides by zero", where=dim_text(dim), found=dict(env)) from None


def symbols_of(dim: Dim) -> frozenset[str]:
    """The symbols that a checked dimension mentions."""
    if isinstance(dim, int):
        return frozenset()
    if isinstance(dim, str):
        return frozenset((dim,))
    return frozenset().union(*(symbols_of(part) for part in dim[1:]))


def dim_code(dim: Dim, symbols: Mapping[str, str]) -> str | None:
    """A dimension as Python text, with other names for symbols; None where it may divide by zero."""
    if isinstance(dim, int):
        return str(dim)
    if isinstance(dim, str):
        return symbols[dim]
    op, *parts = dim
    texts = [dim_code(part, symbols) for part in parts]
    if None in texts or (op in _TWO_OPERANDS and not (isinstance(parts[1], int) and parts[1])):
        return None
    known = [text for text in texts if text is not None]
    return f"{op}({', '.join(known)})" if op in ("max", "min") else f"({f' {op} '.join(known)})"


def dim_text(dim: Dim) -> str:
    """A dimension as people write it: `2*S+1`."""
    if not isinstance(dim, tuple):
        return str(dim)
    op, *parts = dim
    texts = [dim_text(part) for part in parts]
    if op in ("max", "min"):
        return f"{op}({', '.join(texts)})"
    if op == "+":
        return "+".join(texts).replace("+-", "-")
    compound = [isinstance(part, tuple) and part[0] not in ("max", "min") for part in parts]
    return op.join(f"({t})" if c else t for t, c in zip(texts, compound, strict=True))


def shape_text(shape: tuple[Dim, ...]) -> str:
    """A shape as people write it: `[N,3,224,224]`."""
    return "[" + ",".join(dim_text(dim) for dim in shape) + "]"
