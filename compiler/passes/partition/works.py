"""A graph as a DAG of works: what each costs, what it waits for, and how much of its data the caches still hold.

Owns `Work`, the residency of data in the caches, and the time of one work alone. It must not know policies.

A buffer is near if, since it was last touched, no more than the caches' share of a core group was touched besides:
the stack distance of Mattson et al. (1970), taken over whole tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.costs import Cost, Sizes, node_cost
from ...ir.graph import Graph, Node, Value
from ...ir.machine import Machine
from ...ir.views import roots


@dataclass(frozen=True)
class Work:
    """One kernel's worth of a graph. `after`: indices of the works that must end before."""

    name: str
    cost: Cost
    after: tuple[int, ...] = ()


CostRule = Callable[[Node, Mapping[str, int]], Cost]


def graph_works(
    graph: Graph, symbols: Mapping[str, int], cost: CostRule = node_cost, cache_nbytes: float = 0.0
) -> list[Work]:
    """The works of a graph, one for each node in order, views included (they cost nothing).

    Args:
        symbols: sizes of the symbolic dimensions. cost: node_cost or training_cost.
        cache_nbytes: what the caches keep for whoever runs the graph; 0: everything comes from memory.
    """
    nodes = list(graph)
    number = {node: i for i, node in enumerate(nodes)}
    works = []
    for node in nodes:
        after = {number[v.producer] for v in node.operands if v.producer is not None and v.producer in number}
        works.append(Work(node.name or node.output.name, cost(node, symbols), tuple(sorted(after))))
    return works if cache_nbytes <= 0 else _with_near_bytes(graph, works, symbols, cache_nbytes)


def _with_near_bytes(graph: Graph, works: list[Work], symbols: Mapping[str, int], cache: float) -> list[Work]:
    """Mark the bytes that are still in `cache` bytes of cache when a work touches them, run after run in this order."""
    sizes, same = Sizes(symbols), roots(graph)
    nodes = list(graph)
    touched = [[same.get(v, v) for v in (*dict.fromkeys(node.operands), *node.outputs)] for node in nodes]
    costs = [work.cost for work in works]
    sequence = [v for values, c in zip(touched, costs) if c.kind != "view" for v in values]
    near = _near(sequence, {v: sizes.nbytes(v) for v in sequence}, cache)
    found, at = [], 0
    for work, values in zip(works, touched):
        c = work.cost
        if c.kind == "view":
            found.append(work)
            continue
        mine = list(zip(values, near[at : at + len(values)]))
        at += len(values)
        found.append(replace(work, cost=_with_near(c, mine, sizes, cache)))
    return found


def _with_near(c: Cost, touched: Sequence[tuple[Value, bool]], sizes: Sizes, cache: float) -> Cost:
    """The cost with the bytes that the caches serve, from which of its values they hold."""
    sums = {(constant, held): 0.0 for constant in (False, True) for held in (False, True)}
    for v, held in touched:
        sums[v.data is not None, held] += sizes.nbytes(v)
    weights, activations = sums[True, True] + sums[True, False], sums[False, True] + sums[False, False]
    again = max(0.0, c.weight_nbytes - weights) if weights <= cache else 0.0  # later time steps find them
    near_weights = again + (min(c.weight_nbytes, weights) * sums[True, True] / weights if weights else 0.0)
    near = (c.read_nbytes + c.written_nbytes) * sums[False, True] / activations if activations else 0.0
    return replace(c, near_nbytes=near, near_weight_nbytes=near_weights)


def _near(sequence: Sequence[Value], nbytes: Mapping[Value, float], cache: float) -> list[bool]:
    """For every touch of a cyclic sequence of buffers: whether it finds its buffer in an LRU cache."""
    held: dict[Value, float] = {}
    used = 0.0
    hits: list[bool] = []
    for again in (False, True):  # the second round is the steady state
        for v in sequence:
            hit = v in held
            if hit:
                used -= held.pop(v)
            size = min(nbytes[v], cache)
            held[v] = size
            used += size
            while used > cache and len(held) > 1:
                oldest = next(iter(held))
                used -= held.pop(oldest)
            if again:
                hits.append(hit and nbytes[v] <= cache)
    return hits


def busy_seconds(cost: Cost, machine: Machine, n_cores: int) -> float:
    """Seconds on `n_cores` cores at endless memory bandwidth: arithmetic or caches, the kernel's call, the barrier."""
    if cost.kind == "view":
        return 0.0
    cores = max(1, min(n_cores, cost.parallel_items))
    items = max(1, cost.parallel_items)
    uneven = -(-items // cores) * cores / items  # the last round of items leaves cores idle
    compute = cost.flops * uneven / (machine.flops_per_core * machine.share(cost.kind) * cores)
    caches = (cost.near_nbytes + cost.near_weight_nbytes) / (machine.cache_bandwidth_per_core * cores)
    return max(compute, caches) + machine.kernel_seconds + machine.barrier(n_cores)


def far_limit(machine: Machine, sockets: Sequence[tuple[int, int]], home: int | None = None) -> float:
    """Bytes per second from memory for a kernel on these (socket, cores), nobody else running.

    Args:
        home: the socket whose memory holds all the data; None: every socket's part lies in its own memory.
    """
    cores = sum(n for _, n in sockets)
    shares = []
    for socket, n in sockets:
        limit = min(n * machine.bandwidth_per_core, machine.bandwidth_per_socket)
        if home is not None and socket != home:
            limit = min(limit, machine.remote_bandwidth)
        shares.append(limit * cores / n)  # all finish together: the slowest socket decides
    return min(shares)


def seconds_alone(cost: Cost, machine: Machine, n_cores: int) -> float:
    """Seconds of a work that has `n_cores` cores and the memory for itself."""
    if cost.kind == "view":
        return 0.0
    cores = max(1, min(n_cores, cost.parallel_items))
    return max(busy_seconds(cost, machine, n_cores),
               cost.far_nbytes / far_limit(machine, machine.sockets_of(0, cores)))
