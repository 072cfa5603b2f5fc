"""Each shard's gradient has its place; one kernel on all cores adds them in a fixed order and moves the weights.

No bit depends on the number of instances or on who was first, and nobody locks. A core reads every shard's part of the
gradient once, which is less than any server moves; the price is memory for a gradient per shard.
"""

from __future__ import annotations

from ...prepared import Prepared
from .base import Scheme, Site
from .gradient import Gradient, Update


class FixedOrder(Scheme):
    """See the file."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.gives_at_end = len(set(site.placement.nodes)) == 1
        self._gradients = [site.gradient() for _ in range(site.program.n_shards)]
        self.updates = [site.update(site.placement.everyone, site.program.n_shards)]

    def place(self, instance: int, shard: int) -> Gradient:
        return self._gradients[shard]

    def give(self, instance: int, shard: int) -> None:
        """It stays where it is."""

    def update(self) -> float:
        return self.updates[0].run(self._gradients, self.rate, self.site.state.steps + 1)

    def behind(self) -> tuple[Update, Prepared]:
        return self.updates[0], self.updates[0].request(self._gradients, self.rate, self.site.state.steps + 1)
