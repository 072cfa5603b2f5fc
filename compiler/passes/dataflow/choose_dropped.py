"""Which kept tensors of a training step are dropped and computed again, so that it needs no more memory than allowed.

Greedy: as long as more lives somewhere than is allowed, the tensor goes that brings down most of the excess (bytes
above the limit, summed over nodes) for what it costs to compute again; in the end those come back that were not needed.
(Jain et al., "Checkmate", MLSys 2020, have the optimum as an integer programme, of hundreds of variables a node.)
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

import numpy as np

from .kept_tensors import NEVER, KeptTensors

LEAST = 1 << 14  # bytes of a tensor worth dropping
MOST_TOGETHER = 12  # tensors that are dropped with one because it is computed from them


def choose_dropped(kept: KeptTensors, limit: int, thrift: float = 1.0) -> frozenset[int]:
    """Numbers of the tensors to drop; not enough of them where the limit cannot be met this way.

    Args:
        thrift: how much the cost counts, from 1 to 0: not at all. Less leads out of other dead ends.
    """
    dropped: set[int] = set()
    excess = _excess(kept, dropped, limit)
    groups = {i: _group(kept, i) for i, t in enumerate(kept.tensors)
              if t.may_drop and t.size >= LEAST and t.first_backward != NEVER}  # fmt: skip
    heap = [(-np.inf, i) for i in groups]
    heapify(heap)
    while excess and heap:
        best = _best(kept, dropped, limit, excess, heap, groups, thrift)
        if best is not None:
            dropped |= groups[best]
            excess = _excess(kept, dropped, limit)
            continue
        fewer = _without_spare(kept, dropped, limit, excess)
        less = _excess(kept, fewer, limit)
        if less >= excess:  # nothing to drop and nothing to keep makes it better
            break
        dropped, excess = fewer, less
        heap = [(-np.inf, i) for i in groups if i not in dropped]
        heapify(heap)
    return frozenset(_without_spare(kept, dropped, limit, excess))


def _best(
    kept: KeptTensors, dropped: set[int], limit: int, excess: int, heap: list[tuple[float, int]],
    groups: dict[int, set[int]], thrift: float,
) -> int | None:  # fmt: skip
    """The candidate with the largest score, taken off the heap: scores there are of earlier rounds, and mostly fall.

    None, and the heap with all that is left, if none brings anything down.
    """
    fresh: set[int] = set()
    while heap:
        _, i = heappop(heap)
        if i in dropped:
            continue
        more = groups[i] - dropped
        cost = sum(kept.tensors[j].cost for j in more)
        score = (excess - _excess(kept, dropped | more, limit)) / max(cost, 1.0) ** thrift
        if score <= 0 and i in fresh:
            heappush(heap, (-score, i))
            return None
        if score > 0 and (i in fresh or not heap or score >= -heap[0][0]):
            return i
        fresh.add(i)
        heappush(heap, (-score, i))
    return None


def _group(kept: KeptTensors, i: int) -> set[int]:
    """The tensor, and those that it is computed from and that only the forward half reads: they are made again, too."""
    group, pending = {i}, [i]
    while pending and len(group) <= MOST_TOGETHER:
        for need in kept.tensors[pending.pop()].needs:
            t = kept.tensors[need]
            if need not in group and t.first_backward == NEVER and t.size >= LEAST and t.may_drop:
                group.add(need)
                pending.append(need)
    return group if len(group) <= MOST_TOGETHER else {i}


def _excess(kept: KeptTensors, dropped: Iterable[int], limit: int) -> int:
    above = kept.live(frozenset(dropped)) - limit
    return int(above[above > 0].sum())


def _without_spare(kept: KeptTensors, dropped: set[int], limit: int, excess: int) -> set[int]:
    """What is dropped, but for what can stay without more excess; the dearest first."""
    for i in sorted(dropped, key=lambda i: -kept.tensors[i].cost):
        found = _excess(kept, dropped - {i}, limit)
        if found <= excess:
            dropped, excess = dropped - {i}, found
    return dropped


__all__ = ["choose_dropped"]
