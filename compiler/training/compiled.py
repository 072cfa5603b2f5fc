"""A model, a loss and an optimiser → the graphs of a training program, and what is known of its tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import InvalidModel
from ..ir.graph import Graph
from ..ir.types import SymDim, TensorType
from .compact import Parts
from .embeddings import split_groups
from .groups import ParameterGroup, grouped
from .losses import LABELS, Loss
from .optimizers.base import Optimizer
from .parameters import Wanted
from .step_graph import StepGraph, evaluation_graph, step_graph
from .update_graph import Clip, Group, Matrix, slots_of, update_graph

ReadModel = Callable[[Collection[str] | None, dict[str, int]], Graph]
"""Imports the model with these initializers as inputs (None: as for inference) and these sizes of symbols."""


@dataclass(frozen=True)
class Recipe:
    """What is trained how.

    Attributes:
        result: the output that the loss is of; None: the first. rows: of a shard. n_shards: of a micro-batch.
        n_gradients: that the update adds. n_pieces: of a batch, whose compact gradients it adds.
        groups: of parameters with settings of their own. average: see `update_graph`.
    """

    loss: Loss
    optimizer: Optimizer
    wanted: Wanted
    rows: int
    n_shards: int
    n_gradients: int
    n_pieces: int
    result: str | None = None
    clip: Clip = field(default_factory=Clip)
    groups: Sequence[ParameterGroup] = ()
    average: float | None = None


@dataclass(frozen=True)
class TrainingGraphs:
    """Graphs of a step, its update and an evaluation; the first is as `step` says, the last serves any batch it can.

    Attributes:
        update: group → sizes of its tensors in its vector → the graph. groups: group → parameter → shape.
        slots: names of what is kept per parameter. compact: group of a single parameter → its gradient instead.
    """

    step: StepGraph
    update: Callable[[Mapping[str, Sequence[int]]], Graph]
    evaluation: StepGraph
    groups: Mapping[str, Mapping[str, tuple[int, ...]]]
    slots: tuple[str, ...]
    compact: Mapping[str, Parts]


def training_graphs(read: ReadModel, recipe: Recipe) -> TrainingGraphs:
    """The graphs.

    Raises:
        InvalidModel: a model whose batch is fixed to another number of rows. UsageError: a group takes no parameter.
        Else as `step_graph`.
    """
    sizes = _batch_size(read(None, {}), recipe.rows, recipe.n_shards)
    n_pieces = recipe.n_pieces if recipe.optimizer.by_element else None
    step = step_graph(lambda names: read(names, sizes), recipe.loss, recipe.wanted, recipe.result, n_pieces)
    evaluation = evaluation_graph(lambda names: read(names, {}), step, recipe.loss, recipe.result)
    settings = grouped({name: array.shape for name, array in step.parameters.items()}, recipe.groups)
    groups = split_groups({name: members for name, (_, members) in settings.items()}, step.compact)
    shapes = {name: members for name, (_, members) in groups.items()}
    compact = {name: step.compact[p] for name, members in shapes.items() for p in members if p in step.compact}

    def matrix(name: str) -> Matrix | None:
        if (of := compact.get(name)) is None:
            return None
        rows, *columns = next(iter(shapes[name].values()))
        parts = {part: (recipe.n_pieces * own.shape[0], *own.shape[1:]) for part, own in of.items()}
        return Matrix(rows, math.prod(columns), parts)

    def update(sizes: Mapping[str, Sequence[int]]) -> Graph:
        own = []
        for name, (part_of, _) in groups.items():
            of, _ = settings[part_of]
            own.append(Group(name, tuple(sizes[name]), of.lr_scale, of.weight_decay, matrix(name)))
        return update_graph(recipe.optimizer, own, recipe.n_gradients, recipe.clip, recipe.average)

    return TrainingGraphs(step, update, evaluation, shapes, slots_of(recipe.optimizer, recipe.average), compact)


def _batch_size(graph: Graph, rows: int, n_shards: int) -> dict[str, int]:
    """The batch's symbol with its size; nothing where the model's batch is fixed to that size."""
    given = [v for v in graph.inputs if isinstance(v.type, TensorType) and v.type.rank]
    if not given:
        raise InvalidModel("the model has no input with a batch", found=", ".join(map(str, graph.inputs)) or "no input")
    sizes: dict[str, int] = {}
    for v in given:
        dim = v.tensor.dims[0]
        if isinstance(dim, SymDim):
            name = str(dim)
            sizes[name] = rows
        elif dim != rows:
            raise InvalidModel("the batch of the model is fixed", where=f"input {v.name!r}",
                               expected=f"{rows} rows a shard", found=dim,
                               hint=_hint_of_fixed(dim, rows * n_shards))  # fmt: skip
    return sizes


def _hint_of_fixed(dim: int, rows: int) -> str:
    """What makes shards of that size. rows: of a micro-batch."""
    symbol = "or give the input a symbol for its rows"
    if dim > 0 and rows % dim == 0:
        return f"shards = {rows // dim} cuts {rows} rows in shards of {dim}, {symbol}"
    return f"a batch that is a multiple of {dim}, with a shard for each {dim} of its rows, {symbol}"


__all__ = ["LABELS", "Recipe", "TrainingGraphs", "training_graphs"]
