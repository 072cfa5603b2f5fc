"""The planner's choice against every candidate, measured: `python -m benchmarks.planner`.

For each model of the list and each batch, all candidates run in interleaved rounds. Shown are the choice by prediction
alone, what it takes over the best of all, and the same for the choice of `parax plan`, which runs its best few. The
target is 5 %. With `--json OUT --resume` rows whose candidates are in the file already are not measured again, only
judged by what is predicted now: so a long list can be measured in pieces, and a change of the cost model be tried on
figures at hand.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from examples.models import MODELS
from parax import CompileOptions, env
from parax.compiler.commands.console import Console, Table
from parax.compiler.planner.candidate import Load
from parax.compiler.planner.choice import Choice, Measured, Row, amount
from parax.compiler.planner.plan_search import PlanSearch
from parax.compiler.planner.planner import worth_running
from parax.compiler.planning import study_of
from parax.files import write_whole

from .cases import model_file
from .command import command_line, finish, new_file

TARGET = 1.05
BATCHES = (1, 8, 64)
QUICK_MODELS = ("mlp", "ncf", "mobilenet-v2", "nasnet", "word-lm")
LONGEST_CALL_SECONDS = 1.0  # candidates with longer native calls are left out: they only take memory and time
VERIFIED = 6  # as `parax plan` runs by default


@dataclass(frozen=True)
class Verdict:
    """One model at one batch.

    Attributes:
        best: the quickest candidate. seconds, spread: its measured ones, see planner.choice.Measured. off_by: its
            prediction over that, less 1.
        predicted, verified: (candidate, its measured seconds over the best's) of the choice by prediction alone, and
            of the choice among the VERIFIED best by prediction.
        candidates: name → predicted and measured seconds of a request, spread and rounds.
        left_out: names of the candidates whose calls are too long.
    """

    model: str
    rows: int
    best: str
    seconds: float
    spread: float
    off_by: float
    predicted: tuple[str, float]
    verified: tuple[str, float]
    candidates: dict[str, dict[str, float]]
    left_out: tuple[str, ...] = ()

    @property
    def missed(self) -> bool:
        """Whether a choice misses the target."""
        return max(self.predicted[1], self.verified[1]) > TARGET


def contenders(search: PlanSearch, rows: int, longest_seconds: float) -> tuple[Load, list[Row], list[Row]]:
    """The load of so many rows, its candidates, and those whose native calls take longer than `longest_seconds`."""
    planner = search.planner
    load = planner.load(rows)
    known = planner.rows(load)
    known += planner.scheduled(load, known)
    able = [row for row in known if row.predicted.seconds / row.predicted.calls <= longest_seconds] or known[:1]
    return load, able, [row for row in known if row not in able]


def judge(
    search: PlanSearch, model: str, rows: int, budget_seconds: float, longest_seconds: float,
    known: Verdict | None = None,
) -> Verdict:  # fmt: skip
    """Measure every candidate of a load, unless `known` has them all, and judge both choices."""
    planner = search.planner
    load, able, left_out = contenders(search, rows, longest_seconds)
    figures = {} if known is None else known.candidates
    if all(row.candidate.name in figures for row in able):
        found = [replace(row, measured=_measured(row, load, figures[row.candidate.name])) for row in able]
    else:
        found = search.measured(able, load, budget_seconds)
    by_candidate = {row.candidate: row for row in found}
    best = min(found, key=lambda row: row.cost(load))
    assert best.measured is not None

    def over(choice: Choice) -> tuple[str, float]:
        return choice.candidate.name, by_candidate[choice.candidate].cost(load) / best.cost(load)

    few = [by_candidate[row.candidate] for row in worth_running(able, load, VERIFIED)]
    return Verdict(
        model, rows, best.candidate.name, best.seconds, best.measured.spread,
        best.predicted.items_per_second / best.items_per_second - 1,
        over(planner.choose(able, load)), over(planner.choose(few, load)),
        {row.candidate.name: _figures(row) for row in found}, tuple(row.candidate.name for row in left_out),
    )  # fmt: skip


def _measured(row: Row, load: Load, figures: dict[str, float]) -> Measured:
    seconds, items = figures["measured"], row.predicted.items_per_second * row.predicted.seconds
    return Measured(seconds, items / seconds, figures["spread"], int(figures["rounds"]))


def _figures(row: Row) -> dict[str, float]:
    assert row.measured is not None
    return {"predicted": row.predicted.seconds, "measured": row.measured.seconds, "spread": row.measured.spread,
            "rounds": row.measured.rounds}  # fmt: skip


def cells(v: Verdict) -> list[str]:
    """A verdict's line in the table."""
    ran = f"{len(v.candidates)}" + (f", {len(v.left_out)} too long" if v.left_out else "")
    return [v.model, str(v.rows), v.best, amount(v.seconds), f"±{v.spread / 2:.0%}", f"{v.off_by:+.0%}",
            v.predicted[0], f"{v.predicted[1]:.3f}", f"{v.verified[1]:.3f}", ran,
            "miss" if v.missed else ""]  # fmt: skip


COLUMNS = ("model", "rows", "best measured", "seconds", "spread", "predicted off by", "chosen by prediction",
           "over best", "verified: over best", "candidates", "")  # fmt: skip


def document(verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Every figure."""
    return {"target": TARGET, "rows": [asdict(v) for v in verdicts]}


def earlier(path: Path) -> list[Verdict]:
    """The verdicts of a file that `document` describes; none where there is no file."""
    if not path.is_file():
        return []
    return [
        Verdict(**{**row, "predicted": tuple(row["predicted"]), "verified": tuple(row["verified"]),
                   "left_out": tuple(row["left_out"])})
        for row in json.loads(path.read_text())["rows"]
    ]  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 1 where a choice misses the target."""
    args = _arguments(argv)
    found = {(v.model, v.rows): v for v in earlier(args.json)} if args.resume else {}
    with tempfile.TemporaryDirectory(prefix="parax-planner-") as scratch:
        work = args.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        for name in args.models:
            options = CompileOptions(hint=args.hint, cores=env.read("PARAX_CORES"))
            search = study_of(model_file(name, work, args.small), options)
            for rows in args.batches:
                began = time.perf_counter()
                found[name, rows] = judge(search, name, rows, args.budget, args.longest, found.get((name, rows)))
                print(f"{name}, {rows} rows: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
                if args.json:
                    write_whole(args.json, json.dumps(document(found.values()), indent=1))
    shown = [found[name, rows] for name in args.models for rows in args.batches]
    title = f"{search.planner.machine.name}, --hint {args.hint}; quicker half of interleaved rounds"
    Console().result({}, Table(title, COLUMNS, [cells(v) for v in shown]))
    return 1 if any(v.missed for v in shown) else 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line("planner", __doc__)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), metavar="NAME",
                        help="of the model list (default: all)")
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES), metavar="B",
                        help=f"rows of a request (default: {' '.join(map(str, BATCHES))})")  # fmt: skip
    parser.add_argument("--hint", choices=("latency", "throughput"), default="latency",
                        help="latency: one request at a time; throughput: one for every instance (default latency)")
    parser.add_argument("--budget", type=float, metavar="S", help="seconds of a model and batch (default 10)")
    parser.add_argument("--longest", type=float, default=LONGEST_CALL_SECONDS, metavar="S",
                        help=f"leave out candidates with longer native calls (default {LONGEST_CALL_SECONDS:g})")
    parser.add_argument("--quick", action="store_true", help=f"by default {', '.join(QUICK_MODELS)}, 2 s each")
    parser.add_argument("--small", action="store_true", help="small editions: a test of the tool, no measurement")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keeps the built models (default: removed at the end)")
    parser.add_argument("--json", type=new_file, metavar="OUT", help="write every figure there, after each row")
    parser.add_argument("--resume", action="store_true", help="do not measure again what the --json file has")
    args = parser.parse_args(argv)
    if args.resume and args.json is None:
        parser.error("--resume needs --json")
    args.models = args.models or list(QUICK_MODELS if args.quick else MODELS)
    args.budget = args.budget or (2.0 if args.quick else 10.0)
    return args


if __name__ == "__main__":
    finish(main)
