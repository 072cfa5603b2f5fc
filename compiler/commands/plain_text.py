"""Tables and progress without rich, for machines that only run plans: columns aligned by blanks, one line rewritten.

Owns their look; knows nothing of what they say.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TextIO

GAP = "  "


def table_lines(names: Sequence[str], rows: Sequence[Sequence[str]], width: int, least: int) -> Iterator[str]:
    """The lines of a table, no blanks at their ends; the first has the columns' names, if one has a name.

    Args:
        names: a name for each column, which may be empty.
        rows: cells; one that is wider than its column is folded.
        width: of a line, in characters; columns wider than `least` share what there is, the widest give first.
        least: characters below which no column is made narrower, so that a line may be longer than `width`.
    """
    lines = [names, *rows] if any(names) else rows
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    while sum(widths) + len(GAP) * (len(widths) - 1) > width and max(widths) > least:
        widths[widths.index(max(widths))] -= 1
    for cells in lines:
        folded = [_folded(cell, room) for cell, room in zip(cells, widths, strict=True)]
        for number in range(max(map(len, folded))):
            parts = (cell[number] if number < len(cell) else "" for cell in folded)
            yield GAP.join(f"{part:<{room}}" for part, room in zip(parts, widths, strict=True)).rstrip()


def _folded(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width, break_on_hyphens=False)


@contextmanager
def progress_line(title: str, terminal: TextIO) -> Iterator[Callable[[str, float], None]]:
    """A line that says how far things are, written over by the next, and blank again after the body.

    The yielded function takes (phase, fraction of the whole).
    """
    longest = 0

    def tell(phase: str, done: float) -> None:
        nonlocal longest
        text = f"{done:4.0%}  {title}: {phase}"[: get_terminal_size().columns - 1]
        longest = max(longest, len(text))
        print(f"\r{text:<{longest}}", end="", file=terminal, flush=True)

    try:
        yield tell
    finally:
        print(f"\r{'':<{longest}}\r", end="", file=terminal, flush=True)
