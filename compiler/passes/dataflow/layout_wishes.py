"""Which memory order the readers of each value would like: found backwards, from those that insist.

Owns one rule per operator: given the wished order of the result, the wished order of each operand. Changes nothing.
"""

from __future__ import annotations

from collections import Counter

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Elementwise, Movement, Relayout, Window
from ...ir.types import TensorType
from ...ir.views import reshape_order

Order = tuple[int, ...]  # every axis, outermost first; unlike `TensorType.layout` never None for ONNX's own order

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose", "IntegralConv"})
LIKE_RESULT = frozenset({"Concat", "Split", "Slice", "Pad", "Softmax", "LogSoftmax", "InstanceNormalization", "Resize",
                         "BatchNormalization", "LRN"})
LAST_AXIS_INNERMOST = frozenset({"LayerNormalization", "RMSNormalization"})
PRODUCTS = frozenset({"MatMul", "IntegralMatMul"})
NO_OPINION = PRODUCTS | {"DotProductAttention", "Gather", "LSTM", "GRU", "RNN", "GlobalAveragePool", "GlobalMaxPool"}
PLAIN_CHANNELS = 4  # a convolution reads an ONNX-ordered input directly up to this many channels


def channels_last(rank: int) -> Order:
    """(0, 2, …, rank-1, 1): batch, space, channels."""
    return (0, *range(2, rank), 1)


def plain(rank: int) -> Order:
    """ONNX's own order."""
    return tuple(range(rank))


def layout_wishes(graph: Graph) -> dict[Value, Order]:
    """The most wanted order of every value that any reader has an opinion on."""
    votes: dict[Value, Counter[Order]] = {}
    for v in graph.outputs:
        if isinstance(v.type, TensorType) and v.type.shape is not None:
            votes.setdefault(v, Counter())[plain(v.type.rank)] += 1
    wishes: dict[Value, Order] = {}
    for node in reversed(graph.nodes_in_order()):
        for v in node.outputs:
            if v in votes:
                wishes[v] = votes[v].most_common(1)[0][0]
        if all(v.known is not None for v in node.outputs):
            continue
        if not all(_has_shape(v) for v in (*node.operands, *node.outputs)):
            continue
        wished = wishes.get(node.outputs[0])
        for i, source in enumerate(node.inputs):
            order = _wish(node, i, wished) if source is not None and not source.is_constant else None
            if source is not None and order is not None and len(order) == source.tensor.rank:
                votes.setdefault(source, Counter())[order] += 1
    return wishes


def _has_shape(v: Value) -> bool:
    return isinstance(v.type, TensorType) and v.type.shape is not None


def _wish(node: Node, i: int, wished: Order | None) -> Order | None:
    """The order in which `node` would like operand `i`, if its first result shall have the order `wished`."""
    name, x, y = node.op.name, node.inputs[i], node.output.tensor
    assert x is not None
    t = x.tensor
    if name in CONVOLUTIONS:
        few = isinstance(t.dims[1], int) and t.dims[1] <= PLAIN_CHANNELS if t.rank > 2 else True
        return channels_last(t.rank) if i == 0 and not few else None
    if isinstance(node.op, Elementwise):
        return wished if t.dims == y.dims else None
    if name in LIKE_RESULT or isinstance(node.op, Window):
        return wished if t.rank == y.rank else None
    if name == "Transpose":
        perm = node.op.order(t.rank)  # type: ignore[attr-defined]
        return None if wished is None else tuple(perm[a] for a in wished)
    if isinstance(node.op, Movement) and node.op.is_view:
        result = y.with_layout(wished)
        return (reshape_order(result, t.dims) if wished is not None and i == 0 else None) or plain(t.rank)
    if name in LAST_AXIS_INNERMOST and wished is not None and i == 0:
        return wished if wished[-1] == t.rank - 1 else plain(t.rank)
    if name in NO_OPINION or isinstance(node.op, Relayout):
        return None
    return plain(t.rank)


