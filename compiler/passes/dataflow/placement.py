"""Dynamic storage allocation: offsets for stretches of memory with given lives and sizes. Knows no graph.

Few spans are placed by several greedy orders, after Pisarchyk and Lee, "Efficient memory management for deep neural
net inference" (2020), of which the tightest is kept; many by one sweep over time with a best-fit list of free gaps.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

EXHAUSTIVE = 1500  # spans up to which the quadratic orders are tried


@dataclass(frozen=True)
class Span:
    """`size` units, needed from step `first` to step `last`, both included.

    Where steps run in concurrent branches, numbered one branch after the other, `opens` is the first step that may run
    beside step `first`, and the order of steps only counts within a branch: `born` and `died` are the numbers of those
    in which the span begins and ends, `died` −1 where several branches read it last.
    """

    first: int
    last: int
    size: int
    opens: int
    born: int = 0
    died: int = 0


def place(spans: Sequence[Span]) -> tuple[list[int], int]:
    """The offset of every span and the extent of all; spans that may live at the same time do not overlap."""
    best = _sweep(spans)
    if len(spans) > EXHAUSTIVE:
        return best
    least, apart = peak(spans), _apart(spans)
    orders = (
        lambda i: (-spans[i].size, spans[i].first),
        lambda i: (-spans[i].size * (spans[i].last - spans[i].first + 1), spans[i].first),
        lambda i: (spans[i].first - spans[i].last, -spans[i].size),
        lambda i: (spans[i].first, -spans[i].size),
    )
    for order in orders:
        if best[1] == least:
            break
        found = _greedy(spans, sorted(range(len(spans)), key=order), apart)
        best = min(best, found, key=lambda plan: plan[1])
    return best


def peak(spans: Sequence[Span]) -> int:
    """The most units that live at one step: a lower bound of any placement's extent."""
    change: dict[int, int] = {}
    for s in spans:
        change[s.first] = change.get(s.first, 0) + s.size
        change[s.last + 1] = change.get(s.last + 1, 0) - s.size
    alive = best = 0
    for step in sorted(change):
        alive += change[step]
        best = max(best, alive)
    return best


def _apart(spans: Sequence[Span]) -> list[list[bool]]:
    """For every pair whether one is surely over before the other begins."""
    if not spans:
        return []
    columns = ([getattr(s, name) for s in spans] for name in ("first", "last", "opens", "born", "died"))
    first, last, opens, born, died = (np.array(column) for column in columns)
    before = last[:, None] < np.where(died[:, None] == born, first, opens)
    result: list[list[bool]] = (before | before.T).tolist()
    return result


def _greedy(spans: Sequence[Span], order: Sequence[int], apart: list[list[bool]]) -> tuple[list[int], int]:
    """In the given order, each at the lowest gap between those that may live at the same time and have a place."""
    offsets = [0] * len(spans)
    placed: list[tuple[int, int, int]] = []  # offset, end, which; by offset
    extent = 0
    for i in order:
        size, at, free = spans[i].size, 0, apart[i]
        for start, end, j in placed:
            if free[j]:
                continue
            if start - at >= size:
                break
            at = max(at, end)
        offsets[i] = at
        insort(placed, (at, at + size, i))
        extent = max(extent, at + size)
    return offsets, extent


def _sweep(spans: Sequence[Span]) -> tuple[list[int], int]:
    """Over time, each into the smallest gap that holds it, from when its layer opens."""
    offsets = [0] * len(spans)
    gaps = _Gaps()
    events = sorted([(s.opens, 1, i) for i, s in enumerate(spans)] + [(s.last + 1, 0, i) for i, s in enumerate(spans)])
    for _, born, i in events:
        if born:
            offsets[i] = gaps.take(spans[i].size)
        else:
            gaps.give(offsets[i], spans[i].size)
    return offsets, gaps.extent


class _Gaps:
    """Free stretches below `extent`, found by size and by either end."""

    def __init__(self) -> None:
        self.extent = 0
        self._by_size: list[tuple[int, int]] = []  # size, start
        self._end: dict[int, int] = {}  # start -> end
        self._start: dict[int, int] = {}  # end -> start

    def take(self, size: int) -> int:
        """The start of `size` units that are free no longer."""
        i = bisect_left(self._by_size, (size, 0))
        if i < len(self._by_size):
            start = self._by_size[i][1]
            end = self._remove(start)
        elif self.extent in self._start:  # the last gap grows
            start = self._start[self.extent]
            self._remove(start)
            end = self.extent = start + size
        else:
            start, end = self.extent, self.extent + size
            self.extent = end
        if start + size < end:
            self._add(start + size, end)
        return start

    def give(self, start: int, size: int) -> None:
        """Free a stretch again; it joins its free neighbours."""
        end = start + size
        if end in self._end:
            end = self._remove(end)
        if start in self._start:
            start = self._start[start]
            self._remove(start)
        self._add(start, end)

    def _add(self, start: int, end: int) -> None:
        insort(self._by_size, (end - start, start))
        self._end[start], self._start[end] = end, start

    def _remove(self, start: int) -> int:
        end = self._end.pop(start)
        del self._start[end]
        del self._by_size[bisect_left(self._by_size, (end - start, start))]
        return end
