"""`python -m benchmarks.training`: steps of training against PyTorch, interleaved on all cores, from the same weights.

Both take SGD with momentum on cross entropy of random labels, and the whole batch as one or in shards, as they do by
default. PyTorch runs the same ONNX model as an nn.Module (onnx2torch), eager, channels-last; `--compile` has its
compiler make the step. Losses of the first steps are compared before any time counts. Owns the procedure.

    pip install '.[bench-training]' && python -m benchmarks.training --models resnet18 mobilenet-v1
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: its idle threads must not take our cores

import numpy as np
from rich.console import Console
from rich.table import Table

import parax
from examples.models import build
from parax.files import write_whole
from parax.runtime.cpu import cpu_name
from parax.runtime.topology import choose_cores

from .command import command_line

BATCHES = {"resnet50": 16, "resnet18": 16, "vgg16": 8, "mobilenet-v1": 32, "mobilenet-v2": 32}
"""Rows of a step."""
RATE, MOMENTUM, CLASSES = 0.01, 0.9, 1000
COMPARED, MISS = 3, 0.03
"""First steps whose losses must agree, and by how much of a loss: shards have statistics of their own."""
Step = Callable[[], float]


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: measured, 1: losses differ."""
    parser = command_line("training", __doc__)
    parser.add_argument("--models", nargs="+", choices=sorted(BATCHES), default=sorted(BATCHES), metavar="NAME",
                        help=f"which of {', '.join(sorted(BATCHES))} (default all)")  # fmt: skip
    parser.add_argument("--steps", type=int, default=8, metavar="N", help="timed steps of each side (default 8)")
    parser.add_argument("--compile", action="store_true", help="PyTorch's compiler in the place of its eager mode")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    args = parser.parse_args(argv)
    rows = [measured(name, args) for name in args.models]
    table = Table("model", "batch", "PyTorch rows/s", "parax rows/s", "ratio", "of rounds")
    for row in rows:
        low, high = row["rounds"]
        table.add_row(row["model"], str(row["batch"]), f"{row['torch']:.1f}", f"{row['parax']:.1f}",
                      f"{row['ratio']:.2f}", f"{low:.2f}–{high:.2f}")  # fmt: skip
    Console().print(table)
    print(f"{cpu_name()}, {len(choose_cores(None))} cores; medians of {args.steps} steps")
    if args.json:
        write_whole(args.json, json.dumps({"cpu": cpu_name(), "rows": rows}, indent=1))
    return 0 if all(row["agrees"] for row in rows) else 1


def measured(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """The figures of one model."""
    batch = BATCHES[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        write_whole(path, build(name).SerializeToString())
        with parax.Trainer(path, optimizer=parax.SGD(lr=RATE, momentum=MOMENTUM), batch=batch) as trainer:
            spec = next(spec for spec in trainer.program.inputs() if spec.name != "labels")
            assert spec.dims is not None
            rng = np.random.default_rng(0)
            x = rng.standard_normal((batch, *spec.dims[1:])).astype(np.float32)  # type: ignore[arg-type]
            labels = rng.integers(0, CLASSES, batch)
            given = {spec.name: x, "labels": labels}
            sides = torch_step(path, x, labels, args.compile), lambda: trainer.step(given)["loss"]
            return {"model": name, "batch": batch, **times(name, sides, args.steps, batch)}


def torch_step(path: Path, x: np.ndarray, labels: np.ndarray, compiled: bool) -> Step:
    """A step of PyTorch on one batch."""
    import torch
    from onnx2torch import convert

    module = convert(str(path)).train().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(module.parameters(), RATE, momentum=MOMENTUM)
    torch.set_num_threads(len(choose_cores(None)))
    run = torch.compile(module) if compiled else module
    rows, classes = torch.from_numpy(x).to(memory_format=torch.channels_last), torch.from_numpy(labels)

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(run(rows), classes)
        loss.backward()
        optimizer.step()
        return float(loss)

    return step


def times(name: str, sides: Sequence[Step], steps: int, batch: int) -> dict[str, Any]:
    """Rows a second of both, and the ratio: the median over pairs of steps, with its quartiles."""
    agrees = True
    for number in range(COMPARED):
        other, own = (side() for side in sides)
        if abs(own - other) > MISS * abs(other):
            print(f"{name}: losses differ at step {number}: PyTorch {other:.5g}, parax {own:.5g}", file=sys.stderr)
            agrees = False
    seconds = np.array([[_timed(side) for side in sides] for _ in range(steps)])
    ratios = seconds[:, 0] / seconds[:, 1]
    other, own = np.median(seconds, axis=0)
    low, high = np.quantile(ratios, [0.25, 0.75])
    return {"torch": batch / other, "parax": batch / own, "ratio": float(np.median(ratios)),
            "rounds": [float(low), float(high)], "agrees": agrees}  # fmt: skip


def _timed(step: Step) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
