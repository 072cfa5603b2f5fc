"""A graph as a DAG of works: what each costs, what it waits for, and how long it takes alone.

Owns `Work` and the time of one work alone. It must not know policies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...backend.costs import node_cost
from ...costs.cost import Cost, CostRule
from ...ir.graph import Graph
from ...ir.views import MemoryPlan
from ...targets.machine import Machine
from .cache_model import memory_of, with_caches

SPREAD = -1
"""The home of data whose pages lie in the memories of all sockets in use, no matter which of them needs them."""
SHIFTED = 0.3
"""Of the activations in the caches: the share that lies with whichever core wrote it, wherever it is read. Kernels cut
their rows alike, so a core reads mostly what it has written itself. Measured, as the median over layers of ten models
at one and at eight rows; all of it (1.0) would make kernels bound by memory two to three times too slow on two."""
BESIDE = 1.04
"""Times as long as alone a kernel takes that runs beside another branch's: they disturb one another in caches and
memory, and find the last layer's data with both cores. Measured 1.03 to 1.06 on branches of three models."""

WAITING = 0.025
"""Of the time of a kernel that cores share: what they wait for one another at its end, if nothing else is left to do.
Measured 0.02 to 0.03 over NASNet, ResNeXt and Inception on two cores, uneven items included."""

Measured = Mapping[str, Mapping[int, float]]
"""Name of a node's first output → number of cores → seconds that it took there."""


@dataclass(frozen=True)
class Work:
    """One kernel's worth of a graph.

    Attributes:
        after: indices of the works that must end before.
        measured: number of cores → seconds that it took alone on so many, where that is known.
    """

    name: str
    cost: Cost
    after: tuple[int, ...] = ()
    measured: Mapping[int, float] = field(default_factory=dict)

    def correction(self, machine: Machine, n_cores: int) -> float:
        """What to multiply predictions for so many cores by: how far off they are at the nearest measured number."""
        if not self.measured:
            return 1.0
        nearest = min(self.measured, key=lambda n: (abs(n - n_cores), n))
        predicted = seconds_alone(self.cost, machine, nearest)
        return self.measured[nearest] / predicted if predicted > 0 else 1.0



def graph_works(
    graph: Graph, symbols: Mapping[str, int], cost: CostRule = node_cost, caches: tuple[float, float] | None = None,
    memory: MemoryPlan | None = None, measured: Measured | None = None,
) -> list[Work]:  # fmt: skip
    """The works of a graph, one for each node in order, views included (they cost nothing).

    Args:
        symbols: sizes of the symbolic dimensions. cost: what a node costs.
        caches: bytes of the second-level cache of a core and of its part of the last one (`Machine.caches`); None:
            everything comes from memory. memory: where values lie, if the caller knows.
        measured: what nodes took with these sizes, where somebody ran them.
    """
    nodes = list(graph)
    number = {node: i for i, node in enumerate(nodes)}
    costs = [cost(node, symbols) for node in nodes]
    memory = memory or (memory_of(graph) if caches is not None else None)
    if caches is not None and memory is not None:
        costs = with_caches(graph, costs, symbols, memory, *caches)
    works = []
    for node, own in zip(nodes, costs):
        after = {number[v.producer] for v in node.operands if v.producer is not None and v.producer in number}
        known = (measured or {}).get(node.output.name, {})
        works.append(Work(node.name or node.output.name, own, tuple(sorted(after)), known))
    return works


def seconds_on(
    cost: Cost, machine: Machine, n_cores: int, sockets: Sequence[tuple[int, int]], home: int | None = None,
    far_nbytes: float | None = None,
) -> float:  # fmt: skip
    """Seconds of a work on `n_cores` cores that are these (socket, cores), nobody else running.

    Arithmetic overlaps with the transfers from memory but for what is exposed, and with those from a core's own caches
    nearly: c and t seconds of these take √(c² + t²), as products of few rows show, whose weights arrive meanwhile. Both
    kinds of transfers follow one another. What other cores have written is waited for: 1 − 1/n of what is SHIFTED
    of the activations in the caches. Then comes the barrier.

    Args:
        home: the socket whose memory holds all the data; None: every socket's part lies in its own memory; SPREAD.
        far_nbytes: what comes from memory, if not what the cost says.
    """
    if cost.kind == "view":
        return 0.0
    cores = max(1, min(n_cores, cost.parallel_items))
    items = max(1, cost.parallel_items)
    uneven = -(-items // cores) * cores / items  # the last round of items leaves cores idle
    compute = cost.arithmetic * uneven / (machine.flops_per_core * machine.share(cost.kind) * cores)
    peers = SHIFTED * cost.near_nbytes * (1 - 1 / cores)  # what the other cores have written
    own = 1 - peers / cost.cached_nbytes if cost.cached_nbytes else 1.0
    l3 = max(0.0, cost.cached_nbytes - cost.l2_nbytes)
    near = own * (cost.l2_nbytes / machine.l2_bandwidth_per_core + l3 / machine.l3_bandwidth_per_core) / cores
    far = (cost.far_nbytes if far_nbytes is None else far_nbytes) / far_limit(machine, sockets, home)
    fetched = peers / machine.peer_bandwidth_per_core / cores
    meetings = (1 + cost.meetings) * machine.barrier(n_cores)
    overlapped = max(math.hypot(compute, near), near + far) + machine.exposed * min(compute, far)
    return overlapped + fetched + machine.kernel_seconds + meetings


def far_limit(machine: Machine, sockets: Sequence[tuple[int, int]], home: int | None = None) -> float:
    """Bytes per second from memory for a kernel on these (socket, cores); see seconds_on."""
    cores = sum(n for _, n in sockets)
    shares = []
    for socket, n in sockets:
        limit = min(n * machine.bandwidth_per_core, machine.bandwidth_per_socket)
        if home == SPREAD and len(sockets) > 1:
            limit = min(limit, machine.remote_bandwidth * len(sockets) / (len(sockets) - 1))
        elif home not in (None, SPREAD, socket):
            limit = min(limit, machine.remote_bandwidth)
        shares.append(limit * cores / n)  # all finish together: the slowest socket decides
    return min(shares)


def seconds_alone(cost: Cost, machine: Machine, n_cores: int) -> float:
    """Seconds of a work on the first `n_cores` cores, the memory for itself."""
    cores = max(1, min(n_cores, cost.parallel_items))
    return seconds_on(cost, machine, n_cores, machine.sockets_of(0, cores))
