"""The best layer partition there is, by dynamic programming over all predecessor-closed sets: the heuristic's baseline.

    best(∅) = 0        best(S) = min over predecessor-closed R ⊊ S of best(R) + lat(S − R)

The number of such sets grows as (n/w + 1)^w with the width w of the graph, the pairs as its square; so this is for
small graphs. After Ding et al., "IOS: Inter-operator scheduler for CNN acceleration" (2021).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from ....errors import ResourceLimit
from .dag import Dag, Mask, bits


class Latency(Protocol):
    """Predicted seconds of a set of operators run as one layer."""

    def seconds(self, part: Mask) -> float: ...


def optimal_layers(dag: Dag, latency: Latency, most_pairs: int = 2_000_000) -> tuple[float, list[Mask]]:
    """Seconds and layers of the best partition.

    Raises:
        ResourceLimit: the graph has more than `most_pairs` pairs of predecessor-closed sets.
    """
    sets = closed_sets(dag, dag.everything, math.isqrt(most_pairs))
    if sets is None:
        raise ResourceLimit("the graph is too wide for an optimal partition", expected=f"at most {most_pairs} pairs",
                            hint="use the heuristic")  # fmt: skip
    return best_chain(sets, latency)


def best_chain(sets: Sequence[Mask], latency: Latency) -> tuple[float, list[Mask]]:
    """Seconds and layers of the best partition of the last set, its bounds being among these, small ones first."""
    best: dict[Mask, tuple[float, Mask]] = {0: (0.0, 0)}
    for n, whole in enumerate(sets[1:], 1):
        best[whole] = min((best[part][0] + latency.seconds(whole & ~part), part)
                          for part in sets[:n] if not part & ~whole)  # fmt: skip
    layers: list[Mask] = []
    end = sets[-1]
    while end:
        begin = best[end][1]
        layers.append(end & ~begin)
        end = begin
    return best[sets[-1]][0], layers[::-1]


def closed_sets(dag: Dag, within: Mask, most: int) -> list[Mask] | None:
    """All sets that are predecessor-closed within a set, small ones first; None if there are more than `most`."""
    found: dict[Mask, None] = {0: None}
    front = [0]
    while front:
        grown: dict[Mask, None] = {}
        for done in front:
            for i in bits(dag.ready(within, done)):
                grown[done | 1 << i] = None
        found.update(grown)
        if len(found) > most:
            return None
        front = list(grown)
    return list(found)


__all__ = ["Latency", "best_chain", "closed_sets", "optimal_layers"]
