"""`benchmarks.exchange`: weights agree, what determinism costs is a row, the gradient server moves the least."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import exchange


def test_exchanges_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is moved in all: of the exchange as in docs/training.md, and by the update with momentum, in weights."""
    out = tmp_path / "figures.json"
    given = ["--size", "1", "--rows", "4", "--steps", "2", "--instances", "1", "2"]
    assert exchange.main([*given, "--json", str(out)]) == 0
    rows = {(row["instances"], row["exchange"]): row for row in json.loads(out.read_text())["rows"]}
    moved = {1: (2 + 5, 5, 4 + 5, 5), 2: (5 + 5, 7, 9 + 5, 5 + 10)}
    for n, expected in moved.items():
        assert [rows[n, name]["moved"] for name in exchange.SYNCHRONOUS] == list(expected)
    assert len(rows) == 8 and all(row["agrees"] and row["ms"] > 0 for row in rows.values())
    for n in moved:
        server, cost = rows[n, "gradient-server"], rows[n, "fixed"]
        assert server["speed"] == 1 and cost["speed"] == pytest.approx(server["ms"] / cost["ms"])
    said = capsys.readouterr().out
    assert all(name in said for name in exchange.SYNCHRONOUS)


def test_other_weights_are_an_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(exchange, "MISS", -1.0)  # nothing is as close as that
    assert exchange.main(["--size", "1", "--rows", "4", "--steps", "1", "--instances", "1"]) == 1
    assert " no " in capsys.readouterr().out
