"""The best layer partition there is, by dynamic programming over all predecessor-closed sets: the heuristic's baseline.

    best(∅) = 0        best(S) = min over predecessor-closed R ⊊ S of best(R) + lat(S − R)

The number of such sets grows as (n/w + 1)^w with the width w of the graph, the pairs as its square; so this is for
small graphs. After Ding et al., "IOS: Inter-operator scheduler for CNN acceleration" (2021).
"""

from __future__ import annotations

import math

from ....errors import ResourceLimit
from .dag import Dag, Mask, bits
from .layers import Latency


def optimal_layers(dag: Dag, latency: Latency, most_pairs: int = 2_000_000) -> tuple[float, list[Mask]]:
    """Seconds and layers of the best partition.

    Raises:
        ResourceLimit: the graph has more than `most_pairs` pairs of predecessor-closed sets.
    """
    sets = closed_sets(dag, math.isqrt(most_pairs))
    best: dict[Mask, tuple[float, Mask]] = {0: (0.0, 0)}
    for n, whole in enumerate(sets[1:], 1):
        best[whole] = min((best[part][0] + latency.seconds(whole & ~part), part)
                          for part in sets[:n] if not part & ~whole)  # fmt: skip
    layers: list[Mask] = []
    end = dag.everything
    while end:
        begin = best[end][1]
        layers.append(end & ~begin)
        end = begin
    return best[dag.everything][0], layers[::-1]


def closed_sets(dag: Dag, most: int) -> list[Mask]:
    """All predecessor-closed sets, small ones first.

    Raises:
        ResourceLimit: there are more than `most`.
    """
    found: dict[Mask, None] = {0: None}
    front = [0]
    while front:
        grown: dict[Mask, None] = {}
        for done in front:
            for i in bits(dag.ready(dag.everything, done)):
                grown[done | 1 << i] = None
        found.update(grown)
        if len(found) > most:
            raise ResourceLimit("the graph is too wide for an optimal partition", expected=f"at most {most} sets",
                                hint="use the heuristic")  # fmt: skip
        front = list(grown)
    return list(found)


__all__ = ["closed_sets", "optimal_layers"]
