"""Products of bytes less a zero point become products of the bytes and a number for each column, taken from the sums.

    (q - z) ⊗ w = q ⊗ w - z·Σw,   ⊗ a sum of products, modulo 2^32 as the sums are; z pads q where 0 padded q - z

Owns the shape of that rewrite. Whether it pays is the backend's to say (`multiplies_bytes`): instructions that multiply
bytes take four of them a lane, those of i16 two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Movement
from ...ir.ops.elementwise import Cast, Sub
from ...ir.ops.quantised_products import is_depthwise, takes_lines, takes_quads
from ...ir.ops.shape import Transpose
from ...ir.ops.widening import WideningConv, WideningMatMul
from ...ir.types import I8, I16, I32, U8, TensorType
from ..base import BlockPass
from ..rewrite import Rewriter


def never(node: Node) -> bool:
    """No target multiplies bytes."""
    return False


@dataclass(frozen=True)
class ByteProducts(BlockPass):
    """Products of i16 that are bytes less one zero point multiply the bytes; of convolutions it must be known.

    before: %1 = Sub(Cast(%q), %z); %y = parax::WideningMatMul(%1, %w)
    after:  %1 = parax::ByteMatMul(%q, %w); %y = Sub(%1, %z·Σw)

    Attributes:
        multiplies_bytes: whether such a product with bytes in the place of i16 is faster, and exact, on all targets.
    """

    multiplies_bytes: Callable[[Node], bool] = never

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if type(node.op) in (WideningConv, WideningMatMul):
                changed |= self._rewritten(node, rw)
        return changed

    def _rewritten(self, node: Node, rw: Rewriter) -> bool:
        x, w = node.operands[:2]
        views, short = _views(x)
        found = _bytes_less_zero(short)
        if found is None or w.data is None or w.tensor.dtype != I8 or not w.data.size:
            return rw.no_match("not bytes less one number by constant weights of bytes", node)
        q, zero = found
        op = node.op
        if isinstance(op, WideningConv) and not _is_whole(op, w.tensor):
            return rw.no_match("the channels of a pixel are no whole quads", node)
        if isinstance(node.op, WideningConv) and isinstance(zero, Value):
            return rw.no_match("nobody knows yet what padding consists of", node)
        if not self.multiplies_bytes(node):
            return rw.no_match("no instructions for such bytes on all targets", node)
        g = rw.before(node)
        if isinstance(zero, Value):
            zero = g.Cast(zero, to=I32)
        if q.tensor.dtype == I8:  # the same number with 128 added to it and to its zero point
            q = g.Add(g.Cast(q, to=U8), np.array(128, np.uint8))
            zero = g.Add(zero, np.array(128, np.int32)) if isinstance(zero, Value) else zero + 128
        for view in reversed(views):
            q = g.add(view.op, [q, *view.inputs[1:]])
        convolves = isinstance(node.op, WideningConv) and not isinstance(zero, Value)
        rw.replace(node, _convolution(g, node, q, w.data, zero) if convolves else _matrix(g, q, w.data, zero))
        return True


def _is_whole(op: WideningConv, w: TensorType) -> bool:
    return takes_quads(op.group, w) or takes_lines(op, w) or is_depthwise(op.group, w)


def _views(v: Value) -> tuple[list[Node], Value]:
    """Reshapes and transposes above a value, nearest first, and what they view."""
    chain: list[Node] = []
    while (node := v.producer) is not None and len(node.outputs) == 1:
        moves = isinstance(node.op, Transpose) or (isinstance(node.op, Movement) and node.op.is_view)
        if not moves or not all(operand.is_constant for operand in node.operands[1:]):
            break
        chain.append(node)
        v = node.operands[0]
    return chain, v


def _bytes_less_zero(v: Value) -> tuple[Value, int | Value] | None:
    """The bytes and the one number that is taken from them in i16, known or a byte; None: it is something else."""
    node = v.producer
    zero: int | Value = 0
    if node is not None and isinstance(node.op, Sub) and node.output.tensor.dtype == I16:
        known = _known(node.operands[1])
        taken = _one_byte(node.operands[1]) if known is None else known
        if taken is None:
            return None
        zero, node = taken, node.operands[0].producer
    if node is None or not isinstance(node.op, Cast) or node.output.tensor.dtype != I16:
        return None
    q = node.operands[0]
    return (q, zero) if q.tensor.dtype in (U8, I8) else None


def _known(v: Value) -> int | None:
    """A constant of one element, cast or not."""
    if v.producer is not None and isinstance(v.producer.op, Cast):
        v = v.producer.operands[0]
    return int(v.data.reshape(-1)[0]) if v.data is not None and v.producer is None and v.data.size == 1 else None


def _one_byte(v: Value) -> Value | None:
    """The byte of which an i16 is cast."""
    if v.producer is None or not isinstance(v.producer.op, Cast) or v.tensor.dims not in ((), (1,)):
        return None
    byte = v.producer.operands[0]
    return byte if byte.tensor.dtype in (U8, I8) else None


def _wrapped(sums: np.ndarray) -> np.ndarray:
    """Whole numbers modulo 2^32 as i32."""
    return (sums & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def _convolution(g: GraphBuilder, node: Node, q: Value, w: np.ndarray, zero: int) -> Value:
    assert isinstance(node.op, WideningConv)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    taken = zero * w.reshape(len(w), -1).sum(axis=1, dtype=np.int64)
    attributes = {**node.op.attributes(), "margin": zero}
    if bias is None or bias.data is not None:
        start = -taken if bias is None or bias.data is None else bias.data.astype(np.int64) - taken
        needed = bias is not None or bool(taken.any())
        y: Value = g.ByteConv(q, g.const(w), g.const(_wrapped(start)) if needed else None, **attributes)
        return y
    shape = np.array([-1] + [1] * (w.ndim - 2), np.int64)
    y = g.ByteConv(q, g.const(w), g.const(_wrapped(-taken)), **attributes)
    return g.Add(y, g.Reshape(bias, shape))


def _matrix(g: GraphBuilder, q: Value, w: np.ndarray, zero: int | Value) -> Value:
    y: Value = g.ByteMatMul(q, g.const(w))
    sums = w.sum(axis=0, dtype=np.int64)
    if isinstance(zero, Value):
        return g.Sub(y, g.Mul(zero, _wrapped(sums)))
    return g.Sub(y, _wrapped(zero * sums)) if zero else y
