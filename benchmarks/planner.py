"""The planner's choice against every candidate, measured: `python -m benchmarks.planner`.

For each model of the list and each batch, all candidates run in interleaved rounds. Shown are the choice by prediction
alone, what it takes over the best of all, and the same for the choice of `parax plan`, which runs its best few. The
target is 5 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.models import MODELS
from parax import CompileOptions, env
from parax.compiler.commands.console import Console, Table
from parax.compiler.planner.choice import Choice, Row, amount
from parax.compiler.planner.planner import worth_running
from parax.compiler.planner.study import Study

from .peers import model_file

TARGET = 1.05
BATCHES = (1, 8, 64)
QUICK_MODELS = ("mlp", "ncf", "mobilenet-v2", "nasnet", "word-lm")
LONGEST_CALL_SECONDS = 1.0  # candidates with longer native calls are left out: they only take memory
VERIFIED = 6  # as `parax plan` runs by default


@dataclass(frozen=True)
class Verdict:
    """One model at one batch.

    Attributes:
        predicted, verified: (candidate, its measured seconds over the best's) of the choice by prediction alone, and
            of the choice among the VERIFIED best by prediction.
    """

    model: str
    rows: int
    best: Row
    predicted: tuple[str, float]
    verified: tuple[str, float]
    measured: Sequence[Row]
    left_out: int
    off_by: float


def judge(study: Study, model: str, rows: int, budget_seconds: float) -> Verdict:
    """Measure every candidate of a load, and judge both choices."""
    planner = study.planner
    load = planner.load(rows)
    known = planner.rows(load)
    known += planner.scheduled(load, known)
    able = [row for row in known if row.predicted.seconds / row.predicted.calls <= LONGEST_CALL_SECONDS] or known[:1]
    found = study.measured(able, load, budget_seconds)
    by_candidate = {row.candidate: row for row in found}
    best = min(found, key=lambda row: row.cost(load))

    def over(choice: Choice) -> tuple[str, float]:
        return choice.candidate.name, by_candidate[choice.candidate].cost(load) / best.cost(load)

    few = [by_candidate[row.candidate] for row in worth_running(able, load, VERIFIED)]
    off = best.predicted.items_per_second / best.items_per_second - 1
    return Verdict(model, rows, best, over(planner.choose(able, load)), over(planner.choose(few, load)), found,
                   len(known) - len(able), off)  # fmt: skip


def cells(v: Verdict) -> list[str]:
    """A verdict's line in the table."""
    m = v.best.measured
    assert m is not None
    ran = f"{len(v.measured)}" + (f" of {len(v.measured) + v.left_out}" if v.left_out else "")
    return [v.model, str(v.rows), v.best.candidate.name, amount(m.seconds), f"±{m.spread / 2:.0%}", f"{v.off_by:+.0%}",
            v.predicted[0], f"{v.predicted[1]:.3f}", f"{v.verified[1]:.3f}", ran,
            "" if max(v.predicted[1], v.verified[1]) <= TARGET else "miss"]  # fmt: skip


COLUMNS = ("model", "rows", "best measured", "seconds", "spread", "predicted off by", "chosen by prediction",
           "over best", "verified: over best", "candidates", "")  # fmt: skip


def document(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Every figure."""
    return {
        "target": TARGET,
        "rows": [
            {"model": v.model, "rows": v.rows, "best": v.best.candidate.to_json(), "predicted": v.predicted,
             "verified": v.verified, "left_out": v.left_out,
             "candidates": {
                 row.candidate.name: {"predicted": row.predicted.seconds, "measured": row.seconds}
                 for row in v.measured
             }}
            for v in verdicts
        ],
    }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 1 where a choice misses the target."""
    args = _arguments(argv)
    options = CompileOptions(hint=args.hint, cores=env.read("PARAX_CORES"))
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="parax-planner-") as scratch:
        work = args.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        for name in args.models:
            began = time.perf_counter()
            study = Study(model_file(name, work, args.small), options, None, lambda what, done: None)
            verdicts += [judge(study, name, rows, args.budget) for rows in args.batches]
            print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
            if args.json:
                args.json.write_text(json.dumps(document(verdicts), indent=1))
    machine = study.planner.machine.name
    title = f"{machine}, {len(study.cores)} cores, --hint {args.hint}; medians of interleaved rounds"
    Console().result({}, Table(title, COLUMNS, [cells(v) for v in verdicts]))
    return 1 if any(max(v.predicted[1], v.verified[1]) > TARGET for v in verdicts) else 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner", description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="NAME")
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES), metavar="B")
    parser.add_argument("--hint", choices=("latency", "throughput"), default="latency",
                        help="latency: one request at a time; throughput: one for every instance (default latency)")
    parser.add_argument("--budget", type=float, default=10.0, metavar="S", help="seconds of a model and batch")
    parser.add_argument("--quick", action="store_true", help=f"{', '.join(QUICK_MODELS)}, 2 s each")
    parser.add_argument("--small", action="store_true", help="small editions: a test of the tool, no measurement")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keeps the built models (default: removed at the end)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every figure there")
    args = parser.parse_args(argv)
    if args.quick:
        args.models, args.budget = list(QUICK_MODELS), 2.0
    return args


if __name__ == "__main__":
    sys.exit(main())
