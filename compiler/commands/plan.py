"""`parax plan MODEL.onnx`: why these instances × cores, rows a call and mode; predicted, measured and drawn."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from . import arguments
from .console import Console, Table

if TYPE_CHECKING:
    from ..planner.choice import Choice, Row
    from ..planner.study import Study

NAME = "plan"
HELP = "show which instances × cores, rows a call and mode suit a model, predicted and measured, and why"
BUDGET_SECONDS = 10.0
MOST_MEASURED = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--batch", type=arguments.positive, action="append", metavar="B",
                        help="rows of a request; repeatable (default: 1 with --hint latency, else 64)")  # fmt: skip
    parser.add_argument("--machine", metavar="FILE.toml",
                        help="plan for a machine described in a file, or for a shipped description by its name "
                             "(xeon-8280-2s, …): simulated, nothing is measured")  # fmt: skip
    parser.add_argument("--measure", type=arguments.natural, default=MOST_MEASURED, metavar="N",
                        help=f"run the best N candidates by prediction (default {MOST_MEASURED}; 0: only predict)")
    parser.add_argument("--budget", type=arguments.seconds, default=BUDGET_SECONDS, metavar="S",
                        help=f"seconds of running them, for each batch (default {BUDGET_SECONDS:g})")  # fmt: skip
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the table and the timeline, as a page")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the timeline of cores × operators")
    arguments.add_compile_options(parser)


def execute(args: argparse.Namespace, console: Console) -> int:
    """Plan and show; the exit code."""
    from ..planner.study import Study

    options = arguments.compile_options(args)
    described = args.machine is not None
    if described and args.cores:
        raise UsageError("a described machine has its own cores", where="--cores", hint="leave out one of the two")
    with console.progress(args.model.name) as progress:
        study = Study(args.model, options, args.machine, progress)
        choices = [study.choice(rows, 0 if described else args.measure, args.budget) for rows in args.batch or [None]]
        if args.svg or args.html:
            drawing = study.drawing(choices[0])
    if study.guessed:
        console.note(f"sizes taken for open dimensions: {study.guessed} (choose with --dim)")
    if args.svg:
        args.svg.write_text(drawing, encoding="utf-8")
    if args.html:
        args.html.write_text(_page(args, study, choices[0], drawing), encoding="utf-8")
    console.result(_document(args, choices), *[t for choice in choices for t in tables(args.model.name, choice)])
    return 0


def tables(name: str, choice: Choice) -> list[Table]:
    """What --format table prints of a choice."""
    return [
        Table(heading(name, choice), COLUMNS, [cells(row, row is choice.chosen, choice) for row in choice.rows]),
        Table("why", ("",), [[reason] for reason in choice.reasons]),
    ]


COLUMNS = ("", "candidate", "predicted", "items/s", "measured", "items/s", "spread", "off by",
           "memory-bound", "barriers", "idle", "of peak")  # fmt: skip


def heading(name: str, choice: Choice) -> str:
    """The model, the load and the machine in a line."""
    load = choice.load
    rows = f"{load.rows} row{'s' if load.rows > 1 else ''} a request"
    how = "a request for every instance" if load.saturated else "one request at a time"
    machine = f"{choice.machine}, {choice.n_cores} core{'s' if choice.n_cores > 1 else ''}"
    return f"{name}, {rows}, {how}; {machine}{' (simulated)' if choice.simulated else ''}"


def cells(row: Row, is_chosen: bool, choice: Choice) -> list[str]:
    """A candidate's line."""
    from ..planner.choice import amount

    p, m = row.predicted, row.measured
    measured = ["", "", "", ""]
    if m is not None:
        off = p.items_per_second / m.items_per_second - 1 if choice.load.saturated else p.seconds / m.seconds - 1
        measured = [amount(m.seconds), f"{m.items_per_second:,.4g}", f"±{m.spread / 2:.0%}", f"{off:+.0%}"]
    return [
        "→" if is_chosen else "", row.candidate.name, amount(p.seconds), f"{p.items_per_second:,.4g}", *measured,
        f"{p.memory_share:.0%}", f"{p.barrier_share:.0%}", f"{p.idle_share:.0%}", f"{p.utilisation:.0%}",
    ]  # fmt: skip


def _document(args: argparse.Namespace, choices: list[Choice]) -> dict[str, Any]:
    return {"model": args.model, "choices": [choice.to_json() for choice in choices]}


def _page(args: argparse.Namespace, study: Study, choice: Choice, drawing: str) -> str:
    from ..planner import draw

    rows = [cells(row, row is choice.chosen, choice) for row in choice.rows]
    title = f"{args.model.name}: {choice.candidate.name}"
    return draw.html(title, [heading(args.model.name, choice), *choice.reasons], (COLUMNS, rows), drawing)

