"""ONNX's own backend suite on parax, beside ONNX Runtime and onnx.reference: `python -m benchmarks.suite`.

Of every case that comes with the onnx package (kinds node, simple, pytorch-converted, pytorch-operator; those of real
models are downloaded, and left out): whether each side passes, refuses it (says that it does not implement something),
is wrong (other results than the suite expects; of random numbers only types and shapes are compared), failed (another
error) or crashed. Cases run in processes: a crash costs one case on one side. Prints a table of sides, what parax
refused by operator or reason, and every case that it neither passes nor refuses. `suite_skips.json` has a reason for
every case that parax does not pass; exit code 5 where it and the run disagree.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence

from parax.errors import AccuracyMismatch, InternalError
from parax.files import write_whole

from . import suite_coverage
from .children import Record
from .command import command_line, new_file
from .suite_sides import cases

STATUSES = ("pass", "refused", "wrong", "failed", "crash")
KEY = ("kind", "name", "side")


def records_of(index: int, count: int, timeout: float) -> list[Record]:
    """What the children say of the cases number `index`, `index + count`, …; one is started anew behind every crash.

    Args:
        timeout: seconds that one case may take on one side; the first of a child also waits for the suite to load.
    """
    found: list[Record] = []
    while True:
        ended, crashed, problem = _child(index, count, len(found), timeout)
        found += ended
        if problem:
            raise InternalError(f"a child failed between two cases: {problem}", where="benchmarks.suite_sides")
        if not crashed:
            return found


def _child(index: int, count: int, done: int, timeout: float) -> tuple[list[Record], bool, str]:
    """Records of the pairs that a child began, whether it crashed in the last, how it ended if badly outside of one."""
    command = [sys.executable, "-m", "benchmarks.suite_sides", str(index), str(count), str(done)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        lines: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=_read_into, args=(child, lines))
        reader.start()
        ended, begun, late = list[Record](), None, False
        try:
            while (line := lines.get(timeout=timeout)) is not None:
                record = json.loads(line)
                if "status" in record:
                    ended.append(record)
                begun = None if "status" in record else record
        except queue.Empty:
            late = True
        finally:
            child.kill()
            reader.join()
    problem = f"more than {timeout} s" if late else f"exit code {child.returncode}" if child.returncode else ""
    if begun is None:
        return ended, False, problem
    return [*ended, {**begun, "status": "crash", "reason": problem}], True, ""


def _read_into(child: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        lines.put(line)
    child.wait()
    lines.put(None)


def all_records(jobs: int, timeout: float) -> list[Record]:
    """Every case on every side, by kind and name."""
    parts: list[list[Record]] = [[] for _ in range(jobs)]

    def work(i: int) -> None:
        parts[i] = records_of(i, jobs, timeout)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted((r for part in parts for r in part), key=lambda r: [r[k] for k in KEY])


def table(records: Sequence[Record]) -> str:
    """Sides by statuses."""
    counts = Counter((r["side"], r["status"]) for r in records)
    sides = list(dict.fromkeys(r["side"] for r in records))
    lines = ["| | cases | " + " | ".join(STATUSES) + " |", "|---" * (2 + len(STATUSES)) + "|"]
    for side in sorted(sides, key=lambda s: (s != "parax", s)):
        numbers = [counts[side, status] for status in STATUSES]
        lines.append(f"| {side} | {sum(numbers)} | " + " | ".join(map(str, numbers)) + " |")
    return "\n".join(lines)


def refusals(records: Sequence[Record], side: str = "parax") -> list[tuple[int, str]]:
    """How many cases were refused for which operators (or for what else), the most first."""
    refused = [r for r in records if (r["side"], r["status"]) == (side, "refused")]
    found = Counter(", ".join(r.get("operators") or []) or r["reason"] for r in refused)
    return [(n, what) for what, n in found.most_common()]


def bad(records: Sequence[Record], side: str = "parax") -> list[Record]:
    """What the side neither passes nor refuses."""
    return [r for r in records if r["side"] == side and r["status"] not in ("pass", "refused")]


def main() -> int:
    """Run all; the exit code."""
    parser = command_line("suite", __doc__)
    parser.add_argument("--jobs", type=_positive, default=os.cpu_count() or 1, metavar="N",
                        help="processes at a time (default: one per core)")  # fmt: skip
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="of a case on a side (default 120)")
    parser.add_argument("--json", type=new_file, metavar="OUT", help="write every case there")
    parser.add_argument("--coverage", type=new_file, metavar="OUT", help="write docs/coverage.md there")
    args = parser.parse_args()
    records = all_records(args.jobs, args.timeout)
    if args.json:
        write_whole(args.json, json.dumps(records, indent=1))
    print(table(records))
    print("\nparax refused:")
    for n, what in refusals(records):
        print(f"{n:5} {what}")
    others = {(r["kind"], r["name"], r["side"]): r["status"] for r in records}
    for r in bad(records):
        beside = {side: s for (kind, name, side), s in others.items() if (kind, name) == (r["kind"], r["name"])}
        print(f"{r['status']}: {r['kind']} {r['name']}: {r['reason']} ({beside})")
    skips = suite_coverage.read_skips()
    passed = {(r["kind"], r["name"]): r["status"] == "pass" for r in records if r["side"] == "parax"}
    if args.coverage:
        operators = {(case.kind, case.name): suite_coverage.operators_of(case.model) for case in cases()}
        reasons = {key: skips.reasons.get(key, "no reason is listed") for key, good in passed.items() if not good}
        write_whole(args.coverage, suite_coverage.page(operators, reasons))
    different = suite_coverage.disagreements(skips, passed)
    print("\n".join(different))
    return AccuracyMismatch.exit_code if different else 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
