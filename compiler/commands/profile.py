"""`parax profile plan.bin|MODEL.onnx [-o trace.json] [--html report.html]`: what every core does, by operator."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ...files import check_writable, write_whole
from . import arguments
from .bench import rows_of
from .console import Console, Progress, Table
from .made_up import random_arrays, sizes_of, still_open
from .models import open_plan

if TYPE_CHECKING:
    from ...runtime.plan import Plan
    from ...runtime.session import Session
    from ..contest import Contestant

NAME = "profile"
HELP = "show where the time goes, by operator and core; of a model, or a plan built with --profile"
SECONDS, TOP = 3.0, 20
COST_ROUNDS, COST_SHARE = 5, 0.1  # with and without recording; each of so much of the recorded time
MOST_WARM_UPS = 10  # of half a second, until a session knows the best way for a lone request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("plan", type=Path, metavar="plan.bin|MODEL.onnx")
    parser.add_argument("-o", "--output", type=Path, action="append", default=[], metavar="FILE",
                        help="write the profile: …trace.json for Perfetto and chrome://tracing, other ….json as data "
                             "for parax compare, ….html as a page; repeatable")  # fmt: skip
    parser.add_argument("--html", type=Path, action="append", default=[], metavar="FILE.html",
                        help="write the profile as one page that needs no network (needs parax[report])")  # fmt: skip
    add_measuring(parser)
    parser.add_argument("--top", type=arguments.positive, default=TOP, metavar="N",
                        help=f"operators to show (default {TOP})")  # fmt: skip
    arguments.add_compile_options(parser)


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """What is run, for verbs that record."""
    parser.add_argument("--seconds", type=arguments.seconds, default=SECONDS, metavar="S",
                        help=f"how long to record (default {SECONDS:g})")  # fmt: skip
    parser.add_argument("--callers", type=arguments.positive, default=1, metavar="N",
                        help="threads that send requests, each one after the other (default 1)")  # fmt: skip
    parser.add_argument("--batch", type=arguments.positive, metavar="B", help="rows per request where the model "
                        "leaves that open (default 1; beside a profile, as many as its requests had)")  # fmt: skip
    parser.add_argument("--seed", type=arguments.natural, default=0, help="of the random inputs (default 0)")
    parser.add_argument("--cores-per-instance", type=arguments.positive, metavar="X", help="cores of one instance")


def execute(args: argparse.Namespace, console: Console) -> int:
    """Record and show; the exit code."""
    from ...runtime.profiling.profile import check_name, render
    from ...runtime.profiling.text import tables

    files = [*args.output, *args.html]
    for path in files:
        check_name(path)
        check_writable(path)
    plan = profiled_plan(args.plan, args, console)
    document = record(plan, args, console)
    for path in files:
        write_whole(path, render(document, path))
    shown = [Table(t.title, t.columns, t.rows) for t in tables(document, args.top)]
    console.result(document, *shown)
    console.note(f"recording takes {document['recording_cost']:+.1%} of a request's time "
                 f"({COST_ROUNDS} rounds with and without it)")  # fmt: skip
    return 0


def profiled_plan(path: Path, args: argparse.Namespace, console: Console) -> Plan:
    """The plan at a path, or of the model there.

    Raises:
        IncompatiblePlan: it was not compiled for profiling.
    """
    from ...runtime.profiling.notes import notes_of

    plan = open_plan(path, replace(arguments.compile_options(args), profile=True), console)
    notes_of(plan.manifest)
    return plan


def record(plan: Plan, args: argparse.Namespace, console: Console) -> dict[str, Any]:
    """A profile's document of random requests to the plan, with predictions and what recording costs."""
    from ..contest import Contestant
    from ..sizes import naming_sizes

    sizes = sizes_of(plan, still_open(plan, args.dim), args.batch or 1, console)
    inputs = random_arrays(plan, sizes, args.seed)
    with plan.session(**session_wanted(args)) as session, naming_sizes(plan.manifest, sizes):
        runner = Contestant("parax", "", [partial(session.run, inputs)] * args.callers, rows_of(plan, sizes, inputs))
        with console.progress(plan.name) as progress:
            warm_up(session, runner, args.seconds, progress)
            cost = recording_cost(session, runner, args.seconds * COST_SHARE, progress)
            progress("recording", 0.5)
            with session.profile() as profile:
                runner.run_for(args.seconds)
    document = profile.document
    document["recording_cost"] = cost
    _predict(document, plan, args)
    return document


def session_wanted(args: argparse.Namespace) -> dict[str, Any]:
    """Of the session, what was asked for."""
    given = {"instances": args.instances, "cores": args.cores, "cores_per_instance": args.cores_per_instance,
             "mode": None if args.mode == "auto" else args.mode}  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}


def warm_up(session: Session, runner: Contestant, seconds: float, progress: Progress) -> None:
    """Run until caches are warm and a session that tries ways for lone requests has chosen; `seconds`: of recording."""
    from ..contest import FEWEST_WARM_UPS, WARM_UP_SECONDS

    for _ in range(FEWEST_WARM_UPS):
        runner.run_for(0.0)
    for number in range(MOST_WARM_UPS):
        progress("warming up", 0.2 * number / MOST_WARM_UPS)
        runner.run_for(min(WARM_UP_SECONDS, seconds))
        if all(found.get("chosen", "") is not None for found in session.statistics()):
            return


def recording_cost(session: Session, runner: Contestant, seconds: float, progress: Progress) -> float:
    """How much longer requests take that are recorded, as a share: the median over rounds with and without."""
    ratios = []
    for number in range(COST_ROUNDS):
        progress("cost of recording", 0.2 + 0.3 * number / COST_ROUNDS)
        with session.profile():
            _, recorded = runner.run_for(seconds)
        _, plain = runner.run_for(seconds)
        ratios.append(median(recorded) / median(plain))
    return median(ratios) - 1.0


def _predict(document: dict[str, Any], plan: Plan, args: argparse.Namespace) -> None:
    """Add what the cost model says, where the compiler is there."""
    try:
        from ..planner.host_machine import machine_here
        from ..planner.operator_seconds import add_predictions
    except ImportError:
        return
    cores = [own["core"] for own in document["cores"] if own["core"] >= 0]
    if cores:
        options = replace(arguments.compile_options(args), calibrate=False)
        add_predictions(document, plan, machine_here(options, cores))
