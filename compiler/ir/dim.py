"""Symbolic dimensions: integers or canonical polynomials over named symbols. Knows nothing of tensors or graphs.

A `SymDim` is a sum of monomials with integer coefficients. A monomial multiplies atoms: symbols such as `N`, and the
opaque results of floor division, modulo, max and min of polynomials. Equal polynomials have equal representations, so
`==` and `hash` are structural.

Symbols stand for sizes. What is decided here (`at_least`, and what simplifies by it) holds for symbols >= 1; where it
would not for a symbol of 0, that symbol is noted with whoever asks (`noting_positive`), and a run must not give it 0.
Of a size that only a run finds (`is_found`), as NonZero's, nobody can see to that: it is taken to be >= 0, and what
does not hold at 0 stays undecided (unless `taking_found_as_positive`). Nor may a run give a symbol more than
`MAX_SYMBOL`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from math import gcd, inf
from typing import Any, Union, overload

from ...errors import InvalidModel, ResourceLimit

Dim = Union[int, "SymDim"]
MAX_TERMS = 512
"""A polynomial with more terms than this is refused (ResourceLimit): real models stay below ten."""
MAX_COEFFICIENT = 1 << 128
"""So is one with a larger coefficient."""
MAX_DIVISOR = 1 << 62
"""Of nested floors that become one: kernels and plans have 64 bits."""
MAX_SYMBOL = 1 << 46
"""A run refuses a larger value of a symbol: no memory holds so many elements."""
_FAR = 1 << 200

NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
RESERVED = frozenset({"floor", "mod", "max", "min"})


def is_found(symbol: str) -> bool:
    """Whether a run finds that size while it goes on: its name has a dot, which no symbol of an input has."""
    return "." in symbol


class Atom:
    """A symbol (`op == "sym"`, one str argument) or an opaque `//`, `%`, `max`, `min` of two dims."""

    __slots__ = ("_hash", "args", "key", "op")

    def __init__(self, op: str, args: tuple[Any, ...]) -> None:
        self.op, self.args = op, args
        self.key = args[0] if op == "sym" else f"~{op}({args[0]},{args[1]})"
        self._hash = hash((op, self.key))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.op == other.op and self.args == other.args

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        if self.op == "sym":
            return str(self.args[0])
        if self.op == "//":
            return f"floor({_operand(self.args[0])}/{_operand(self.args[1])})"
        return f"{'mod' if self.op == '%' else self.op}({self.args[0]},{self.args[1]})"


# A monomial is a tuple of atoms sorted by key, repeated for powers; () is the constant term.
Monomial = tuple[Atom, ...]


def _monomial_key(mono: Monomial) -> tuple[int, tuple[str, ...]]:
    return (-len(mono), tuple(a.key for a in mono))


class SymDim:
    """An immutable non-constant integer polynomial; build it with `symbol`, `parse_dim` or operators."""

    __slots__ = ("_hash", "_symbols", "_text", "terms")
    terms: tuple[tuple[Monomial, int], ...]
    _hash: int
    _symbols: frozenset[str] | None
    _text: str | None

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        object.__setattr__(self, "terms", terms)
        object.__setattr__(self, "_hash", hash(terms))
        object.__setattr__(self, "_text", None)
        object.__setattr__(self, "_symbols", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("SymDim is immutable")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymDim) and (self is other or self.terms == other.terms)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        if self._text is None:
            object.__setattr__(self, "_text", _text(self))
        return str(self._text)

    def __repr__(self) -> str:
        return f"SymDim({str(self)!r})"

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of the symbolic dimension {self} is unknown at compile time")

    def __add__(self, other: Dim) -> Dim:
        return _sum(self, other, 1) if isinstance(other, (int, SymDim)) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return _sum(self, other, -1) if isinstance(other, (int, SymDim)) else NotImplemented

    def __rsub__(self, other: Dim) -> Dim:
        return _sum(other, self, -1) if isinstance(other, (int, SymDim)) else NotImplemented

    def __neg__(self) -> Dim:
        return SymDim(tuple((m, -c) for m, c in self.terms))

    def __mul__(self, other: Dim) -> Dim:
        return _product(self, other) if isinstance(other, (int, SymDim)) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floor_div(self, other) if isinstance(other, (int, SymDim)) else NotImplemented

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floor_div(other, self) if isinstance(other, (int, SymDim)) else NotImplemented

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other) if isinstance(other, (int, SymDim)) else NotImplemented

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self) if isinstance(other, (int, SymDim)) else NotImplemented

    @property
    def factor(self) -> int:
        """The largest number that divides it whatever the symbols are: of its polynomial's coefficients."""
        return gcd(*(coefficient for _, coefficient in self.terms))

    def symbols(self) -> frozenset[str]:
        """Names of all symbols in the polynomial."""
        if self._symbols is None:
            object.__setattr__(self, "_symbols", self._find_symbols())
        assert self._symbols is not None
        return self._symbols

    def _find_symbols(self) -> frozenset[str]:
        found: set[str] = set()
        for mono, _ in self.terms:
            for atom in mono:
                if atom.op == "sym":
                    found.add(atom.args[0])
                else:
                    found.update(*(a.symbols() for a in atom.args if isinstance(a, SymDim)))
        return frozenset(found)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The integer value for given symbols. Raises KeyError if one is missing."""
        result = self.substitute({name: values[name] for name in self.symbols()})
        assert isinstance(result, int)
        return result

    def substitute(self, values: Mapping[str, Dim]) -> Dim:
        """The polynomial with some symbols replaced by dims."""
        total: Dim = 0
        for mono, coef in self.terms:
            part: Dim = coef
            for atom in mono:
                part = part * _substitute_atom(atom, values)
            total = total + part
        return total

    def to_json(self) -> Any:
        """JSON form: int | "N" | [op, a, b, ...] with op one of + * // % max min."""
        parts = []
        for mono, coef in self.terms:
            factors: list[Any] = [] if coef == 1 and mono else [coef]
            factors += [a.args[0] if a.op == "sym" else [a.op, *map(dim_to_json, a.args)] for a in mono]
            parts.append(factors[0] if len(factors) == 1 else ["*", *factors])
        return parts[0] if len(parts) == 1 else ["+", *parts]


def symbol(name: str) -> SymDim:
    """The symbol `name` (letters, digits, `_`, `.`; not starting with a digit). Raises InvalidModel otherwise."""
    if not NAME_PATTERN.match(name) or name in RESERVED:
        raise InvalidModel("malformed name of a symbolic dimension", expected="an identifier", found=repr(name))
    return SymDim((((Atom("sym", (name,)),), 1),))


def _from_terms(terms: Mapping[Monomial, int]) -> Dim:
    kept = [(m, c) for m, c in terms.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    if len(kept) > MAX_TERMS:
        raise ResourceLimit("symbolic dimension too large", expected=f"at most {MAX_TERMS} terms", found=len(kept))
    if any(abs(c) > MAX_COEFFICIENT for _, c in kept):
        raise ResourceLimit("symbolic dimension too large", expected="coefficients up to 2**128")
    kept.sort(key=lambda t: _monomial_key(t[0]))
    return SymDim(tuple(kept))


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    return dim.terms if isinstance(dim, SymDim) else (((), int(dim)),)


def _sum(a: Dim, b: Dim, sign: int) -> Dim:
    out = dict(_terms(a))
    for mono, coef in _terms(b):
        out[mono] = out.get(mono, 0) + sign * coef
    return _from_terms(out)


def _product(a: Dim, b: Dim) -> Dim:
    out: dict[Monomial, int] = {}
    for mono_a, coef_a in _terms(a):
        for mono_b, coef_b in _terms(b):
            mono = tuple(sorted(mono_a + mono_b, key=lambda atom: atom.key))
            out[mono] = out.get(mono, 0) + coef_a * coef_b
    return _from_terms(out)


def _atom(op: str, a: Dim, b: Dim) -> SymDim:
    return SymDim((((Atom(op, (a, b)),), 1),))


def _substitute_atom(atom: Atom, values: Mapping[str, Dim]) -> Dim:
    if atom.op == "sym":
        name = atom.args[0]
        return values[name] if name in values else SymDim((((atom,), 1),))
    return APPLY[atom.op](*(substitute(a, values) for a in atom.args))


def _divide_monomial(mono: Monomial, by: Monomial) -> Monomial | None:
    rest = list(mono)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _split_multiple(p: Dim, q: Dim) -> tuple[Dim, Dim]:
    """(A, R) with p == q*A + R and R as small as the division of leading terms makes it; exact for any values."""
    if isinstance(q, int):
        whole = {m: c // q for m, c in _terms(p)}
        return _from_terms(whole), _from_terms({m: c % q for m, c in _terms(p)})
    lead, lead_coef = q.terms[0]
    quotient: Dim = 0
    rest: dict[Monomial, int] = {}
    todo = dict(_terms(p))
    for _ in range(MAX_TERMS):
        if not todo:
            break
        mono = min(todo, key=_monomial_key)
        coef = todo.pop(mono)
        over = _divide_monomial(mono, lead)
        if over is None or coef % lead_coef or not coef:
            rest[mono] = rest.get(mono, 0) + coef
            continue
        part = _from_terms({over: coef // lead_coef})
        quotient = quotient + part
        for m, c in _terms(_sum(part * q, _from_terms({mono: coef}), -1)):
            todo[m] = todo.get(m, 0) - c
    for m, c in todo.items():
        rest[m] = rest.get(m, 0) + c
    remainder = _from_terms(rest)
    if len(q.terms) > 1 and remainder != 0:
        return 0, p  # only exact division by a true polynomial makes the result simpler
    return quotient, remainder


@overload
def floor_div(a: int, b: int) -> int: ...
@overload
def floor_div(a: Dim, b: Dim) -> Dim: ...
def floor_div(a: Dim, b: Dim) -> Dim:
    """floor(a / b), rounding towards minus infinity as Python's `//`. Raises ZeroDivisionError for b == 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if isinstance(b, int) and b < 0:
        return floor_div(-a, -b)
    if isinstance(b, int) and b == 0:
        raise ZeroDivisionError("symbolic dimension divided by zero")
    whole, rest = _split_multiple(a, b)
    if isinstance(rest, int):
        if rest == 0 or (isinstance(b, int) and 0 <= rest < b) or (rest > 0 and at_least(b, rest + 1)):
            return whole
        if rest < 0 and at_least(b, -rest):
            return whole - 1
        return whole + _atom("//", rest, b)
    if isinstance(b, SymDim):
        if at_least(b - rest, 1) and at_least(rest, 0):
            return whole
        top, bottom = _cancel_common(rest, b)
        return whole + (_atom("//", rest, b) if bottom == b else floor_div(top, bottom))
    return whole + _floor_by_int(rest, b)


def _cancel_common(p: SymDim, q: SymDim) -> tuple[Dim, Dim]:
    """p and q without the integer and the symbols (never 0) that divide every term of both."""
    everything = p.terms + q.terms
    common = gcd(*(c for _, c in everything))
    shared = [a for a in everything[0][0] if a.op == "sym"]
    for mono, _ in everything[1:]:
        left = list(mono)
        kept = []
        for atom in shared:
            if atom in left:
                left.remove(atom)
                kept.append(atom)
        shared = kept

    def reduce(dim: SymDim) -> Dim:
        return _from_terms({_divide_monomial(m, tuple(shared)) or (): c // common for m, c in dim.terms})

    return reduce(p), reduce(q)


def _floor_by_int(rest: SymDim, b: int) -> Dim:
    """floor(rest / b) with all coefficients of `rest` in [0, b): cancels the gcd and merges nested floors."""
    g = b
    for mono, coef in rest.terms:
        if mono:
            g = gcd(g, coef)
    if g > 1:
        return floor_div(_from_terms({m: c // g for m, c in rest.terms}), b // g)
    atoms = [(m, c) for m, c in rest.terms if m]
    mono, coef = atoms[0]
    if len(atoms) == 1 and coef == 1 and len(mono) == 1 and mono[0].op == "//":
        inner, by = mono[0].args
        if isinstance(by, int) and 0 < by < MAX_DIVISOR // b:
            constant = sum(c for m, c in rest.terms if not m)
            return floor_div(inner + constant * by, by * b)
    if at_most(rest, b - 1) and at_least(rest, 0):  # in this order: what mostly fails notes no symbol
        return 0
    return _atom("//", rest, b)


def mod(a: Dim, b: Dim) -> Dim:
    """a - b * floor(a / b), as Python's `%`. Raises ZeroDivisionError for b == 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if isinstance(b, int) and b == 0:
        raise ZeroDivisionError("symbolic dimension modulo zero")
    if isinstance(b, int) and b < 0:
        return -mod(-a, -b)
    _, rest = _split_multiple(a, b)
    if rest == 0:
        return 0
    if at_least(b - rest, 1) and at_least(rest, 0):
        return rest
    return _atom("%", rest, b)


def dim_max(a: Dim, b: Dim) -> Dim:
    """The larger dim, decided now if the bounds of a - b allow it."""
    if isinstance(a, SymDim) or isinstance(b, SymDim):
        if at_least(a - b, 0):
            return a
        if at_most(a - b, 0):
            return b
    return exact_max(a, b)


def dim_min(a: Dim, b: Dim) -> Dim:
    """The smaller dim, decided now if the bounds of a - b allow it."""
    if isinstance(a, SymDim) or isinstance(b, SymDim):
        if at_least(a - b, 0):
            return b
        if at_most(a - b, 0):
            return a
    return exact_min(a, b)


def exact_max(a: Dim, b: Dim) -> Dim:
    """As `dim_max`, but decided only where it holds for symbols of 0 too: notes none."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if lower_bound(a - b, 0) >= 0:
        return a
    return b if lower_bound(b - a, 0) >= 0 else _atom("max", *sorted((a, b), key=str))


def exact_min(a: Dim, b: Dim) -> Dim:
    """As `dim_min`, but decided only where it holds for symbols of 0 too: notes none."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if lower_bound(a - b, 0) >= 0:
        return b
    return a if lower_bound(b - a, 0) >= 0 else _atom("min", *sorted((a, b), key=str))


APPLY = {"//": floor_div, "%": mod, "max": exact_max, "min": exact_min}
"""The operations of opaque atoms, by the name that `Atom.op` and the JSON form use.

What nobody decided when a `max` or `min` was made stays undecided when it is read back or a symbol is renamed.
"""


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """`dim` with symbols replaced; ints pass through."""
    return dim.substitute(values) if isinstance(dim, SymDim) else dim


def evaluate(dim: Dim, values: Mapping[str, int]) -> int:
    """The integer value of `dim` for given symbols; ints pass through."""
    return dim.evaluate(values) if isinstance(dim, SymDim) else dim


def symbols_of(dims: Iterable[Dim]) -> frozenset[str]:
    """All symbols in `dims`."""
    return frozenset().union(*(d.symbols() for d in dims if isinstance(d, SymDim)))


def dims_equal(a: Dim, b: Dim) -> bool:
    """True iff equal for all values of the symbols (structural equality of canonical forms)."""
    return a == b


def prod(dims: Iterable[Dim]) -> Dim:
    """Product of dims; 1 for none."""
    result: Dim = 1
    for d in dims:
        result = d if isinstance(result, int) and result == 1 else result * d
    return result


@overload
def ceil_div(a: int, b: int) -> int: ...
@overload
def ceil_div(a: Dim, b: Dim) -> Dim: ...
def ceil_div(a: Dim, b: Dim) -> Dim:
    """ceil(a / b) for b >= 1."""
    return floor_div(a + (b - 1), b)


_POSITIVE: ContextVar[set[str] | None] = ContextVar("positive", default=None)
_FOUND_POSITIVE: ContextVar[bool] = ContextVar("found_positive", default=False)


@contextmanager
def noting_positive(symbols: set[str]) -> Iterator[None]:
    """Adds to `symbols` those that something decided meanwhile takes to be >= 1, and that 0 would make wrong."""
    token = _POSITIVE.set(symbols)
    try:
        yield
    finally:
        _POSITIVE.reset(token)


@contextmanager
def guessing() -> Iterator[None]:
    """Decides by what is noted, but notes nothing more."""
    with noting_positive(set(_POSITIVE.get() or ())):
        yield


@contextmanager
def taking_found_as_positive() -> Iterator[None]:
    """Meanwhile sizes that only a run finds are >= 1, as other symbols are: what does not hold at 0 is noted."""
    token = _FOUND_POSITIVE.set(True)
    try:
        yield
    finally:
        _FOUND_POSITIVE.reset(token)


def is_one_or_empty(dim: Dim) -> bool:
    """Whether `dim` is 1 unless a size that a run finds is 0, and may be 0 then."""
    if not isinstance(dim, SymDim) or not any(map(_may_be_empty, dim.symbols())):
        return False
    with guessing(), taking_found_as_positive():
        return _decided(dim) == 1


def _decided(dim: Dim) -> Dim:
    """`dim` with each `max` and `min` decided that the bounds decide now."""
    if not isinstance(dim, SymDim):
        return dim
    decide = {**APPLY, "max": dim_max, "min": dim_min}
    total: Dim = 0
    for mono, coef in dim.terms:
        atoms = (symbol(a.args[0]) if a.op == "sym" else decide[a.op](*map(_decided, a.args)) for a in mono)
        total = total + coef * prod(atoms)
    return total


def _may_be_empty(symbol: str) -> bool:
    """Whether a run may find that size to be 0: nothing was decided that does not hold then."""
    return is_found(symbol) and not _FOUND_POSITIVE.get() and symbol not in (_POSITIVE.get() or ())


def at_least(dim: Dim, bound: int) -> bool:
    """Whether `dim` >= `bound` for all symbols >= 1 (those that a run finds: >= 0); which must not be 0 are noted."""
    if lower_bound(dim) < bound:
        return False
    if isinstance(dim, SymDim):
        _note_positive(dim, lambda zeros: _bounds(dim, zeros)[0] >= bound)
    return True


def at_most(dim: Dim, bound: int) -> bool:
    """Whether `dim` <= `bound`, as `at_least`."""
    return at_least(-dim, -bound)


def _note_positive(dim: SymDim, holds: Callable[[frozenset[str]], bool]) -> None:
    noted = _POSITIVE.get()
    symbols = dim.symbols()
    if noted is None or symbols <= noted or holds(symbols):
        return
    alone = {symbol for symbol in symbols if not holds(frozenset((symbol,)))}
    noted.update(alone if alone and holds(symbols - alone) else symbols)


def lower_bound(dim: Dim, least: int = 1) -> float:
    """A number that `dim` is never below, for symbols >= `least` (1 or 0); -inf if none is found."""
    return _bounds(dim, symbols_of((dim,)) if least == 0 else frozenset())[0]


def upper_bound(dim: Dim) -> float:
    """A number that `dim` is never above, for symbols >= 1; inf if none is found."""
    return _bounds(dim)[1]


def bounds_up_to(dim: Dim, most: int) -> tuple[float, float]:
    """Numbers that `dim` is never below and never above, for symbols of 1 to `most`; infinite if none is found."""
    return _bounds(dim, most=most)


def says_at_most(a: Dim, b: Dim) -> bool:
    """Whether `a == b` says no more than that b is at most some number: whether a is min(b, number)."""
    if not isinstance(a, SymDim) or len(a.terms) > 1:
        return False
    (mono, coef) = a.terms[0]
    return (
        coef == 1
        and len(mono) == 1
        and mono[0].op == "min"
        and any(x == b and isinstance(limit, int) for x, limit in (mono[0].args, mono[0].args[::-1]))
    )


def _bounds(dim: Dim, zeros: frozenset[str] = frozenset(), most: int = MAX_SYMBOL) -> tuple[float, float]:
    """Bounds for symbols from 1 to `most`, those in `zeros` and those that a run finds from 0."""
    if isinstance(dim, int):
        return dim, dim
    low: float = 0
    high: float = 0
    for mono, coef in dim.terms:
        interval: tuple[float, float] = (coef, coef)
        for atom in mono:
            interval = _times(interval, _atom_bounds(atom, zeros, most))
        low, high = low + interval[0], high + interval[1]
    return low, high


def _times(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    corners = [0 if x == 0 or y == 0 else x * y for x in a for y in b]
    low, high = min(corners), max(corners)
    # beyond _FAR the exact bound decides nothing, and an int that large times inf would overflow
    return (-inf if low < -_FAR else min(low, _FAR)), (inf if high > _FAR else max(high, -_FAR))


def _atom_bounds(atom: Atom, zeros: frozenset[str], most: int) -> tuple[float, float]:
    if atom.op == "sym":
        return 0 if atom.args[0] in zeros or _may_be_empty(atom.args[0]) else 1, most
    (low_a, high_a), (low_b, high_b) = (_bounds(arg, zeros, most) for arg in atom.args)
    if atom.op == "max":
        return max(low_a, low_b), max(high_a, high_b)
    if atom.op == "min":
        return min(low_a, low_b), min(high_a, high_b)
    if low_b < 1:
        return -inf, inf
    if atom.op == "%":
        return 0, high_b - 1
    low = low_a if low_a == -inf else (low_a // high_b if low_a >= 0 and high_b != inf else min(low_a // low_b, 0))
    high = high_a if high_a == inf else max(high_a // low_b, 0 if high_a >= 0 else -1)
    return low, high


def _operand(dim: Dim) -> str:
    text = str(dim)
    return text if re.fullmatch(r"[A-Za-z0-9_.]+", text) else f"({text})"


def _text(dim: SymDim) -> str:
    out = ""
    for mono, coef in dim.terms:
        factors = [str(a) for a in mono]
        if abs(coef) != 1 or not mono:
            factors.insert(0, str(abs(coef)))
        out += ("-" if coef < 0 else "+" if out else "") + "*".join(factors)
    return out


def dim_to_json(dim: Dim) -> Any:
    """JSON form of a dim, see `SymDim.to_json`."""
    return dim.to_json() if isinstance(dim, SymDim) else int(dim)
