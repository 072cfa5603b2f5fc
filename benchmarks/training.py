"""`python -m benchmarks.training`: steps of training against PyTorch, interleaved on all cores, from the same weights.

Both take SGD with momentum on one random batch, whole or in shards, as they do by default. PyTorch runs the same model
eager, channels-last; with `--compile` its compiler makes the step in another process, and the faster one of the two is
the peer. Each side has a process, of which one works at a time. Losses of the first steps are compared before any time
counts; `peak` is the largest resident size during the timed steps beyond what the process held before it had a model.
Owns the procedure.

    pip install '.[bench-training]' && python -m benchmarks.training --models resnet18 mobilenet-v1
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from parax.errors import InternalError
from parax.files import write_whole
from parax.runtime.cpu import cpu_name

from .command import command_line, finish, new_file
from .training_cases import CASES

COMPARED, MISS = 3, 0.03
"""First steps whose losses must agree, and by how much of a loss: shards have statistics of their own."""
PEERS = {"torch": "eager", "torch-compile": "compiled"}
TABLE_WIDTH = 120  # where the output is no terminal
Record = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: measured, 1: losses differ."""
    parser = command_line("training", __doc__)
    parser.add_argument("--models", nargs="+", choices=sorted(CASES), default=sorted(CASES), metavar="NAME",
                        help=f"which of {', '.join(sorted(CASES))} (default all)")  # fmt: skip
    parser.add_argument("--steps", type=int, default=8, metavar="N", help="timed steps of each side (default 8)")
    parser.add_argument("--compile", action="store_true", help="also PyTorch's compiler; the faster is the peer")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures there")
    args = parser.parse_args(argv)
    rows = [measured(name, args) for name in args.models]
    table = Table("model", "batch", "peer", "PyTorch rows/s", "parax rows/s", "ratio", "PyTorch peak", "parax peak")
    for row in rows:
        low, high = row["rounds"]
        peaks = (f"{row['peaks'][side] / 2**20:,.0f} MiB" for side in (row["peer"], "parax"))
        table.add_row(row["model"], str(row["batch"]), PEERS[row["peer"]], f"{row['torch']:.1f}",
                      f"{row['parax']:.1f}", f"{row['ratio']:.2f} ({low:.2f}–{high:.2f})", *peaks)  # fmt: skip
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table)
    print(f"{cpu_name()}, {rows[0]['cores']} cores; medians of {args.steps} steps")
    if args.json:
        write_whole(args.json, json.dumps({"cpu": cpu_name(), "rows": rows}, indent=1))
    return 0 if all(row["agrees"] for row in rows) else 1


def measured(name: str, args: argparse.Namespace) -> Record:
    """The figures of one model."""
    batch, sides = CASES[name].batch, [*list(PEERS)[: 1 + args.compile], "parax"]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "model.onnx"
        write_whole(path, CASES[name].model(name).SerializeToString())
        children = {side: stack.enter_context(started(side, name, path)) for side in sides}
        agrees = all([_agree(name, number, children) for number in range(COMPARED)])
        for child in children.values():
            child.ask("peak")
        rounds = [{side: child.ask("step")["seconds"] for side, child in children.items()} for _ in range(args.steps)]
        peaks = {side: child.ask("peak") for side, child in children.items()}
    seconds = {side: np.array([found[side] for found in rounds]) for side in sides}
    peer = min(sides[:-1], key=lambda side: float(np.median(seconds[side])))
    ratios = seconds[peer] / seconds["parax"]
    low, high = np.quantile(ratios, [0.25, 0.75])
    return {"model": name, "batch": batch, "peer": peer, "agrees": agrees, "cores": children["parax"].cores,
            "torch": batch / float(np.median(seconds[peer])), "parax": batch / float(np.median(seconds["parax"])),
            "ratio": float(np.median(ratios)), "rounds": [float(low), float(high)],
            "seconds": {side: list(map(float, times)) for side, times in seconds.items()},
            "peaks": {side: found["peak"] - found["before"] for side, found in peaks.items()}}  # fmt: skip


class Child:
    """One side: `cores` that it uses, and what it answers."""

    def __init__(self, side: str, process: subprocess.Popen[str]) -> None:
        """Wait until it is ready. Raises InternalError where it ends before."""
        self._side, self._process = side, process
        self.cores = self._answer()["cores"]

    def ask(self, command: str) -> Record:
        """What it answers to a command; it works meanwhile. Raises InternalError where it ends."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the end of its answers says more
            print(command, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Record:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found: Record = json.loads(line)
                return found
        raise InternalError("ended", where=f"side {self._side}", found=f"exit code {self._process.wait()}")


@contextmanager
def started(side: str, name: str, path: Path) -> Iterator[Child]:
    """A side in a process of its own, which ends with the block."""
    task = json.dumps({"side": side, "name": name, "model": str(path)})
    command: Sequence[str] = [sys.executable, "-m", "benchmarks.training_side", task]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Child(side, process)
        finally:
            process.kill()


def _agree(name: str, number: int, children: Mapping[str, Child]) -> bool:
    """Whether the losses of the next step do."""
    losses = {side: child.ask("step")["loss"] for side, child in children.items()}
    other, own = losses["torch"], losses["parax"]
    if abs(own - other) <= MISS * abs(other):
        return True
    print(f"{name}: losses differ at step {number}: PyTorch {other:.5g}, parax {own:.5g}", file=sys.stderr)
    return False


if __name__ == "__main__":
    finish(main)
