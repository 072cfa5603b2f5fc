"""Rows of a native call where the batch is open: what algorithms are chosen for.

A plan serves whatever comes with one algorithm a layer, so that no bit of a row depends on who came with it. It has to
serve a request of one row, which waits for all weights, and one of several, whose rows share them. Owns these numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .types import Dim, SymDim

SEVERAL = 4
"""Rows that a core works off at a time while requests of some rows, or several requests, are in flight: half of eight,
the mean of one to sixteen on two cores, and of eight callers' requests that run together."""

USUAL_SIDE = 224
"""Of images whose size only a run knows, where what is made of a graph is the same for all: the nearest to it within
the bounds of a dimension."""


@dataclass(frozen=True)
class CallRows:
    """What calls bring.

    Attributes:
        bounds: symbol, its least and its greatest size, where somebody gave them.
        several: whether calls of several rows come beside those of the fewest.
    """

    bounds: tuple[tuple[str, int, int], ...] = ()
    several: bool = True

    def sizes(self, symbols: Iterable[str]) -> list[dict[str, int]]:
        """Sizes of some symbols in each kind of call that a kernel is chosen for, all as important; at least 1 each."""
        bounds = {name: (least, most) for name, least, most in self.bounds}
        found: list[dict[str, int]] = []
        for rows in (1, SEVERAL) if self.several else (1,):
            sizes = {s: max(1, _within(rows, *bounds.get(s, (1, rows)))) for s in symbols}
            found += [sizes] if sizes not in found else []
        return found

    def of(self, dim: Dim) -> tuple[int, ...]:
        """The same of a dimension."""
        if not isinstance(dim, SymDim):
            return (max(1, dim),)
        return tuple(dict.fromkeys(max(1, dim.evaluate(sizes)) for sizes in self.sizes(dim.symbols())))

    def usual(self, dims: Iterable[Dim]) -> list[int]:
        """An image's dimensions, where those that are open have a usual size; at least 1 each."""
        bounds = {name: (least, most) for name, least, most in self.bounds}

        def size(dim: Dim) -> int:
            if not isinstance(dim, SymDim):
                return max(1, dim)
            sizes = {s: _within(USUAL_SIDE, *bounds.get(s, (1, USUAL_SIDE))) for s in dim.symbols()}
            return max(1, dim.evaluate(sizes))

        return [size(dim) for dim in dims]


ANY = CallRows()
ALONE = CallRows(several=False)


def call_rows(dims: Mapping[str, int | tuple[int, int]], several: bool) -> CallRows:
    """From the bounds of open dimensions, as compile options give them."""
    return CallRows(tuple((name, *size) for name, size in dims.items() if isinstance(size, tuple)), several)


def _within(rows: int, least: int, most: int) -> int:
    return min(max(rows, least), most)
