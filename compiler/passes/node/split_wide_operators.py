"""Operators of very many operands become trees of ones with few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.builder import GraphBuilder
from ...ir.graph import Graph, Node, Value
from ...ir.ops.arithmetic import Max, Mean, Min, Sum
from ...ir.types import BF16, F16, F32
from ..base import NodePass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class SplitWideOperators(NodePass):
    """Cut Sum, Mean, Max and Min of many different operands: LLVM takes quadratic time over kernels of thousands.

    before: %1 = Sum(%a, …, %z)      after: %2 = Sum(%a, …, %m); %3 = Sum(%n, …, %z); %1 = Sum(%2, %3)
    """

    max_operands: int = 32

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if not isinstance(node.op, (Sum, Mean, Max, Min)):
                continue
            if len(set(node.operands)) <= self.max_operands:
                rw.no_match("few operands", node)
                continue
            rw.replace(node, self._tree(rw.before(node), node))
            changed = True
        return changed

    def _tree(self, g: GraphBuilder, node: Node) -> Value:
        """The tree's root; sums of 16-bit floats are f32 until the end, as they are within one operator."""
        op, to = Sum() if isinstance(node.op, Mean) else node.op, node.output.tensor.dtype
        values, n = list(node.operands), self.max_operands
        if isinstance(op, Sum) and to in (F16, BF16):
            values = [g.Cast(v, to=F32) for v in values]
        while len(values) > 1:
            values = [g.add(op, values[i : i + n]) for i in range(0, len(values), n)]
        found = values[0]
        if isinstance(node.op, Mean):
            found = g.Div(found, g.const(np.float32(len(node.operands)), found.tensor.dtype))
        return found if found.tensor.dtype == to else g.Cast(found, to=to)
