"""Pools and 1×1 convolutions in the order that takes less: both are linear, one over pixels, the other over channels.

Owns which of the two goes first. A mean commutes with the sums over channels; only the bias asks whether the weights of
every window add up to 1, which they do not where zeros of the padding are counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.graph import Graph, Node
from ...ir.ops.contraction import Conv
from ...ir.ops.geometry import WindowGeometry
from ...ir.ops.pool import AveragePool, LpPool, Pool
from ...ir.types import F32, F64, TensorType
from ..base import BlockPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class OrderPools(BlockPass):
    """Pool after a 1×1 convolution to fewer channels; let pools that leave pixels out go first, or into its strides.

    before: %1 = AveragePool(%x) {3x3}; %2 = Conv(%1,%w)         after: %1 = Conv(%x,%w); %2 = AveragePool(%1) {3x3}
    before: %1 = MaxPool(%x) {1x1, s=2}; %2 = Conv(%1,%w)        after: %2 = Conv(%x,%w) {s=2}
    before: %1 = Conv(%x,%w); %2 = AveragePool(%1) {2x2, s=2}    after: %1 = AveragePool(%x) {s=2}; %2 = Conv(%1,%w)
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            first = node.operands[0].producer if node.operands else None
            if first is None or len(first.outputs) > 1 or len(first.output.uses) != 1 or first.output.output_uses:
                continue
            if isinstance(node.op, Conv) and isinstance(first.op, Pool):
                changed |= _convolve_first(first, node, rw)
            elif isinstance(node.op, AveragePool) and isinstance(first.op, Conv):
                changed |= _pool_first(first, node, rw)
        return changed


def _convolve_first(pool: Node, conv: Node, rw: Rewriter) -> bool:
    assert isinstance(pool.op, Pool)
    if not _is_pointwise(conv):
        return rw.no_match("more than one tap, or groups", conv)
    x, y, g = pool.operands[0].tensor, conv.output, pool.op.geometry(pool.context())
    if all(k == 1 for k in g.kernel) and not _pads(g) and not isinstance(pool.op, LpPool):
        op = conv.op.replace(strides=g.strides, pads=(0,) * (2 * g.rank), auto_pad="NOTSET")
        rw.replace_op(conv, op, [pool.operands[0], *conv.inputs[1:]])
        rw.erase(pool)
        return True
    if not isinstance(pool.op, AveragePool) or any(s != 1 for s in g.strides):
        return rw.no_match("no mean, or one that leaves pixels out", pool)
    if conv.output.tensor.dtype not in (F32, F64):
        return rw.no_match("what lies between the two is rounded to a short type", conv)
    fewer, more = y.tensor.dims[1], x.dims[1]
    if not (isinstance(fewer, int) and isinstance(more, int) and fewer < more):
        return rw.no_match("the convolution has no fewer channels than the pool", conv)
    apart = len(conv.operands) > 2 and not _adds_up_to_one(pool, g)
    bias = conv.operands[2] if apart else None
    if bias is not None and bias.data is None:
        return rw.no_match("the bias is no constant", conv)
    build = rw.before(conv)
    made = build.add(conv.op, [pool.operands[0], *conv.inputs[1 : 2 if apart else None]])
    made = rw.before(conv, pool.name).add(pool.op, [made])
    if bias is not None and bias.data is not None:
        made = build.Add(made, bias.data.reshape(-1, *(1,) * g.rank))
    rw.replace(conv, made)
    rw.erase(pool)
    return True


def _pool_first(conv: Node, pool: Node, rw: Rewriter) -> bool:
    assert isinstance(pool.op, AveragePool)
    if not _is_pointwise(conv):
        return rw.no_match("more than one tap, or groups", conv)
    if conv.output.tensor.dtype not in (F32, F64):
        return rw.no_match("what lies between the two is rounded to a short type", conv)
    g = pool.op.geometry(pool.context())
    if all(s == 1 for s in g.strides):
        return rw.no_match("the pool leaves no pixels out", pool)
    if len(conv.operands) > 2 and not _adds_up_to_one(pool, g):
        return rw.no_match("the pool counts zeros, to which the bias was not added", pool)
    made = rw.before(pool).add(pool.op, [conv.operands[0]])
    rw.replace(pool, rw.before(pool, conv.name).add(conv.op, [made, *conv.inputs[1:]]))
    rw.erase(conv)
    return True


def _is_pointwise(conv: Node) -> bool:
    """Whether one pixel of the result is made of one pixel, and of all its channels."""
    x, w, op = conv.operands[0].type, conv.operands[1].type, conv.op
    assert isinstance(op, Conv)
    if op.group != 1 or not isinstance(x, TensorType) or not isinstance(w, TensorType) or not w.is_static:
        return False
    return x.shape is not None and op.geometry(x, w).is_pointwise


def _adds_up_to_one(pool: Node, g: WindowGeometry) -> bool:
    """Whether every window's mean is over elements of the input alone."""
    assert isinstance(pool.op, AveragePool)
    return not pool.op.count_include_pad or not (_pads(g) or pool.op.ceil_mode)


def _pads(g: WindowGeometry) -> bool:
    return any(p != 0 for p in (*g.pads_begin, *g.pads_end))


__all__ = ["OrderPools"]
