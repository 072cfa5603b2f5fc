"""Operators whose operands are all constant are computed now.

Owns the byte budget. The evaluator is handed in, because only the frontend knows a reference implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ....errors import ParaxError
from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Control
from ...ir.types import SymDim, TensorType
from ..base import NodePass
from ..rewrite import Rewriter

Evaluate = Callable[[Node, Sequence["np.ndarray | None"]], Sequence[np.ndarray]]


@dataclass(frozen=True)
class ConstantFolding(NodePass):
    """Replace nodes of constant operands, and nodes of known integer content, by constants.

    before: %1 = Sqrt(%c)   (%c = const f32[2] [4, 9])      after: %1 = const f32[2] [2, 3]
    """

    evaluate: Evaluate | None = None
    max_nbytes: int = 64 << 20  # of one result
    max_growth: int = 16  # a result may be this many times larger than the operands (and always 64 KiB)

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            results = self._results(node, rw)
            if results is not None:
                rw.replace(node, [graph.add_constant(r) for r in results])
                changed = True
        return changed

    def _results(self, node: Node, rw: Rewriter) -> list[np.ndarray] | None:
        if not node.outputs or isinstance(node.op, Control) or not node.op.deterministic:
            return None
        known = [_known_array(v) for v in node.outputs]
        if all(k is not None for k in known):
            return [k for k in known if k is not None]
        if self.evaluate is None or node.op.domain == "parax" or any(not v.is_constant for v in node.operands):
            rw.no_match("an operand is not constant", node)
            return None
        if not self._within_budget(node):
            rw.no_match("the result is beyond the byte budget", node)
            return None
        try:
            return [np.asarray(a) for a in self.evaluate(node, [None if v is None else v.data for v in node.inputs])]
        except ParaxError as error:
            rw.no_match(f"the reference cannot compute it: {error}", node)
            return None

    def _within_budget(self, node: Node) -> bool:
        sizes = [v.type.nbytes for v in node.outputs if isinstance(v.type, TensorType) and v.type.shape is not None]
        if len(sizes) < len(node.outputs) or any(isinstance(s, SymDim) for s in sizes):
            return False
        total = sum(int(s) for s in sizes if isinstance(s, int))
        given = sum(v.data.nbytes for v in node.operands if v.data is not None)
        return total <= self.max_nbytes and total <= max(given * self.max_growth, 1 << 16)


def _known_array(v: Value) -> np.ndarray | None:
    """The content of an integer tensor that is known to the last number."""
    if v.known is None or not isinstance(v.type, TensorType) or v.type.dtype.numpy is None:
        return None
    if any(isinstance(d, SymDim) for d in v.known.flat):
        return None
    return np.array(v.known.tolist(), v.type.dtype.numpy).reshape(v.known.shape)
