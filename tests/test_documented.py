"""Every command and every program that the documentation shows is run, and prints what is shown there."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commanding import run_here
from documented import Fenced, blocks, commands, matches

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SCRIPTS = {"parax": "main", "paraxc": "paraxc"}
OPTIONAL = {"torch": "torch"}  # what a program imports → which extra has it


def ids(page: Path) -> str:
    return page.stem


@pytest.mark.parametrize("page", [page for page in PAGES if any(block.runs for block in blocks(page))], ids=ids)
def test_what_a_page_shows_is_so(page: Path, tmp_path: Path, scripts: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "NO_COLOR": "1", "COLUMNS": "120",
                   "PARAX_CACHE_DIR": str(tmp_path / "cache")}  # fmt: skip
    folder = tmp_path / "page"
    folder.mkdir()
    with contextlib.chdir(folder) if sys.version_info >= (3, 11) else changed(folder):
        found = blocks(page)
        for block, behind in zip(found, [*found[1:], None]):
            if block.runs:
                printed = behind.text if behind is not None and behind.is_printed_by(block) else None
                run(block, page.name, names, environment, printed)


def run(block: Fenced, page: str, names: dict[str, Any], environment: dict[str, str], printed: str | None) -> None:
    where = f"{page}:{block.line}"
    if block.kind == "python":
        with contextlib.redirect_stdout(io.StringIO()) as told:
            exec(compile(block.text, where, "exec"), names)
        assert printed is None or matches(told.getvalue(), printed), f"{where} printed:\n{told.getvalue()}"
        return
    for command in commands(block):
        found = printed_by(command.text, environment)
        shown = f"printed:\n{found}\nexpected:\n{command.printed}"
        assert matches(found, command.printed), f"{where}: {command.text}\n{shown}"


def printed_by(command: str, environment: dict[str, str]) -> str:
    """What a command prints: one of ours without anything of the shell's in this process, others in a shell."""
    words = shlex.split(command)
    if words[0] in SCRIPTS and not set("|;&><$\n") & set(command):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            return run_here(SCRIPTS[words[0]], words[1:], together=True).stdout
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=120, env=environment, check=False)  # fmt: skip
    return done.stdout


@contextlib.contextmanager
def changed(folder: Path) -> Any:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `parax` and `paraxc` of the parax that is tested, and its `python`."""
    folder = tmp_path_factory.mktemp("scripts")
    for name, function in SCRIPTS.items():
        text = f"#!{sys.executable}\nimport sys\nfrom parax.compiler import cli\nsys.exit(cli.{function}())\n"
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')  # a link would leave the environment
    (folder / "python").chmod(0o755)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_no_command_is_shown_that_is_not_run(page: Path) -> None:
    hidden = [f"{page.name}:{block.line}" for block in blocks(page) if block.hides_a_command]
    assert not hidden, f"commands outside of ```console, without `<!-- not run: reason -->`: {hidden}"


def test_most_is_run() -> None:
    found = [block for page in PAGES for block in blocks(page) if block.kind in ("console", "python")]
    assert sum(block.runs for block in found) >= 0.7 * len(found)


@pytest.mark.parametrize(("printed", "expected", "same"), [
    ("a\nb\n", "a\nb", True), ("a\nb\n", "a", False), ("took 3 ms\n", "took … ms", True), ("", "", True),
    ("a\nb\nc\n", "a\n…\nc", True), ("a\nc\n", "a\n…\nc", True), ("a\nb\n", "…", True), ("x\n", "", False),
    ("took 3 s\n", "took … ms", False),
    ("", "…", True), ("a  \n", "a", True), ("a.b\n", "a+b", False), ("a\nb\nd\n", "a\n…\nc", False),
])  # fmt: skip
def test_wildcards(printed: str, expected: str, same: bool) -> None:
    assert matches(printed, expected) == same


def test_what_a_program_prints_is_the_text_right_behind_it(tmp_path: Path) -> None:
    page = tmp_path / "p.md"
    page.write_text("```python\nprint(1)\n\n```\n\n```text\n1\n```\n```text\n1\n```\n")
    program, printed, other = blocks(page)
    assert printed.is_printed_by(program) and not other.is_printed_by(printed) and not other.is_printed_by(program)
    run(program, "p.md", {}, {}, printed.text)
    with pytest.raises(AssertionError, match="printed"):
        run(program, "p.md", {}, {}, "2")


def test_blocks_are_found(tmp_path: Path) -> None:
    page = tmp_path / "p.md"
    page.write_text("text\n```\nparax run\n```\n<!-- not run: a reason -->\n```console\n$ a\n```\n\n1. x\n\n"
                    "   ```console\n   $ b \\\n   c\n   out\n\n   $ d\n   ```\n"
                    "<!-- command: run -->\n```\npip x\n```\n")  # fmt: skip
    plain, marked, indented, named = blocks(page)
    assert plain.hides_a_command and not plain.runs and plain.line == 2
    assert marked.why == "a reason" and not marked.runs and not named.hides_a_command
    assert indented.runs and [tuple(c) for c in commands(indented)] == [("b \\\nc", "out"), ("d", "")]
