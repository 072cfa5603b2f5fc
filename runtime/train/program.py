"""What the compiler hands to training: plans of a step, an update and an evaluation, and what their tensors are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..manifest import TensorSpec
from ..plan import Plan

LOSS, LABELS, SHARE = "loss", "labels", "training.share"
AVERAGE = "average"  # the slot of the weights' moving average


@dataclass(frozen=True)
class Part:
    """One tensor of a compact gradient: an output of `step`, and what it is of one piece of a batch."""

    output: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Of one piece."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class CompactGradient:
    """What the gradient of a matrix is computed from, where that is far less than the matrix.

    Attributes:
        parts: of a table of which some rows are looked up `indices` i64[count], where rows may be named more than once,
            or from the end, and `rows` f32[count, width]; of the weights of a layer `left` f32[n, rows] and `right`
            f32[n, columns], whose product leftᵀ · right it is.
    """

    parts: Mapping[str, Part]

    @property
    def nbytes(self) -> int:
        """Of one piece of a batch."""
        return sum(part.nbytes for part in self.parts.values())


@dataclass(frozen=True)
class TrainingProgram:
    """Plans and names.

    Attributes:
        step: from data, labels and parameters to the loss, metrics and gradients of the rows of one shard.
        update: from gradients of all shards to new parameters; see compiler/training/update_graph.py.
        evaluation: as `step`, without gradients, with the model's results, for any number of rows where it can be.
        data: names of the model's inputs, and of the labels.
        groups: group → parameter → shape. gradients: parameter → output of `step`. compact: group of a single parameter
            → its gradient instead.
        slots: names of what is kept per parameter: the optimiser's, and the AVERAGE if there is one.
        metrics: names beside the loss.
        statistics: input of `step` → output of `step` that takes its place: running means and variances.
        rows: of one shard. n_shards: in a micro-batch. accumulate: micro-batches in a batch. counter: input of `step`,
            i64[2]: the step, and the number of the shard's first row in the batch; None: nothing is random.
        ignored: the label that does not count, or None; `step` and `evaluation` then give sums times their input SHARE.
        n_classes: labels are from 0 to below that, or ignored; None: labels are no classes.
    """

    step: Plan
    update: Plan
    evaluation: Plan
    data: tuple[str, ...]
    groups: Mapping[str, Mapping[str, tuple[int, ...]]]
    gradients: Mapping[str, str]
    slots: tuple[str, ...]
    metrics: tuple[str, ...]
    statistics: Mapping[str, str]
    rows: int
    n_shards: int
    counter: str | None = None
    accumulate: int = 1
    ignored: int | None = None
    n_classes: int | None = None
    compact: Mapping[str, CompactGradient] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        """Rows of a step."""
        return self.rows * self.n_shards * self.accumulate

    def n_counted(self, batch: Mapping[str, np.ndarray]) -> int:
        """What a batch's mean is over: its labels that count; its rows where all do."""
        if self.ignored is None:
            return len(batch[self.data[0]])
        return int(np.count_nonzero(np.asarray(batch[LABELS]) != self.ignored))

    def inputs(self) -> list[TensorSpec]:
        """Of a shard: the data and the labels."""
        return [spec for spec in self.step.inputs if spec.name in self.data]
