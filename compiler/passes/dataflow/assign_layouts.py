"""Channels-last inside: chooses the physical axis order of every value.

Owns the policy per operator: who asks for channels-last, who follows its input, who writes any order its readers wish,
who insists on ONNX's. A Transpose is a view, a Reshape wherever that is possible, so that transposes cancel without
anything being moved. Kernels read any order; a Relayout is inserted only where one order is much faster.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Control, Elementwise, Host, Movement, Reduce, Relayout, Window
from ...ir.types import STR, TensorType
from ...ir.views import is_row_major, physical_axes, reshape_order
from ..base import DataflowPass
from ..rewrite import Rewriter
from .layout_wishes import CONVOLUTIONS, PLAIN_CHANNELS, PRODUCTS, Order, channels_last, layout_wishes

Layout = tuple[int, ...] | None
FOLLOW_FIRST = frozenset({"BatchNormalization", "InstanceNormalization", "LRN", "Resize", "Softmax", "LogSoftmax"})
COPIES = frozenset({"Concat", "Split", "Slice", "Pad", "Expand", "Tile", "Gather", "DepthToSpace", "SpaceToDepth"})
LINES = frozenset({"LayerNormalization", "RMSNormalization"})
RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


@dataclass(frozen=True)
class AssignLayouts(DataflowPass):
    """Give every value a physical axis order.

    before: %1 = Conv(%x, %w) : f32[N,8,4,4]      after: %1 = Conv(%x, %w) : f32[N,8,4,4]{0,2,3,1}
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        before = [v.type for n in graph for v in n.outputs], len(graph)
        wishes = layout_wishes(graph)
        for node in graph.nodes_in_order():
            if isinstance(node.op, (Host, Control)) or not all(_has_order(v) for v in node.outputs):
                _plain(node, rw)
            elif any(v.known is None for v in node.outputs):  # else shape arithmetic, which reads no tensor
                self._assign(node, rw, wishes)
        _plain_outputs(graph)
        return before != ([v.type for n in graph for v in n.outputs], len(graph))

    def _assign(self, node: Node, rw: Rewriter, wishes: dict[Value, Order]) -> None:
        name = node.op.name
        if name in CONVOLUTIONS and node.output.tensor.rank >= 3:
            _convolution(node, rw)
        elif name == "Transpose":
            _transpose(node)
        elif isinstance(node.op, Relayout):
            return
        elif isinstance(node.op, Elementwise):
            _elementwise(node, rw, wishes)
        elif isinstance(node.op, Reduce):
            _reduce(node)
        elif isinstance(node.op, Window) or name in FOLLOW_FIRST:
            _follow(node)
        elif name in COPIES:
            _copy(node, wishes)
        elif name in LINES:
            _lines(node, rw)
        elif name in PRODUCTS:
            _inner_axis_kept(node, wishes, node.operands[1].tensor.rank > 1)
        elif name in RECURRENT or name == "DotProductAttention":
            _inner_axis_kept(node, wishes, True)
        elif isinstance(node.op, Movement) and node.op.is_view:
            _view(node, rw)
        else:
            _plain(node, rw)


def _convolution(node: Node, rw: Rewriter) -> None:
    x, y = node.operands[0], node.output
    wanted = channels_last(y.tensor.rank)
    channels = x.tensor.dims[1]
    few = isinstance(channels, int) and channels <= PLAIN_CHANNELS and node.op.name != "ConvTranspose"
    if not (few and is_row_major(x.tensor)):
        node.set_input(0, relayout(rw, node, x, wanted))
    y.type = y.tensor.with_layout(wanted)


def _has_order(v: Value) -> bool:
    """Whether native code holds the value: strings and values of unknown rank stay as they are."""
    return isinstance(v.type, TensorType) and v.type.shape is not None and v.type.dtype != STR


def _plain_outputs(graph: Graph) -> None:
    outputs = list(graph.outputs)
    for i, v in enumerate(outputs):
        if isinstance(v.type, TensorType) and v.type.layout is not None:
            outputs[i] = graph.add_node(Relayout(layout=()), [v]).output
    if outputs != list(graph.outputs):
        graph.set_outputs(outputs, graph.output_names)


def relayout(rw: Rewriter, node: Node, v: Value, layout: Layout) -> Value:
    """`v` in the wanted order: itself, a constant seen anew, an existing Relayout of it, or a new one before `node`."""
    t = v.tensor
    wanted = t.with_layout(layout)
    if t == wanted:
        return v
    if v.is_constant and len(v.uses) == 1 and not v.output_uses:
        v.type = wanted
        return v
    for user in v.users:
        if isinstance(user.op, Relayout) and user.output.type == wanted and _comes_before(user, node):
            return user.output
    if v.producer is not None and isinstance(v.producer.op, Relayout):
        source = v.producer.operands[0]
        if source.type == wanted:
            return source
    return rw.before(node).Relayout(v, layout=layout or ())


def _comes_before(first: Node, second: Node) -> bool:
    node: Node | None = second
    for _ in range(64):  # a Relayout made for a neighbour is close by; further away a second copy is cheap enough
        node = node.prev if node is not None else None
        if node is first:
            return True
    return False


def _transpose(node: Node) -> None:
    """y's order in memory is x's: the transpose moves nothing."""
    x, y = node.operands[0].tensor, node.output
    perm = node.op.order(x.rank)  # type: ignore[attr-defined]
    place = {a: i for i, a in enumerate(perm)}
    y.type = y.tensor.with_layout(tuple(place[a] for a in x.axis_order))


def _elementwise(node: Node, rw: Rewriter, wishes: dict[Value, Order]) -> None:
    """The result takes the order of most of its full-size operands; the others are brought into line."""
    y = node.output
    full = [v for v in node.operands if isinstance(v.type, TensorType) and v.type.dims == y.tensor.dims]
    orders = Counter(physical_axes(v.tensor) for v in full if not v.is_constant)
    layout: Layout = None
    if orders:
        most = max(orders.values())
        wished = wishes.get(y)
        wished = physical_axes(y.tensor.with_layout(wished)) if wished is not None else None
        best = wished if wished in orders else next(o for o in reversed(orders) if orders[o] == most)
        layout = next(v.tensor.layout for v in full if not v.is_constant and physical_axes(v.tensor) == best)
    wanted = physical_axes(y.tensor.with_layout(layout))
    for i, v in enumerate(node.inputs):
        if v is not None and v in full and physical_axes(v.tensor) != wanted:
            node.set_input(i, relayout(rw, node, v, layout))
    for out in node.outputs:
        out.type = out.tensor.with_layout(layout)


def _follow(node: Node) -> None:
    first = node.operands[0].tensor
    for out in node.outputs:
        if out.tensor.rank == first.rank:
            out.type = out.tensor.with_layout(first.layout)


def _copy(node: Node, wishes: dict[Value, Order]) -> None:
    """Strided copies write whatever order is wished, else that of their largest operand."""
    for out in node.outputs:
        t = out.tensor
        alike = [v.tensor for v in node.operands if v.tensor.rank == t.rank and v.tensor.dtype == t.dtype]
        orders = Counter(other.axis_order for other in alike if not _is_flat(other))
        layout = orders.most_common(1)[0][0] if orders and node.op.name != "Gather" else None
        out.type = t.with_layout(wishes.get(out, layout))


def _is_flat(t: TensorType) -> bool:
    """Whether the order makes no difference."""
    return len(physical_axes(t)) < 2


def _lines(node: Node, rw: Rewriter) -> None:
    """Normalisation over the last axes: much faster where the innermost axis is one of them."""
    x = node.operands[0]
    if x.tensor.axis_order[-1] != x.tensor.rank - 1:
        node.set_input(0, relayout(rw, node, x, None))
    layout = node.operands[0].tensor.layout
    node.output.type = node.output.tensor.with_layout(layout)


def _inner_axis_kept(node: Node, wishes: dict[Value, Order], columns: bool) -> None:
    """Matrix products and recurrent layers write rows at any distance, but each row in one piece."""
    y = node.output
    wished = wishes.get(y)
    if wished is not None and columns and wished[-1] == y.tensor.rank - 1:
        y.type = y.tensor.with_layout(wished)


def _reduce(node: Node) -> None:
    """The kept axes stay in the order they had."""
    x, y = node.operands[0].tensor, node.output
    if x.layout is None:
        return
    if y.tensor.rank == x.rank:
        y.type = y.tensor.with_layout(x.layout)
        return
    axes = node.op.reduced_axes(node.context()) if hasattr(node.op, "reduced_axes") else ()
    kept = [a for a in range(x.rank) if a not in axes]
    if len(kept) == y.tensor.rank:
        y.type = y.tensor.with_layout(tuple(kept.index(a) for a in x.axis_order if a in kept))


def _view(node: Node, rw: Rewriter) -> None:
    """Reshape and its kin move nothing where the axes they merge follow one another in memory."""
    x, y = node.operands[0], node.output
    order = reshape_order(x.tensor, y.tensor.dims)
    if order is None:
        node.set_input(0, relayout(rw, node, x, None))
        order = tuple(range(y.tensor.rank))
    y.type = y.tensor.with_layout(order)


def _plain(node: Node, rw: Rewriter) -> None:
    """Operators that know only ONNX's order."""
    for i, v in enumerate(node.inputs):
        if v is not None and isinstance(v.type, TensorType) and v.type.shape is not None and v.type.layout is not None:
            node.set_input(i, relayout(rw, node, v, None))
