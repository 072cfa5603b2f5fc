"""Which layers may be quantised within a budget of accuracy: a search on one plan that computes every choice.

Layers are sorted by what each loses alone. Those that lose most are left in f32, as few as the budget needs: how many
is found by bisection, each step of which is measured, on the data that ranges were observed on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ..options import CompileOptions
from ..passes.quantize.layers import Layer, readers_of
from ..passes.quantize.switches import add_switches, switches
from .metrics import Metric
from .samples import Request
from .schemes import Scheme
from .trials import results, trial_plan

MOST_SAMPLES = 64  # of the observed ones that each layer is judged on
Tell = Callable[[str, float], None]


@dataclass(frozen=True)
class LayerDrop:
    """What a layer loses where it alone is quantised.

    Attributes:
        layer: the name of its result. where: as errors name it. drop, noise: by the metric, and in its finer measure.
    """

    layer: str
    where: str
    drop: float
    noise: float


class Search:
    """A graph with switches, compiled once.

    Attributes:
        layers: all that may be quantised but those that are slower for it, which are left out of every choice.
    """

    def __init__(
        self, scheme: Scheme, slower: Collection[str], requests: Sequence[Request], metric: Metric,
        options: CompileOptions,
    ) -> None:  # fmt: skip
        self._graph, self._ranges, self._metric, self._slower = scheme.graph, scheme.ranges, metric, frozenset(slower)
        self._requests = some_requests(requests)
        self.layers: tuple[Layer, ...] = readers_of(scheme.graph, scheme.ranges, slower).layers
        copy = scheme.graph.clone()
        add_switches(copy, scheme.ranges, scheme.means)
        self._plan = trial_plan(copy, options)
        self._exact = self._run([layer.name for layer in self.layers])

    def at_most(self, left_out: Collection[str]) -> float:
        """What is lost at most of data like this where all layers but some are quantised."""
        return self._metric.at_most(self._exact, self._run(left_out), self._requests)

    def by_drop(self, tell: Tell) -> list[LayerDrop]:
        """The layers, those that lose most alone first."""
        names = {layer.name for layer in self.layers}
        found = []
        for i, layer in enumerate(self.layers):
            tell(f"layer {i + 1}/{len(self.layers)}", i / len(self.layers))
            given = self._exact, self._run(names - {layer.name}), self._requests
            drops = self._metric.drop(*given), self._metric.noise(*given)
            found.append(LayerDrop(layer.name, layer.node.where, *drops))
        return sorted(found, key=lambda each: -each.noise)

    def within(self, budget: float, ordered: Sequence[LayerDrop], at_least: int = 0) -> int:
        """How many of the first layers stay in f32, so that the rest lose no more than the budget; at least so many."""
        low, high = at_least, len(ordered)
        while low < high:
            middle = (low + high) // 2
            if self.at_most([each.layer for each in ordered[:middle]]) <= budget:
                high = middle
            else:
                low = middle + 1
        return low

    def _run(self, left_out: Collection[str]) -> list[dict[str, np.ndarray]]:
        on = switches(self._graph, self._ranges, self._slower | set(left_out))
        requests = [Request({**r.inputs, **on}, r.others, r.n_samples) for r in self._requests]
        return list(results(self._plan, requests))


def some_requests(requests: Sequence[Request]) -> list[Request]:
    """The first requests, of MOST_SAMPLES samples in all, one request at least."""
    taken: list[Request] = []
    for request in requests:
        if taken and sum(each.n_samples for each in taken) >= MOST_SAMPLES:
            break
        taken.append(request)
    return taken
