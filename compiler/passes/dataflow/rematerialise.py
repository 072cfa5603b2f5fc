"""A training step within a limit of memory: tensors that it has no room for are computed again, or later, if needed.

Nodes that run again are copies, with the same kernels on the same operands, so that no bit changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....errors import ResourceLimit
from ...ir.graph import Graph, Node, Value
from ...ir.types import TensorType
from ..base import DataflowPass
from ..rewrite import Rewriter
from .choose_repeated import choose_repeated
from .dead_code import DeadCode
from .kept_tensors import KeptTensors, Lives, Order, needed, repeated_form
from .memory_planning import plan_memory

AIMS, THRIFT = (1.0, 0.97, 0.94, 0.9, 0.8), (1.0, 0.5)
"""Shares of a limit that an order is chosen for, and how much its cost counts."""
DOWN, DOWN_THRIFT = (0.7, 0.5, 0.35, 0.27, 0.22, 0.19, 0.17, 0.155, 0.14, 0.13, 0.12), (1.0, 0.75, 0.65, 0.5)
"""The same of what is taken with everything kept: the least that some of these need is the least known."""


@dataclass(frozen=True)
class Rematerialise(DataflowPass):
    """Compute tensors again before a late reader, or only then, until the arena fits.

    before: %2 = Exp(%1); …; %7 = Loss(%6); …; %9 = Mul(%8, %2); %10 = Mul(%9, %1)
    after:  %2 = Exp(%1); …; %7 = Loss(%6); …; %3 = Exp(%1); %9 = Mul(%8, %3); %10 = Mul(%9, %1)

    Attributes:
        arena_nbytes: of the arena at most; 0: any.

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
        order, least = within(graph, self.arena_nbytes)
        if least > self.arena_nbytes:
            raise too_small(self.arena_nbytes, least)
        reorder(graph, order)
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


def within(graph: Graph, limit: int) -> tuple[Order, int]:
    """The order to run nodes in, some again, and the bytes of the arena that is planned then: at most `limit`, or the
    least that was found.

    What is chosen for a lower limit may meet a higher one that what was chosen for that does not: lower ones are looked
    at until one meets it, and the cheaper choice is taken. Where there is none, choices for limits all the way down are
    looked at, of which the cheapest that meets the limit is taken; or that of the least memory, so that the least that
    is found is found again for itself. One that meets it is then without the runs that
    its plan can be without.
    """
    kept = KeptTensors(graph)
    for share in AIMS:
        choices = {choose_repeated(kept, int(limit * share), thrift) for thrift in THRIFT}
        for order in sorted(choices, key=kept.cost):
            if Lives(kept, order).live.max() <= limit and (total := _planned(graph, order)) <= limit:
                return order, total
    everything = int(Lives(kept, kept.once()).live.max())
    choices = {choose_repeated(kept, int(everything * share), thrift) for thrift in DOWN_THRIFT for share in DOWN}
    planned = [(order, _planned(graph, order)) for order in choices]
    order, total = min(planned, key=lambda found: (max(found[1], limit), kept.cost(found[0])))
    return spared(graph, kept, order, limit) if total <= limit else (order, total)


def spared(graph: Graph, kept: KeptTensors, order: Order, limit: int) -> tuple[Order, int]:
    """An order without the runs without which its arena is still planned within the limit, the dearest tried first; and
    the bytes of that arena.

    `choose_repeated` leaves out what it counts as unneeded; orders for lower limits hold more, and plans differ from
    what it counts: not every tensor finds room in the outputs.
    """
    runs, total = list(enumerate(order)), _planned(graph, order)
    for run in sorted(runs, key=lambda run: kept.run_cost(run[1]), reverse=True):
        at = runs.index(run) if run in runs else 0
        if not any(n == run[1] for _, n in runs[:at]):
            continue
        rest = runs[:at] + runs[at + 1 :]
        left = [rest[place] for place in needed(kept, [n for _, n in rest])]
        shorter = tuple(n for _, n in left)
        if Lives(kept, shorter).live.max() <= limit and (less := _planned(graph, shorter)) <= limit:
            runs, total = left, less
    return tuple(n for _, n in runs), total


def _planned(graph: Graph, order: Order) -> int:
    copy = graph.clone()
    reorder(copy, order)
    return arena_nbytes(copy)


def arena_nbytes(graph: Graph) -> int:
    """Of a graph of known sizes that runs one node after the other."""
    total = plan_memory(graph).total
    assert isinstance(total, int)
    return total


def reorder(graph: Graph, order: Sequence[int]) -> None:
    """Let nodes run in an order of `KeptTensors`: its own, with some nodes again, or later than they stand."""
    kept = KeptTensors(graph)
    newest = _Newest(graph, kept)
    waiting: list[int] = []
    last = -1
    for n in order:
        if n < last:
            waiting.append(n)
            continue
        last, here = n, kept.nodes[n]
        for number in waiting:
            newest.make(kept.nodes[number], here)
        waiting.clear()
        for i, o in enumerate(here.inputs):
            if o is not None and (now := newest.read(o, here)) is not o:
                here.set_input(i, now)
    DeadCode().run(graph, Rewriter(graph))


class _Newest:
    """What tensors that were made again are now, and views of them, while a graph is gone through."""

    def __init__(self, graph: Graph, kept: KeptTensors) -> None:
        self.graph, self.kept = graph, kept
        self.values: dict[int, dict[Value, Value]] = {}  # of tensors: it, and its views, as they were and as they are

    def read(self, v: Value, here: Node) -> Value:
        """What a node reads for `v`, which stands before `here`; a view is shown again."""
        number = self.kept.at.get(v)
        if number is None or number not in self.values:
            return v
        known = self.values[number]
        if v not in known:
            view = v.producer
            assert view is not None
            inputs = [None if o is None else self.read(o, here) for o in view.inputs]
            copy = self.graph.add_node(view.op, inputs, before=here, name=view.name,
                                       types=[o.type for o in view.outputs])  # fmt: skip
            known.update(zip(view.outputs, copy.outputs, strict=True))
        return known[v]

    def make(self, node: Node, here: Node) -> None:
        """Let a node run again before `here`."""
        inputs = [None if o is None else self.read(o, here) for o in node.inputs]
        bodies = {name: body.clone() for name, body in node.bodies.items()}
        form, made = repeated_form(node), node.outputs[0]
        assert form is not None
        copy = self.graph.add_node(form, inputs, before=here, name=node.name, types=[made.type], bodies=bodies)
        self.values[self.kept.at[made]] = {made: copy.output}


def _is_static(graph: Graph) -> bool:
    return all(isinstance(v.type, TensorType) and v.type.is_static for n in graph for v in n.outputs)


__all__ = ["ArenaTooSmall", "Rematerialise", "arena_nbytes", "reorder", "spared", "within"]
