"""`python -m benchmarks.versions --against PYTHON`: the parax installed here against another version, model by model.

PYTHON is the interpreter of an environment with the other version: `python3 -m venv V && V/bin/pip install
'CHECKOUT[compiler]'`, then `--against V/bin/python`. Each side compiles the model with its own paraxc and runs its own
plan in a process of its own; all are measured in turn, in rounds, over some restarts, because where a process's memory
lies is worth a percent or two. A side's rate is what its quicker rounds reach, the third quartile: a host that takes
cores away makes rounds slower, never quicker. "again" is the other version once more: how far it is from 1.00 is what
the ratios are good for; many short rounds bring it there. Both sides must be installed: what is measured is never the
checkout.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

from examples.models import MODELS
from parax.compiler.contest import quantile_of
from parax.errors import InternalError
from parax.runtime.cpu import cpu_name
from parax.runtime.topology import choose_cores

from .answering import Answering
from .cases import model_file
from .children import Record
from .command import add_compiling, command_line, finish, measure_each
from .peers import BATCHES, DEFAULT_BATCH, Files, load_flags

MODES = ("throughput", "latency")
THEN, NOW, FAST, AGAIN = "then", "now", "now, --fp fast", "again"
QUICKER = 0.75
"""The quantile of a set-up's rates that counts."""


def measure_model(name: str, folder: Path, args: argparse.Namespace) -> Record:
    """Per mode, every side's rates by set-up, one list over all rounds; or the problem."""
    files = Files(name, model_file(name, folder, args.small), folder)
    found: Record = {}
    for mode in args.modes:
        rows = 1 if mode == "latency" else BATCHES.get(name, DEFAULT_BATCH)
        try:
            found[mode] = _measure(files, mode, rows, args)
        except InternalError as error:
            found[mode], found["problem"] = {}, str(error)
    return found


def _measure(files: Files, mode: str, rows: int, args: argparse.Namespace) -> Record:
    n = len(args.cores)
    setups = [(1, n, 1), (1, 1, 1)] if mode == "latency" else [(1, n, 1), (n, 1, n), (n, 1, 1)]
    inputs = files.inputs(rows, args.small)
    tasks = {
        side: {"plan": str(_compiled(files, mode, rows, side, python, args)), "inputs": inputs, "rows": rows,
               "cores": args.cores, "setups": setups if n > 1 else [(1, 1, 1)]}
        for side, python in _sides(args).items()
    }  # fmt: skip
    rates: dict[str, dict[str, list[float]]] = {side: {} for side in tasks}
    for restart in range(args.restarts):
        with ExitStack() as stack:
            running = {
                side: stack.enter_context(
                    closing(Answering(side, "benchmarks.versions_side", task, python=_sides(args)[side]))
                )
                for side, task in tasks.items()
            }
            for number in range(args.rounds):
                for side in _turned(list(running), restart + number):
                    for setup, rate in running[side].ask(seconds=args.seconds).items():
                        rates[side].setdefault(setup, []).append(rate)
    return rates


def _sides(args: argparse.Namespace) -> dict[str, str]:
    """Side → its interpreter."""
    found = {THEN: args.against, NOW: sys.executable}
    return {**found, **({FAST: sys.executable} if args.fast else {}), AGAIN: args.against}


def _compiled(files: Files, mode: str, rows: int, side: str, python: str, args: argparse.Namespace) -> Path:
    """The plan that this side's paraxc makes.

    Raises:
        InternalError: it fails; its messages are in the error.
    """
    plan = files.folder / f"{mode}-{'fast' if side == FAST else 'now' if side == NOW else 'then'}.bin"
    if not plan.exists():
        words = [str(Path(python).parent / "paraxc"), str(files.source), "-o", str(plan), "-q"]
        words += [*load_flags(mode, rows), *args.flags]
        words += ["--fp", "fast"] if side == FAST else []
        try:
            subprocess.run(words, capture_output=True, text=True, timeout=args.timeout, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            found = getattr(error, "stderr", None) or str(error)
            raise InternalError("paraxc failed", where=f"{files.name}, {side}", found=str(found)[-400:]) from error
    return plan


def _turned(sides: Sequence[str], by: int) -> list[str]:
    by %= len(sides)
    return [*sides[by:], *sides[:by]]


def ratios(rates: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Side → the rate that its quicker rounds reach over the other version's, each in its best set-up."""
    best = {side: max(quantile_of(each, QUICKER) for each in setups.values()) for side, setups in rates.items()}
    return {side: rate / best[THEN] for side, rate in best.items()}


def table(document: Record) -> RichTable:
    """A row per model and mode."""
    out = RichTable(title=f"rate ÷ that of the other version: {document['cpu']}", title_justify="left", box=None)
    sides = [side for side in (NOW, FAST, AGAIN) if side != FAST or document["fast"]]
    for column in ("model", "mode", *sides):
        out.add_column(column, justify="left" if column in ("model", "mode") else "right")
    for name, modes in document["models"].items():
        for mode, rates in modes.items():
            if mode != "problem":
                found = ratios(rates) if rates else {}
                out.add_row(name, mode, *(f"{found[side]:.3f}" if found else "failed" for side in sides))
    return out


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: all measured, 1: some failed."""
    args = _arguments(argv)
    args.cores = list(choose_cores(None))
    document: Record = {"cpu": f"{cpu_name()}, {len(args.cores)} cores", "fast": args.fast, "models": {}}
    measure_each(args, document, lambda name, folder: measure_model(name, folder, args))
    Console(width=None if sys.stdout.isatty() else 120).print(table(document))
    return int(any("problem" in model for model in document["models"].values()))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line("versions", __doc__)
    parser.add_argument("--against", required=True, metavar="PYTHON", help="interpreter with the other version")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="NAME",
                        help="of the model list (default: all)")  # fmt: skip
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), help="default: both")
    parser.add_argument("--fast", action="store_true", help="this version's --fp fast as well")
    parser.add_argument("--restarts", type=int, default=2, metavar="N", help="of every process (default 2)")
    parser.add_argument("--rounds", type=int, default=12, metavar="N", help="in each (default 12)")
    parser.add_argument("--seconds", type=float, default=0.15, metavar="S", help="a set-up and round (default 0.15)")
    add_compiling(parser)
    return parser.parse_args(argv)


if __name__ == "__main__":
    finish(main)
