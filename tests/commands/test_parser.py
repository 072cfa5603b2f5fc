"""What the command line says to words that it does not know, and the ways to its help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import parax
from parax.compiler import cli

Capture = pytest.CaptureFixture[str]


def said(capsys: Capture, *words: str, script: str = "main") -> str:
    """The one line of a refusal with exit code 2."""
    assert getattr(cli, script)(list(words)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ") and shown.err.count("\n") == 1
    return shown.err


@pytest.mark.parametrize(("words", "meant"), [
    (["compile", "m.onnx", "--dims", "N=8"], "parax compile: no such option: --dims; did you mean --dim?"),
    (["compile", "--dims=N=8", "m.onnx"], "no such option: --dims; did you mean --dim?"),
    (["compile", "--otuput", "p.bin"], "did you mean --output?"),  # though MODEL.onnx is missing, too
    (["run", "p.bin", "-dim", "N=8"], "no such option: -dim; did you mean --dim?"),
    (["run", "p.bin", "--Input", "x=1"], "did you mean --input?"),
    (["bench", "p.bin", "--rouns", "3"], "did you mean --rounds?"),
    (["compil", "m.onnx"], "no such verb: compil; did you mean compile?"),
    (["help", "verfy"], "no such verb: verfy; did you mean verify?"),
    (["--vresion"], "did you mean --version?"),
])  # fmt: skip
def test_what_was_meant_is_named(words: list[str], meant: str, capsys: Capture) -> None:
    assert meant in said(capsys, *words)


def test_what_is_like_nothing_gets_the_way_to_the_list(capsys: Capture) -> None:
    assert "did you mean" not in (text := said(capsys, "run", "p.bin", "--qqqq")) and "`parax run --help`" in text
    assert "there are compile, run, " in said(capsys, "zzzz")
    assert "too many arguments; found b c" in said(capsys, "run", "a", "b", "c")
    assert "paraxc: no such option: --dims; did you mean --dim?" in said(capsys, "m", "--dims", "N=1", script="paraxc")
    assert "the following arguments are required: MODEL.onnx" in said(capsys, "compile")
    assert "expected SYMBOL=8 or SYMBOL=1..64, found 'N'" in said(capsys, "compile", "m.onnx", "--dim", "N")


def test_a_file_in_place_of_a_verb_is_told_which_verbs_take_it(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").touch()
    assert "did you mean `parax run m.onnx`" in said(capsys, "m.onnx")


@pytest.mark.parametrize(("words", "same_as"), [(["help"], ["--help"]), (["help", "run"], ["run", "--help"])])
def test_help_of_a_verb(words: list[str], same_as: list[str], capsys: Capture) -> None:
    texts = []
    for given in (words, same_as):
        with pytest.raises(SystemExit) as left:
            cli.main(given)
        assert left.value.code == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and texts[0].startswith(f"usage: parax {same_as[0] if len(same_as) > 1 else '['}")


def test_the_package_runs_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "parax"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == f"parax {parax.__version__}\n"
    done = subprocess.run([*command, "inspect", "absent.onnx"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("error: absent.onnx: cannot be read")
