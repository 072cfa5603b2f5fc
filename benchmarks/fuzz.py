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
import time
from collections import Counter
from pathlib import Path

from parax.files import write_whole

from .command import command_line, finish, new_file
from .trials import NO_ORACLE, UNSUPPORTED, Pool, Record, Source, reduce_kinds, report, trials_of, watch

MANY = 1_000_000_000


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: no failure, 1: some."""
    args = _arguments(argv)
    if args.only is not None:
        args.graphs, args.jobs = args.only + 1, 1
    count = len(sorted(args.models.rglob("*.onnx"))) if args.models else args.graphs
    if args.graphs is not None and args.models:
        count = min(count, args.graphs)
    source = Source(args.seed, args.models)
    pool = Pool(trials_of(source), count or MANY, args.jobs, timeout=args.timeout, seconds=args.seconds,
                first=args.only if args.only is not None else args.first)  # fmt: skip
    began = time.monotonic()
    records: list[Record] = []

    def written() -> None:
        if args.json:
            _write(args, records, time.monotonic() - began)

    watch((r for r in pool if r.number not in args.leave_out), records, count, written)
    seconds = time.monotonic() - began
    report(records, seconds)
    written()
    failures = [r for r in records if r.outcome.failed]
    if failures and args.output:
        reduce_kinds(failures, source, args.output, args.timeout, args.most_reduced)
    return 1 if failures else 0


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
