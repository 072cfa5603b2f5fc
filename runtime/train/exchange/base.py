"""What every scheme of exchange does: says where gradients go and which weights are read, and makes new weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...prepared import Prepared
from ..program import TrainingProgram
from ..state import TrainingState
from .compact import CompactGradients
from .gradient import Copy, Gradient, Update
from .instances import Instances
from .placement import Placement
from .traffic import Traffic


@dataclass
class Site:
    """What a scheme works on.

    Attributes:
        program, state, instances, placement: of the training. staleness: see AsynchronousServer.
        traffic: of each instance's thread. compact: of a whole batch.
    """

    program: TrainingProgram
    state: TrainingState
    instances: Instances
    placement: Placement
    staleness: int = 1
    traffic: list[Traffic] = field(default_factory=list)
    compact: CompactGradients = field(init=False)

    def __post_init__(self) -> None:
        self.traffic = [Traffic() for _ in range(len(self.instances))]
        self.compact = CompactGradients(self.program, self.program.n_shards * self.program.accumulate)

    def gradient(self) -> Gradient:
        """A new place for one."""
        return Gradient(self.program, self.state.layouts)

    def update(
        self, cores: tuple[int, ...], n_summed: int, state: TrainingState | None = None,
        compact: CompactGradients | None = None,
    ) -> Update:  # fmt: skip
        """The optimiser's step on some cores; see Update. n_summed: shards whose gradients are summed."""
        n_gradients = n_summed * self.program.accumulate
        return Update(self.program, state or self.state, cores, n_gradients, compact or self.compact)


class Scheme:
    """One way to exchange gradients and weights.

    Of each step: `begin`; on every instance's thread, for every shard that it takes, `parameters`, `place` and `give`;
    then `update` and `advance`, or neither if something failed.

    Attributes:
        is_static: shard i belongs to instance i mod n; else whoever is free takes the next.
        is_synchronous: all gradients of a step are of the same weights.
        gives_at_end: nothing is done between two shards, nor between them and the update: a gradient may be given when
            all are there, `behind` may take the place of `update`, and the first instance's weights, which are every
            one's, and the places stay what they are from step to step.
        rate: the learning rate of the step.
    """

    is_static = False
    is_synchronous = True
    gives_at_end = False

    def __init__(self, site: Site) -> None:
        self.site, self.rate = site, 0.0
        self.updates: list[Update] = []
        self._nodes = NodeWeights(site)

    def begin(self, rate: float) -> None:
        """A step begins: what is left of one that failed is forgotten."""
        self.rate = rate
        for traffic in (*self.site.traffic, *(update.traffic for update in self.updates)):
            traffic.clear()
        self._nodes.begin()

    def parameters(self, instance: int) -> Mapping[str, np.ndarray]:
        """The weights that an instance reads for its next shard."""
        return self._nodes.parameters(instance)

    def place(self, instance: int, shard: int) -> Gradient:
        """Where the gradient of a shard goes, before it is given."""
        raise NotImplementedError

    def compact(self, instance: int, shard: int, micro: int) -> Mapping[str, np.ndarray]:
        """Where the compact gradients of a shard of a micro-batch go, by the names of the step's outputs."""
        return self.site.compact.outputs(micro * self.site.program.n_shards + shard)

    def give(self, instance: int, shard: int) -> None:
        """The gradient lies in its place."""
        raise NotImplementedError

    def failed(self, instance: int) -> None:
        """An instance gives nothing more in this step: nobody waits for it."""

    def update(self) -> float:
        """Move the weights, once all instances are done, where the gradient is finite. Returns its norm."""
        raise NotImplementedError

    def behind(self) -> tuple[Update, Prepared]:
        """The update and its request, for who runs it behind the shards (`gives_at_end`)."""
        raise NotImplementedError

    def advance(self) -> None:
        """One more step is done."""
        self.site.state.steps += 1

    def moved(self) -> list[Traffic]:
        """What was moved in this step."""
        return self.site.traffic

    @property
    def staleness(self) -> int:
        """Updates between reading weights and using the gradient, at most."""
        return 0

    def close(self) -> None:
        """End what was started."""
        for update in self.updates:
            update.close()


class NodeWeights:
    """A copy of the weights on every NUMA node with instances, but for the first, which has the state.

    They are read before each step, by an instance of the node: once over the link between the nodes, instead of once
    by each instance. (The source has each node make its own update. One update on all cores and a copy move 2S bytes a
    node, an update of Adam 7S.)
    """

    def __init__(self, site: Site) -> None:
        self._site, self._nodes = site, site.placement.nodes
        self._copies = {node: Copy(site.state.layouts) for node in set(self._nodes) - {self._nodes[0]}}
        self._readers = {node: self._nodes.index(node) for node in self._copies}

    def begin(self) -> None:
        """Bring the copies up to date."""
        if self._copies:
            self._site.instances.each(self._read)

    def _read(self, instance: int) -> None:
        node = self._nodes[instance]
        if self._readers.get(node) == instance:
            self._copies[node].read(self._site.state, self._site.traffic[instance])

    def parameters(self, instance: int) -> Mapping[str, np.ndarray]:
        """Those of the instance's node."""
        copy = self._copies.get(self._nodes[instance])
        return self._site.state.parameters if copy is None else copy.parameters
