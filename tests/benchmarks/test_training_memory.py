"""`benchmarks.training_memory`: sides answer, a limit that cannot be met is a row, losses are compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import training_memory
from train.test_memory import network


class Built:
    """A small network in the place of a model."""

    @staticmethod
    def SerializeToString() -> bytes:
        return network(size=16).SerializeToString()


def test_limits_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_memory, "build", lambda name: Built)
    out = tmp_path / "figures.json"
    assert training_memory.main(["--max-memory", "80%", "1KB", "--batch", "4", "--steps", "2", "--json", str(out)]) == 0
    free, less, error = json.loads(out.read_text())["rows"]
    assert less["agrees"] is True and less["predicted"] <= 0.8 * free["predicted"]
    assert "needs more memory" in error["error"]
