"""The graph of one training step: forward, loss and backward in one; also the forward that an evaluation runs.

    inputs   the model's inputs, parameters and running statistics, labels; a counter where elements are dropped; where
             labels may be ignored, what the sum over the others is multiplied by (the runtime counts them)
    outputs  loss, metrics, new statistics, then the gradient of every parameter: a mean over the rows of the step

Reading the model is handed in: it is read once to see what the loss depends on, and again with that as inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import InvalidModel, UsageError
from ..ir.builder import GraphBuilder
from ..ir.graph import Graph, Value
from ..ir.ops.backward import filled
from ..ir.types import F32, TensorType
from ..passes.autodiff.reverse import reached_gradients
from .compact import Parts, parts_of
from .embeddings import lookups, write_rows
from .factors import factors
from .losses import LABELS, Loss, OwnLoss
from .modes import TrainingMode, to_training
from .parameters import Wanted, candidates, chosen

LOSS, SHARE = "loss", "training.share"
Read = Callable[[Collection[str]], Graph]
"""Imports the model with these initializers as inputs."""


@dataclass(frozen=True)
class StepGraph:
    """One step, or one evaluation, as a graph.

    Attributes:
        graph: see the file. data: names of the model's own inputs. has_labels: whether there is an input for labels.
        parameters: name → its first value. gradients: name of the parameter → of the output that is its gradient.
        compact: name of the parameter → its gradient of other outputs, instead.
        metrics: names of the outputs of single numbers beside the loss.
        statistics: running mean or variance → its first value. updates: its name → of the output that takes its place.
        counter: name of the input that tells the step and the first row (`modes.py`), or None.
        n_classes: that labels may be, where they are classes.
        left_out: numbers without an axis that could be trained and are not, as no pattern names them.
    """

    graph: Graph
    data: tuple[str, ...]
    has_labels: bool
    parameters: dict[str, np.ndarray]
    gradients: dict[str, str]
    metrics: tuple[str, ...]
    statistics: dict[str, np.ndarray]
    updates: dict[str, str]
    counter: str | None = None
    n_classes: int | None = None
    left_out: tuple[str, ...] = ()
    compact: dict[str, Parts] = field(default_factory=dict)


def step_graph(
    read: Read, loss: Loss, wanted: Wanted, result: str | None = None, n_pieces: int | None = None
) -> StepGraph:  # fmt: skip
    """Forward, loss and backward.

    Args:
        read: imports the model. result: name of the output that the loss is of; None: the first.
        n_pieces: how often the graph is run for a batch; None: no gradient is compact (`embeddings.py`, `factors.py`).

    Raises:
        InvalidModel, UsageError: nothing to train, no such result, labels that clash with the model's own names.
        UnsupportedOp: an operator in between has no gradient.
    """
    names, running, left_out = trained_names(read, loss, wanted, result)
    step = _made(read, names, running, loss, result, backward=True)
    gradients, compact = _add_gradients(step.graph, names, n_pieces)
    return replace(step, gradients=gradients, compact=compact, left_out=tuple(left_out))


def evaluation_graph(read: Read, step: StepGraph, loss: Loss, result: str | None = None) -> StepGraph:
    """The forward alone as in inference, with loss, metrics and results, and the inputs of a step."""
    return _made(read, list(step.parameters), list(step.statistics), loss, result, backward=False)


def trained_names(
    read: Read, loss: Loss, wanted: Wanted, result: str | None = None
) -> tuple[list[str], list[str], list[str]]:  # fmt: skip
    """Names of the initializers that are trained, those wanted that the loss depends on; of running statistics; and of
    the single numbers that stay as they are.
    """
    graph = read(())
    running = set(to_training(graph).running)
    y, _ = _with_loss(graph, loss, result)
    able = [v for v in candidates(graph) if v not in running]
    found = reached_gradients(graph, y, able)
    names, left_out = chosen((v for v, dv in zip(able, found, strict=True) if dv is not None), wanted)
    return names, sorted(v.name for v in running), left_out


def _made(
    read: Read, names: list[str], running: list[str], loss: Loss, result: str | None, backward: bool
) -> StepGraph:  # fmt: skip
    graph = read((*names, *running))
    results = dict(zip(graph.output_names, graph.outputs, strict=True))
    first = {v.name: graph.defaults.pop(v.name) for v in graph.inputs if v.name in {*names, *running}}
    data = tuple(v.name for v in graph.inputs if v.name not in first)  # before other inputs are added
    n_classes = loss.n_classes(_result(graph, result).tensor)
    mode = to_training(graph) if backward else TrainingMode()
    _, outputs = _with_loss(graph, loss, result)
    metrics = tuple(name for name in outputs if name != LOSS)
    outputs.update({f"{old.name}.new": new for old, new in mode.running.items()})
    if not backward:
        outputs = {**results, **outputs}
    graph.set_outputs(list(outputs.values()), list(outputs))
    return StepGraph(
        graph, data, not isinstance(loss, OwnLoss), {name: first[name] for name in names}, {}, metrics,
        {name: first[name] for name in running}, {old.name: f"{old.name}.new" for old in mode.running},
        mode.counter.name if mode.counter is not None else None, n_classes,
    )  # fmt: skip


def _add_gradients(
    graph: Graph, parameters: list[str], n_pieces: int | None
) -> tuple[dict[str, str], dict[str, Parts]]:
    """The loss's gradients as outputs behind the others; name of the parameter → of its outputs."""
    tables = lookups(graph, parameters, n_pieces) if n_pieces is not None else {}
    values = {name: tables[name].results if name in tables else (graph.value(name),) for name in parameters}
    flat = [v for results in values.values() for v in results]
    found = iter(reached_gradients(graph, graph.outputs[graph.output_names.index(LOSS)], flat))
    g = GraphBuilder(graph, name="gradient")
    dense, compact, outputs = {}, {}, dict(zip(graph.output_names, graph.outputs, strict=True))
    for name, results in values.items():
        table, received = graph.value(name), [next(found) for _ in results]
        if name in tables:
            found_parts = write_rows(g, table, tables[name], received)
        else:
            found_parts = factors(received[0], n_pieces)
        if found_parts is not None:
            compact[name] = parts_of(name, found_parts)
            outputs.update({compact[name][part].output: v for part, v in found_parts.items()})
            continue
        dense[name] = f"{name}.gradient"
        outputs[dense[name]] = received[0] if name not in tables and received[0] is not None else filled(g, table, 0.0)
    graph.set_outputs(list(outputs.values()), list(outputs))
    graph.lent = frozenset(dense.values())  # nobody reads a gradient's place while the step runs
    return dense, compact


def _result(graph: Graph, result: str | None) -> Value:
    """The output that the loss is of. Raises UsageError: there is none; InvalidModel: it is not of floats."""
    names = list(graph.output_names)
    if result is not None and result not in names:
        raise UsageError("the model has no such output", where="result", expected=", ".join(names), found=result)
    of = graph.outputs[0 if result is None else names.index(result)]
    if not of.tensor.dtype.is_float:
        raise InvalidModel("a loss is of floats", where=f"output {names[0] if result is None else result!r}",
                           found=of.type)  # fmt: skip
    return of


def _with_loss(graph: Graph, loss: Loss, result: str | None) -> tuple[Value, dict[str, Value]]:
    """The loss behind the graph, and the outputs of single numbers by name: the loss, then metrics."""
    of = _result(graph, result)
    g = GraphBuilder(graph, name=LOSS)
    labels = of
    if not isinstance(loss, OwnLoss):
        if graph.has_value(LABELS):
            raise InvalidModel("the model has a tensor of the name that labels get", found=LABELS)
        labels = graph.add_input(LABELS, loss.labels(of.tensor))
    found = {LOSS: loss.write(g, of, labels), **loss.metrics(g, of, labels)}
    if loss.ignore_index is not None:
        found = _shared(graph, g, found)
    return found[LOSS], found


def _shared(graph: Graph, g: GraphBuilder, sums: dict[str, Value]) -> dict[str, Value]:
    """Sums over labels that count, in the share that one has of the batch."""
    if graph.has_value(SHARE):
        raise InvalidModel("the model has a tensor of the name that the labels' share gets", found=SHARE)
    share = graph.add_input(SHARE, TensorType(F32, ()))
    return {name: g.Mul(v, g.Cast(share, to=v.tensor.dtype)) for name, v in sums.items()}


__all__ = ["LABELS", "StepGraph", "evaluation_graph", "step_graph", "trained_names"]
