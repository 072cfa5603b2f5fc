"""Outputs of a graph that runs in several steps are values of their own.

Owns which outputs need one; where the graph is cut, and what values are called across steps, is `split_steps`' affair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.graph import Graph
from ...ir.ops.elementwise import Identity
from ..base import DataflowPass
from ..rewrite import Rewriter
from .separate_outputs import put_before_outputs
from .split_steps import is_one_step, nameless_outputs


@dataclass(frozen=True)
class NameOutputs(DataflowPass):
    """Give every output of a graph of several steps a value, which the name of the output can be given to.

    before: return %x (an input, a constant, or a value returned twice)      after: %1 = Identity(%x); return %1
    """

    on_bodies: ClassVar[bool] = False

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        if is_one_step(graph):
            return rw.no_match("one native step")
        nameless = list(nameless_outputs(graph))
        if not nameless:
            return rw.no_match("every output has a value of its own")
        put_before_outputs(graph, nameless, Identity)
        return True


__all__ = ["NameOutputs"]
