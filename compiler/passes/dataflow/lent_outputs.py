"""Intermediate tensors in the memory of outputs that are written later (`Graph.lent`).

The gradients of a training step are as large as the weights, and nothing is in their memory until the backward half
gets to them, the last layer's first. Until then it holds what the forward half keeps, which goes in the same order.
Owns which tensor lodges where; what is left goes into the arena.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.views import Home, homes
from .placement import Span, peak


@dataclass
class Room:
    """Memory of an output that is free before step `until`, where it is first written.

    Attributes:
        guests: (offset, end, first step, last step) of those that lodge in it.
    """

    owner: Value
    size: int
    until: int
    guests: list[tuple[int, int, int, int]] = field(default_factory=list)

    def take(self, span: Span) -> int | None:
        """The lowest offset at which a span fits, which is then taken; None: nowhere."""
        if span.last >= self.until:
            return None
        at = 0
        for begin, end, first, last in sorted(self.guests):
            if last < span.first or span.last < first:
                continue
            if begin - at >= span.size:
                break
            at = max(at, end)
        if at + span.size > self.size:
            return None
        self.guests.append((at, at + span.size, span.first, span.last))
        return at


_ORDERS: tuple[Callable[[Span], tuple[int, int]], ...] = (
    lambda span: (span.last, span.size),
    lambda span: (span.size, span.last),
)
_CHOICES: tuple[Callable[[Room], tuple[int, int]], ...] = (
    lambda room: (room.until, room.size),
    lambda room: (room.size, room.until),
)


def lodge(spans: Mapping[int, Span], rooms: Sequence[Room]) -> dict[int, Home]:
    """Number of a span → where it lies; the others need an arena, of which as little as was found.

    Args:
        spans: of steps that run one after the other. rooms: still empty.
    """
    found = (_lodged(spans, [replace(room, guests=[]) for room in sorted(rooms, key=choice)], order)
             for order, choice in product(_ORDERS, _CHOICES))  # fmt: skip
    return min(found, key=lambda lodged: peak([s for i, s in spans.items() if i not in lodged]))


def _lodged(
    spans: Mapping[int, Span], rooms: Sequence[Room], order: Callable[[Span], tuple[int, int]]
) -> dict[int, Home]:  # fmt: skip
    """Greedy: of the spans that live where most do, the last in the order goes into the first room that has place."""
    alive = np.zeros(max((s.last for s in spans.values()), default=0) + 1, np.int64)
    for s in spans.values():
        alive[s.first : s.last + 1] += s.size
    waiting = sorted(spans, key=lambda i: order(spans[i]), reverse=True)
    found: dict[int, Home] = {}
    while True:
        fullest = int(alive.argmax())
        here = [i for i in waiting if spans[i].first <= fullest <= spans[i].last]
        if not here:
            return found
        for i in here:
            waiting.remove(i)  # rooms only become fuller: what fits nowhere now never does
            if (home := _housed(spans[i], rooms)) is not None:
                found[i] = home
                alive[spans[i].first : spans[i].last + 1] -= spans[i].size
                break


def _housed(span: Span, rooms: Sequence[Room]) -> Home | None:
    for room in rooms:
        if (offset := room.take(span)) is not None:
            return Home(room.owner, offset)
    return None


def rooms_of(graph: Graph, step_of: Mapping[Node, int]) -> list[Room]:
    """The outputs of known sizes that are lent.

    Args:
        step_of: when each node that computes runs.
    """
    if not graph.lent:
        return []
    home_of = homes(graph)
    written: dict[Value, int] = {}
    for node, step in step_of.items():
        for v in node.outputs:
            owner = home_of.get(v, Home(v)).value
            written[owner] = min(step, written.get(owner, step))
    found: dict[Value, Room] = {}
    for name, v in zip(graph.output_names, graph.outputs, strict=True):
        home, size = home_of.get(v, Home(v)), v.tensor.nbytes
        whole = home.offset == 0 and home.value.tensor.nbytes == size
        if name in graph.lent - set(graph.donated) and home.value in written and whole and isinstance(size, int):
            found[home.value] = Room(home.value, size, written[home.value])
    return list(found.values())


__all__ = ["Room", "lodge", "rooms_of"]
