"""Outputs of a native step have bytes of their own, which the caller hands in.

Owns which outputs need a copy; whose bytes a value has is `ir.views`' knowledge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ...ir.graph import Graph
from ...ir.ops.base import Operator
from ...ir.ops.internal import Copy
from ...ir.views import roots
from ..base import StepPass
from ..rewrite import Rewriter


@dataclass(frozen=True)
class SeparateOutputs(StepPass):
    """Give every graph output bytes of its own.

    before: return %x (an input, a constant, or a value returned twice)      after: %1 = Copy(%x); return %1
    """

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        shared = list(shared_outputs(graph))
        if not shared:
            return rw.no_match("every output has bytes of its own")
        put_before_outputs(graph, shared, Copy)
        return True


def put_before_outputs(graph: Graph, numbers: Iterable[int], op: Callable[[], Operator]) -> None:
    """Give each of these outputs a node of its own, of an operator with one operand; they keep their names."""
    outputs = list(graph.outputs)
    for i in numbers:
        outputs[i] = graph.add_node(op(), [outputs[i]]).output
    graph.set_outputs(outputs, graph.output_names)


def shared_outputs(graph: Graph) -> Iterator[int]:
    """The outputs, by their numbers, whose bytes are those of an input, a constant or an output before."""
    root_of, taken = roots(graph), set()
    for i, v in enumerate(graph.outputs):
        root = root_of.get(v, v)
        if root.producer is None or root in taken:
            yield i
        taken.add(root)


__all__ = ["SeparateOutputs", "put_before_outputs", "shared_outputs"]
