"""Optional operands that say what omitting them says go away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.ops.filling import ConstantOfShape
from ..base import NodePass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class OmitNeutralOperands(NodePass):
    """Omit biases and initial states of zeros.

    before: %h = ConstantOfShape(%s); %1, %2 = LSTM(%x, %w, %r, _, _, %h)      after: %1, %2 = LSTM(%x, %w, %r)
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph:
            for i in node.op.zeros_by_default:
                v = node.inputs[i] if i < len(node.inputs) else None
                if v is not None and _is_zeros(v):
                    node.set_inputs(_without(node, i))
                    changed = True
                elif v is not None:
                    rw.no_match("not known to be zeros", v)
        return changed


def _without(node: Node, index: int) -> list[Value | None]:
    inputs = [None if i == index else v for i, v in enumerate(node.inputs)]
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs


def _is_zeros(v: Value) -> bool:
    if v.data is not None:
        return v.data.dtype.kind in "fiu" and not v.data.any()
    maker = v.producer
    if maker is None or not isinstance(maker.op, ConstantOfShape):
        return False
    content = maker.op.value
    return content is None or not np.any(content)
