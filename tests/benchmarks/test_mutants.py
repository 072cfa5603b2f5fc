"""The mutation run: every mutant still applies, and what pytest says is read rightly."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import mutants
from benchmarks.mutant_table import MUTANTS, Mutant
from parax.errors import UsageError

DEFECT = Mutant("d", "a defect", "runtime/x.py", "a = 1", "a = 2", ("tests/test_it.py",))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_applies_and_still_is_python(mutant: Mutant, root: Path) -> None:
    compile(mutants.mutated((root / mutant.file).read_text(), mutant), mutant.file, "exec")
    for tests in mutant.tests:
        assert (root / tests.partition(" -k ")[0]).exists()


def test_each_has_a_name_and_a_defect_of_its_own() -> None:
    for field in ("name", "defect"):
        assert len({getattr(mutant, field) for mutant in MUTANTS}) == len(MUTANTS) >= 20


@pytest.mark.parametrize("text", ["", "a = 1\na = 1\n", "a=1"])
def test_an_edit_that_does_not_apply_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"does not apply; expected its text once; found [02] times"):
        mutants.mutated(text, DEFECT)


@pytest.mark.parametrize(
    ("code", "out", "found"),
    [
        (0, "t/tests/test_it.py::test_a PASSED [ 50%]\n", ""),
        (1, "t/tests/test_it.py::a PASSED\nt/tests/test_it.py::b[x y] FAILED\n", "tests/test_it.py::b[x y] (fails)"),
        (1, "t/tests/test_it.py::test_a ERROR\n", "tests/test_it.py::test_a (cannot begin)"),
        (-11, "t/tests/test_it.py::test_a PASSED\nt/tests/test_it.py::test_b \n", "tests/test_it.py::test_b (crashes)"),
        (-1, "t/tests/test_it.py::test_b ", "tests/test_it.py::test_b (hangs)"),
    ],
)  # fmt: skip
def test_who_noticed(code: int, out: str, found: str) -> None:
    assert mutants.verdict(code, out) == found


@pytest.mark.parametrize(("code", "out"), [(2, "ERROR collecting\n"), (4, "no such file"), (5, "no tests ran")])
def test_tests_that_do_not_run_notice_nothing(code: int, out: str) -> None:
    with pytest.raises(UsageError, match="no test ran"):
        mutants.verdict(code, out)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A small checkout with a test of the given text, and DEFECT as its only mutant."""

    def make(test: str) -> None:
        for room in mutants.ROOMS:
            (tmp_path / room).mkdir()
            (tmp_path / room / "__init__.py").touch()
        (tmp_path / "runtime" / "x.py").write_text("a = 1\n")
        (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
        (tmp_path / "tests").mkdir()
        (tmp_path / "tests" / "test_it.py").write_text(f"from parax.runtime.x import a\n\n{test}\n")
        monkeypatch.setattr(mutants, "ROOT", tmp_path)
        monkeypatch.setattr(mutants, "MUTANTS", (DEFECT,))

    return make


def test_a_mutant_that_a_test_notices(checkout: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    checkout("def test_a():\n    assert a == 1")
    assert mutants.main([]) == 0
    assert "tests/test_it.py::test_a (fails)\n1 of 1 mutants found" in capsys.readouterr().out


def test_one_that_crashes_its_test(checkout: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    checkout("import os\n\n\ndef test_a():\n    a == 1 or os.abort()")
    assert mutants.main([]) == 0
    assert "tests/test_it.py::test_a (crashes)" in capsys.readouterr().out


def test_a_survivor_is_a_failure(checkout: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    checkout("def test_a():\n    assert a")
    assert mutants.main([]) == 1
    assert "NOTHING: a defect\n0 of 1 mutants found" in capsys.readouterr().out


def test_tests_must_pass_on_the_package_as_it_is(checkout: Callable[[str], None]) -> None:
    checkout("def test_a():\n    assert a == 3")
    with pytest.raises(UsageError, match="does not pass on the package as it is"):
        mutants.main([])


def test_tests_that_hang_are_ended(
    checkout: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout("import time\ntime.sleep(600)")
    mutants.copy_package(tmp_path / "site")
    monkeypatch.setattr(mutants, "TIMEOUT_SECONDS", 0.5)
    assert mutants.run_tests(tmp_path / "site", "tests/test_it.py")[0] == -1


def test_unknown_names(checkout: Callable[[str], None]) -> None:
    checkout("")
    with pytest.raises(UsageError, match="no such mutant"):
        mutants.main(["--only", "nobody"])


def test_the_copy_is_the_package(root: Path, tmp_path: Path) -> None:
    mutants.copy_package(tmp_path)
    assert (tmp_path / "parax" / "runtime" / "plan.py").read_text() == (root / "runtime" / "plan.py").read_text()
    assert (tmp_path / "parax" / "errors.py").exists() and (tmp_path / "parax" / "compiler" / "driver.py").exists()
    shutil.rmtree(tmp_path / "parax")
