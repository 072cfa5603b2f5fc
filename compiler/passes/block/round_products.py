"""Products of f32, and those of attention, become products of bf16, summed in f32; tables that rows are looked up in
are of bf16.

Owns which products those are, and in which type the tensors that they read are kept. Everything else is computed in
f32 as before: biases, activations and residual additions from the f32 sums, normalisations, softmax and reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Graph, Node, Value
from ...ir.ops.attention import DotProductAttention
from ...ir.ops.base import Contraction, Elementwise
from ...ir.ops.contraction import Conv, ConvTranspose, Gemm, MatMul
from ...ir.ops.elementwise import Cast
from ...ir.ops.gathering import Gather
from ...ir.ops.normalization import Normalize
from ...ir.ops.pool import MaxPool
from ...ir.ops.quantised_products import FEWEST_CHANNELS, is_depthwise, takes_columns, takes_pairs
from ...ir.ops.shape import Concat
from ...ir.types import BF16, F32
from ..base import BlockPass
from ..rewrite import Rewriter
from .integer_products import is_view

LEAST_DEPTH = 2  # a product of one number a sum is element-wise
FEWEST_OUTPUTS = 8  # channels of a group of a transposed convolution: fewer lie along no register
FEWEST_ROWS = 64  # of a table: smaller ones are no memory to speak of


def always(node: Node) -> bool:
    """Of whoever knows no targets."""
    return True


@dataclass(frozen=True)
class RoundProducts(BlockPass):
    """Conv, ConvTranspose, MatMul, Gemm and attention multiply bf16; what they read is kept so, and others read it so.

    before: %1 = Relu(%x); %2 = Conv(%1, %w); %3 = Add(%2, %1)
    after:  %4 = parax::RoundToBf16(Relu(%x)); %2 = parax::Bf16Conv(%4, %v); %3 = Add(%2, Cast(%4))

    Attributes:
        rounds_computed: products whose second operand is computed or given, as all of a training step, are rounded as
            well, both operands when they run; else those by constants alone. gains_by_halves: whether one of those, or
            a transposed convolution by constants, is faster so.
    """

    rounds_computed: bool = False
    gains_by_halves: Callable[[Node], bool] = always

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        tables = [node for node in graph.nodes_in_order() if _is_look_up(node)]
        for node in tables:
            table, indices = node.operands
            assert table.data is not None
            g = rw.before(node)
            rw.replace(node, g.Cast(g.add(node.op, [g.const(_half(table.data)), indices]), to=F32))
        how = self.rounds_computed, self.gains_by_halves, rw
        products = [node for node in graph.nodes_in_order() if _is_product(node, *how)]
        attention = [node for node in graph.nodes_in_order() if _is_attention(node, rw)]
        rounded = [(node, i) for node in products for i in (0, 1) if not _is_known(node.operands[i])]
        halves = _Halves(graph, rw, {*rounded, *((node, i) for node in attention for i in range(3))})
        for node in attention:  # before the products that read what it makes
            operands = [halves.of(x) for x in node.operands[:3]]
            g = rw.before(node)
            rw.replace(node, g.Cast(g.Bf16Attention(*operands, *node.operands[3:], **node.op.attributes()), to=F32))
        for node in products:
            left, right = (None if _is_known(v) else halves.of(v) for v in node.operands[:2])
            rw.replace(node, _product(rw.before(node), node, left, right))
        for x, y in halves.made.items():
            _share(x, y, rw)
        return bool(products or attention or tables)


def rounded_products(graph: Graph, gains: Callable[[Node], bool] = always) -> list[Node]:
    """The products by constants that the pass makes of bf16; `gains`: see its `gains_by_halves`."""
    rw = Rewriter(graph)
    return [node for node in graph.nodes_in_order() if _is_product(node, False, gains, rw)]


def _is_product(node: Node, computed: bool, gains: Callable[[Node], bool], rw: Rewriter) -> bool:
    """Whether it is one that the kernels of bf16 serve; `computed`: whether one's second operand may be."""
    op = node.op
    if type(op) not in (Conv, ConvTranspose, MatMul, Gemm):
        return False
    x, w = node.operands[:2]
    known = _is_known(w)
    if x.tensor.dtype != F32 or w.tensor.dtype != F32 or x.is_constant:
        return rw.no_match("not f32, or without constant weights", node)
    if isinstance(op, Conv) and not (takes_pairs(op.group, w.tensor) or (known and _is_other(op, x, w, node, gains))):
        return rw.no_match("its channels are no whole pairs of one group", node)
    if not (known or (computed and gains(node))):
        return rw.no_match("not f32, or without constant weights, or faster in f32", node)
    if known and w.data is not None and not w.data.size:
        return rw.no_match("no weights", node)
    if isinstance(op, ConvTranspose) and not (known and _is_wide(op, w) and gains(node)):
        return rw.no_match("of few channels, by computed filters, or faster in f32", node)
    if isinstance(op, (Conv, ConvTranspose)):
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        return not known or bias is None or bias.data is not None or rw.no_match("its bias is computed", node)
    transposed = isinstance(op, Gemm) and op.transB
    if min(x.tensor.rank, w.tensor.rank) < 2 or (known and (w.tensor.rank > 2 or (isinstance(op, Gemm) and op.transA))):
        return rw.no_match("not rows by one matrix", node)
    depth = w.tensor.dims[-1 if transposed else -2]
    return (isinstance(depth, int) and depth >= LEAST_DEPTH) or rw.no_match("no sum", node)


def _is_known(w: Value) -> bool:
    """Whether it is a constant of the graph."""
    return w.data is not None and w.producer is None


def _is_wide(op: ConvTranspose, w: Value) -> bool:
    """Whether channels of a group of a transposed convolution are whole pairs, and enough of them on both sides."""
    inputs, outputs = w.tensor.static_shape[0] // op.group, w.tensor.static_shape[1]
    return inputs % 2 == 0 and inputs >= FEWEST_CHANNELS and outputs >= FEWEST_OUTPUTS


def _is_other(op: Conv, x: Value, w: Value, node: Node, gains: Callable[[Node], bool]) -> bool:
    """Whether it has a filter for each channel of what a kernel makes, which rounds it as it is stored, or pairs of
    columns in the place of pairs of channels.
    """
    if is_depthwise(op.group, w.tensor):
        return _is_computed(x)
    return takes_columns(op, w.tensor) and gains(node)


def _is_attention(node: Node, rw: Rewriter) -> bool:
    """Whether it is attention to what this call has computed: keys of calls before would be rounded again each time."""
    if type(node.op) is not DotProductAttention:
        return False
    if any(x.tensor.dtype != F32 for x in node.operands):
        return rw.no_match("not f32", node)
    return all(map(_is_computed, node.operands[:3])) or rw.no_match("queries, keys or values come from elsewhere", node)


def _is_computed(x: Value) -> bool:
    """Whether a kernel makes it that rounds as it stores, views apart."""
    made = x.producer
    while made is not None and is_view(made):
        x = made.operands[0]
        made = x.producer
    return made is not None and isinstance(made.op, (Elementwise, Contraction, Normalize))


def _is_look_up(node: Node) -> bool:
    """Whether it picks rows of a large constant table that it alone reads; tables of whole numbers may be names."""
    if type(node.op) is not Gather or node.op.axis != 0:
        return False
    table = node.operands[0]
    if table.data is None or table.producer is not None or len(table.uses) + table.output_uses != 1:
        return False
    if table.tensor.dtype != F32 or table.tensor.rank != 2 or len(table.data) < FEWEST_ROWS:
        return False
    return not np.array_equal(table.data, np.rint(table.data))


class _Halves:
    """Values as bf16, each rounded once, where it is made: above what rounding may change places with.

    Attributes:
        readers: who reads rounded values, and as which operand.
    """

    def __init__(self, graph: Graph, rw: Rewriter, readers: Collection[tuple[Node, int]]) -> None:
        self.rw, self.made, self.readers = rw, dict[Value, Value](), readers
        self._order = {node: i for i, node in enumerate(graph.nodes_in_order())}

    def of(self, x: Value) -> Value:
        if x not in self.made:
            self.made[x] = self._rounded(x)
        return self.made[x]

    def _rounded(self, x: Value) -> Value:
        made = x.producer
        if made is not None and isinstance(made.op, Cast) and made.operands[0].tensor.dtype == BF16:
            return made.operands[0]
        alone = len(x.uses) + x.output_uses == 1 or (not x.output_uses and all(use in self.readers for use in x.uses))
        if made is None or not alone or not _changes_places(made):
            first = min((node for node, _ in x.uses if node in self._order), key=self._order.__getitem__)
            return self.rw.before(first).RoundToBf16(x)
        n = len(made.inputs) if isinstance(made.op, Concat) else 1
        return self.rw.before(made).add(made.op, [*map(self.of, made.operands[:n]), *made.inputs[n:]])


def _changes_places(node: Node) -> bool:
    """Whether what it makes of rounded numbers is what it makes, rounded."""
    is_maximum = isinstance(node.op, MaxPool) and len(node.outputs) == 1
    return is_view(node) or is_maximum or isinstance(node.op, Concat)


def _share(x: Value, half: Value, rw: Rewriter) -> None:
    """Element-wise readers of `x` take the rounded value, so that it alone is kept."""
    if x.output_uses or x.producer is None or half.producer is None or half.producer.inputs[0] is not x:
        return
    readers = [node for node, _ in x.uses if node is not half.producer]
    if not all(isinstance(node.op, Elementwise) for node in readers):
        return
    for node in dict.fromkeys(readers):
        wide = rw.before(node).Cast(half, to=F32)
        rw.replace_op(node, node.op, [wide if v is x else v for v in node.inputs])


def _product(g: GraphBuilder, node: Node, left: Value | None, right: Value | None) -> Value:
    """The node's result by a product of bf16, of operands that are rounded; the second one, unless it is constant."""
    op, w = node.op, node.operands[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if isinstance(op, Conv):
        return g.Bf16Conv(left, _constant(g, w) if right is None else right, bias, **op.attributes())
    if isinstance(op, ConvTranspose):
        return g.Bf16ConvTranspose(left, _constant(g, w), bias, **op.attributes())
    if not isinstance(op, Gemm):
        return g.Bf16MatMul(left, _constant(g, w) if right is None else right)
    if op.transA:
        left = g.Transpose(left, perm=[1, 0])
    if right is None:
        right = _constant(g, w, bool(op.transB))
    elif op.transB:
        right = g.Transpose(right, perm=[1, 0])
    y: Value = g.Bf16MatMul(left, right)
    if op.alpha != 1:
        y = g.Mul(y, op.alpha)
    if bias is None or not op.beta:
        return y
    return g.Add(y, bias if op.beta == 1 else g.Mul(bias, op.beta))


def _constant(g: GraphBuilder, w: Value, transposed: bool = False) -> Value:
    """Constant weights, rounded."""
    assert w.data is not None
    return g.const(np.ascontiguousarray(_half(w.data).T) if transposed else _half(w.data))


def _half(w: np.ndarray) -> np.ndarray:
    """Weights rounded to the nearest bf16, ties to even."""
    assert BF16.numpy is not None
    with np.errstate(over="ignore"):  # what is beyond the greatest bf16 becomes an infinity
        return w.astype(BF16.numpy)
