"""A model, a loss and an optimiser → the graphs of a training program, and what is known of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ...errors import InvalidModel
from ..ir.graph import Graph
from ..ir.types import SymDim, TensorType
from .losses import LABELS, Loss
from .optimizers.base import Optimizer
from .parameters import Wanted
from .step_graph import StepGraph, evaluation_graph, step_graph
from .update_graph import Clip, Group, update_graph

ALL = "all"  # the group of every parameter
ReadModel = Callable[[Collection[str] | None, dict[str, int]], Graph]
"""Imports the model with these initializers as inputs (None: as for inference) and these sizes of symbols."""


@dataclass(frozen=True)
class Recipe:
    """What is trained how.

    Attributes:
        result: the output that the loss is of; None: the first. rows: of a shard. n_shards: in a batch.
    """

    loss: Loss
    optimizer: Optimizer
    wanted: Wanted
    rows: int
    n_shards: int
    result: str | None = None
    clip: Clip = field(default_factory=Clip)


@dataclass(frozen=True)
class TrainingGraphs:
    """Graphs of a step, its update and an evaluation; the first is as `step` says, the last serves any batch it can."""

    step: StepGraph
    update: Callable[[int], Graph]
    evaluation: StepGraph


def training_graphs(read: ReadModel, recipe: Recipe) -> TrainingGraphs:
    """The graphs; `update` makes its own for the length of the vector that holds all parameters.

    Raises:
        InvalidModel: a model whose batch is fixed to another number of rows. Else as `step_graph`.
    """
    sizes = _batch_size(read(None, {}), recipe.rows)
    step = step_graph(lambda names: read(names, sizes), recipe.loss, recipe.wanted, recipe.result)
    evaluation = evaluation_graph(lambda names: read(names, {}), step, recipe.loss, recipe.result)

    def update(length: int) -> Graph:
        return update_graph(recipe.optimizer, [Group(ALL, length)], recipe.n_shards, recipe.clip)

    return TrainingGraphs(step, update, evaluation)


def _batch_size(graph: Graph, rows: int) -> dict[str, int]:
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
            hint = "give the input a shape with a symbol, or another batch"
            raise InvalidModel("the batch of the model is fixed", where=f"input {v.name!r}",
                               expected=f"{rows} rows a shard", found=dim, hint=hint)  # fmt: skip
    return sizes


__all__ = ["ALL", "LABELS", "Recipe", "TrainingGraphs", "training_graphs"]
