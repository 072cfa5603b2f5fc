"""Fenced blocks of a page of the documentation: which are sessions and programs, and what is not run, and why.

    ```console      `$ command` lines, each with what it prints beneath: run in order, one folder a page
    ```python       run in the same folder; the names of a page's blocks are one program's
    ```text         right behind a program: what it prints

In what is printed, … stands for anything within a line, and a line of … for any lines. `<!-- not run: reason -->`
before a block says why it is not run.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"(?P<before>[^\n]*)\n(?:\n)?(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)\n(?P=indent)```", re.S)
NOT_RUN = re.compile(r"<!-- (?:not run: (?P<why>.+)|command: \w+) -->")
COMMAND = re.compile(r"(?m)^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:parax|paraxc|pip|python3?|perf|docker|curl|mkdocs)\s")


class Fenced(NamedTuple):
    """A block. `line`: of its fence. `why`: it is not run; None where it is."""

    kind: str
    text: str
    line: int
    why: str | None

    @property
    def runs(self) -> bool:
        return self.kind in ("console", "python") and self.why is None

    def is_printed_by(self, program: Fenced) -> bool:
        """Whether it is the text right behind a program, which is what that prints."""
        ends = program.line + program.text.count("\n") + 2  # the line of its closing fence
        return program.kind == "python" and self.kind == "text" and self.why is None and self.line == ends + 2

    @property
    def hides_a_command(self) -> bool:
        """Whether it shows commands but is neither run nor says why not."""
        return self.kind not in ("console", "python") and self.why is None and bool(COMMAND.search(self.text))


class Command(NamedTuple):
    """A command and what it prints, on stdout and stderr."""

    text: str
    printed: str


def blocks(page: Path) -> list[Fenced]:
    """The page's blocks, in order."""
    text = "\n" + page.read_text()
    found = []
    for match in FENCE.finditer(text):
        mark = NOT_RUN.search(match["before"])
        why = None if mark is None else mark["why"] or "the README's commands are run by CI, word for word"
        indent = match["indent"]
        body = "\n".join(line.removeprefix(indent) for line in match["text"].split("\n"))
        found.append(Fenced(match["kind"], body, text.count("\n", 0, match.start("kind")), why))
    return found


def commands(block: Fenced) -> list[Command]:
    """The commands of a session; a line that ends with a backslash goes on in the next."""
    found: list[Command] = []
    for part in re.split(r"(?m)^\$ ", block.text)[1:]:
        lines = part.split("\n")
        n = 1
        while lines[n - 1].endswith("\\"):
            n += 1
        found.append(Command("\n".join(lines[:n]), "\n".join(lines[n:]).strip("\n")))
    return found


def matches(printed: str, expected: str) -> bool:
    """Whether what is printed is what is expected, line by line."""
    pattern = ""
    for line in expected.strip("\n").split("\n"):
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*?".join(map(re.escape, line.rstrip().split("…"))) + r"\n"
    shown = "\n".join(line.rstrip() for line in printed.strip("\n").split("\n")) + "\n"
    return re.fullmatch(pattern if expected.strip("\n") else r"\n*", shown if printed.strip("\n") else "") is not None


__all__ = ["Command", "Fenced", "blocks", "commands", "matches"]
