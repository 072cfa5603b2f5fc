"""A transposed convolution whose weights are no constant becomes convolutions, whose kernels take such weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir.graph import Graph, Node
from ...ir.ops.contraction import ConvTranspose
from ...ir.ops.conv_gradients import by_phases, has_filters_alone, phases_of
from ...ir.types import F32
from ..base import BlockPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class ExpandTransposed(BlockPass):
    """Expand a ConvTranspose by weights that are computed, or given, as in training, into a convolution per phase.

    before: %y = ConvTranspose(%x: f32[N,8,5,5], %w: f32[8,4,2,2]) {strides=[2,2]}
    after:  %1 = Conv(%x, the taps of each phase, one behind the other) : f32[N,16,5,5]
            %y = the phases woven together : f32[N,4,10,10]
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        changed = False
        for node in graph.nodes_in_order():
            if type(node.op) is ConvTranspose and _expanded(node, rw):
                changed = True
        return changed


def _expanded(node: Node, rw: Rewriter) -> bool:
    """Replace the node, if that pays and its sizes are known."""
    op, (x, w, *rest) = node.op, node.inputs
    assert isinstance(op, ConvTranspose) and x is not None and w is not None
    if w.data is not None:
        rw.no_match("the weights are constant, which a kernel of its own reads as they are packed", node)
        return False
    if x.tensor.dtype != F32:
        rw.no_match("not f32", node)
        return False
    s = op.geometry(x.tensor, w.tensor)
    if has_filters_alone(s, op.group, w.tensor):
        rw.no_match("one filter a channel, which a kernel of its own serves", node)
        return False
    phases = phases_of(replace(s, input=s.output, output=s.input))
    known = isinstance(node.output.tensor.dims[1], int) and w.tensor.is_static
    if phases is None or not known or not all(p.count for own in phases for p in own):
        rw.no_match("a size is open, or places get nothing but the bias", node)
        return False
    turned = replace(s, input=s.output, output=s.input)
    y = by_phases(rw.before(node), node.output, w, x, turned, phases, op.group, rest[0] if rest else None)
    rw.replace(node, [y])
    return True
