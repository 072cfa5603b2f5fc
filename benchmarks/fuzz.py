"""`python -m benchmarks.fuzz`: random models through the whole compiler, against other implementations of ONNX.

    python -m benchmarks.fuzz --graphs 1000 --jobs 2            # numbers 0 … 999 of the seed
    python -m benchmarks.fuzz --seconds 300 --seed 2026-11-22   # as many as fit
    python -m benchmarks.fuzz --seed S --only 17                # one of them again, with its configurations
    python -m benchmarks.fuzz --models DIR                      # models that another generator wrote

Each is compiled in configurations drawn for it (-O levels, targets, hints, modes) and run on instances × cores; results
are held against ONNX Runtime and onnx.reference, and all ways of running one plan against each other, bit for bit.
Exit code 0: nothing failed. With --output, failures
are reduced to small models. What is tried and compared: tests/fuzz.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from parax.files import write_whole

from .command import command_line, finish, new_file

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))  # the fuzzer's modules are shared with the tests

from fuzz.pool import Pool, Record  # noqa: E402
from fuzz.reduce import reduce_record  # noqa: E402
from fuzz.trial import FAILURES, NO_ORACLE, PASS, UNSUPPORTED  # noqa: E402

MANY = 1_000_000_000
QUIET_SECONDS = 60  # between two lines of progress where no bar can be drawn: in a log


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: no failure, 1: some."""
    args = _arguments(argv)
    if args.only is not None:
        args.graphs, args.jobs = args.only + 1, 1
    count = len(sorted(args.models.rglob("*.onnx"))) if args.models else args.graphs
    if args.graphs is not None and args.models:
        count = min(count, args.graphs)
    pool = Pool(args.seed, count or MANY, args.jobs, models=args.models, timeout=args.timeout, seconds=args.seconds,
                first=args.only if args.only is not None else args.first)  # fmt: skip
    began, records, failures = time.monotonic(), [], []
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task, said = progress.add_task("starting", total=count), began
        for record in pool:
            if record.number in args.leave_out:
                continue
            records.append(record)
            if record.outcome.failed:
                failures.append(record)
                progress.console.print(f"{record.number}: {record.outcome.status}: {_short(record)}", highlight=False,
                                       markup=False)  # fmt: skip
                if args.json:
                    _write(args, records, time.monotonic() - began)
            state = _state(records, time.monotonic() - began, count)
            progress.update(task, description=state)
            if not progress.console.is_terminal and time.monotonic() - said >= QUIET_SECONDS:
                progress.console.print(state, highlight=False, markup=False)
                said = time.monotonic()
    seconds = time.monotonic() - began
    _report(records, seconds)
    if args.json:
        _write(args, records, seconds)
    if failures and args.output:
        _reduce(args, failures)
    return 1 if failures else 0


def _state(records: list[Record], seconds: float, count: int | None) -> str:
    statuses = Counter(r.outcome.status for r in records)
    shown = ", ".join(f"{n} {s}" for s, n in statuses.most_common())
    rate = len(records) / max(seconds, 1e-9)
    return f"{len(records)}{f' of {count}' if count else ''}, {rate:.1f}/s: {shown}"


def _short(record: Record) -> str:
    return " ".join(record.outcome.problem.split())[:300]


def kind_of(record: Record) -> str:
    """A failure's class: status and problem without names and numbers."""
    problem = re.sub(r"\"[^\"]*\"|'[^']*'", "…", record.outcome.problem)
    problem = re.sub(r"at \[.*", "", problem)
    return f"{record.outcome.status}: {re.sub(r'[-+]?[0-9][0-9.e+-]*', '#', problem)[:110]}"


def _report(records: list[Record], seconds: float) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    ops = Counter(op for r in records for op, n in r.ops.items() for _ in range(n))
    statuses = Counter(r.outcome.status for r in records)
    for title, status in (
        ("failures", None),
        ("unsupported", UNSUPPORTED),
        ("without another implementation", NO_ORACLE),
    ):
        chosen = [r for r in records if (r.outcome.failed if status is None else r.outcome.status == status)]
        if not chosen:
            continue
        table = Table("count", title, "numbers", box=None)
        kinds: dict[str, list[int]] = {}
        order = {s: i for i, s in enumerate(FAILURES)}
        for r in sorted(chosen, key=lambda r: order.get(r.outcome.status, 0)):
            kinds.setdefault(kind_of(r), []).append(r.number)
        for kind, numbers in kinds.items() if status is None else list(kinds.items())[:12]:
            table.add_row(str(len(numbers)), kind, " ".join(map(str, numbers[:6])))
        console.print(table)
    phases = Counter[str]()
    for r in records:
        phases.update(r.outcome.seconds)
    spent = ", ".join(f"{k} {v:.0f} s" for k, v in phases.most_common())
    counts = ", ".join(f"{statuses[s]} {s}" for s in (PASS, UNSUPPORTED, NO_ORACLE, *FAILURES) if statuses[s])
    console.print(f"{len(records)} graphs in {seconds:.0f} s ({spent}), {len(ops)} operators: {counts}")


def _write(args: argparse.Namespace, records: list[Record], seconds: float) -> None:
    data = {
        "seed": args.seed, "seconds": seconds, "graphs": len(records),
        "statuses": Counter(r.outcome.status for r in records),
        "operators": Counter(op for r in records for op, n in r.ops.items() for _ in range(n)),
        "failures": [{"number": r.number, "configurations": r.configurations, **r.outcome.as_json()}
                     for r in records if r.outcome.failed],
        "unsupported": [{"number": r.number, "problem": r.outcome.problem} for r in records
                        if r.outcome.status in (UNSUPPORTED, NO_ORACLE)],
    }  # fmt: skip
    write_whole(args.json, json.dumps(data, indent=1))


def _reduce(args: argparse.Namespace, failures: list[Record]) -> None:
    """One reduced model for each class of failure, worst first."""
    seen = set()
    order = {s: i for i, s in enumerate(FAILURES)}
    for record in sorted(failures, key=lambda r: order[r.outcome.status]):
        if kind_of(record) in seen or len(seen) >= args.most_reduced:
            continue
        seen.add(kind_of(record))
        written = reduce_record(record, args.seed, args.models, args.output, args.timeout)
        print(f"{record.number}: {written}")


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line("fuzz", __doc__)
    parser.add_argument(
        "--graphs", type=int, metavar="N", help="how many graphs (default: 200, or no end with --seconds)"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="stop after so long")
    parser.add_argument("--seed", default="0", help="any text; with a graph's number it decides the graph (default 0)")
    parser.add_argument("--except", type=int, nargs="+", default=(), metavar="I", dest="leave_out",
                        help="graphs of the seed that are not judged: their differences have been looked at")
    parser.add_argument("--first", type=int, default=0, metavar="I", help="begin with graph I of the seed (default 0)")
    parser.add_argument("--only", type=int, metavar="I", help="only graph I of the seed")
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="processes (default: one per usable core)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=10.0,
        metavar="S",
        help="seconds that compiling or running one graph may take (default 10)",
    )
    parser.add_argument(
        "--models", type=Path, metavar="DIR", help="the ONNX files below DIR instead of generated graphs"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="reduce failures, one of each kind, and write them there"
    )
    parser.add_argument("--most-reduced", type=int, default=10, metavar="N", help="kinds to reduce (default 10)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write results there")
    args = parser.parse_args(argv)
    if args.graphs is None and args.seconds is None:
        args.graphs = 200
    return args


if __name__ == "__main__":
    finish(main)
