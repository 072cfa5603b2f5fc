"""Operators that change nothing go away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.arithmetic import Max, Mean, Min, Sum
from ...ir.ops.base import Movement
from ...ir.ops.dropout import Dropout, may_train
from ...ir.ops.elementwise import Cast, CastLike, Identity
from ...ir.ops.filling import Expand, Tile
from ...ir.ops.shape import Concat, Transpose
from ...ir.ops.slicing import Pad, Slice
from ...ir.types import TensorType
from ..base import NodePass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class NoOpElimination(NodePass):
    """Remove what gives its operand: Identity, casts and views to its type, pads by nothing, joins of one, Dropout.

    before: %1 = Identity(%x); %2 = Relu(%1)      after: %2 = Relu(%x)
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            source = self._same(node, rw)
            if source is not None:
                rw.replace(node, source)
                changed = True
        return changed

    def _same(self, node: Node, rw: Rewriter) -> Value | None:
        """The operand that the node's only result equals."""
        if len(node.outputs) != 1 or not node.operands or node.inputs[0] is None:
            return None
        x, y, op = node.inputs[0], node.output, node.op
        if isinstance(op, Identity) or (isinstance(op, Dropout) and not may_train(*node.inputs[2:3] or [None])):
            return x
        if not isinstance(x.type, TensorType) or x.type != y.type or x.type.shape is None:
            return None
        if isinstance(op, (Cast, CastLike, Expand)) or (isinstance(op, Movement) and op.is_view):
            return x
        if isinstance(op, (Concat, Sum, Max, Min, Mean)) and len(node.inputs) == 1:
            return x
        if isinstance(op, Transpose) and list(op.perm or ()) == list(range(x.type.rank)):
            return x
        if isinstance(op, (Pad, Tile, Slice)) and self._is_neutral(node):
            return x
        rw.no_match("does something", node)
        return None

    def _is_neutral(self, node: Node) -> bool:
        """Pad by zeros, Tile by ones, Slice by whole axes (the types are equal already)."""
        given = [v.data for v in node.inputs[1:] if v is not None]
        if any(d is None for d in given):
            return False
        if isinstance(node.op, Slice):
            steps = node.inputs[4].data if len(node.inputs) > 4 and node.inputs[4] is not None else None
            return steps is None or bool(np.all(steps == 1))
        first = given[0]
        return first is not None and bool(np.all(first == (1 if isinstance(node.op, Tile) else 0)))
