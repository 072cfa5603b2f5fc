"""`python -m benchmarks.nnsmith`: models that NNSmith generates, by parax, ONNX Runtime and PyTorch, and a vote.

    python -m benchmarks.nnsmith --models 10000 --seed 2026-11-28 --jobs 2 --keep found
    python -m benchmarks.nnsmith --seed 2026-11-28 --only 17     # one of them again

NNSmith generates networks of PyTorch and exports them to ONNX, in an environment of its own that the first run
makes (`benchmarks.nnsmith_environment`). Each is compiled and run as the fuzzer's graphs are (`benchmarks.fuzz`), in
configurations drawn for it, in processes of their own. Its results are held against ONNX Runtime, onnx.reference and
the model in float64, and then have to agree with everybody who has a vote: ONNX Runtime without optimisations and with
all of them, and PyTorch, which ran the network before it was exported.

Every model ends up as one of these; "unexplained" and what stands below it make the exit code 1.

    agree           all agree, but for rounding
    refused         parax says which operator it has no way to compute
    nobody to ask   another implementation crashed or took too long, or others differ where float64 has no room to judge
    unstable        others differ among themselves, for a reason that tests/fuzz/known.py knows
    unexplained     others differ among themselves
    wrong           parax is alone, or two of its ways of running a plan differ, or it wrote where it must not
    crash           a signal, or a phase of more than --timeout
    internal error  any exception that is no UnsupportedOp
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from parax.errors import ResourceLimit
from parax.files import write_whole

from .command import command_line, finish, new_file
from .nnsmith_environment import environment_folder, generator, ready_environment
from .trials import (
    CRASH,
    DISPUTED,
    EXCEPTION,
    HANG,
    MEMORY,
    NO_ORACLE,
    PASS,
    REFUSED,
    UNEQUAL,
    UNSTABLE,
    UNSUPPORTED,
    WRONG,
    Pool,
    Record,
    Source,
    console_of_tables,
    kinds_table,
    recorded_path,
    reduce_kinds,
    trials_of,
    watch,
)

CLASSES = {
    "agree": (PASS,), "refused": (UNSUPPORTED,), "nobody to ask": (NO_ORACLE,), "unstable": (UNSTABLE,),
    "unexplained": (DISPUTED,), "wrong": (WRONG, UNEQUAL, MEMORY), "crash": (CRASH, HANG),
    "internal error": (EXCEPTION, REFUSED),
}  # fmt: skip
"""What the fuzzer's outcomes are called here."""
CHUNK = 500
"""Models that are made before they are judged: as many are on the disk at a time."""


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: everybody agrees, or it is known why not; 1: somebody does not."""
    args = _arguments(argv)
    try:
        python = ready_environment(args.environment, args.install_seconds)
    except ResourceLimit as error:
        if not args.may_skip:
            raise
        print(f"skipped: {error}")
        return 0
    began = time.monotonic()
    records: list[Record] = []
    made: list[Record] = []
    with tempfile.TemporaryDirectory(prefix="parax-nnsmith-") as name:
        folder = Path(name)

        def written() -> None:
            if args.json:
                _write(args, records, made, time.monotonic() - began)

        watch(_judged(args, python, folder, made), records, args.models - args.first, written)
        written()
        _report(args, records, made, time.monotonic() - began)
        if args.keep:
            _keep(args, records, folder)
    return 1 if any(r.outcome.failed for r in records) else 0


def _judged(args: argparse.Namespace, python: Path, folder: Path, made: list[Record]) -> Iterator[Record]:
    """The records of all models, chunk after chunk; what is of no further interest is removed from the folder.

    Args:
        made: to which it adds what came of making them.
    """
    deadline = None if args.seconds is None else time.monotonic() + args.seconds
    source = Source(args.seed, recorded=folder)
    for first in range(args.first, args.models, CHUNK):
        last = min(first + CHUNK, args.models)
        made += Pool(generator(python, args.seed, folder), last, args.jobs, first=first)
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        for record in Pool(trials_of(source), last, args.jobs, timeout=args.timeout, seconds=left, first=first):
            if not _is_finding(record):
                _remove(folder, record.number)
            yield record
        if deadline is not None and time.monotonic() > deadline:
            return


def _is_finding(record: Record) -> bool:
    return record.outcome.failed or record.outcome.status == UNSTABLE


def _remove(folder: Path, number: int) -> None:
    for path in _files(folder, number):
        path.unlink()


def _files(folder: Path, number: int) -> tuple[Path, Path]:
    path = recorded_path(folder, number)
    return path, path.with_suffix(".npz")


def _class_of(record: Record) -> str:
    return next(name for name, statuses in CLASSES.items() if record.outcome.status in statuses)


def _report(args: argparse.Namespace, records: list[Record], made: list[Record], seconds: float) -> None:
    console = console_of_tables()
    for title, statuses in CLASSES.items():
        chosen = [r for r in records if r.outcome.status in statuses]
        if chosen and title != "agree":
            console.print(kinds_table(title, chosen, None if chosen[0].outcome.failed else 20))
    lost = [r for r in made if r.outcome.status != PASS]
    if lost:
        console.print(kinds_table("no model made", lost, 6))
    counts = Counter(map(_class_of, records))
    table = Table("models", "", box=None)
    for title in CLASSES:
        table.add_row(str(counts[title]), title)
    console.print(table)
    ops = {op for r in records for op in r.ops}
    console.print(f"{len(records)} models of seed {args.seed} in {seconds:.0f} s, {len(ops)} operators")
    for record in records:
        if record.outcome.failed:
            print(f"again: python -m benchmarks.nnsmith --seed {args.seed} --only {record.number}")


def _write(args: argparse.Namespace, records: list[Record], made: list[Record], seconds: float) -> None:
    data = {
        "seed": args.seed, "seconds": seconds, "models": len(records), "classes": Counter(map(_class_of, records)),
        "operators": Counter(op for r in records for op, n in r.ops.items() for _ in range(n)),
        "findings": [{"number": r.number, "class": _class_of(r), "configurations": r.configurations,
                      **r.outcome.as_json()} for r in records if r.outcome.status != PASS],
        "not made": [{"number": r.number, "problem": r.outcome.problem} for r in made if r.outcome.status != PASS],
    }  # fmt: skip
    write_whole(args.json, json.dumps(data, indent=1))


def _keep(args: argparse.Namespace, records: list[Record], folder: Path) -> None:
    """Each finding's model and numbers; and one of each kind reduced, where the vote is not what fails."""
    args.keep.mkdir(parents=True, exist_ok=True)
    for record in filter(_is_finding, records):
        for path in _files(folder, record.number):
            shutil.copy(path, args.keep)
    failures = [r for r in records if r.outcome.failed and r.outcome.status != DISPUTED]
    reduce_kinds(failures, Source(args.seed, recorded=folder), args.keep, args.timeout, args.most_reduced)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line("nnsmith", __doc__)
    add = parser.add_argument
    add("--models", type=int, default=100, metavar="N", help="how many numbers; of a few comes no model (default 100)")
    add("--seed", default="0", help="any text; with a model's number it decides the model (default 0)")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N",
        help="processes (default: one per usable core)")  # fmt: skip
    add("--first", type=int, default=0, metavar="I", help="begin with model I of the seed (default 0)")
    add("--only", type=int, metavar="I", help="only model I of the seed")
    add("--seconds", type=float, metavar="S", help="stop judging after so long")
    add("--timeout", type=float, default=60.0, metavar="S",
        help="seconds that compiling or running one model may take (default 60)")  # fmt: skip
    add("--keep", type=Path, metavar="DIR", help="write findings there, and reduce failures, one of each kind")
    add("--most-reduced", type=int, default=10, metavar="N", help="kinds to reduce (default 10)")
    add("--json", type=new_file, metavar="FILE", help="write results there")
    add("--environment", type=Path, default=environment_folder(), metavar="DIR",
        help="an environment that has NNSmith, made if it is not there (default: among parax's caches)")  # fmt: skip
    add("--install-seconds", type=float, default=900.0, metavar="S", help="that making it may take (default 900)")
    add("--may-skip", action="store_true", help="where it cannot be made, say why, and leave with exit code 0")
    args = parser.parse_args(argv)
    if args.only is not None:
        args.first, args.models, args.jobs = args.only, args.only + 1, 1
    return args


if __name__ == "__main__":
    finish(main)
