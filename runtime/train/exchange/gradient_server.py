"""The gradient server of ParaX: one global gradient in blocks, to which every instance adds its own as it has it.

    for each block b, from another one in every instance:   lock(b); G[b] += g[b]; unlock(b)
    barrier
    all cores:                                              weights = update(weights, G · scale)

No thread is set aside, there is one copy of the weights (per NUMA node), and additions go on while others compute. The
order of additions is a race: the weights differ by rounding from run to run. The first instance at a block copies, so
that nobody has to write zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from threading import Lock

from ..layout import LINE, Layout
from .base import Scheme, Site
from .gradient import Gradient

BLOCK = 1 << 18
"""Elements of a block, at most: 1 MiB, a tenth of a millisecond. With less, what the interpreter does in between shows
(`python -m benchmarks.exchange --memory`)."""


class GradientServer(Scheme):
    """See the file."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._own = [site.gradient() for _ in range(len(site.instances))]
        self._sum = site.gradient()
        dense = {group: layout for group, layout in site.state.layouts.items() if group in self._sum.vectors}
        self._blocks = list(cut(dense, len(site.instances)))
        self._locks = [Lock() for _ in self._blocks]
        self._is_empty = [True] * len(self._blocks)
        self.updates = [site.update(site.placement.everyone, site.program.n_shards)]

    def begin(self, rate: float) -> None:
        super().begin(rate)
        self._is_empty = [True] * len(self._blocks)

    def place(self, instance: int, shard: int) -> Gradient:
        return self._own[instance]

    def give(self, instance: int, shard: int) -> None:
        first = instance * len(self._blocks) // len(self._own)
        for b in chain(range(first, len(self._blocks)), range(first)):
            self._give(self._own[instance], b, instance)

    def _give(self, gradient: Gradient, b: int, instance: int) -> None:
        """Add one block."""
        group, part = self._blocks[b]
        traffic, lock = self.site.traffic[instance], self._locks[b]
        traffic.take(lock)
        try:
            move = traffic.copy if self._is_empty[b] else traffic.add
            move(self._sum.vectors[group][part], gradient.vectors[group][part])
            self._is_empty[b] = False
        finally:
            lock.release()

    def update(self) -> float:
        return self.updates[0].run([self._sum], self.rate, self.site.state.steps + 1)


def cut(layouts: Mapping[str, Layout], n_instances: int) -> Iterator[tuple[str, slice]]:
    """The vectors in blocks of whole cache lines, about as many as there are instances or more where they are small."""
    total = sum(layout.length for layout in layouts.values())
    size = max(LINE, min(BLOCK, -(-total // (2 * n_instances * LINE)) * LINE))
    for group, layout in layouts.items():
        for begin in range(0, layout.length, size):
            yield group, slice(begin, min(begin + size, layout.length))
