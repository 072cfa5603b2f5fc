"""How many rows an instance takes at a time: enough to use each streamed weight often, few enough for the cache.

Owns the cost rules; the executor cuts the batch. Knows the graph, its kernel calls and the machine's cache sizes.

Cost of a row, in bytes of memory traffic, for micro-batches of m rows: weights / m + spilled activations, where the
part of an m-row arena beyond the core's share of the last-level cache is taken to spill.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from .backend.lower import Segment
from .ir.graph import Graph, Node
from .ir.ops.contraction import Conv
from .ir.target import Target
from .ir.types import Dim, SymDim, TensorType, evaluate
from .ir.views import MemoryPlan, view_source

CANDIDATES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
MAX_ARENA_NBYTES = 256 << 20
TOLERANCE = 0.02  # of a single row's cost: below that a larger micro-batch only takes memory
TYPICAL = 32  # what other symbols are taken to be
HAND_OFF_SECONDS = 15e-6  # measured: two instances against one on an empty plan
SLOW_FLOPS, SLOW_BANDWIDTH = 50e9, 10e9  # of one core on small work, in flop/s and bytes/s
WINOGRAD_GROWTH = 4
RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def choose_micro_batch(
    graph: Graph, symbol: str, memory: MemoryPlan, target: Target, n_cores: int, packed_nbytes: int = 0
) -> int:
    """Rows per native call.

    Args:
        symbol: the dimension that counts rows. n_cores: cores that share the last-level cache.
        packed_nbytes: of all weights as kernels read them, once that is known: Winograd's are larger than the model's.
    """
    one = _one_row(graph, symbol)
    share = max(target.l2_nbytes, target.l3_nbytes // max(1, n_cores))
    weights = sum(_weight_traffic(node, one) for node in graph)
    weights += max(0, packed_nbytes - sum(v.data.nbytes for v in graph.constants if v.data is not None))
    traffic = 2 * sum(_activation_nbytes(node, one) for node in graph if view_source(node) is None)
    arena = max(1, _size(memory.total, one))

    def cost(m: int) -> float:
        return weights / m + traffic * max(0.0, 1.0 - share / (m * arena))

    allowed = [m for m in CANDIDATES if m == 1 or m * arena <= MAX_ARENA_NBYTES]
    enough = min(map(cost, allowed)) + TOLERANCE * cost(1)
    return next(m for m in allowed if cost(m) <= enough)


def packed_estimate(graph: Graph) -> int:
    """Bytes of the weights as kernels will read them, before any kernel is chosen: Winograd's are up to four times the
    model's own."""
    nbytes = 0
    for node in graph:
        root = node if node.body is None else next(iter(node.body))
        large = isinstance(root.op, Conv) and root.op.group == 1
        for v in (v for v in node.operands if v.data is not None):
            assert v.data is not None
            nbytes += v.data.nbytes * (WINOGRAD_GROWTH if large and v.data.ndim == 4 and v.data.shape[-1] > 1 else 1)
    return nbytes


def least_rows(graph: Graph, symbol: str, segment: Segment) -> int:
    """The fewest rows worth waking another instance for: their work should take longer than the hand-off."""
    one = _one_row(graph, symbol)
    flops = sum(_size(placed.call.flops, one) for placed in segment.calls)
    nbytes = 2 * sum(_activation_nbytes(node, one) for node in graph if view_source(node) is None)
    seconds = flops / SLOW_FLOPS + nbytes / SLOW_BANDWIDTH
    return max(1, math.ceil(HAND_OFF_SECONDS / max(seconds, 1e-9)))


def _one_row(graph: Graph, symbol: str) -> dict[str, int]:
    """Typical values of all symbols, for a single row."""
    symbols = {s for v in graph.inputs for d in v.tensor.dims if isinstance(d, SymDim) for s in d.symbols()}
    return {s: TYPICAL for s in symbols} | {symbol: 1}


def _size(dim: Dim, symbols: Mapping[str, int]) -> int:
    return evaluate(dim, symbols)


def _activation_nbytes(node: Node, symbols: Mapping[str, int]) -> int:
    return sum(_size(v.type.nbytes, symbols) for v in node.outputs if isinstance(v.type, TensorType))


def _weight_traffic(node: Node, symbols: Mapping[str, int]) -> int:
    """Bytes of constants one call of the node reads; a recurrent layer reads its weights at every time step."""
    constants = [v for v in node.operands if v.data is not None]
    if node.op.name == "Gather" and node.inputs[0] in constants:
        constants.remove(node.inputs[0])  # a look-up touches few rows of the table
    nbytes = sum(v.data.nbytes for v in constants if v.data is not None)
    if node.op.name in RECURRENT:
        nbytes *= max(1, _size(node.operands[0].tensor.dims[0], symbols))
    return nbytes
