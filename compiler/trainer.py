"""`parax.Trainer`: an ONNX model is trained on this machine's cores and becomes an ONNX model again.

Owns the way from a model, a loss and an optimiser to a training program; the steps are the runtime's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from glob import escape
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidData, UsageError, reported
from ..runtime.topology import choose_cores
from ..runtime.train.batches import Batches, IteratedBatches
from ..runtime.train.checkpoint import Checkpoints
from ..runtime.train.data.dataset import ArrayDataset, Dataset, fitted
from ..runtime.train.data.loader import Loader
from ..runtime.train.evaluation import evaluate
from ..runtime.train.exchange.division import Division, divided
from ..runtime.train.exchange.settings import Exchange, exchange_named
from ..runtime.train.exchange.traffic import Counters
from ..runtime.train.loop import Plan, Progress, Record, fit
from ..runtime.train.memory import TrainingMemory, predicted, release_free_memory, resident_nbytes
from ..runtime.train.program import LOSS
from ..runtime.train.state import TrainingState
from ..runtime.train.stepper import Stepper
from ..runtime.train.weights import Match
from .frontend.head import Head
from .frontend.importer import import_model
from .frontend.initializers import with_initializers, write_model
from .frontend.parse import settled
from .ir.graph import Graph
from .memory_limit import MemoryLimit
from .options import FULL, CompileOptions
from .trainer_arguments import checked_precision, checked_rate, require_kinds, require_metric
from .training.compiled import Recipe
from .training.groups import ParameterGroup
from .training.losses import Loss, loss_named
from .training.optimizers.base import Optimizer
from .training.optimizers.sgd import SGD
from .training.parameters import Wanted
from .training.update_graph import Clip
from .training_program import Setting, training_program
from .weights import load, save, started

if TYPE_CHECKING:
    from .frontend.parse import Source

Rate = Callable[[int], float]
Batch = Mapping[str, np.ndarray]


class Trainer:
    """Trains an ONNX model: forward, backward and update are native code, made when this is.

    Attributes:
        program: what was compiled. state: the parameters and all that goes on from step to step. batch: rows a step.
        instances: of the model, which share the shards of a batch and one copy of the weights. left_out: initializers
            without an axis, taken for settings and not trained; a pattern of `trained` that fits one trains it.
    """

    @reported
    def __init__(
        self,
        model: Source,
        loss: str | Loss = "softmax_cross_entropy",
        optimizer: Optimizer | None = None,
        *,
        batch: int = 32,
        shards: int | None = None,
        instances: int | None = None,
        cores: Sequence[int] | str | None = None,
        accumulate: int = 1,
        exchange: str | Exchange = "fixed",
        trained: Sequence[str] | None = None,
        frozen: Sequence[str] = (),
        result: str | None = None,
        weights: str | os.PathLike[str] | None = None,
        head: Head | None = None,
        clip: Clip | None = None,
        groups: Sequence[ParameterGroup] = (),
        ema: float | None = None,
        rate: Rate | None = None,
        precision: str = FULL,
        options: CompileOptions | None = None,
        max_memory: int | str | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        """Compile a training step.

        Args:
            model: as of parax.compile. loss: the name of one, or one with its settings. optimizer: default SGD of 0.01.
            batch: rows of a step. shards: equal parts of a batch, each of which one instance works off at a time; the
                same number gives the same bits for any number of instances of as many cores each (with strict_fp, of
                any). Default: one per instance.
            instances: of the model, with an equal share of the cores each; default one per core where there are shards.
            cores: to use; default all that this process may use.
            accumulate: micro-batches that a batch is worked off in, each in shards: the gradient is the batch's, the
                memory a micro-batch's. exchange: between the instances: a name, or one with its settings.
            trained, frozen: patterns of names of parameters; default all that the loss depends on. frozen wins.
            result: name of the output that the loss is of; default the first.
            groups: of parameters with a rate or a weight decay of their own; default one group of all.
            ema: a moving average a ← a + (1 - ema) · (p - a) of the parameters is kept, which begins as they do; see
                `evaluate` and `export`.
            max_memory: of steps: bytes, `"8GiB"`, or `"60%"` of what they take without; the rest is computed again.
            weights: a file to begin with in the place of the model's own, by name: safetensors, a PyTorch state dict, a
                checkpoint. head: a new last layer, whose weights are drawn; the rest keeps its own.
            clip: of gradients. rate: from the number of a step (the first is 0) to the learning rate; default the
                optimiser's lr. options: of the compiler; `dump` gets a folder per graph. progress: called with (phase,
                fraction done).
            precision: of products and convolutions of a step, forward and backward: fp32, or bf16, with sums in f32.
                Parameters, gradients, what the optimiser keeps and evaluations are of f32 in both.

        Raises:
            as parax.compile; UnsupportedOp where an operator has no gradient, or no new head fits; InvalidInput where
            the weights do not; ResourceLimit: max_memory is too little.
        """
        require_kinds(weights=weights, head=head, clip=clip, groups=groups, rate=rate, options=options)
        precision = checked_precision(precision, options or CompileOptions())
        limit = MemoryLimit.of(max_memory)
        usable = choose_cores(cores)
        self.optimizer = _optimizer(optimizer)
        division = divided(exchange_named(exchange), usable, batch, accumulate, shards, instances)
        self.instances = len(division.placement.instances)
        self._rate = rate if rate is not None else lambda step: self.optimizer.lr
        self._start = started(settled(model), None if weights is None else Path(weights), head, result)
        if head is not None and head.alone and trained is None:
            trained = [escape(name) for name in self._start.head]
        self._options = replace(options or CompileOptions(), hint="latency", instances=1)
        recipe = Recipe(loss_named(loss), self.optimizer, Wanted(trained, frozen), division.rows, division.n_shards,
                        division.n_gradients, division.n_pieces, result, clip or Clip(), tuple(groups),
                        _share("ema", ema))  # fmt: skip
        setting = Setting(self._options, division, limit, progress or (lambda phase, fraction: None), precision)
        self.program, initial, self.left_out = training_program(self._read, recipe, setting)
        self._start.require(set(initial))
        self._begin(initial, division, usable)

    def _begin(self, initial: Mapping[str, np.ndarray], division: Division, usable: Sequence[int]) -> None:
        """The state before the first step, and the instances."""
        release_free_memory()
        self._parts, self._resident = predicted(self.program, division), resident_nbytes()
        self.state = TrainingState(self.program, initial)
        self._stepper = Stepper(self.program, self.state, division)
        self._forward = self.program.evaluation.session(1, usable, len(usable), adapt=False)
        self.batch = self.program.batch

    def _read(self, names: Collection[str] | None, sizes: dict[str, int]) -> Graph:
        options = self._options
        fixed = {name: size for name, size in options.dims.items() if isinstance(size, int)}
        dims = {**fixed, **sizes} or None
        return import_model(self._start.model, shapes=options.shapes or None, dims=dims, trained=names)

    def memory(self) -> TrainingMemory:
        """What the training takes, part by part: predicted when it was compiled, and measured now."""
        now, before = resident_nbytes(), self._resident
        return TrainingMemory(self._parts, None if now is None or before is None else now - before)

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """Copies of the parameters as they are now, by name."""
        return {name: view.copy() for name, view in self.state.parameters.items()}

    @reported
    def step(self, batch: Batch) -> dict[str, float]:
        """One step on a batch: the model's inputs and `labels`, by name, of `batch` rows.

        Returns:
            loss and metrics before the step, means over the batch; the gradient's `norm`; the `rate`.

        Raises:
            InvalidInput: a wrong batch. UsageError: no rate. The parameters are as before.
            KeyboardInterrupt: once the step is done and counted.
        """
        rate = checked_rate(self._rate, self.state.steps)
        return {**self._stepper.step(batch, rate), "rate": rate}

    def counters(self) -> Counters:
        """What the exchange between the instances cost until now: time, bytes, cores."""
        return replace(self._stepper.counters)

    @reported
    def evaluate(self, batches: Iterable[Batch], average: bool = False) -> dict[str, float]:
        """Loss and metrics without a step, means over all rows; batches of any number of rows where the model can.

        Args:
            average: of the parameters' moving average in their place.

        Raises:
            InvalidInput: a wrong batch, or none at all. UsageError: there is no average.
        """
        return evaluate(self._forward, self.program, self.state.values(average), batches)

    @reported
    def fit(
        self,
        data: Mapping[str, np.ndarray] | Dataset | Batches | Iterable[Any],
        epochs: int = 1,
        *,
        test: Mapping[str, np.ndarray] | Dataset | None = None,
        seed: int = 0,
        shuffle: bool = True,
        checkpoints: str | os.PathLike[str] | None = None,
        every: int = 0,
        keep: int = 3,
        resume: bool = False,
        patience: int | None = None,
        metric: str = LOSS,
        average: bool = False,
        log: Callable[[Record], None] | None = None,
    ) -> Progress:
        """Train for some epochs, in all.

        Args:
            data: arrays by name (the model's inputs and `labels`, rows first), or a data set, of which each epoch takes
                whole batches in an order of its own by the `seed` (`shuffle`); or batches: a Loader, a torch
                DataLoader, a list.
            test: arrays or a data set to evaluate on after each epoch.
            checkpoints: folder for them, one after each epoch and every so many steps, the last `keep` and the best.
            resume: go on from the folder's last checkpoint, if there is one.
            patience: epochs without a better `metric` of the evaluation after which it ends. log: is handed records.
            average: evaluate the parameters' moving average in their place.

        Raises:
            Diverged: the loss is not finite any more. InvalidInput, InvalidData, UsageError: data that does not fit.
        """
        if resume and checkpoints is None:
            raise UsageError("a training is resumed from checkpoints", where="resume", expected="checkpoints=folder")
        require_metric(metric, () if test is None else self.program.metrics)
        self.state.values(average)  # refuses before the work
        batches = self._batches(data, seed, shuffle)
        kept = None if checkpoints is None else Checkpoints(Path(checkpoints), keep)
        held = None if test is None else self._fitted(test)
        pieces = None if held is None else lambda: Loader(held, self._test_rows(held), shuffle=False, drop_last=False)
        plan = Plan(epochs, pieces, kept, every, patience, metric, average, self._with_counters(log))
        return fit(self, batches, plan, kept.last() if kept is not None and resume else None)

    def _with_counters(self, log: Callable[[Record], None] | None) -> Callable[[Record], None]:
        """Logs records; that of an epoch says what the exchange cost until then, in the mean of a step."""

        def noted(record: Record) -> None:
            if log is not None:
                log({**record, "exchange": self.counters().per_step()} if "evaluation" in record else record)

        return noted

    def _batches(self, data: Any, seed: int, shuffle: bool) -> Batches:
        if isinstance(data, Mapping) or all(hasattr(data, name) for name in ("specs", "take")):
            return Loader(self._fitted(data), self.batch, seed=seed, shuffle=shuffle)
        if all(hasattr(data, name) for name in ("__iter__", "state", "resume")):
            return data
        return IteratedBatches(data, self.program.data)

    def _test_rows(self, data: Dataset) -> int:
        """Rows of a batch of an evaluation: as of a step, or as the model fixes them.

        Raises:
            InvalidData: the rows are no multiple of what the model fixes.
        """
        spec = next(spec for spec in self.program.evaluation.inputs if spec.name in self.program.data)
        fixed = spec.dims[0] if spec.dims else None
        if not isinstance(fixed, int):
            return self.batch
        if len(data) % fixed:
            raise InvalidData("the batch of the model is fixed", where="test", expected=f"a multiple of {fixed} rows",
                              found=len(data))  # fmt: skip
        return fixed

    def _fitted(self, data: Mapping[str, np.ndarray] | Dataset) -> Dataset:
        whole = ArrayDataset(data) if isinstance(data, Mapping) else data
        return fitted(whole, self.program.data)

    @reported
    def export(self, path: str | os.PathLike[str], average: bool = False) -> None:
        """Write the model with the parameters as they are now: the same graph, names kept; whole or not at all.

        Args:
            average: with their moving average. Running statistics are those of the parameters all the same.

        Raises:
            UsageError: there is no average; the place cannot be written.
        """
        write_model(with_initializers(self._start.model, self.state.values(average)), path)

    @reported
    def load(self, path: str | os.PathLike[str], *, strict: bool = True) -> Match:
        """Go on with the parameters and running statistics of a file, by name; a moving average begins anew at
        them, what the optimiser keeps besides stays.

        Args:
            path: .safetensors (a checkpoint, too), or a PyTorch state dict (.pt, .pth, .bin; needs torch).
            strict: refuse a file that lacks names or has others.

        Returns:
            the names that the file lacks, and those that only it has.

        Raises:
            InvalidInput: see `strict`; another shape; another value of a weight that is not trained. UsageError,
            InvalidData: the file cannot be read. Nothing is taken over.
        """
        return load(self.state, self._start.model, Path(path), strict)

    @reported
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all weights by name, those that are not trained too, as `load` reads them: .safetensors or .pt."""
        save(self.state.values(), self._start.model, Path(path))

    def close(self) -> None:
        """End the instances."""
        self._stepper.close()
        self._forward.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _share(name: str, value: Any) -> float | None:
    """A number from 0 on, below 1; None is none. Raises UsageError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise UsageError("out of range", where=name, expected="0 or more, below 1", found=repr(value)[:60])
    return float(value)


def _optimizer(given: Optimizer | None) -> Optimizer:
    """The given one, or the default. Raises UsageError for what is none."""
    found = given if given is not None else SGD(lr=0.01)
    if not isinstance(found, Optimizer):
        raise UsageError("no optimiser", where="optimizer", found=repr(given)[:100])
    return found


__all__ = ["Trainer"]
