"""How many of a work's bytes the caches still hold when it runs, from where everything lies and when it was touched.

Owns the cache model: LRU over blocks (the stack distance of Mattson et al., 1970) of the arena as it is planned, the
constants and the caller's buffers, for a graph run again and again in its order. It must not know machines' speeds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...costs.cost import Cost, Sizes
from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Control, Host
from ...ir.types import Dim, TensorType
from ...ir.views import MemoryPlan, roots
from ...passes.dataflow.memory_planning import plan_memory

BLOCK = 32 << 10
MOST_TOUCHES = 8_000  # of blocks in one run; above, blocks grow
Touched = tuple[object, int, float]
"""A stretch of memory: which one, its first byte, its length."""


def memory_of(graph: Graph) -> MemoryPlan | None:
    """Where the values of a graph lie; None where the runtime decides: host steps, bodies, unknown ranks."""
    types = [v.type for node in graph for v in (*node.operands, *node.outputs)]
    known = all(isinstance(t, TensorType) and t.shape is not None for t in types)
    if not known or any(isinstance(node.op, (Control, Host)) for node in graph):
        return None
    return plan_memory(graph)


def with_caches(
    graph: Graph, costs: Sequence[Cost], symbols: Mapping[str, int], memory: MemoryPlan, l2_nbytes: float,
    l3_nbytes: float,
) -> list[Cost]:  # fmt: skip
    """The costs of the nodes of `graph` with the bytes that caches serve.

    Args:
        memory: where the values lie. l2_nbytes: a core's second-level cache. l3_nbytes: what it has of the last one.
    """
    touches = list(_touches(graph, costs, symbols, memory.offsets))
    blocks = _numbered(touches)
    levels = [Cache(l2_nbytes), Cache(max(l2_nbytes, l3_nbytes))]
    for own in blocks:  # a first run; the next is as all that follow
        for _, number, part in own:
            for cache in levels:
                cache.touch(number, part)
    found: list[Cost] = []
    for cost, own, stretches in zip(costs, blocks, touches):
        held = [[0.0, 0.0], [0.0, 0.0]]  # by level: activations, weights
        for is_weight, number, part in own:
            for level, cache in enumerate(levels):
                if cache.touch(number, part):
                    held[level][is_weight] += part
        found.append(_with_held(cost, stretches, held, l2_nbytes, l3_nbytes))
    return found


def _numbered(touches: Sequence[Sequence[tuple[bool, Touched]]]) -> list[list[tuple[bool, int, float]]]:
    """For each node the blocks that it touches, as numbers of their own, each with the bytes that it touches there."""
    total = sum(nbytes for own in touches for _, (_, _, nbytes) in own)
    block = max(BLOCK, int(total / MOST_TOUCHES))
    numbers: dict[object, int] = {}
    return [
        [(is_weight, numbers.setdefault(key, len(numbers)), part)
         for is_weight, (stretch, begin, nbytes) in own for key, part in _blocks(stretch, begin, nbytes, block)]
        for own in touches
    ]  # fmt: skip


def _with_held(
    cost: Cost, own: Sequence[tuple[bool, Touched]], held: list[list[float]], l2: float, l3: float
) -> Cost:  # fmt: skip
    """Bytes found in the caches, by level, as part of a cost. Later time steps find the R that the first has read."""
    again = max(0.0, cost.streamed_nbytes - sum(nbytes for is_weight, (_, _, nbytes) in own if is_weight))
    once = again / max(1, cost.meetings - 1)
    near_weights = held[1][True] + (again if once <= l3 else 0.0)
    in_l2 = held[0][False] + held[0][True] + (again if once <= l2 else 0.0)
    return replace(cost, near_nbytes=held[1][False], near_weight_nbytes=near_weights, l2_nbytes=in_l2)


def _touches(
    graph: Graph, costs: Sequence[Cost], symbols: Mapping[str, int], offsets: Mapping[Value, Dim]
) -> Iterator[list[tuple[bool, Touched]]]:  # fmt: skip
    """For each node the memory it touches, operands before results; whether it is a constant."""
    sizes, same = Sizes(symbols), roots(graph)
    for node, cost in zip(graph, costs, strict=True):
        own: list[tuple[bool, Touched]] = []
        if cost.kind != "view":
            of_reads, of_constants = _touched_shares(node, cost, sizes)
            operands = [(v, of_reads if v.data is None else of_constants) for v in dict.fromkeys(node.operands)]
            for v, share in (*operands, *((v, 1.0) for v in node.outputs)):
                root, nbytes = same.get(v, v), share * _nbytes(v, sizes)
                in_arena = root in offsets
                place: Touched = (None, sizes.of(offsets[root]), nbytes) if in_arena else (root, 0, nbytes)
                own.append((v.data is not None, place))
        yield own


def _touched_shares(node: Node, cost: Cost, sizes: Sizes) -> tuple[float, float]:
    """What part of its activations and of its constants a node touches: few rows of a table, more of Winograd's."""
    read = sum(_nbytes(v, sizes) for v in set(node.operands) if v.data is None)
    constant = sum(_nbytes(v, sizes) for v in set(node.operands) if v.data is not None)
    again = cost.kind == "recurrent"
    return (
        cost.read_nbytes / read if read else 1.0,
        cost.streamed_nbytes / constant if constant and not again else 1.0,
    )


def _nbytes(v: Value, sizes: Sizes) -> float:
    return sizes.nbytes(v) if isinstance(v.type, TensorType) else 0.0


def _blocks(memory: object, begin: int, nbytes: float, block: int) -> Iterator[tuple[object, float]]:
    """The blocks of a stretch, each with the bytes of it that the stretch covers."""
    end = begin + int(nbytes)
    for number in range(begin // block, -(-end // block)):
        yield (memory, number), min(end, (number + 1) * block) - max(begin, number * block)


class Cache:
    """Which blocks an LRU cache of `nbytes` holds."""

    def __init__(self, nbytes: float) -> None:
        self.nbytes, self.used = nbytes, 0.0
        self.held: OrderedDict[object, float] = OrderedDict()

    def touch(self, block: object, nbytes: float) -> bool:
        """Whether the block is there; it is the newest now. Called some hundred thousand times a compilation."""
        held = self.held
        before = held.get(block, 0.0)
        if before:
            held.move_to_end(block)
        if nbytes > before:
            held[block] = nbytes
            self.used += nbytes - before
            while self.used > self.nbytes and held:
                self.used -= held.popitem(last=False)[1]
        return before > 0
