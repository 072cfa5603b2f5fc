"""Loops that make sequences longer or shorter, written out: their iterations one after the other.

Only where the number of trips is known, and each iteration's condition once it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import GraphProto, NodeProto
from onnx.helper import make_node

from ..ir.graph import Value
from .frames import Binding, Frame, Written, node_where
from .importing import Importing
from .inlined import inline_body, inline_nodes, is_usable, known_number
from .structures import Item


def unroll(importer: Importing, frame: Frame, node: NodeProto, body: GraphProto, given: Sequence[Item | None],
           otherwise: Callable[[], None]) -> bool:  # fmt: skip
    """Writes a Loop out, its operands `given`: trip count, condition, what it carries.

    Args:
        otherwise: imports it as a loop, where an iteration turns out to be one of which only a run knows whether it is
            the last.

    Returns:
        False, and nothing is done, if it is not known how often the loop runs.
    """
    trips = known_number(given[0])
    begins = 1 if given[1] is None else known_number(given[1])
    if begins is None or (trips is None and given[0] is not None):
        return False
    _Unrolling(importer, frame, node, body, given[2:], trips, otherwise).go_on(bool(begins))
    return True


class _Unrolling:
    """A loop of which some iterations are imported.

    Attributes:
        trips: how many there are at most; None where the condition alone ends it.
        scanned: of every iteration, the tensors that are stacked in the end.
    """

    def __init__(self, importer: Importing, frame: Frame, node: NodeProto, body: GraphProto,
                 states: Sequence[Item | None], trips: int | None, otherwise: Callable[[], None]) -> None:  # fmt: skip
        self.importer, self.frame, self.node, self.body, self.trips = importer, frame, node, body, trips
        self.states: list[Binding] = list(states)
        self._otherwise = otherwise
        self.scanned: list[Sequence[Binding]] = []

    def go_on(self, condition: bool) -> None:
        """Imports the next iteration, or defines the node's outputs if there is none."""
        done = len(self.scanned)
        if not condition or (self.trips is not None and done >= self.trips):
            self._finish()
            return
        graph = self.frame.graph
        counters = zip((np.array(done, np.int64), np.array(True)), self.body.input)
        first = [graph.add_constant(_like(number, len(value.type.tensor_type.shape.dim))) for number, value in counters]
        inline_body(self.importer, self.frame, self.node, self.body, [*first, *self.states], self._take)

    def _take(self, results: Sequence[Binding]) -> None:
        if not is_usable(results):
            self.importer.poison(self.frame, self.node)
            return
        condition = known_number(results[0])
        if condition is None:
            self._otherwise()
            return
        self.states = list(results[1 : 1 + len(self.states)])
        self.scanned.append(results[1 + len(self.states) :])
        self.go_on(bool(condition))

    def _finish(self) -> None:
        n_scanned = len(self.node.output) - len(self.states)
        if n_scanned <= 0:
            self.importer.define_outputs(self.frame, self.node, self.states)
            return
        if not self.scanned:
            self._refuse("it never runs, and what it would stack has no shape")
            return
        self._stack(n_scanned)

    def _stack(self, n_scanned: int) -> None:
        """Outputs that are scanned get an axis, iterations in order."""
        given: dict[str, Value | np.ndarray] = {"front": np.zeros(1, np.int64)}
        nodes, results = [], []
        for k in range(n_scanned):
            names = [f"x{k}_{i}" for i in range(len(self.scanned))]
            given |= {name: row[k] for name, row in zip(names, self.scanned, strict=True)}  # type: ignore[misc]
            nodes += [make_node("Unsqueeze", [name, "front"], [f"u{name}"]) for name in names]
            nodes.append(make_node("Concat", [f"u{name}" for name in names], [f"y{k}"], axis=0))
            results.append(f"y{k}")

        def finish(made: Sequence[Binding]) -> None:
            self.importer.define_outputs(self.frame, self.node, [*self.states, *made])

        inline_nodes(self.importer, self.frame, self.node, nodes, given, results, finish)

    def _refuse(self, reason: str) -> None:
        written = Written("", self.node.op_type, self.frame.opsets[""], node_where(self.node))
        self.importer.refuse(self.frame, self.node, written, reason)


def _like(number: np.ndarray, rank: int) -> np.ndarray:
    """A scalar, or an array of one where the body says that it takes such."""
    return number.reshape(1) if rank == 1 else number
