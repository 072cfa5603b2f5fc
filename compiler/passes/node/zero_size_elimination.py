"""Tensors without elements need no computing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Control, Host
from ...ir.ops.shape import Concat
from ...ir.types import TensorType
from ..base import NodePass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class ZeroSizeElimination(NodePass):
    """Replace results without elements by constants, and leave them out of joins.

    before: %1 = Relu(%e) (f32[0,4]); %2 = Concat(%1, %x) {axis=0}; %3 = Relu(%2)      after: %3 = Relu(%x)
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if isinstance(node.op, (Host, Control)) or not node.op.deterministic:
                continue
            if all(is_empty(v) for v in node.outputs) and node.outputs:
                rw.replace(node, [graph.add_constant(_nothing(v)) for v in node.outputs])
                changed = True
            elif isinstance(node.op, Concat) and any(_adds_nothing(node.op, v) for v in node.operands):
                changed |= _shorter_concat(node, node.op, rw)
            else:
                rw.no_match("has elements", node)
        return changed


def is_empty(v: Value) -> bool:
    """Whether the tensor has no elements, whatever the symbols are."""
    t = v.type
    return isinstance(t, TensorType) and t.is_static and 0 in t.dims and t.dtype.numpy is not None


def _nothing(v: Value) -> np.ndarray:
    return np.zeros(v.tensor.static_shape, v.tensor.dtype.numpy)


def _adds_nothing(op: Concat, v: Value) -> bool:
    """Whether it has no length along the axis; one that is empty along others lengthens the result's shape."""
    return is_empty(v) and v.tensor.dims[op.axis % v.tensor.rank] == 0


def _shorter_concat(node: Node, op: Concat, rw: Rewriter) -> bool:
    kept = [v for v in node.operands if not _adds_nothing(op, v)]
    if not kept:
        return False
    if len(kept) == 1 and kept[0].type == node.output.type:
        rw.replace(node, kept[0])
    else:
        rw.replace_op(node, op, kept)
    return True
