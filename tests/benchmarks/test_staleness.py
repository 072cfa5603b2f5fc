"""`benchmarks.staleness`: one by one repeats itself; an asynchronous training keeps its bound and goes elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import staleness

pytest.importorskip("sklearn", reason="the digits are scikit-learn's: pip install 'parax[data]'")


def test_trainings_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "figures.json"
    given = ["--staleness", "2", "--instances", "3", "--rows", "32", "--epochs", "1"]
    assert staleness.main([*given, "--json", str(out)]) == 0
    first, again, stale, other = json.loads(out.read_text())
    assert again == first and first["distance"] == 0 and first["bound"] is None and first["staleness"] == 0
    for row in (stale, other):
        assert row["bound"] == 2 and row["staleness"] <= 2 and row["distance"] > 0 and len(row["losses"]) == 1
    assert "one by one" in capsys.readouterr().out


def test_a_training_that_leaves_all_numbers_is_a_row(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    given = ["--staleness", "0", "--instances", "2", "--rows", "32", "--epochs", "1", "--lr", "1e20", "--repeats", "1"]
    assert staleness.main([*given, "--json", str(out)]) == 0
    assert [row["diverged"] for row in json.loads(out.read_text())] == [True, True]
