"""Sizes of tensors while a graph is made: a number, a symbol, or an expression of symbols, with its value in each run.

A generated model runs once for each binding of its symbols; a size knows its value in all of them, so that what is
built holds in all. Two sizes are the same where their text is: what only happens to be equal is not relied on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

RUNS = 2
"""Bindings of the symbols that each model is run with."""


@dataclass(frozen=True)
class Size:
    """One dimension. `at`: its value in each run; `symbol`: whether an input may declare it by its text."""

    text: str
    at: tuple[int, ...]
    symbol: bool = False

    @property
    def is_static(self) -> bool:
        """Whether it is a number."""
        return self.text.isdigit()

    @property
    def value(self) -> int:
        """The number that it is. Only for static sizes."""
        return int(self.text)

    @property
    def least(self) -> int:
        return min(self.at)

    @property
    def most(self) -> int:
        return max(self.at)

    def __str__(self) -> str:
        return self.text


Shape = tuple[Size, ...]
ONE = Size("1", (1,) * RUNS)


def static(n: int) -> Size:
    """The size that is `n` in every run."""
    return Size(str(n), (n,) * RUNS)


def shape_of(*numbers: int) -> Shape:
    """A static shape."""
    return tuple(static(n) for n in numbers)


def derived(text: str, compute: Callable[..., int], *sizes: Size) -> Size:
    """A size computed from others; a number where they are."""
    at = tuple(compute(*values) for values in zip(*(s.at for s in sizes)))
    return static(at[0]) if all(s.is_static for s in sizes) else Size(f"<{text.format(*sizes)}>", at)


def product(sizes: Sequence[Size]) -> Size:
    """The number of elements."""
    symbols = sorted((s for s in sizes if not s.is_static), key=str)
    factor = prod(s.value for s in sizes if s.is_static)
    if factor == 1 and len(symbols) == 1:
        return symbols[0]
    return derived("*".join(["{}"] * (len(symbols) + 1)), lambda *v: prod(v), static(factor), *symbols)


def total(sizes: Sequence[Size]) -> Size:
    """Their sum."""
    return derived("+".join(["{}"] * len(sizes)), lambda *v: sum(v), *sizes)


def numbers(shape: Sequence[Size], run: int) -> tuple[int, ...]:
    """The shape in one run."""
    return tuple(s.at[run] for s in shape)


def most_elements(shape: Sequence[Size]) -> int:
    """The number of elements in the largest run."""
    return max((prod(numbers(shape, run)) for run in range(RUNS)), default=1)


def broadcast(*shapes: Shape) -> Shape | None:
    """The numpy-broadcast shape, None where it cannot be told from the texts."""
    rank = max(map(len, shapes), default=0)
    out = []
    for axis in range(rank):
        sizes = {s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0} - {ONE}
        if len(sizes) > 1:
            return None
        out.append(sizes.pop() if sizes else ONE)
    return tuple(out)
