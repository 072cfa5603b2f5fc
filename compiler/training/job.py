"""A training as a file: job.toml, its tables, and the commented one that `parax train --init` writes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from ...errors import UsageError
from ...runtime.train.schedules import Shape
from ..frontend.head import Head
from .groups import ParameterGroup
from .losses import Loss, loss_named
from .optimizers.adam import Adam, AdamW
from .optimizers.base import Optimizer
from .optimizers.lamb import LAMB
from .optimizers.rmsprop import Adagrad, RMSprop
from .optimizers.sgd import SGD
from .tables import check_key, read_table
from .transforms import transforms_of

OPTIMIZERS: Mapping[str, type[Optimizer]] = {cls.name: cls for cls in (SGD, Adam, AdamW, LAMB, Adagrad, RMSprop)}
TEMPLATE = """\
# A training: parax train job.toml. Paths are relative to this file. Keys with a # show what they are without it.

[model]
path = "model.onnx"             # what is trained: its weights are where it begins
output = "trained.onnx"         # where the trained model goes, with all names as they were
# result = "logits"             # the output that the loss is of; the first
# trained = ["head.*"]          # patterns of names of the parameters to train; all that the loss depends on
# frozen = ["embedding*"]       # patterns of those that stay as they are; none
# weights = "start.safetensors" # weights to begin with, by name; or a PyTorch state dict (.pt)

# [head]                        # a new last layer, drawn by a seed
# classes = 10
# init = "glorot"               # or he
# seed = 0
# alone = false                 # whether it alone is trained

[data]
train = { kind = "npz", path = "train.npz" }  # the model's inputs and labels; docs/data.md has the kinds of data
# test = { kind = "npz", path = "test.npz" }  # evaluated after each epoch; none
# seed = 0                      # of the order, a new one in each epoch
# shuffle = true
# workers = 0                   # that load ahead; "auto" finds the fewest that keep up
# loaders = "threads"           # what they are; or processes
# transforms = [{ kind = "normalise", mean = 0.5, std = 0.25 }]  # or crop, flip, resize, one-hot, mix-up: docs/data.md
# test_transforms = []          # of the test; those that are not random

[loss]
name = "softmax_cross_entropy"  # or nll, mse, mae, binary_cross_entropy, own (the model computes it)
# ignore_index = -100           # a label that does not count; none
# axis = 1                      # of the classes; -1 where the result is [N, T, C], as a language model's

[optimizer]
name = "sgd"                    # or adam, adamw, lamb (beta1, beta2, eps), adagrad, rmsprop; as torch.optim's
lr = 0.1
momentum = 0.9
# nesterov = false
# weight_decay = 0.0
# clip_norm = 1.0               # the gradient's greatest norm; any
# clip_value = 1.0              # the greatest of its elements; any

# [[groups]]                    # parameters with settings of their own; the first group that fits counts
# patterns = ["*"]              # of their names
# max_rank = 1                  # only of at most so many axes: biases, scales of norms; any
# lr_scale = 1.0                # what the learning rate is multiplied by
# weight_decay = 0.0            # the optimiser's

[schedule]                      # of the learning rate
shape = "constant"              # or step (factor, period), cosine (least), polynomial (power, least), one-cycle
# warmup = 0                    # steps in which it rises

[train]
epochs = 10
batch = 64
# shards = 2                    # equal parts of a batch; the same number gives the same bits on any number of cores
# instances = 2                 # of the model, which share the shards; one per core
# max_memory = "8GiB"           # of steps, or a share of what they take without, as "60%"; any
# patience = 5                  # epochs without a better evaluation after which it ends; never
# metric = "loss"               # that is compared; or accuracy
# ema = 0.999                   # moving average of the weights, which is evaluated and exported in their place; none
# accumulate = 4                # micro-batches that a batch is worked off in: less memory, the same gradient; 1
# precision = "bf16"            # of products and convolutions, forward and backward, summed in f32; fp32

[exchange]                      # of gradients between the instances
name = "fixed"                  # the same bits in every run; or gradient-server, parameter-server, ring, asynchronous
# staleness = 1                 # updates that an asynchronous gradient may have missed; instances - 1
# groups = 2                    # of instances, of which each begins a step later than the one before,
# delay = 0.02                  # by so many seconds
# oversubscribe = false         # whether there may be more instances than cores

[checkpoints]
folder = "checkpoints"
# keep = 3                      # the last ones, and the best
# every = 0                     # steps between them; after each epoch

[log]
file = "log.jsonl"              # a line of JSON per step and evaluation
# report = "report.html"        # the curves, a page by itself; needs parax[report]
# tensorboard = "runs"          # folder for TensorBoard's events; needs parax[tensorboard]
"""


@dataclass(frozen=True)
class ModelTable:
    """[model]; see TEMPLATE for every key."""

    path: str
    output: str
    result: str | None = None
    trained: tuple[str, ...] | None = None
    frozen: tuple[str, ...] = ()
    weights: str | None = None


@dataclass(frozen=True)
class DataTable:
    """[data]. test_transforms: None for those of `transforms` that are not random."""

    train: dict[str, Any]
    test: dict[str, Any] | None = None
    seed: int = 0
    shuffle: bool = True
    workers: int | str = 0
    loaders: str = "threads"
    transforms: tuple[dict[str, Any], ...] = ()
    test_transforms: tuple[dict[str, Any], ...] | None = None

    def __post_init__(self) -> None:
        """Raises UsageError: no such number or kind of workers, transforms that are none."""
        if self.workers != "auto" and not isinstance(self.workers, int):
            raise UsageError("no number of workers", where="data.workers", expected='a whole number, or "auto"',
                             found=repr(self.workers)[:60])  # fmt: skip
        if self.loaders not in ("threads", "processes"):
            raise UsageError("no such workers", where="data.loaders", expected="threads or processes",
                             found=repr(self.loaders)[:60])  # fmt: skip
        transforms_of(self.transforms, "data.transforms")
        transforms_of(self.test_transforms or (), "data.test_transforms")


@dataclass(frozen=True)
class TrainTable:
    """[train]."""

    epochs: int
    batch: int
    shards: int | None = None
    instances: int | None = None
    max_memory: str | None = None
    patience: int | None = None
    metric: str = "loss"
    ema: float | None = None
    accumulate: int = 1
    precision: str = "fp32"


@dataclass(frozen=True)
class ExchangeTable:
    """[exchange]; runtime/train/exchange/settings.py says what they are."""

    name: str = "fixed"
    staleness: int | None = None
    groups: int = 1
    delay: float = 0.0
    oversubscribe: bool = False


@dataclass(frozen=True)
class CheckpointTable:
    """[checkpoints]."""

    folder: str = "checkpoints"
    keep: int = 3
    every: int = 0


@dataclass(frozen=True)
class LogTable:
    """[log]."""

    file: str | None = None
    report: str | None = None
    tensorboard: str | None = None


@dataclass(frozen=True)
class Job:
    """A job file. `folder`: that its paths are relative to. clip_norm, clip_value: None for no limit."""

    folder: Path
    model: ModelTable
    data: DataTable
    train: TrainTable
    loss: Loss
    optimizer: Optimizer
    clip_norm: float | None = None
    clip_value: float | None = None
    groups: tuple[ParameterGroup, ...] = ()
    schedule: Shape = field(default_factory=Shape)
    exchange: ExchangeTable = field(default_factory=ExchangeTable)
    head: Head | None = None
    checkpoints: CheckpointTable | None = None
    log: LogTable = field(default_factory=LogTable)

    def place(self, path: str) -> Path:
        """A path of the file."""
        return self.folder / path


_TABLES = ["model", "head", "data", "loss", "optimizer", "groups", "schedule", "train", "exchange", "checkpoints",
           "log"]  # fmt: skip


def read_job(path: Path) -> Job:
    """The job of a file.

    Raises:
        UsageError: it cannot be read, is no TOML, or a key or value does not fit; says which.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("the job cannot be read", where=str(path), found=str(error)[:200],
                         hint="parax train --init job.toml writes one") from error  # fmt: skip
    except tomllib.TOMLDecodeError as error:
        raise UsageError("the job is no TOML", where=str(path), found=str(error)[:200]) from error
    return _job(document, path.absolute().parent)


def _job(document: Mapping[str, Any], folder: Path) -> Job:
    for key in document:
        check_key(key, _TABLES, "the job")
    optimizer, clip = _optimizer(document.get("optimizer", {}))
    loss = dict(document.get("loss", {}))
    return Job(
        folder, read_table(ModelTable, document.get("model", {}), "model"),
        read_table(DataTable, document.get("data", {}), "data"),
        read_table(TrainTable, document.get("train", {}), "train"),
        loss_named(loss.pop("name", "softmax_cross_entropy"), **loss), optimizer, **clip,
        groups=_groups(document.get("groups", [])),
        schedule=read_table(Shape, document.get("schedule", {}), "schedule"),
        exchange=read_table(ExchangeTable, document.get("exchange", {}), "exchange"),
        checkpoints=read_table(CheckpointTable, document["checkpoints"], "checkpoints")
        if "checkpoints" in document else None,
        head=read_table(Head, document["head"], "head") if "head" in document else None,
        log=read_table(LogTable, document.get("log", {}), "log"),
    )  # fmt: skip


def _groups(tables: Any) -> tuple[ParameterGroup, ...]:
    if not isinstance(tables, list):
        raise UsageError("not a list of tables", where="groups", expected="[[groups]]", found=repr(tables)[:60])
    return tuple(read_table(ParameterGroup, table, f"groups[{i}]") for i, table in enumerate(tables))


def _optimizer(table: Mapping[str, Any]) -> tuple[Optimizer, dict[str, float]]:
    """The optimiser of [optimizer], and what of it is of clipping."""
    if not isinstance(table, Mapping):
        raise UsageError("not a table", where="optimizer", expected="[optimizer]", found=repr(table)[:60])
    own = dict(table)
    name = own.pop("name", None)
    if name not in OPTIMIZERS:
        raise UsageError("no such optimizer", where="optimizer.name", expected=", ".join(OPTIMIZERS),
                         found=repr(name)[:60])  # fmt: skip
    clip: dict[str, float] = {}
    for key in ("clip_norm", "clip_value"):
        if key in own:
            value = own.pop(key)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise UsageError("must be a number above 0", where=f"optimizer.{key}", found=repr(value)[:60])
            clip[key] = float(value)
    cls = OPTIMIZERS[name]
    known = [*(f.name for f in fields(cls)), "clip_norm", "clip_value"]
    for key in own:
        check_key(key, known, "optimizer")
    return read_table(cls, own, "optimizer"), clip
