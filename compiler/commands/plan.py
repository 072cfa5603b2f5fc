"""`parax plan MODEL.onnx`: why these instances × cores, rows a call and mode; predicted, measured and drawn."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...files import check_writable, write_whole
from . import arguments
from .choices import COLUMNS, candidate_lines, choice_tables, heading
from .console import Console
from .precisions import precision_table

if TYPE_CHECKING:
    from ..options import CompileOptions

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
    parser.add_argument("--precisions", action="store_true",
                        help="show fp32, bf16, int8 and rounded weights side by side instead: weights, predicted and "
                             "measured speed, and what is lost of --calibrate's data")  # fmt: skip
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the table and the timeline, as a page")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the timeline of cores × operators")
    arguments.add_compile_options(parser)


def execute(args: argparse.Namespace, console: Console) -> int:
    """Plan and show; the exit code."""
    from ..planning import study_of

    options = arguments.compile_options(args)
    described = args.machine is not None
    if args.precisions:
        return _precisions(args, options, console)
    if described and args.cores:
        raise UsageError("a described machine has its own cores", where="--cores", hint="leave out one of the two")
    for place in filter(None, (args.svg, args.html)):
        check_writable(place)
    with console.progress(args.model.name) as progress:
        study = study_of(args.model, options, args.machine, progress)
        choices = [study.choice(rows, 0 if described else args.measure, args.budget) for rows in args.batch or [None]]
        if args.svg or args.html:
            drawing = study.drawing(choices[0])
    if study.guessed:
        console.note(f"sizes taken for open dimensions: {study.guessed} (choose with --dim)")
    if args.svg:
        write_whole(args.svg, drawing)
    if args.html:
        write_whole(args.html, _page(args.model.name, choices[0].to_json(), drawing))
    found = [choice.to_json() for choice in choices]
    shown = [table for choice in found for table in choice_tables(args.model.name, choice)]
    console.result({"model": args.model, "choices": found}, *shown)
    return 0


def _precisions(args: argparse.Namespace, options: CompileOptions, console: Console) -> int:
    """The model at every precision; the exit code."""
    from ..side_by_side import side_by_side

    others = {"--machine": args.machine, "--html": args.html, "--svg": args.svg, "--batch": args.batch}
    if given := [flag for flag, value in others.items() if value is not None]:
        raise UsageError("says nothing of precisions", where=given[0], hint="leave it out, or --precisions")
    with console.progress(args.model.name) as progress:
        rows = side_by_side(args.model, options, progress)
    console.result({"model": args.model, "precisions": [row.to_json() for row in rows]},
                   precision_table(args.model.name, rows))  # fmt: skip
    return 0


def _page(name: str, choice: dict[str, Any], drawing: str) -> str:
    from ..planner import draw

    chosen = choice["candidates"][choice["chosen"]]["name"]
    lines = (COLUMNS, candidate_lines(choice))
    return draw.html(f"{name}: {chosen}", [heading(name, choice), *choice["reasons"]], lines, drawing)
