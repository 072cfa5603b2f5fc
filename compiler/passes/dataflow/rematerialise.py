"""A training step within a limit of memory: forward tensors that it has no room for are computed again when needed.

The recomputed nodes are copies, with the same kernels on the same operands, so that no bit changes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ....errors import ResourceLimit
from ...ir.graph import Graph, Value
from ...ir.types import TensorType
from ..base import DataflowPass
from ..rewrite import Rewriter
from .choose_dropped import choose_dropped
from .dead_code import DeadCode
from .kept_tensors import KeptTensors
from .memory_planning import plan_memory

AIMS, THRIFT = (1.0, 0.95, 0.85, 0.7, 0.5), (1.0, 0.5)
"""Shares of a limit that tensors are chosen for, and how much their cost counts."""
DOWN, MOST_PLANNED = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35, 0.3, 0.25, 0.2, 0.1), 3
"""The same of what is taken with everything kept, and how many choices are planned."""


@dataclass(frozen=True)
class Rematerialise(DataflowPass):
    """Compute tensors of the forward half again before their backward readers, until the arena fits.

    before: %2 = Exp(%1); …; %7 = Loss(%6); …; %9 = Mul(%8, %2); %10 = Mul(%9, %1)
    after:  %2 = Exp(%1); …; %7 = Loss(%6); …; %3 = Exp(%1); %9 = Mul(%8, %3); %10 = Mul(%9, %1)

    Attributes:
        arena_nbytes: of the arena at most; 0: any. The graph's first output is what is differentiated.

    Raises:
        ResourceLimit: it cannot be so small; `needs_nbytes` of the error is what can be.
    """

    on_bodies = False
    arena_nbytes: int = 0

    def run(self, graph: Graph, rw: Rewriter) -> bool:
        """See the class."""
        if not self.arena_nbytes or not _is_static(graph):
            return False
        total = arena_nbytes(graph)
        if total <= self.arena_nbytes:
            return False
        names, least = within(graph, self.arena_nbytes)
        if least > self.arena_nbytes:
            raise too_small(self.arena_nbytes, least)
        recompute(graph, names)
        return True


class ArenaTooSmall(ResourceLimit):
    """A limit that a step cannot meet. `needs_nbytes`: the least that it can, as far as was found."""

    needs_nbytes = 0


def too_small(limit: int, needs: int) -> ArenaTooSmall:
    """The error for a limit that is too small."""
    error = ArenaTooSmall("a step of training needs more memory for what it keeps", expected=f"at most {limit} bytes",
                          found=f"{needs} bytes with all recomputed that helps",
                          hint="allow more memory, or take smaller batches or more shards")  # fmt: skip
    error.needs_nbytes = needs
    return error


def within(graph: Graph, limit: int) -> tuple[frozenset[str], int]:
    """Names of tensors to compute again, and the bytes of the arena that is planned then: at most `limit`, or the least
    that was found.

    What is chosen for a lower limit may meet a higher one that what was chosen for that does not: the cheapest choice
    that does is taken. Where there is none, choices for limits all the way down are looked at, so that the least that
    is found is found again for itself.
    """
    kept = KeptTensors(graph)
    choices = {choose_dropped(kept, int(limit * share), thrift) for thrift in THRIFT for share in AIMS}
    fitting = [c for c in choices if kept.live(c).max() <= limit]
    for dropped in sorted(fitting, key=kept.cost):
        names, total = _planned(graph, kept, dropped)
        if total <= limit:
            return names, total
    everything = int(kept.live(frozenset()).max())
    choices = {choose_dropped(kept, int(everything * share), thrift) for thrift in THRIFT for share in DOWN}
    lowest = sorted(choices, key=lambda c: (int(kept.live(c).max()), kept.cost(c)))[:MOST_PLANNED]
    return min((_planned(graph, kept, dropped) for dropped in lowest), key=lambda found: found[1])


def _planned(graph: Graph, kept: KeptTensors, dropped: frozenset[int]) -> tuple[frozenset[str], int]:
    names = frozenset(kept.tensors[i].value.name for i in dropped)
    copy = graph.clone()
    recompute(copy, names)
    return names, arena_nbytes(copy)


def arena_nbytes(graph: Graph) -> int:
    """Of a graph of known sizes that runs one node after the other."""
    total = plan_memory(graph).total
    assert isinstance(total, int)
    return total


def recompute(graph: Graph, names: Collection[str]) -> None:
    """Let the backward half read copies of these tensors, made just before they are needed."""
    kept = KeptTensors(graph)
    dropped = frozenset(kept.at[graph.value(name)] for name in names)
    due = kept.again(dropped)
    new: dict[Value, Value] = {}

    def late(v: Value) -> Value:
        """What a node that runs late reads for `v`."""
        number = kept.at.get(v)
        if number not in due or v in new:
            return new.get(v, v)
        view = v.producer  # of a tensor that was made again: shown again
        assert view is not None and number is not None and v is not kept.tensors[number].value
        inputs = [None if o is None else late(o) for o in view.inputs]
        copy = graph.add_node(view.op, inputs, before=kept.nodes[due[number]], name=view.name,
                              types=[o.type for o in view.outputs])  # fmt: skip
        new[v] = copy.outputs[view.outputs.index(v)]
        return new[v]

    for number in sorted(due):
        v = kept.tensors[number].value
        node = kept.nodes[kept.tensors[number].first]
        inputs = [None if o is None else late(o) for o in node.inputs]
        copy = graph.add_node(node.op, inputs, before=kept.nodes[due[number]], name=node.name, types=[v.type],
                              bodies={name: body.clone() for name, body in node.bodies.items()})  # fmt: skip
        new[v] = copy.output
    for node in kept.nodes[kept.boundary + 1 :]:
        for i, o in enumerate(node.inputs):
            if o is not None and kept.at.get(o) in due:
                node.set_input(i, late(o))
    DeadCode().run(graph, Rewriter(graph))


def _is_static(graph: Graph) -> bool:
    return all(isinstance(v.type, TensorType) and v.type.is_static for n in graph for v in n.outputs)


__all__ = ["ArenaTooSmall", "Rematerialise", "arena_nbytes", "recompute", "within"]
