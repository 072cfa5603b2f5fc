"""The loop over epochs: steps, what is logged of them, evaluation, checkpoints, and when to stop.

Everything that decides how it goes on is in the checkpoint, so that a training that was killed and resumed is the same,
bit for bit, as one that was not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...errors import InvalidInput
from .arguments import require_whole
from .batches import Batch, Batches
from .checkpoint import Checkpoint, Checkpoints
from .finite import require_finite_parameters, require_number
from .program import LOSS
from .state import TrainingState

Record = dict[str, Any]


class Steps(Protocol):
    """What is trained."""

    state: TrainingState

    def step(self, batch: Mapping[str, np.ndarray]) -> dict[str, float]:
        """One step; raises Diverged."""

    def evaluate(self, batches: Iterable[Batch], average: bool = False) -> dict[str, float]:
        """Loss and metrics without a step, of the parameters or of their moving average."""


@dataclass
class Plan:
    """How long and with what.

    Attributes:
        epochs: to do in all. test: makes the batches to evaluate after each epoch; None: no evaluation.
        checkpoints: where they go; None: there are none. every: steps between checkpoints; 0: after each epoch.
        patience: epochs without a better evaluation (or loss, without one) after which it ends; None: never.
        metric: that is compared: the loss, the less the better, or a metric, the more the better.
        average: whether the parameters' moving average is evaluated.
        log: is handed each record: of a step {"step", "epoch", "loss", …, "rows_per_second"}, of an evaluation
            {"epoch", "evaluation": {…}}.
    """

    epochs: int
    test: Callable[[], Iterable[Batch]] | None = None
    checkpoints: Checkpoints | None = None
    every: int = 0
    patience: int | None = None
    metric: str = LOSS
    average: bool = False
    log: Callable[[Record], None] = lambda record: None

    def __post_init__(self) -> None:
        """Raises UsageError: numbers out of range."""
        require_whole("epochs", self.epochs, 1)
        require_whole("every", self.every)
        if self.patience is not None:
            require_whole("patience", self.patience, 1)


@dataclass
class Progress:
    """Where a training is, beside its tensors and its data."""

    epochs: int = 0
    best: float | None = None
    without_better: int = 0
    loss_sum: float = 0.0  # of the epoch's steps until now
    n_losses: int = 0


def fit(steps: Steps, batches: Batches, plan: Plan, resumed: Checkpoint | None = None) -> Progress:
    """Train until the plan is done.

    Args:
        resumed: a checkpoint to go on from; its tensors are taken over.

    Raises:
        Diverged: a loss is no number any more, or a parameter not finite; the last checkpoint is as it was. Else as
            `step`.
    """
    progress = Progress()
    if resumed is not None:
        progress = Progress(**resumed.facts["progress"])
        batches.resume(resumed.facts["batches"])
        steps.state.restore(resumed.tensors, resumed.facts["steps"])
    while progress.epochs < plan.epochs:
        if plan.patience is not None and progress.without_better >= plan.patience:
            break
        _epoch(steps, batches, plan, progress)
        found = {LOSS: progress.loss_sum / progress.n_losses}
        if plan.test is not None:
            found = steps.evaluate(plan.test(), plan.average)
            require_number(f"{LOSS} of the evaluation", steps.state.steps, found[LOSS])
        require_finite_parameters(steps.state)  # before they are kept
        progress.epochs, progress.loss_sum, progress.n_losses = progress.epochs + 1, 0.0, 0
        is_best = _note(progress, found, plan.metric)
        plan.log({"epoch": progress.epochs, "step": steps.state.steps, "evaluation": found, "best": is_best})
        if plan.checkpoints is not None:
            plan.checkpoints.write(checkpoint(steps, batches, progress), is_best)
    return progress


def checkpoint(steps: Steps, batches: Batches, progress: Progress) -> Checkpoint:
    """All that is needed to go on from here."""
    facts = {"steps": steps.state.steps, "batches": batches.state(), "progress": vars(progress)}
    return Checkpoint(steps.state.tensors(), facts)


def _epoch(steps: Steps, batches: Batches, plan: Plan, progress: Progress) -> None:
    """What is left of an epoch.

    Raises:
        InvalidInput: it has no batch at all.
    """
    began = time.perf_counter()
    for batch in batches:
        found = steps.step(batch)
        now = time.perf_counter()
        rows = len(next(iter(batch.values())))
        progress.loss_sum, progress.n_losses = progress.loss_sum + found[LOSS], progress.n_losses + 1
        plan.log({"step": steps.state.steps, "epoch": progress.epochs, **found,
                  "rows_per_second": rows / max(now - began, 1e-9)})  # fmt: skip
        began = now
        is_due = plan.every and steps.state.steps % plan.every == 0 and progress.n_losses != len(batches)
        if plan.checkpoints is not None and is_due:  # behind the last step comes that of the epoch
            require_finite_parameters(steps.state)
            plan.checkpoints.write(checkpoint(steps, batches, progress))
            began = time.perf_counter()
    if not progress.n_losses:
        raise InvalidInput("no data to train on", expected="a batch or more in each epoch", found="none")


def _note(progress: Progress, found: Mapping[str, float], metric: str) -> bool:
    """Whether an epoch is the best so far."""
    value = found.get(metric, found[LOSS])
    value = value if metric == LOSS or metric not in found else -value
    is_best = progress.best is None or value < progress.best
    progress.best = value if is_best else progress.best
    progress.without_better = 0 if is_best else progress.without_better + 1
    return is_best
