"""Concat without copies: what goes into it is computed where it belongs in the result.

Owns which values become windows; where the bytes of a window lie is `ir.views`' knowledge, which kernels read and write
rows further apart than they are long is the backend's (`takes`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Elementwise, Fused
from ...ir.ops.internal import Result
from ...ir.ops.shape import Concat
from ...ir.types import TensorType
from ...ir.views import is_window, view_source
from ..base import StepPass
from ..rewrite import Rewriter

Takes = Callable[[Node, Value, TensorType], bool]
"""Whether a node's kernel reads its operand, or writes its output, where that is a window of that type."""


def always(node: Node, v: Value, t: TensorType) -> bool:
    """Every kernel can."""
    return True


@dataclass(frozen=True)
class WriteInPlace(StepPass):
    """Make windows of the operands of a Concat where their producers and all other readers can work on one.

    before: %1 = Relu(%x) : f32[4,8]; %2 = Exp(%y) : f32[4,8]; %3 = Concat(%1,%2) {axis=1} : f32[4,16]
    after:  %1 = Relu(%x) : f32[4,8|16]; %2 = Exp(%y) : f32[4,8|16]; %3 = Concat(%1,%2) {axis=1} : f32[4,16]
    """

    takes: Takes = always

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class. The last Concat comes first, so that one inside another lies in the window it will have."""
        changed = False
        for node in reversed(graph.nodes_in_order()):
            if isinstance(node.op, Concat) and node.output.is_used and node.output.known is None:
                for v in dict.fromkeys(node.operands):
                    changed |= not is_window(v) and self._place(node, v, rw)
        return changed

    def _place(self, concat: Node, v: Value, rw: Rewriter) -> bool:
        y, x, producer = concat.output.tensor, v.tensor, v.producer
        if producer is None or v.output_uses or view_source(producer) is not None or isinstance(producer.op, Result):
            return rw.no_match("given from outside, returned, or a view", v)
        if v.known is not None or x.axis_order != y.axis_order:
            return rw.no_match("known, or in another order than the result", v)
        if sum(isinstance(user.op, Concat) for user, _ in v.uses) > 1:
            return rw.no_match("goes into two places", v)
        window = x.with_window(y.dims if y.within is None else y.within)
        if window.within is None or len(producer.outputs) > 1:
            return rw.no_match("the whole result, or one of several of its node", v)
        readers = [user for user, _ in v.uses if user is not concat]
        if any(view_source(user) is not None for user in readers):
            return rw.no_match("seen in another shape", v)
        for node in (producer, *readers):
            if not self.takes(node, v, window):
                return rw.no_match(f"no window for {node.op.name}", v)
        _retype(producer, window)
        return True


def _retype(node: Node, t: TensorType) -> None:
    """Let a node's only output be a window, and the values of its body from the root's result on."""
    node.output.type = t
    if not isinstance(node.op, Fused) or node.body is None:
        return
    for inner in reversed(list(node.body)):
        for v in inner.outputs:
            if v.tensor.dims == t.dims and v.tensor.axis_order == t.axis_order:
                v.type = v.tensor.with_window(t.within or t.dims)
        if not isinstance(inner.op, Elementwise):
            return


__all__ = ["WriteInPlace", "always"]
