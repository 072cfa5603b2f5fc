"""What a command prints: results to stdout as tables or JSON, messages and progress to stderr.

Knows rich, which it loads when first needed and does without where there is none; knows nothing of what the numbers
mean.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from ...units import size as size
from . import plain_text

if TYPE_CHECKING:
    from rich.console import Console as Rich

WIDTH_OF_A_PIPE = 200
NARROW, LEAST_WIDTH = 12, 18  # columns up to so wide never fold, wider ones not to fewer characters

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Table:
    """Rows under column names; a cell is anything with a str()."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass
class Console:
    """The two streams of one command.

    Args:
        form: "table" or "json".
        quiet: only errors on stderr.
        verbose: 0, 1 (also details), 2…
        names: files of this run only → what the user calls them.
    """

    form: str = "table"
    quiet: bool = False
    verbose: int = 0
    started: dict[str, float] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def named(self, text: str) -> str:
        """The text with files in the user's words."""
        for path, name in self.names.items():
            text = text.replace(path, name)
        return text

    @contextmanager
    def following(self) -> Iterator[None]:
        """While the body runs, show warnings as a line each, and what the compiler logs for who waits, with -v its
        decisions too; nothing under -q.
        """
        from logging import INFO  # here: commands that only run plans need not wait for it

        from ...log import CALIBRATION, NAME, shown

        names = [CALIBRATION, *([NAME] if self.verbose else [])]
        with shown(None if self.quiet else INFO, *names), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: self.note(f"warning: {message}")
            yield

    def result(self, document: dict[str, Any], *tables: Table) -> None:
        """Print the result on stdout: the document with --format json, else the tables."""
        if self.form == "json":
            print(self.named(json.dumps(plain(document), ensure_ascii=False, indent=2)))
            return
        if not _has_rich():
            print(*self._plain_lines(tables), sep="\n", flush=True)
            return
        from rich.console import Console as Rich

        rich = Rich(width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE, highlight=False)
        with rich.capture() as drawing:
            self._draw(rich, tables)
        text = drawing.get()
        if not sys.stdout.isatty():  # the columns' padding is for the eye
            text = "\n".join(line.rstrip() for line in text.split("\n"))
        print(text, end="", flush=True)  # by print, because rich ends the process when a reader has left

    def _texts(self, table: Table) -> tuple[list[str], list[list[str]]]:
        """Column names and rows as texts, but for columns with a name and nothing in them."""
        cells = [["" if cell is None else self.named(str(cell)) for cell in row] for row in table.rows]
        shown = [i for i, name in enumerate(table.columns) if not name or not cells or any(row[i] for row in cells)]
        return [table.columns[i] for i in shown], [[row[i] for i in shown] for row in cells]

    def _plain_lines(self, tables: Sequence[Table]) -> Iterator[str]:
        """The tables as lines that fit the terminal, or a pipe's width."""
        width = get_terminal_size().columns if sys.stdout.isatty() else WIDTH_OF_A_PIPE
        for number, table in enumerate(tables):
            if number:
                yield ""
            if table.title:
                yield self.named(table.title)
            yield from plain_text.table_lines(*self._texts(table), width, LEAST_WIDTH)

    def _draw(self, rich: Rich, tables: Sequence[Table]) -> None:
        from rich.table import Table as RichTable

        of_terminal = rich.width
        for number, table in enumerate(tables):
            names, cells = self._texts(table)
            widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
            drawn = RichTable(box=None, pad_edge=False, show_header=any(names))
            for name, width in zip(names, widths):
                drawn.add_column(_escaped(name), overflow="fold", no_wrap=width <= NARROW)
            for row in cells:
                drawn.add_row(*map(_escaped, row))
            if number:
                rich.print()
            if table.title:
                rich.print(_escaped(self.named(table.title)), style="bold")
            # what does not fit is the terminal's to break: letters one below the other are not legible
            rich.width = max(of_terminal, sum(min(w, LEAST_WIDTH) + 2 for w in widths) - 2)
            rich.print(drawn)
            rich.width = of_terminal

    def note(self, message: str) -> None:
        """A message for the person, on stderr; silent under -q."""
        if not self.quiet:
            print(self.named(message), file=sys.stderr)

    def detail(self, message: str) -> None:
        """A message that only -v shows."""
        if self.verbose:
            print(message, file=sys.stderr)

    @contextmanager
    def progress(self, title: str) -> Iterator[Progress]:
        """A bar on stderr while the body runs; the yielded function takes (phase, fraction of the whole).

        Off a terminal there is no bar; with -v each new phase is a line.
        """
        if self.quiet or not sys.stderr.isatty():
            yield _lines(self.detail)
            return
        if not _has_rich():
            with plain_text.progress_line(title, sys.stderr) as tell:
                yield tell
            return
        from rich.console import Console as Rich
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        with Bar(*columns, TimeElapsedColumn(), console=Rich(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=1.0)
            yield lambda phase, done: bar.update(task, description=f"{title}: {phase}", completed=done)


def _has_rich() -> bool:
    return find_spec("rich") is not None


def _lines(say: Callable[[str], None]) -> Progress:
    last = ""

    def tell(phase: str, done: float) -> None:
        nonlocal last
        if phase != last:
            say(f"{done:4.0%}  {phase}")
            last = phase

    return tell


def _escaped(text: str) -> str:
    """The text with rich's markup brackets made literal."""
    return text.replace("[", "\\[")


def plain(value: Any) -> Any:
    """The value in JSON's types: NumPy scalars and arrays unpacked, NaN and infinities as text (JSON has none)."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
