"""The asynchronous server: each gradient moves the weights as soon as it is there, whatever the others read.

A gradient is stale by the updates that were made since its weights were read. An instance begins, and a gradient is
used, only where no gradient under way can then come to more than `staleness`: sorted by what they have read, number i
of those under way is used i updates from now at the earliest. The one that read first can always go on, so that nobody
waits for ever. (Bounded staleness as of Ho et al., "More effective distributed ML via a stale synchronous parallel
parameter server", 2013, where the bound is on the difference of the workers' steps.)

Instances compute on copies of the weights, as the server's change under them. A step of n shards is n updates, each by
the mean over a shard; at its end, all gradients are used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Condition

import numpy as np

from ..finite import require_finite
from .base import Scheme, Site
from .compact import CompactGradients
from .gradient import Copy, Gradient


class AsynchronousServer(Scheme):
    """See the file. What fails leaves the updates that were made before."""

    is_synchronous = False

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        n = len(site.instances)
        self._copies = [Copy(site.state.layouts) for _ in range(n)]
        self._own = [site.gradient() for _ in range(n)]
        self._changed = Condition()
        self._read: dict[int, int] = {}  # by the instance of a gradient under way: updates made when it read
        self._norms: list[float] = []
        self._staleness = 0
        self._compact = [CompactGradients(site.program, site.program.accumulate) for _ in range(n)]
        self.updates = [site.update(cores, 1, compact=own)
                        for cores, own in zip(site.placement.instances, self._compact, strict=True)]  # fmt: skip

    def begin(self, rate: float) -> None:
        super().begin(rate)
        self._norms, self._read = [], {}

    def parameters(self, instance: int) -> Mapping[str, np.ndarray]:
        with self._changed:  # an update changes the weights where they lie
            self._wait(instance, lambda: len(self._read) <= self.site.staleness)
            self._read[instance] = len(self._norms)
            self._copies[instance].read(self.site.state, self.site.traffic[instance])
        return self._copies[instance].parameters

    def place(self, instance: int, shard: int) -> Gradient:
        return self._own[instance]

    def compact(self, instance: int, shard: int, micro: int) -> Mapping[str, np.ndarray]:
        return self._compact[instance].outputs(micro)

    def give(self, instance: int, shard: int) -> None:
        state = self.site.state
        with self._changed:
            self._wait(instance, lambda: self._may_update(instance))
            number = state.steps * self.site.program.n_shards + len(self._norms) + 1
            norm = self.updates[instance].run([self._own[instance]], self.rate, number)
            require_finite("gradient's norm", state.steps, norm)
            self._staleness = max(self._staleness, len(self._norms) - self._read.pop(instance))
            self._norms.append(norm)
            self._changed.notify_all()

    def _wait(self, instance: int, condition: Callable[[], bool]) -> None:
        began = time.perf_counter()
        self._changed.wait_for(condition)
        self.site.traffic[instance].waited += time.perf_counter() - began

    def _may_update(self, instance: int) -> bool:
        """Whether all others under way can keep the bound after one more update."""
        others = sorted(read for other, read in self._read.items() if other != instance)
        return all(len(self._norms) + 1 + i - read <= self.site.staleness for i, read in enumerate(others))

    def failed(self, instance: int) -> None:
        with self._changed:
            self._read.pop(instance, None)
            self._changed.notify_all()

    def update(self) -> float:
        return sum(self._norms) / len(self._norms)

    def advance(self) -> None:
        self.site.state.steps += 1

    @property
    def staleness(self) -> int:
        return self._staleness
