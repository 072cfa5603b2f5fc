"""`python -m benchmarks.loading`: how fast a training on a folder of JPEGs is, by how many workers load it.

Draws JPEGs, writes them into a folder of classes, and trains a small network on them as a job would: read, scaled, cut
at random, flipped, normalised. Each row is one number of workers, of threads or of processes: what loading alone gives,
and what training with it gives, against the same steps on a batch that is there already; `stalled` is the share of a
training's time in which it waits for data. Passes of all rows are interleaved; the first of each does not count. Owns
the procedure.

    python -m benchmarks.loading --workers 0 1 2 --kinds threads processes
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import parax
from parax.compiler.trainer import Trainer
from parax.errors import UsageError
from parax.files import write_whole
from parax.runtime.cpu import cpu_name
from parax.runtime.topology import choose_cores
from parax.runtime.train.data.dataset import fitted
from parax.runtime.train.data.loader import KINDS, Loader
from parax.runtime.train.data.open import open_dataset
from parax.runtime.train.data.transforms import Normalise, RandomCrop, RandomFlip

from .command import command_line, finish, new_file
from .small_networks import convolutions

CLASSES, WIDTHS = 8, (16, 32, 64)
Row = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: measured."""
    parser = command_line("loading", __doc__)
    parser.add_argument("--images", type=int, default=512, metavar="N", help="that are drawn (default 512)")
    parser.add_argument("--side", type=int, default=256, metavar="PIXELS", help="of a JPEG (default 256)")
    parser.add_argument("--size", type=int, default=64, metavar="PIXELS", help="that is trained on (default 64)")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="rows of a step (default 32)")
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="(default 0 1 2)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of workers (default both)")
    parser.add_argument("--passes", type=int, default=3, metavar="N", help="timed ones of each (default 3)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures there")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="parax-loading-") as folder:
        draw(Path(folder), args.images, args.side)
        rows = measured(Path(folder), args)
    table = Table("workers", "kind", "loading", "training", "there already", "stalled")
    for row in rows:
        table.add_row(
            str(row["workers"]), row["kind"], f"{row['loading']:.0f}", f"{row['training']:.0f}",
            f"{row['there_already']:.0f}", f"{row['stalled']:.0%}",
        )  # fmt: skip
    Console().print(table)
    print(f"{cpu_name()}, {len(choose_cores(None))} cores. Images a second: medians of {args.passes} passes over "
          f"{args.images} JPEGs of {args.side} pixels, trained at {args.size}")  # fmt: skip
    if args.json:
        write_whole(args.json, json.dumps({"cpu": cpu_name(), "rows": rows}, indent=1))
    return 0


def draw(folder: Path, n_images: int, side: int) -> None:
    """Pictures with an even shade, a gradient and noise, as JPEGs in a folder for each class."""
    try:
        from PIL import Image  # here: an extra
    except ImportError as error:
        raise UsageError("Pillow is not installed", hint="pip install 'parax[images]'") from error
    rng = np.random.default_rng(0)
    for i in range(n_images):
        place = folder / f"class{i % CLASSES}"
        place.mkdir(exist_ok=True)
        slope = np.linspace(0, 60, side)[:, None, None] * (i % CLASSES) / CLASSES
        pixels = rng.integers(40, 140, 3) + slope + rng.integers(0, 40, (side, side, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(place / f"{i}.jpg", quality=90)


def measured(folder: Path, args: argparse.Namespace) -> list[Row]:
    """The figures of all numbers and kinds of workers."""
    larger = args.size + args.size // 8
    data = open_dataset({"kind": "images", "path": str(folder), "size": larger})
    kinds = [(n, kind) for n in args.workers for kind in (args.kinds if n else ["here"])]
    with ExitStack() as stack:
        trainer = stack.enter_context(Trainer(convolutions(3, WIDTHS, args.size, CLASSES), batch=args.batch,
                                              optimizer=parax.SGD(lr=0.01, momentum=0.9)))  # fmt: skip
        known = fitted(data, trainer.program.data)
        transforms = (RandomCrop((args.size, args.size), name="x"), RandomFlip(name="x"),
                      Normalise(np.full(3, 0.45), np.full(3, 0.25), name="x"))  # fmt: skip
        loaders = [Loader(known, args.batch, transforms=transforms, workers=n, kind=kind if n else "threads")
                   for n, kind in kinds]  # fmt: skip
        there = next(iter(loaders[0]))
        passes = [[_pass(loader, trainer, there) for loader in loaders] for _ in range(args.passes + 1)][1:]
    return [{"workers": n, "kind": kind, **{name: median(one[i][name] for one in passes) for name in passes[0][i]}}
            for i, (n, kind) in enumerate(kinds)]  # fmt: skip


def _pass(loader: Loader, trainer: Trainer, there: dict[str, np.ndarray]) -> dict[str, float]:
    """An epoch of loading alone, one of training with it, and one of training alone."""
    rows, busy = len(loader) * loader.batch, 0.0

    def load() -> None:
        for _ in loader:
            pass

    def train() -> None:
        nonlocal busy
        for batch in loader:
            began = time.perf_counter()
            trainer.step(batch)
            busy += time.perf_counter() - began

    def step() -> None:
        for _ in range(len(loader)):
            trainer.step(there)

    loading, training, alone = (_seconds(work) for work in (load, train, step))
    return {"loading": rows / loading, "training": rows / training, "there_already": rows / alone,
            "stalled": 1 - busy / training}  # fmt: skip


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    finish(main)
