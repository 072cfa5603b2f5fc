"""Outputs that a caller may put where an input lies (`Graph.donated`): nothing reads the input after it is overwritten.

Owns which of them are computed where they belong, and which are copied there when all else is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.ops.base import Fused
from ...ir.ops.gathering import ScatterElements, ScatterND
from ...ir.ops.internal import Copy
from ...ir.ops.shape import Concat
from ...ir.views import computes, roots
from ..base import StepPass
from ..rewrite import Rewriter
from .memory_planning import is_elementwise, replaceable, same_places
from .separate_outputs import put_before_outputs


@dataclass(frozen=True)
class OverwriteInputs(StepPass):
    """Copy donated outputs that are written before their input was read for the last time.

    before: %1 = Neg(%x); %2 = Softmax(%x); return %1, %2 (%1 overwrites %x)
    after:  %1 = Neg(%x); %2 = Softmax(%x); %3 = Copy(%1); return %3, %2
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class. Runs last: a Slice that another pass makes a view of its input reads it later."""
        early = list(overwritten_early(graph))
        if not early:
            return rw.no_match("every donated input is read before it is overwritten")
        put_before_outputs(graph, early, Copy)
        return True


def overwritten_early(graph: Graph) -> Iterator[int]:
    """The donated outputs, by their numbers, whose computation would spoil what is still to be read of their input."""
    overwritten = overwrites(graph)
    if not overwritten:
        return
    root_of = roots(graph)
    order = {node: i for i, node in enumerate(graph)}
    for i, (name, v) in enumerate(zip(graph.output_names, graph.outputs, strict=True)):
        if name not in overwritten:
            continue
        given, root = graph.value(overwritten[name]), root_of.get(v, v)
        writer = root.producer
        if writer is not None and _appends(writer, given, root_of):
            continue
        if writer is None or isinstance(writer.op, Concat):  # whose operands may be written one by one
            yield i
            continue
        for n in graph:
            reads = computes(n) and any(root_of.get(o, o) is given for o in n.operands)
            if reads and order[n] >= order[writer] and not (n is writer and _in_step(n, given, root, root_of)):
                yield i
                break


def overwrites(graph: Graph) -> dict[str, str]:
    """Name of an output → of the input whose memory it has, or may have."""
    return {**graph.donated, **{state.output: state.input for state in graph.states}}


def _appends(node: Node, given: Value, root_of: dict[Value, Value]) -> bool:
    """Whether the node leaves the input's bytes as they are and writes behind them."""
    if not isinstance(node.op, Concat) or root_of.get(node.operands[0], node.operands[0]) is not given:
        return False
    first, y = node.operands[0].tensor, node.output.tensor
    return y.axis_order[0] == node.op.axis % y.rank and first.axis_order == y.axis_order and y.within is None


def _in_step(node: Node, given: Value, out: Value, root_of: dict[Value, Value]) -> bool:
    """Whether the node's kernel reads each element of the input before it overwrites it, since its result needs it."""
    if isinstance(node.op, (ScatterElements, ScatterND)):
        return given in replaceable(node, out, lambda v: root_of.get(v, v))
    own = {i: v for i, v in enumerate(node.inputs) if v is not None and root_of.get(v, v) is given}
    if not is_elementwise(node) or not all(same_places(v, out) for v in own.values()):
        return False
    return not isinstance(node.op, Fused) or all(_depends(node, out, i) for i in own)


def _depends(node: Node, out: Value, number: int) -> bool:
    """Whether a result of a fused block is computed from its operand of that number."""
    assert node.body is not None
    pending, seen = [node.body.outputs[node.outputs.index(out)]], set[Value]()
    while pending:
        v = pending.pop()
        if v is node.body.inputs[number]:
            return True
        if v not in seen and v.producer is not None:
            pending += v.producer.operands
        seen.add(v)
    return False


__all__ = ["OverwriteInputs", "overwrites", "overwritten_early"]
