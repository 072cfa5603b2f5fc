"""Channels-last inside: chooses the physical axis order of every value.

Owns the policy per operator: who asks for channels-last, who follows its input, who insists on ONNX's order. A
Transpose becomes a view wherever that is possible, so that transposes cancel without being moved about. Kernels accept
any order; a Relayout is inserted only where one order is much faster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Elementwise, Movement, Reduce, Relayout, Window
from ...ir.types import TensorType
from ...ir.views import is_row_major, physical_axes
from ..base import DataflowPass
from ..rewrite import Rewriter

Layout = tuple[int, ...] | None
CHANNELS_LAST = frozenset({"Conv", "ConvTranspose"})
FOLLOW_FIRST = frozenset({"BatchNormalization", "InstanceNormalization", "GlobalAveragePool", "GlobalMaxPool",
                          "GlobalLpPool", "LRN", "Resize", "Slice", "Pad", "Softmax", "LogSoftmax"})
FOLLOW_ALL = frozenset({"Concat", "Split"})
ANY_ORDER = frozenset({"MatMul"})


def channels_last(rank: int) -> tuple[int, ...]:
    """(0, 2, …, rank-1, 1): batch, space, channels."""
    return (0, *range(2, rank), 1)


@dataclass(frozen=True)
class AssignLayouts(DataflowPass):
    """Give every value a physical axis order.

    before: %1 = Conv(%x, %w) : f32[N,8,4,4]      after: %1 = Conv(%x, %w) : f32[N,8,4,4]{0,2,3,1}
    """

    plain_channels: int = 4  # a convolution reads an ONNX-ordered input directly up to this many channels

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        before = [v.type for n in graph for v in n.outputs], len(graph)
        for node in graph.nodes_in_order():
            if all(isinstance(v.type, TensorType) and v.type.shape is not None for v in node.outputs):
                self._assign(node, rw)
        self._plain_outputs(graph, rw)
        return before != ([v.type for n in graph for v in n.outputs], len(graph))

    def _assign(self, node: Node, rw: Rewriter) -> None:
        name = node.op.name
        if name in CHANNELS_LAST and node.output.tensor.rank >= 3:
            self._convolution(node, rw)
        elif name == "Transpose":
            _transpose(node)
        elif isinstance(node.op, Relayout):
            return
        elif isinstance(node.op, Elementwise):
            _follow_largest(node, rw)
        elif isinstance(node.op, Reduce):
            _reduce(node)
        elif name in FOLLOW_ALL:
            _follow(node, rw, every=True)
        elif isinstance(node.op, Window) or name in FOLLOW_FIRST:
            _follow(node, rw, every=False)
        elif name not in ANY_ORDER:
            _plain(node, rw, views=isinstance(node.op, Movement) and node.op.is_view)

    def _convolution(self, node: Node, rw: Rewriter) -> None:
        x, y = node.operands[0], node.output
        rank = y.tensor.rank
        wanted = channels_last(rank)
        few = isinstance(x.tensor.dims[1], int) and x.tensor.dims[1] <= self.plain_channels and node.op.name == "Conv"
        if not (few and is_row_major(x.tensor)):
            node.set_input(0, relayout(rw, node, x, wanted))
        y.type = y.tensor.with_layout(wanted)

    def _plain_outputs(self, graph: Graph, rw: Rewriter) -> None:
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
    return rw.before(node).Relayout(v, layout=layout or ())  # type: ignore[no-any-return]


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


def _follow_largest(node: Node, rw: Rewriter) -> None:
    """An element-wise result takes the order of its full-size operands; the minority is brought into line."""
    full: Callable[[Value], bool] = lambda v: isinstance(v.type, TensorType) and v.type.dims == y.tensor.dims  # noqa: E731
    y = node.output
    candidates = [v for v in node.operands if full(v) and not v.is_constant]
    ordered = [v for v in candidates if not is_row_major(v.tensor)] or candidates
    layout = ordered[0].tensor.layout if ordered else None
    for i, v in enumerate(node.inputs):
        if v is not None and full(v) and physical_axes(v.tensor) != physical_axes(y.tensor.with_layout(layout)):
            node.set_input(i, relayout(rw, node, v, layout))
    for out in node.outputs:
        out.type = out.tensor.with_layout(layout)


def _follow(node: Node, rw: Rewriter, every: bool) -> None:
    first = node.operands[0]
    layout = first.tensor.layout
    if every:
        orders = [v.tensor.layout for v in node.operands if not is_row_major(v.tensor)]
        layout = orders[0] if orders and node.op.name == "Concat" else layout
        count = len(node.inputs) if node.op.name == "Concat" else 1
        for i in range(count):
            v = node.inputs[i]
            if v is not None and v.tensor.layout != layout:
                node.set_input(i, relayout(rw, node, v, layout))
    for out in node.outputs:
        if out.tensor.rank == first.tensor.rank:
            out.type = out.tensor.with_layout(layout)


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


def _plain(node: Node, rw: Rewriter, views: bool) -> None:
    """Operators that know only ONNX's order (views need the bytes in that order)."""
    for i, v in enumerate(node.inputs):
        if v is None or not isinstance(v.type, TensorType) or v.type.layout is None:
            continue
        if not (views and i == 0 and is_row_major(v.tensor)):
            node.set_input(i, relayout(rw, node, v, None))
