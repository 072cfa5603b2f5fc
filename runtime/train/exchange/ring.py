"""Ring all-reduce, a baseline: every instance has weights, an optimiser's state and a gradient of its own.

The gradient is cut in as many chunks as there are instances, n. In n - 1 steps each instance adds a chunk of its left
neighbour's to its own, so that it has one chunk of the sum; in n - 1 more it takes the others from its neighbour. Then
each moves its own weights: all do the same on the same numbers. (Patarasuk and Yuan, "Bandwidth optimal all-reduce
algorithms for clusters of workstations", 2009.) Neighbours read each other's memory, so that nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from queue import SimpleQueue

import numpy as np

from ....errors import InternalError
from ..state import TrainingState
from .base import Scheme, Site
from .gradient import Gradient

Signals = list["SimpleQueue[bool]"]


class RingAllReduce(Scheme):
    """See the file. The state is the first instance's."""

    is_static = True

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        state, n = site.state, len(site.instances)
        initial = {**state.parameters, **state.statistics}
        self._states = [state, *(TrainingState(site.program, initial) for _ in range(n - 1))]
        self._sums, self._own = ([site.gradient() for _ in range(n)] for _ in range(2))
        self._is_empty, self._restored = [True] * n, -1
        self._signals: Signals = []
        self.updates = [site.update(cores, site.program.n_shards, own)
                        for cores, own in zip(site.placement.instances, self._states, strict=True)]  # fmt: skip

    def begin(self, rate: float) -> None:
        super().begin(rate)
        self._is_empty = [True] * len(self._sums)
        if self._restored != self.site.state.restored:
            self.site.instances.each(self._follow)
            self._restored = self.site.state.restored

    def _follow(self, instance: int) -> None:
        """Begin with the first instance's state; not counted, as it is once in a training."""
        if instance:
            for name, vector in self._states[instance].vectors.items():
                np.copyto(vector, self.site.state.vectors[name])

    def parameters(self, instance: int) -> Mapping[str, np.ndarray]:
        return self._states[instance].parameters

    def place(self, instance: int, shard: int) -> Gradient:
        return (self._sums if self._is_empty[instance] else self._own)[instance]

    def give(self, instance: int, shard: int) -> None:
        if not self._is_empty[instance]:
            self._sums[instance].add(self._own[instance], self.site.traffic[instance])
        self._is_empty[instance] = False

    def update(self) -> float:
        n = len(self._sums)
        self._signals = [SimpleQueue() for _ in range(n)]
        norms = [0.0] * n

        def reduce(instance: int) -> None:
            try:
                self._reduce(instance, n)
                norms[instance] = self.updates[instance].run([self._sums[instance]], self.rate,
                                                             self.site.state.steps + 1)  # fmt: skip
            except BaseException:
                for signal in self._signals:  # nobody waits for this one for ever
                    for _ in range(2 * n):
                        signal.put(False)
                raise

        self.site.instances.each(reduce)
        return norms[0]

    def _reduce(self, instance: int, n: int) -> None:
        """The sum of all gradients takes the place of the instance's own."""
        traffic, own, left = self.site.traffic[instance], self._sums[instance], self._sums[(instance - 1) % n]
        if self._is_empty[instance]:
            for vector in own.vectors.values():
                vector.fill(0)
        for step in range(2 * (n - 1)):
            self._signals[(instance + 1) % n].put(True)  # what the right one reads next is there
            if not traffic.wait(self._signals[instance]):
                raise InternalError("another instance ended", where="ring all-reduce")
            chunk = (instance - 1 - step) % n if step < n - 1 else (instance - step + n - 1) % n
            move = traffic.add if step < n - 1 else traffic.copy
            for group, vector in own.vectors.items():
                part = slice(len(vector) * chunk // n, len(vector) * (chunk + 1) // n)
                move(vector[part], left.vectors[group][part])

    def advance(self) -> None:
        for state in self._states:
            state.steps += 1
