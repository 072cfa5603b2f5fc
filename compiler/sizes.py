"""Sizes for the open dimensions of a plan that belong together: given ones stay, others follow from what must hold.

Knows a manifest's symbols, constraints and conditions; knows nothing of arrays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import InvalidInput, UsageError
from ..runtime.dims import Dim, dim_text, evaluate, symbols_of
from ..runtime.manifest import Constraint, Manifest, Symbol

DEFAULT_SIZE = 64
MOST_TRIED = 300
"""Assignments that are looked at before a search gives up: a model has a handful of symbols and relations."""
MOST_SHOWN = 200
"""Characters of a relation in a message."""
Sizes = dict[str, int]


def batch_symbol(manifest: Manifest) -> str | None:
    """The symbol that counts rows: the plan's own, else that on the first axis of the earliest input with one."""
    if manifest.batch:
        return manifest.batch.symbol
    return next((symbol.name for symbol in manifest.symbols if symbol.axis == 0), None)


def symbol_sizes(manifest: Manifest, given: Mapping[str, int], batch: int, default: int = DEFAULT_SIZE) -> Sizes:
    """A size for every symbol of the inputs, all of which fit together.

    A symbol has the given size, else `batch` where it counts rows, else `default` within its bounds. Where these
    break what the plan says of its sizes, as few as can be of those not given are changed, rows last: to sizes above 0
    that leave no output empty, if there are any.

    Raises:
        UsageError: a given symbol is not in the inputs, or no sizes fit those that are given; the relation is named.
    """
    symbols = {symbol.name: symbol for symbol in manifest.symbols if symbol.input is not None}
    unknown = sorted(set(given) - set(symbols))
    if unknown:
        known = ", ".join(symbols) or "none: every size is fixed"
        raise UsageError("no such symbolic dimension", where=f"--dim {unknown[0]}", expected=known)
    rows = batch_symbol(manifest)
    start: Sizes = {}
    for name, symbol in symbols.items():
        size = max(symbol.min, batch if name == rows else default)
        start[name] = given.get(name, size if symbol.max is None else min(symbol.max, size))
    free = [symbol for name, symbol in symbols.items() if name not in given]
    needed = relations(manifest, set(given))
    outputs = [Constraint(">=", dim, 1, "") for spec in manifest.outputs for dim in spec.dims or ()]
    wished = [c for c in outputs if _mentioned(c) and _mentioned(c) <= set(symbols)]
    for wanted, least in (([*needed, *wished], 1), (needed, 1), (needed, 0)):
        found = _Search(wanted, free, rows, least).run(start)
        if found is not None:
            return found
    raise _impossible(next(c for c in needed if _excess(c, start) != 0), start, given)


def relations(manifest: Manifest, given: set[str]) -> list[Constraint]:
    """What must hold of the inputs' sizes.

    Conditions on indices come from estimates, so those on given sizes alone are left out: whoever says all of them
    shall have them, and the kernels check every index.
    """
    bound = {symbol.name for symbol in manifest.symbols if symbol.input is not None}
    conditions = [c for c in manifest.samples.conditions if not _mentioned(c) <= given]
    return [c for c in (*manifest.constraints, *conditions) if _mentioned(c) <= bound]


def broken(manifest: Manifest, sizes: Mapping[str, int]) -> list[str]:
    """The conditions that some sizes break, as text."""
    return [
        f"{_text(c)} ({c.text})"
        for c in manifest.samples.conditions
        if _mentioned(c) <= set(sizes) and _excess(c, sizes) != 0
    ]


@contextmanager
def naming_sizes(manifest: Manifest, sizes: Mapping[str, int]) -> Iterator[None]:
    """Where inputs that were made up are refused, say of which sizes they were, and which conditions those break."""
    try:
        yield
    except InvalidInput as error:
        if not sizes:
            raise
        taken = " ".join(f"{name}={size}" for name, size in sizes.items())
        hint = "; ".join([f"the sizes were {taken}", *(f"which breaks {text}" for text in broken(manifest, sizes))])
        hint += "; choose others with --dim"
        raise InvalidInput(error.message, where=error.where, expected=error.expected, found=error.found,
                           hint=f"{error.hint}; {hint}" if error.hint else hint) from error  # fmt: skip


def _mentioned(constraint: Constraint) -> frozenset[str]:
    return symbols_of(constraint.left) | symbols_of(constraint.right)


def _text(constraint: Constraint) -> str:
    return f"{dim_text(constraint.left)} {constraint.op} {dim_text(constraint.right)}"


def _excess(constraint: Constraint, sizes: Mapping[str, int]) -> int | None:
    """By how much the left side is too large (or, negative, too small); None where a side has no value."""
    try:
        difference = evaluate(constraint.left, sizes) - evaluate(constraint.right, sizes)
    except InvalidInput:
        return None
    if constraint.op == "==":
        return difference
    strict = constraint.op in ("<", ">")
    return max(0, difference + strict) if constraint.op.startswith("<") else min(0, difference - strict)


def _impossible(constraint: Constraint, sizes: Sizes, given: Mapping[str, int]) -> UsageError:
    """Names the relation and the symbols in it."""
    names = sorted(_mentioned(constraint), key=list(sizes).index)
    fixed = [name for name in names if name in given]
    if len(fixed) == len(names):
        hint = f"change one of --dim {' '.join(fixed)}, or leave it out"
    else:
        hint = f"give {' '.join(f'--dim {name}=…' for name in names if name not in given)}"
        hint += f", or leave out one of --dim {' '.join(fixed)}" if fixed else ""
    where = f"dimensions {', '.join(names)}"
    expected = _text(constraint)[:MOST_SHOWN] + (f" ({constraint.text})" if constraint.text else "")
    found = " ".join(f"{name}={sizes[name]}" for name in names)
    return UsageError("no sizes found that fit together", where=where, expected=expected, found=found, hint=hint)


@dataclass(frozen=True)
class _Search:
    """Looks for sizes near others, breadth first: as few as can be are changed.

    Attributes:
        wanted: what must hold. free: symbols that may be changed. rows: the one that counts rows. least: of sizes.
    """

    wanted: Sequence[Constraint]
    free: Sequence[Symbol]
    rows: str | None
    least: int

    def run(self, start: Sizes) -> Sizes | None:
        """The sizes; None if none were found."""
        pending, seen = deque([start]), {tuple(start.values())}
        while pending:
            sizes = pending.popleft()
            wrong = next((c for c in self.wanted if _excess(c, sizes) != 0), None)
            if wrong is None:
                return sizes
            for name, size in self._steps(wrong, sizes):
                other = {**sizes, name: size}
                key = tuple(other.values())
                if key not in seen and len(seen) < MOST_TRIED:
                    seen.add(key)
                    pending.append(other)
        return None

    def _steps(self, wrong: Constraint, sizes: Sizes) -> list[tuple[str, int]]:
        """Changes of one symbol that mend a constraint; if none does, those that make one symbol smaller by half."""
        symbols = self._changeable(wrong)
        mended = [(symbol.name, size) for symbol in symbols for size in self._repairs(wrong, symbol, sizes)]
        halves = [(symbol.name, max(self.least, symbol.min, sizes[symbol.name] // 2)) for symbol in symbols]
        return mended or halves

    def _changeable(self, constraint: Constraint) -> list[Symbol]:
        """A symbol that is a whole side first, as it was made from the others; then later before earlier; rows last."""
        names, sides = _mentioned(constraint), (constraint.left, constraint.right)
        inside = [symbol for symbol in reversed(self.free) if symbol.name in names]
        return sorted(inside, key=lambda symbol: (symbol.name == self.rows, symbol.name not in sides))

    def _repairs(self, constraint: Constraint, symbol: Symbol, sizes: Sizes) -> Iterator[int]:
        """Sizes of one symbol with which the constraint holds, nearest first: where it is linear; at its numbers."""
        now = sizes[symbol.name]
        candidates = []
        excess = _excess(constraint, sizes)
        for step in (1, -1):
            other = _excess(constraint, {**sizes, symbol.name: now + step})
            if excess is not None and other is not None and other != excess:
                steps = -excess * step
                candidates += [now + steps // (other - excess), now - -steps // (other - excess)]
        for number in sorted(_numbers(constraint.left) | _numbers(constraint.right)):
            candidates += [number, number + 1, now // number * number, -(-now // number) * number]
        greatest = symbol.max if symbol.max is not None else max([now, *candidates])
        for size in sorted(set(candidates), key=lambda size: abs(size - now)):
            inside = max(self.least, symbol.min) <= size <= greatest
            if inside and size != now and _excess(constraint, {**sizes, symbol.name: size}) == 0:
                yield size


def _numbers(dim: Dim) -> set[int]:
    """The magnitudes above 0 of an expression's constants."""
    if isinstance(dim, int):
        return {abs(dim)} - {0}
    return set() if isinstance(dim, str) else set().union(*(_numbers(part) for part in dim[1:]))
