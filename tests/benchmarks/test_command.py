"""Every `python -m benchmarks.NAME`: its help, a file that it could not write, an error in one line."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import pytest

import benchmarks
from benchmarks import command, planner
from parax.errors import UsageError

FOLDER = Path(benchmarks.__path__[0])
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if "= command_line(" in path.read_text())


def test_all_are_found() -> None:
    assert {"kernels", "matrix", "peers", "replay"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_help_names_the_command_and_explains_every_option(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    explained = []

    def add_argument(parser: argparse.ArgumentParser, *names: str, **settings: object) -> argparse.Action:
        explained.append((names, settings.get("help")))
        return added(parser, *names, **settings)  # type: ignore[arg-type]

    added = argparse.ArgumentParser.add_argument
    monkeypatch.setattr(argparse.ArgumentParser, "add_argument", add_argument)
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as left:
        importlib.import_module(f"benchmarks.{name}").main()
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m benchmarks.{name} ")
    assert not [names for names, text in explained if not text]


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    assert command.new_file(str(tmp_path / "new.json")) == tmp_path / "new.json"
    with pytest.raises(argparse.ArgumentTypeError, match="make it first"):
        command.new_file(str(tmp_path / "absent" / "new.json"))


def test_an_error_is_one_line_and_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> int:
        raise UsageError("no such model", where="--models")

    with pytest.raises(SystemExit) as left:
        command.finish(main)
    assert left.value.code == UsageError.exit_code
    assert capsys.readouterr().err == "error: --models: no such model\n"


def test_quick_only_changes_defaults() -> None:
    quick = planner._arguments(["--quick"])
    assert (quick.models, quick.budget) == (list(planner.QUICK_MODELS), 2.0)
    chosen = planner._arguments(["--quick", "--models", "mlp", "--budget", "5"])
    assert (chosen.models, chosen.budget) == (["mlp"], 5.0)
