"""Tables and progress where rich is absent."""

from __future__ import annotations

from io import StringIO

import pytest

from parax.compiler.commands import plain_text


def lines(names: list[str], rows: list[list[str]], width: int = 80, least: int = 8) -> list[str]:
    return list(plain_text.table_lines(names, rows, width, least))


def test_columns_are_aligned_under_their_names() -> None:
    assert lines(["name", "", "n"], [["a", "longer", "1"], ["much longer", "", ""]]) == [
        "name                 n",
        "a            longer  1",
        "much longer",
    ]


def test_no_names_no_heading() -> None:
    assert lines(["", ""], [["cpu", "one"], ["memory", "some"]]) == ["cpu     one", "memory  some"]
    assert lines(["", ""], []) == []
    assert lines(["a", "b"], []) == ["a  b"]


def test_the_widest_columns_fold() -> None:
    assert lines(["k", "text"], [["1", "words that do not fit in one line"], ["2", "short"]], width=20) == [
        "k  text",
        "1  words that do not",
        "   fit in one line",
        "2  short",
    ]
    assert lines(["", ""], [["x" * 20, "y" * 9]], width=19) == ["xxxxxxxx  yyyyyyyyy", "xxxxxxxx", "xxxx"]


def test_no_column_is_narrower_than_legible() -> None:
    assert lines(["abcdefg", "b" * 20], [], width=10) == ["abcdefg  bbbbbbbb", "         bbbbbbbb", "         bbbb"]


def test_progress_is_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = StringIO()
    with pytest.raises(KeyboardInterrupt), plain_text.progress_line("m.onnx", terminal) as tell:
        tell("a phase with a long name", 0.25)
        tell("end", 1.0)
        raise KeyboardInterrupt
    _, first, second, blank, rest = terminal.getvalue().split("\r")
    assert (first, second) == (" 25%  m.onnx: a pha", "100%  m.onnx: end  ")
    assert (blank, rest) == (" " * 19, "")
