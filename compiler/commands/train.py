"""`parax train job.toml`: an ONNX model is trained as a job file says, and becomes an ONNX model again."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...files import check_writable, write_whole
from .console import Console, Progress, Table

if TYPE_CHECKING:
    from ...runtime.train.batches import Batches
    from ...runtime.train.data.dataset import Dataset
    from ...runtime.train.data.transforms import Transform
    from ..trainer import Trainer
    from ..training.job import Job

NAME = "train"
HELP = "train an ONNX model as a job file says: `parax train --init job.toml` writes one with comments"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("job", type=Path, metavar="JOB.toml", help="what to train, on what and how")
    parser.add_argument("--init", action="store_true", help="write a job file with comments there instead, and stop")
    parser.add_argument("--dump", type=Path, metavar="DIR",
                        help="write the graphs of a step, its update and an evaluation there, and all kernels")
    parser.add_argument("--precision", metavar="NAME",
                        help="of products and convolutions: fp32 or bf16, in the place of the job's")  # fmt: skip
    parser.add_argument("--resume", choices=("auto", "never"), default="auto",
                        help="go on from the last checkpoint, if there is one, or begin again (auto)")  # fmt: skip


def execute(args: argparse.Namespace, console: Console) -> int:
    """Train and export; the exit code."""
    from ...runtime.train.data.open import open_dataset
    from ..training.job import TEMPLATE, read_job

    if args.init:
        if args.job.exists():
            raise UsageError("there is a file already", where=str(args.job), hint="choose another name")
        write_whole(args.job, TEMPLATE)
        console.note(f"{args.job}: change it to your model and data, then `parax train {args.job}`")
        return 0
    job = read_job(args.job)
    output = job.place(job.model.output)
    check_writable(output)
    check_log(job)
    train = open_dataset(job.data.train, job.folder)
    test = None if job.data.test is None else open_dataset(job.data.test, job.folder)
    with console.progress("compile") as progress:
        trainer = made(job, train, progress, args.dump, args.precision)
    began = time.perf_counter()
    resume = args.resume == "auto" and job.checkpoints is not None
    with trainer, logged(job, resume) as log:
        _tell(console, trainer)
        with console.progress("train") as progress:
            batches = _batches(job, trainer, train, console)
            noted = _watched(log, progress, trainer, job, train)
            found = _fit(trainer, job, batches, _tests(job, trainer, test), noted, resume)
        trainer.export(output, average=job.train.ema is not None)
        console.note(str(trainer.memory()))
    _report(console, job, output, found, time.perf_counter() - began)
    return 0


def made(
    job: Job, train: Dataset, progress: Progress, dump: Path | None = None, precision: str | None = None
) -> Trainer:  # fmt: skip
    """The trainer of a job. `dump`: a folder for its graphs and kernels. `precision`: in the place of the job's."""
    from ...runtime.train.exchange.settings import Exchange
    from ...runtime.train.schedules import Schedule
    from ..options import CompileOptions
    from ..trainer import Trainer
    from ..training.update_graph import Clip

    per_epoch = len(train) // max(1, job.train.batch)
    rate = Schedule(job.optimizer.lr, max(1, per_epoch * job.train.epochs), **vars(job.schedule))
    return Trainer(
        job.place(job.model.path), job.loss, job.optimizer, batch=job.train.batch, shards=job.train.shards,
        instances=job.train.instances, trained=job.model.trained, frozen=job.model.frozen, result=job.model.result,
        weights=None if job.model.weights is None else job.place(job.model.weights), head=job.head,
        clip=Clip(job.clip_value, job.clip_norm), groups=job.groups, ema=job.train.ema, rate=rate,
        max_memory=job.train.max_memory, precision=precision or job.train.precision, progress=progress,
        options=CompileOptions(dump=dump),
        accumulate=job.train.accumulate, exchange=Exchange(**vars(job.exchange)),
    )  # fmt: skip


def _batches(job: Job, trainer: Trainer, train: Dataset, console: Console) -> Batches:
    """What an epoch goes through: the data set behind its transforms."""
    from ...runtime.train.data.adaptive import AdaptiveLoader
    from ...runtime.train.data.dataset import fitted
    from ...runtime.train.data.loader import Loader

    data, finds = job.data, job.data.workers == "auto"
    loader = Loader(fitted(train, trainer.program.data), trainer.batch, seed=data.seed, shuffle=data.shuffle,
                    workers=1 if finds else int(data.workers), kind=data.loaders,
                    transforms=_transforms(job, trainer))  # fmt: skip
    return AdaptiveLoader(loader, lambda balance: console.note(str(balance))) if finds else loader


def _tests(job: Job, trainer: Trainer, test: Dataset | None) -> Dataset | None:
    """The data set of evaluations behind its transforms."""
    from ...runtime.train.data.dataset import fitted
    from ...runtime.train.data.transforms import Transformed

    if test is None:
        return None
    transforms = _transforms(job, trainer, of_tests=True)
    return Transformed(fitted(test, trainer.program.data), transforms, job.data.seed) if transforms else test


def _transforms(job: Job, trainer: Trainer, of_tests: bool = False) -> tuple[Transform, ...]:
    """Those of a job, for the model's first input and the labels where they name no tensor."""
    from ...runtime.train.program import LABELS
    from ..training.transforms import transforms_of, without_random

    first = trainer.program.data[0]
    if of_tests and job.data.test_transforms is not None:
        return transforms_of(job.data.test_transforms, "data.test_transforms", first, LABELS)
    found = transforms_of(job.data.transforms, "data.transforms", first, LABELS)
    return without_random(found) if of_tests else found


def _fit(
    trainer: Trainer, job: Job, batches: Batches, test: Dataset | None,
    log: Callable[[dict[str, Any]], None], resume: bool,
) -> dict[str, Any]:  # fmt: skip
    """The last evaluation, and how far it came."""
    last: dict[str, Any] = {}

    def kept(record: dict[str, Any]) -> None:
        if "evaluation" in record:
            last.update(record["evaluation"], epoch=record["epoch"], step=record["step"])
        log(record)

    own = job.checkpoints
    place = None if own is None else job.place(own.folder)
    more: dict[str, Any] = {} if own is None else {"every": own.every, "keep": own.keep}
    done = trainer.fit(
        batches, job.train.epochs, test=test, checkpoints=place, resume=resume, patience=job.train.patience,
        metric=job.train.metric, average=job.train.ema is not None, log=kept, **more,
    )  # fmt: skip
    return {**last, "epochs": done.epochs, "steps": trainer.state.steps, **trainer.counters().per_step()}


def _watched(
    log: Callable[[dict[str, Any]], None], progress: Progress, trainer: Trainer, job: Job, train: Dataset
) -> Callable[[dict[str, Any]], None]:
    """Logs, and shows how far it is, the loss and the speed."""
    total = max(1, len(train) // trainer.batch * job.train.epochs)

    def note(record: dict[str, Any]) -> None:
        memory = trainer.memory()
        log({**record, "memory": {**memory.parts, "measured": memory.measured}} if "evaluation" in record else record)
        if "loss" in record:
            speed = record["rows_per_second"]
            progress(f"epoch {record['epoch'] + 1}/{job.train.epochs}, loss {record['loss']:.4g}, {speed:.3g} rows/s",
                     min(1.0, record["step"] / total))  # fmt: skip

    return note


def check_log(job: Job) -> None:
    """Refuse a log that cannot be before the work rather than after it. Raises UsageError."""
    from ...runtime.charts import altair

    for path in (job.log.file, job.log.report):
        if path is not None:
            check_writable(job.place(path))
    if job.log.report is not None:
        altair()


@contextmanager
def logged(job: Job, resume: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """What notes records wherever the job says: behind those of the last checkpoint, or anew. The report is at the end.

    Raises:
        UsageError: a place cannot be written.
    """
    from ...runtime.train.checkpoint import Checkpoints
    from ...runtime.train.events import Events
    from ...runtime.train.records import Records
    from ...runtime.train.report import report

    own, steps = job.log, 0
    if resume and job.checkpoints is not None:
        steps = Checkpoints(job.place(job.checkpoints.folder)).last_steps()
    seen: list[dict[str, Any]] = []
    sinks: list[Callable[[dict[str, Any]], None]] = [] if own.report is None else [seen.append]
    with ExitStack() as stack:
        if own.file is not None:
            records = stack.enter_context(Records(job.place(own.file), steps))
            seen += records.kept
            sinks.append(records.write)
        if own.tensorboard is not None:
            events = Events(job.place(own.tensorboard), steps)
            stack.callback(events.close)
            sinks.append(events.write)

        def write(record: dict[str, Any]) -> None:
            for sink in sinks:
                sink(record)

        def close() -> None:
            if own.report is not None:
                write_whole(job.place(own.report), report(seen, f"parax train {job.model.path}"))

        try:
            yield write
        except BaseException:
            with suppress(UsageError):  # what ended the training is what is told
                close()
            raise
        close()


def _tell(console: Console, trainer: Trainer) -> None:
    parameters = trainer.state.parameters
    count = sum(array.size for array in parameters.values())
    console.note(f"{len(parameters)} parameters of {count} numbers; {trainer.batch} rows a step in "
                 f"{trainer.program.n_shards} shards on {trainer.instances} instances")  # fmt: skip
    console.note(str(replace(trainer.memory(), measured=None)))
    if trainer.left_out:
        shown = ", ".join(trainer.left_out[:5]) + (", …" if len(trainer.left_out) > 5 else "")
        console.note(f"single numbers that stay as they are: {shown} (model.trained can name them)")


def _report(console: Console, job: Job, output: Path, found: dict[str, Any], seconds: float) -> None:
    document = {"output": str(output), "seconds": seconds, **found}
    rows = [[name, f"{value:.6g}" if isinstance(value, float) else value] for name, value in document.items()]
    console.result(document, Table("", ("trained", ""), rows))
