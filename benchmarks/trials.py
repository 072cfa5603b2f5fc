"""What runs of many random models share: progress, tables of what came of them, one failure of each kind reduced.

How one is tried and judged: tests/fuzz.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))  # the fuzzer's modules are shared with the tests

from fuzz.models import Source, recorded_path  # noqa: E402
from fuzz.pool import Command, Pool, Record, trials_of  # noqa: E402
from fuzz.reduce import reduce_record  # noqa: E402
from fuzz.trial import (  # noqa: E402
    CRASH,
    DISPUTED,
    EXCEPTION,
    FAILURES,
    HANG,
    MEMORY,
    NO_ORACLE,
    PASS,
    REFUSED,
    UNEQUAL,
    UNSTABLE,
    UNSUPPORTED,
    WRONG,
)

__all__ = ["CRASH", "DISPUTED", "EXCEPTION", "FAILURES", "HANG", "MEMORY", "NO_ORACLE", "PASS", "REFUSED", "ROOT",
           "UNEQUAL", "UNSTABLE", "UNSUPPORTED", "WRONG", "Command", "Pool", "Record", "Source", "console_of_tables",
           "kinds_table", "recorded_path", "reduce_kinds", "report", "trials_of", "watch"]  # fmt: skip
QUIET_SECONDS = 60  # between two lines of progress where no bar can be drawn: in a log


def watch(pool: Iterable[Record], records: list[Record], count: int | None, failed: Callable[[], None]) -> None:
    """Take the records of a pool as they come, with progress on stderr.

    Args:
        records: to which they are added. count: how many there will be at the end. failed: called after each failure.
    """
    began = said = time.monotonic()
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("starting", total=count)
        for record in pool:
            records.append(record)
            if record.outcome.failed:
                progress.console.print(f"{record.number}: {record.outcome.status}: {_short(record)}", highlight=False,
                                       markup=False)  # fmt: skip
                failed()
            state = _state(records, time.monotonic() - began, count)
            progress.update(task, description=state)
            if not progress.console.is_terminal and time.monotonic() - said >= QUIET_SECONDS:
                progress.console.print(state, highlight=False, markup=False)
                said = time.monotonic()


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


def kinds_table(title: str, records: list[Record], most: int | None = None) -> Table:
    """How many there are of each kind, worst first, with some of their numbers; at most so many kinds."""
    table = Table("count", title, "numbers", box=None)
    kinds: dict[str, list[int]] = {}
    order = {s: i for i, s in enumerate(FAILURES)}
    for r in sorted(records, key=lambda r: order.get(r.outcome.status, 0)):
        kinds.setdefault(kind_of(r), []).append(r.number)
    for kind, numbers in list(kinds.items())[:most]:
        table.add_row(str(len(numbers)), kind, " ".join(map(str, numbers[:6])))
    return table


def console_of_tables() -> Console:
    """Where tables are printed: as wide as the terminal, or wide enough in a file."""
    return Console(width=None if sys.stdout.isatty() else 160)


def report(records: list[Record], seconds: float) -> None:
    """Print what came of the models: failures, refusals, and how many there were of each outcome."""
    console = console_of_tables()
    ops = Counter(op for r in records for op, n in r.ops.items() for _ in range(n))
    statuses = Counter(r.outcome.status for r in records)
    for title, status in (
        ("failures", None),
        ("unsupported", UNSUPPORTED),
        ("without another implementation", NO_ORACLE),
    ):
        chosen = [r for r in records if (r.outcome.failed if status is None else r.outcome.status == status)]
        if chosen:
            console.print(kinds_table(title, chosen, None if status is None else 12))
    phases = Counter[str]()
    for r in records:
        phases.update(r.outcome.seconds)
    spent = ", ".join(f"{k} {v:.0f} s" for k, v in phases.most_common())
    counts = ", ".join(f"{statuses[s]} {s}" for s in (PASS, UNSUPPORTED, NO_ORACLE, *FAILURES) if statuses[s])
    console.print(f"{len(records)} graphs in {seconds:.0f} s ({spent}), {len(ops)} operators: {counts}")


def reduce_kinds(failures: list[Record], source: Source, output: Path, timeout: float, most: int) -> None:
    """One reduced model for each class of failure, worst first, below `output`; at most so many."""
    seen = set()
    order = {s: i for i, s in enumerate(FAILURES)}
    for record in sorted(failures, key=lambda r: order[r.outcome.status]):
        if kind_of(record) in seen or len(seen) >= most:
            continue
        seen.add(kind_of(record))
        written = reduce_record(record, source, output, timeout)
        print(f"{record.number}: {written}")
