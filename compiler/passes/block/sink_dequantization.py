"""What chooses among dequantised bytes chooses among the bytes: a function of each element may as well come behind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node
from ...ir.ops.quantization import DequantizeLinear, QuantizeLinear
from ...ir.types import F32, I8, U8
from ..base import BlockPass
from ..rewrite import Rewriter
from .quantised_steps import Dequantised, dequantised, is_usual


@dataclass(frozen=True)
class SinkDequantization(BlockPass):
    """What chooses among elements by their order alone does so before they are dequantised by one scale; quantising
    again by the same scale is nothing then.

    before: %1 = DequantizeLinear(%q, %s, %z); %2 = MaxPool(%1); %y = QuantizeLinear(%2, %s, %z)
    after:  %y = MaxPool(%q)

    Of a table of constants, as of embeddings, what an index picks is dequantised alone, whatever its index says:

    before: %1 = DequantizeLinear(%table, %s, %z); %2 = Gather(%1, %i)
    after:  %1 = Gather(%table, %i); %2 = DequantizeLinear(%1, %s, %z)

    (q - z)·s grows with q, and ((q - z)·s) / s is within 2^-22 (q - z) of the whole number q - z: it rounds to it.
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if node.op.keeps_order or (node.op.picks_elements and _picks_constants(node)):
                changed |= _sunk(node, rw)
            elif isinstance(node.op, QuantizeLinear):
                changed |= _dropped(node, rw)
        return changed


def _picks_constants(node: Node) -> bool:
    """Whether the first operand is dequantised constants: others may be fewer than what is picked of them."""
    made = node.operands[0].producer
    return made is not None and isinstance(made.op, DequantizeLinear) and made.operands[0].data is not None


def _sunk(node: Node, rw: Rewriter) -> bool:
    found = _bytes(node)
    if found is None or len(node.outputs) > 1 or (node.op.keeps_order and len(node.operands) > 1):
        return rw.no_match("not of bytes that one scale dequantises", node)
    made = node.operands[0].producer
    assert made is not None and isinstance(made.op, DequantizeLinear)
    g = rw.before(node)
    rw.replace(node, g.add(made.op, [g.add(node.op, [found.q, *node.inputs[1:]]), *made.inputs[1:]]))
    return True


def _dropped(node: Node, rw: Rewriter) -> bool:
    found = _bytes(node)
    if found is None or node.output.tensor.dtype != found.q.tensor.dtype:
        return rw.no_match("not of bytes that one scale dequantises", node)
    assert isinstance(node.op, QuantizeLinear)
    _, scale, *rest = node.operands
    zero = rest[0].data if rest else None
    if scale.data is None or scale.data.size != 1 or scale.tensor.dtype != F32 or node.op.precision:
        return rw.no_match("quantised by another scale", node)
    if float(scale.data.reshape(())) != float(found.scale.reshape(())) or (rest and zero is None):
        return rw.no_match("quantised by another scale", node)
    if _number(zero) != _number(None if found.zero is None else found.zero.data):
        return rw.no_match("quantised by another zero point", node)
    rw.replace(node, found.q)
    return True


def _number(zero: np.ndarray | None) -> int | None:
    """A zero point; None: there are several."""
    if zero is None:
        return 0
    return int(zero.reshape(())) if zero.size == 1 else None


def _bytes(node: Node) -> Dequantised | None:
    """What dequantises a node's first operand, if that is bytes by one usual scale."""
    found = dequantised(node.operands[0]) if node.operands else None
    if found is None or not found.is_whole or found.q.tensor.dtype not in (U8, I8) or not is_usual(found.scale):
        return None
    return found
