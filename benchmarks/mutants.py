"""`python -m benchmarks.mutants`: do the tests find kernels and compiler pieces that were broken on purpose?

For each mutant of `mutant_table` copies the package, edits one place in the copy, and runs the tests that should notice
against it until one fails. Before, the same tests must pass on the package as it is. A test that crashes or hangs has
noticed too. Of a mutant that nothing notices the tests have a hole.

    python -m benchmarks.mutants                        all of them
    python -m benchmarks.mutants --only barrier pads    some, without the run on the package as it is

Exit code 1 where one survives; an edit that does not apply any more is an error.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from parax.errors import UsageError

from .cases import ROOT
from .command import command_line, finish
from .mutant_table import MUTANTS, Mutant

ROOMS = {"parax": "", "compiler": "compiler", "runtime": "runtime"}  # folder of the checkout → place in the package
TIMEOUT_SECONDS = 180
_RESULT = re.compile(r"^(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        found: the test that noticed, and how; empty if none did. tests: how many ran.
    """

    mutant: Mutant
    found: str
    tests: int
    seconds: float


def mutated(text: str, mutant: Mutant) -> str:
    """A file's text with the mutant's edit.

    Raises:
        UsageError: the old text is not there exactly once.
    """
    count = text.count(mutant.old)
    if count != 1 or mutant.old == mutant.new:
        hint = "the code has changed: make the mutant anew"
        raise UsageError("a mutant does not apply", where=f"{mutant.name}: {mutant.file}", expected="its text once",
                         found=f"{count} times", hint=hint)  # fmt: skip
    return text.replace(mutant.old, mutant.new)


def copy_package(site: Path) -> None:
    """The package as it is installed."""
    for room, place in ROOMS.items():
        shutil.copytree(ROOT / room, site / "parax" / place, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip


def edit(site: Path, mutant: Mutant) -> None:
    """Apply the mutant to a copy.

    Raises:
        UsageError: it does not apply.
    """
    room, _, rest = mutant.file.partition("/")
    path = site / "parax" / ROOMS[room] / rest
    path.write_text(mutated(path.read_text(), mutant))


def run_tests(site: Path, tests: str) -> tuple[int, str]:
    """pytest's exit code (-1: it took too long) and what it printed, on the package in `site`, to the first failure."""
    name, _, keyword = tests.partition(" -k ")
    command = [sys.executable, "-m", "pytest", "-v", "-x", "--tb=no", "-p", "no:cacheprovider", "-p", "no:faulthandler",
               "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), str(ROOT / name)]  # fmt: skip
    command += ["-k", keyword] if keyword else []
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1",
                   "COLUMNS": "400"}  # fmt: skip
    with subprocess.Popen(command, cwd=site, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, start_new_session=True) as process:  # fmt: skip
        try:
            out, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
            return -1, out
    return process.returncode, out


def verdict(code: int, out: str) -> str:
    """The test that noticed and how; empty if all passed.

    Raises:
        UsageError: no test ran, or the tests could not be loaded.
    """
    if code == 0:
        return ""
    bad = [f"{name} ({'fails' if how == 'FAILED' else 'cannot begin'})" for name, how in _RESULT.findall(out)
           if how in ("FAILED", "ERROR")]  # fmt: skip
    if bad:
        return bad[0][bad[0].find("tests/") :]
    if code in (2, 3, 4, 5) or not (last := _last_started(out)):
        raise UsageError("no test ran", where="pytest", found=out[-1500:])
    return f"{last[last.find('tests/') :]} ({'hangs' if code == -1 else 'crashes'})"


def _last_started(out: str) -> str:
    """The test that was running when the output ended."""
    names = re.findall(r"^(\S*::.*?)(?: (?:PASSED|FAILED|ERROR|SKIPPED|XFAIL).*| *)$", out, re.MULTILINE)
    return names[-1] if names else ""


def _n_tests(out: str) -> int:
    return len([how for _, how in _RESULT.findall(out) if how != "SKIPPED"])


def examine(mutant: Mutant) -> Outcome:
    """Run a mutant's tests on it.

    Raises:
        UsageError: it does not apply, or its tests do not run.
    """
    began, found, n_tests = time.monotonic(), "", 0
    with tempfile.TemporaryDirectory(prefix="parax-mutant-") as folder:
        copy_package(Path(folder))
        edit(Path(folder), mutant)
        for tests in mutant.tests:
            code, out = run_tests(Path(folder), tests)
            found, n_tests = verdict(code, out), n_tests + _n_tests(out)
            if found:
                break
    return Outcome(mutant, found, n_tests, time.monotonic() - began)


def check_unchanged(mutants: Sequence[Mutant], jobs: int) -> float:
    """Run all their tests on the package as it is, so many at once; the seconds that took.

    Raises:
        UsageError: one fails, so that it could notice nothing.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="parax-mutant-") as folder:
        copy_package(Path(folder))
        selections = list(dict.fromkeys(tests for mutant in mutants for tests in mutant.tests))
        with ThreadPoolExecutor(jobs) as pool:
            ran = pool.map(lambda tests: run_tests(Path(folder), tests), selections)
            for tests, (code, out) in zip(selections, ran, strict=True):
                found = verdict(code, out)
                if found or not _n_tests(out):
                    problem = "a test does not pass on the package as it is"
                    raise UsageError(problem, where=tests, found=found or "no test")
    return time.monotonic() - began


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit code."""
    args = _arguments(argv)
    chosen = [m for m in MUTANTS if not args.only or m.name in args.only]
    if unknown := set(args.only) - {m.name for m in chosen}:
        raise UsageError("no such mutant", where="--only", found=", ".join(sorted(unknown)))
    for mutant in chosen:
        mutated((ROOT / mutant.file).read_text(), mutant)
    if not args.only:
        print(f"the tests pass on the package as it is ({check_unchanged(chosen, args.jobs):.0f} s)", flush=True)
    print(f"{'mutant':28} {'tests':>5} {'s':>5}  found by", flush=True)
    survivors = 0
    began = time.monotonic()
    with ThreadPoolExecutor(args.jobs) as pool:
        for outcome in pool.map(examine, chosen):
            survivors += not outcome.found
            found = outcome.found or f"NOTHING: {outcome.mutant.defect}"
            print(f"{outcome.mutant.name:28} {outcome.tests:5} {outcome.seconds:5.0f}  {found}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants found in {time.monotonic() - began:.0f} s")
    return 1 if survivors else 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line("mutants", __doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of these mutants alone")
    n_cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=n_cores, metavar="N",
                        help="how many to examine at once (default: one a core)")  # fmt: skip
    return parser.parse_args(argv)


if __name__ == "__main__":
    finish(main)
