"""`python -m benchmarks.training_memory`: training within a limit of memory: predicted, measured, and at which speed.

A model is trained for some steps with everything kept, then within each limit, from the same weights on the same batch;
losses must be the same, bit for bit. Speeds are of interleaved steps. Each side is a process of its own, so that what
one holds is not counted for another. (`benchmarks.training` has PyTorch's peaks.) Owns the procedure.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from examples.models import build
from parax.files import write_whole
from parax.runtime.cpu import cpu_name
from parax.runtime.topology import choose_cores
from parax.units import size

from .answering import Answering
from .command import command_line
from .training_memory_side import EVERYTHING

BATCHES = {"resnet50": 16, "resnet18": 16, "vgg16": 8, "mobilenet-v1": 32, "mobilenet-v2": 32}
"""Rows of a step."""


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: measured, 1: losses differ."""
    parser = command_line("training_memory", __doc__)
    parser.add_argument("--models", nargs="+", choices=sorted(BATCHES), default=["resnet50"], metavar="NAME",
                        help=f"which of {', '.join(sorted(BATCHES))} (default resnet50)")  # fmt: skip
    parser.add_argument("--max-memory", nargs="+", default=["60%", "40%"], metavar="AMOUNT",
                        help="limits, each a size or a share of what is taken without (default 60%% 40%%)")  # fmt: skip
    parser.add_argument("--batch", type=int, metavar="N", help="rows of a step (default: 8 to 32, by the model)")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="timed steps of each side (default 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    args = parser.parse_args(argv)
    rows = [row for name in args.models for row in compared(name, args)]
    show(rows)
    print(f"{cpu_name()}, {len(choose_cores(None))} cores; medians of {args.steps} interleaved steps")
    if args.json:
        write_whole(args.json, json.dumps({"cpu": cpu_name(), "rows": rows}, indent=1))
    return 0 if all(row.get("agrees") is not False for row in rows) else 1


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the table."""
    table = Table("model", "batch", "limit", "predicted", "measured", "rows/s", "speed", "losses")
    for row in rows:
        if "error" in row:
            table.add_row(row["model"], str(row["batch"]), row["limit"], row["error"])
            continue
        predicted = size(row["predicted"])
        agrees = {True: "the same", False: "differ", None: ""}[row["agrees"]]
        table.add_row(row["model"], str(row["batch"]), row["limit"], predicted, size(row["measured"]),
                      f"{row['rows_per_second']:.1f}", f"{row['speed']:.2f}", agrees)  # fmt: skip
    Console().print(table)


def compared(name: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for everything kept, and for each limit."""
    batch = args.batch or BATCHES[name]
    kinds = [EVERYTHING, *args.max_memory]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "model.onnx"
        write_whole(path, build(name).SerializeToString())
        sides = {}
        for kind in kinds:
            task = {"model": str(path), "rows": batch, "limit": kind}
            sides[kind] = stack.enter_context(closing(Answering(kind, "benchmarks.training_memory_side", task)))
        facts = {kind: own.ask(what="start") for kind, own in sides.items()}
        running = [kind for kind in kinds if "error" not in facts[kind]]
        seconds: dict[str, list[float]] = {kind: [] for kind in running}
        losses: dict[str, list[float]] = {kind: [] for kind in running}
        for _ in range(args.steps):
            for kind in running:
                found = sides[kind].ask(what="step")
                seconds[kind].append(found["seconds"])
                losses[kind].append(found["loss"])
                facts[kind]["measured"] = found["measured"]
    for kind in running:
        median = float(np.median(seconds[kind]))
        speed = float(np.median(seconds[EVERYTHING])) / median
        agrees = None if kind == EVERYTHING else losses[kind] == losses[EVERYTHING]
        facts[kind].update(rows_per_second=batch / median, speed=speed, agrees=agrees)
    return [{"model": name, "batch": batch, "limit": kind, **known} for kind, known in facts.items()]


if __name__ == "__main__":
    sys.exit(main())
