"""Element-wise operators move in front of the views behind a kernel, into which they can then be fused."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Contraction, Elementwise, Movement, Window
from ...ir.ops.shape import Transpose
from ...ir.types import TensorType
from ..base import BlockPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class HoistElementwise(BlockPass):
    """Apply operators of one tensor and single numbers before reshapes and transposes.

    before: %1 = MatMul(%x, %w); %2 = Reshape(%1, %s); %3 = Relu(%2)
    after:  %1 = MatMul(%x, %w); %2 = Relu(%1); %3 = Reshape(%2, %s)
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if isinstance(node.op, Elementwise) and len(node.outputs) == 1:
                changed |= _hoist(node, rw)
        return changed


def _hoist(node: Node, rw: Rewriter) -> bool:
    tensors = [i for i, v in enumerate(node.inputs) if v is not None and not (v.data is not None and v.data.size == 1)]
    if len(tensors) != 1:
        return rw.no_match("not one tensor and single numbers", node)
    x = node.inputs[tensors[0]]
    assert x is not None
    if not isinstance(x.type, TensorType) or x.type.dims != node.output.tensor.dims:
        return rw.no_match("another shape than its operand", node)
    chain, base = _views(x)
    maker = base.producer
    kinds = (Contraction, Window, Elementwise)
    if not chain or maker is None or not isinstance(maker.op, kinds) or len(maker.outputs) != 1:
        return rw.no_match("no views of a kernel's result feed it", node)
    deeper = any(v.tensor.rank > base.tensor.rank for v in node.operands if v.is_constant)
    if len(base.uses) != 1 or base.output_uses or deeper:
        return rw.no_match("the kernel's result has another reader", node)
    g = rw.before(node)
    value = g.add(node.op, [base if i == tensors[0] else v for i, v in enumerate(node.inputs)])
    for view in reversed(chain):
        value = g.add(view.op, [value, *view.inputs[1:]], name=view.name)
    rw.replace(node, value)
    for view in chain:
        rw.erase(view)
    return True


def _views(x: Value) -> tuple[list[Node], Value]:
    """The reshapes and transposes of a single use above `x`, nearest first, and what they view."""
    chain: list[Node] = []
    while (view := x.producer) is not None and len(x.uses) == 1 and not x.output_uses:
        if not ((isinstance(view.op, Movement) and view.op.is_view) or isinstance(view.op, Transpose)):
            break
        chain.append(view)
        x = view.operands[0]
    return chain, x
