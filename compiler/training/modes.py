"""A graph as it is while training: statistics of the batch, what they make of running ones, and dropped elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import InvalidModel, UnsupportedOp
from ..ir.graph import Graph, Node, Value
from ..ir.ops.dropout import Dropout, dropped
from ..ir.ops.elementwise import Identity
from ..ir.ops.normalization import BatchNormalization
from ..ir.types import I64, TensorType
from ..passes.rewrite import Rewriter

COUNTER = "training.counter"
STATISTICS = {3: "mean", 4: "variance"}  # operands of BatchNormalization; results 1 and 2 are the new ones


@dataclass(frozen=True)
class TrainingMode:
    """What training adds to a graph.

    Attributes:
        running: running statistic, an input or constant of the graph → the value that it has after the step.
        counter: an input of the graph, i64[2]: the step, and the number in the whole batch of this run's first row;
            None without a Dropout.
    """

    running: dict[Value, Value] = field(default_factory=dict)
    counter: Value | None = None


def to_training(graph: Graph) -> TrainingMode:
    """Bring a graph's BatchNormalization and Dropout, wherever the model has them in its own way, into training mode.

    before: %y = BatchNormalization(%x, %s, %b, %m, %v)    %z = Dropout(%y, %ratio)
    after:  %y, %m', %v' = BatchNormalization(%x, %s, %b, %m, %v) {training_mode=1}
            %mask = RandomMask(shape of %y, %ratio, seed, position by the counter)
            %z = Where(%mask, %y / (1 - %ratio), 0)

    A layer that the model applies twice comes nearer to both batches, one after the other. Masks depend on an element's
    place in the whole batch, which may be cut along axis 0.

    Raises:
        UnsupportedOp: a running statistic is computed by the model. InvalidModel: a tensor has the counter's name, or
            one tensor is a mean and a variance.
    """
    rw, running = Rewriter(graph), dict[Value, Value]()
    roles: dict[Value, int] = {}
    for node in [n for n in graph if isinstance(n.op, BatchNormalization)]:
        _use_batch(rw, node, running, roles)
    layers = [n for n in graph if isinstance(n.op, Dropout)]
    if not layers:
        return TrainingMode(running)
    if graph.has_value(COUNTER):
        raise InvalidModel("the model has a tensor of the name that the counter gets", found=COUNTER)
    batch = next((v for v in graph.inputs if isinstance(v.type, TensorType) and v.type.shape), None)
    counter = graph.add_input(COUNTER, TensorType(I64, (2,)))
    for number, node in enumerate(layers):
        _drop(rw, node, number, counter, batch)
    return TrainingMode(running, counter)


def _use_batch(rw: Rewriter, node: Node, running: dict[Value, Value], roles: dict[Value, int]) -> None:
    """The node in training mode, its running statistics among the results."""
    op, inputs, old = node.op, list(node.inputs), {}
    assert isinstance(op, BatchNormalization)
    for i, role in STATISTICS.items():
        old[i] = statistic = _given(node, inputs[i], role)
        if roles.setdefault(statistic, i) != i:
            raise InvalidModel("one tensor is a running mean and a running variance", where=node.where, found=statistic)
        inputs[i] = running.get(statistic, statistic)
    new = rw.graph.add_node(op.replace(training_mode=1), inputs, before=node, name=node.name, n_outputs=3)
    running.update({old[i]: new.outputs[i - 2] for i in STATISTICS})
    rw.replace(node, new.outputs[: len(node.outputs)])


def _given(node: Node, v: Value | None, role: str) -> Value:
    """The input or constant that a running statistic is."""
    while v is not None and v.producer is not None and isinstance(v.producer.op, Identity):
        v = v.producer.inputs[0]
    if v is None or v.producer is not None:
        raise UnsupportedOp(f"a running {role} that the model computes cannot be trained", where=node.where,
                            found=v, hint="make it an initializer")  # fmt: skip
    return v


def _drop(rw: Rewriter, node: Node, number: int, counter: Value, batch: Value | None) -> None:
    """Elements dropped by step and place; of a node without a seed its number among the others is one."""
    op, (x, ratio, *_) = node.op, (*node.inputs, None)
    assert isinstance(op, Dropout) and x is not None
    g = rw.before(node)
    seed = number if op.seed is None else op.seed
    found = dropped(g, x, ratio, seed, _position(g, x, counter, batch))
    rw.replace(node, found[: len(node.outputs)])


def _position(g: Any, x: Value, counter: Value, batch: Value | None) -> Value:
    """(step, number of x's first element in the whole batch): all rows before it have as many elements as its own."""
    step, row = (g.Slice(counter, np.array([i]), np.array([i + 1])) for i in range(2))
    elements = g.Reshape(g.Size(x), np.array([1], np.int64))
    if batch is not None:
        elements = g.Div(elements, g.Shape(batch, start=0, end=1))
    position: Value = g.Concat(step, g.Mul(row, elements), axis=0)
    return position
