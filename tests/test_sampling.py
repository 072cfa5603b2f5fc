"""What is left out of a run: nothing that no other option runs, and of every key something stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from _pytest.mark.structures import ParameterSet

from backend import test_aarch64
from catalogue.cases import all_cases
from kernel_ir import lowered, test_parser
from sampling import exhaustive, first_of_each, thinned

TESTS = Path(__file__).parent


def test_the_first_of_each_key_runs_always() -> None:
    found = first_of_each(["a1", "b1", "a2", "b2", "c1"], lambda case: case[0])
    assert [case for case in found if not isinstance(case, ParameterSet)] == ["a1", "b1", "c1"]
    slow = [case for case in found if isinstance(case, ParameterSet)]
    assert [(case.values, [mark.name for mark in case.marks]) for case in slow] == [
        (("a2",), ["slow"]), (("b2",), ["slow"])]  # fmt: skip


def test_every_key_stays_and_every_case_is_in_one_part() -> None:
    cases = [f"{key}{i}" for i in range(7) for key in "ab"] + ["c0"]
    kept, left = thinned(cases, lambda case: case[0], 3)
    assert sorted(kept) == ["a0", "a3", "a6", "b0", "b3", "b6", "c0"]
    assert sorted(kept + left) == sorted(cases)


def test_every_target_meets_every_operator_and_the_groups_hold_all_cases() -> None:
    operators = {case.op for case in lowered.CASES}
    assert {case.op for case in test_aarch64.USUAL} == {case.op for case in test_parser.USUAL} == operators
    groups = [test_aarch64.cases_of(i) for i in range(test_aarch64.N_USUAL + test_aarch64.N_REST)]
    assert sorted(map(id, (case for group in groups for case in group))) == sorted(map(id, test_aarch64.CASES))
    assert len(all_cases()) > len(test_aarch64.USUAL) + len(test_aarch64.REST) > 1500


def test_the_option_runs_what_is_left_out(tmp_path: Path) -> None:
    def collected(*options: str) -> set[str]:
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *options, "case.py"]
        (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
        (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS}\naddopts = -m 'not slow'\n")
        (tmp_path / "case.py").write_text(
            "import pytest\nfrom sampling import exhaustive, sampled\n"
            "@pytest.mark.parametrize('n', [*sampled(range(4), 2), *exhaustive(range(4, 7))])\n"
            "def test_it(n): pass\n"
        )
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return {line.partition("[")[2][:-1] for line in done.stdout.splitlines() if "::" in line}

    assert [sorted(collected(*options)) for options in ((), ("-m", "slow"), ("-m", "slow", "--all-cases"))] == [
        ["0", "2"], ["1", "3"], ["1", "3", "4", "5", "6"]]  # fmt: skip
    assert all(isinstance(case, ParameterSet) for case in exhaustive(range(2)))
