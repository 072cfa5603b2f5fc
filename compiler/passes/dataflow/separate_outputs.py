"""Outputs of a native step have bytes of their own, which the caller hands in.

Owns which outputs need a copy; whose bytes a value has is `ir.views`' knowledge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...ir.graph import Graph
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
        outputs = list(graph.outputs)
        for i in shared:
            outputs[i] = graph.add_node(Copy(), [outputs[i]]).output
        graph.set_outputs(outputs, graph.output_names)
        return True


def shared_outputs(graph: Graph) -> Iterator[int]:
    """The outputs, by their numbers, whose bytes are those of an input, a constant or an output before."""
    root_of, taken = roots(graph), set()
    for i, v in enumerate(graph.outputs):
        root = root_of.get(v, v)
        if root.producer is None or root in taken:
            yield i
        taken.add(root)


__all__ = ["SeparateOutputs", "shared_outputs"]
