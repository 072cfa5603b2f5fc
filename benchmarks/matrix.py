"""`python -m benchmarks.matrix`: every model, batch size, mode and target against ONNX Runtime, in one table.

Each model runs in a process of its own, so that a crash or a hang costs one row. Owns the procedure and the table;
models and inputs come from `cases`, what counts as equal from parax's own comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import parax
from parax.compiler.compare import Difference, Tolerance, difference, rule_of
from parax.compiler.frontend.oracle import oracle
from parax.files import write_whole

from .cases import ROOT, Case, Run, case_names, models_folder, open_case
from .children import Record, records_of
from .command import command_line, finish, new_file

TARGETS = ("x86-64-v4", "x86-64-v3")
MODES = ("latency", "throughput")
BATCHES = (1, 7)
MAY_WAIT = 15
"""So many real models may be refused as unsupported; none of the model list may."""


def cores_of(mode: str) -> dict[str, int]:
    """Session arguments: all usable cores on one instance, or one instance on each."""
    n_cores = len(os.sched_getaffinity(0))
    if mode == "latency":
        return {"instances": 1, "cores_per_instance": n_cores}
    return {"instances": n_cores, "cores_per_instance": 1}


def run_case(case: Case, targets: Sequence[str] = TARGETS, modes: Sequence[str] = MODES) -> Iterator[Record]:
    """Compile a case for each target, run it in each mode, compare; one record per run, or one where there is none.

    A record's status is pass, fail (other values), unsupported (refused), no-cpu (this machine lacks the target) or
    error (anything else parax raised). Times are in seconds.
    """
    expected = _expected(case)
    for target in targets:
        where: Record = {"case": case.name, "target": target}
        try:
            for plan, chosen, shapes, seconds in _plans(case, target):
                yield {**where, "status": "compiled", "shapes": shapes, "seconds": seconds}
                for mode in modes:
                    runs = [(case.runs[i], expected[i]) for i in chosen]
                    yield from _run_mode(case, plan, mode, runs, {**where, "mode": mode})
        except parax.UnsupportedOp as error:
            yield {**where, "status": "unsupported", "problem": str(error)}
        except parax.IncompatiblePlan as error:
            yield {**where, "status": "no-cpu", "problem": str(error)}
        except Exception as error:  # a broken model must not hide the other target's results
            yield {**where, "status": "error", "problem": f"{type(error).__name__}: {error}"}


def _plans(case: Case, target: str) -> Iterator[tuple[parax.Plan, list[int], str, float]]:
    """Plans, the runs each is for, how its shapes were given, seconds: one plan with the model's own symbols, or, where
    those leave a parameter of an operator open, one per run for exactly its shapes (as a user would with --shape)."""
    start = time.perf_counter()
    try:
        plan = parax.compile(case.path, target=target)
        yield plan, list(range(len(case.runs))), "symbolic", time.perf_counter() - start
        return
    except parax.UnsupportedOp:
        if not case.runs:
            raise
    for i, run in enumerate(case.runs):
        start = time.perf_counter()
        plan = parax.compile(case.path, target=target, shapes={name: a.shape for name, a in run.inputs.items()})
        yield plan, [i], "fixed", time.perf_counter() - start


def _expected(case: Case) -> list[dict[str, np.ndarray]]:
    """The right outputs of each run: the stored ones, else ONNX Runtime's without optimisations."""
    if all(run.expected is not None for run in case.runs):
        return [run.expected or {} for run in case.runs]
    right = oracle(case.path, "onnxruntime")
    return [right(run.inputs) if run.expected is None else run.expected for run in case.runs]


def _run_mode(
    case: Case, plan: parax.Plan, mode: str, runs: Sequence[tuple[Run, dict[str, np.ndarray]]], where: Record
) -> Iterator[Record]:
    with plan.session(**cores_of(mode)) as session:
        for run, right in runs:
            start = time.perf_counter()
            found = session.run(run.inputs)
            seconds = time.perf_counter() - start
            differences = [_difference(name, found[name], value, case) for name, value in right.items()]
            problems = [f"output {each.name} {each.problem}" for each in differences if not each.passed]
            first = next(iter(right))
            if case.classifies and not problems and (found[first].argmax(1) != right[first].argmax(1)).any():
                problems.append(f"output {first}: another top-1")
            yield {
                **where, "run": run.label, "status": "fail" if problems else "pass", "problem": "; ".join(problems),
                "max_abs": max((each.max_abs for each in differences), default=0.0),
                "worst": max((each.worst for each in differences), default=0.0), "seconds": seconds,
            }  # fmt: skip


def _difference(name: str, found: np.ndarray, right: np.ndarray, case: Case) -> Difference:
    """By the case's tolerances, or those of a type whose own rounding is coarser."""
    rtol = max(case.rtol, rule_of(right.dtype).rtol)
    return difference(name, found, right, Tolerance(rtol, case.atol))


def run_in_child(name: str, args: argparse.Namespace) -> list[Record]:
    """The records of one case from a child process; a crash or a timeout becomes a record of its own."""
    command = [sys.executable, "-m", "benchmarks.matrix", "--one", name, "--batches", *map(str, args.batches)]
    command += ["--targets", *args.targets, "--modes", *args.modes, *(["--quick"] if args.quick else [])]
    command += ["--models", str(args.models)] if args.models else []
    return [{"case": name, **record} for record in records_of(command, args.timeout, ROOT)]


def verdict(records: Sequence[Record]) -> str:
    """The worst status of a case's records; "pass" needs at least one run."""
    statuses = {record["status"] for record in records}
    for status in ("crash", "timeout", "error", "fail", "unsupported"):
        if status in statuses:
            return status
    return "pass" if "pass" in statuses else "no-cpu" if "no-cpu" in statuses else "error"


def table(cases: dict[str, list[Record]]) -> Table:
    """One row per case: verdict, runs passed, largest difference, compile and run times, the first problem."""
    out = Table("case", "verdict", "passed", "max |Δ|", "Δ/allowed", "compile s", "run s", "problem", box=None)
    for name, records in cases.items():
        runs = [record for record in records if "run" in record]
        compiled = [record["seconds"] for record in records if record["status"] == "compiled"]
        passed = sum(record["status"] == "pass" for record in runs)
        problem = next((record["problem"] for record in records if record.get("problem")), "")
        out.add_row(
            name, verdict(records), f"{passed}/{len(runs)}",
            f"{max((record['max_abs'] for record in runs), default=0.0):.1e}",
            f"{max((record['worst'] for record in runs), default=0.0):.2f}",
            " ".join(f"{seconds:.1f}" for seconds in compiled), f"{sum(record['seconds'] for record in runs):.2f}",
            problem[:160],
        )  # fmt: skip
    return out


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: everything passes, but for at most 15 real models refused as unsupported."""
    args = _arguments(argv)
    if args.one:
        return _one(args)
    folder = args.models or models_folder()
    names = [name for name in case_names(folder, quick=args.quick) if re.search(args.filter, name)]
    if args.list:
        print("\n".join(names))
        return 0
    if folder is None:
        print("no folder of real models: set PARAX_MODELS", file=sys.stderr)
    results = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            progress.update(task, description=name)
            results[name] = run_in_child(name, args)
            progress.advance(task)
            if verdict(results[name]) not in ("pass", "no-cpu"):
                progress.console.print(f"{verdict(results[name])}: {name}", highlight=False)
    verdicts = Counter(verdict(records) for records in results.values())
    Console(width=None if sys.stdout.isatty() else 200).print(table(results))
    print(", ".join(f"{count} {status}" for status, count in verdicts.most_common()) or "no case")
    if args.json:
        write_whole(args.json, json.dumps({"verdicts": verdicts, "cases": results}, indent=1))
    refused = [name for name, records in results.items() if verdict(records) == "unsupported"]
    waits = len(refused) <= MAY_WAIT and all(name.startswith("shared/") for name in refused)
    return 0 if waits and not set(verdicts) & {"fail", "error", "crash", "timeout"} else 1


def _one(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="parax-matrix-") as work:
        folder = args.models or models_folder()
        case = open_case(args.one, small=args.quick, batches=args.batches, folder=folder, work=Path(work))
        for record in run_case(case, args.targets, args.modes):
            print(json.dumps(record), flush=True)
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line("matrix", __doc__)
    parser.add_argument("--quick", action="store_true", help="small editions of the list and fast real models: for CI")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only cases whose name it matches")
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), metavar="TARGET",
                        help=f"to compile for (default: {' '.join(TARGETS)})")
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES, metavar="MODE",
                        help=f"of {', '.join(MODES)} (default: both)")
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES), metavar="N",
                        help=f"rows of a request (default: {' '.join(map(str, BATCHES))})")
    parser.add_argument(
        "--models", type=Path, metavar="DIR", help="real models (default: PARAX_MODELS, ../shared/models)"
    )
    parser.add_argument("--timeout", type=float, default=900.0, metavar="S", help="seconds of a model (default 900)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write every record there")
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    parser.add_argument(
        "--one", metavar="CASE", help="run one case in this process and print its records as JSON lines"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    finish(main)
