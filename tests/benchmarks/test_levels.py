"""What the benchmark of the optimisation levels makes of two plans' choices, and a run of it on a small model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import levels
from benchmarks.children import records_of


def choice(kernel: str, **seconds: float | None) -> dict[str, object]:
    return {"kernel": kernel, "seconds": seconds}


def test_disagreements_cost_what_they_lose() -> None:
    counted = {"a": choice("x", x=None, y=None), "b": choice("x"), "c": choice("z"), "d": choice("x")}
    measured = {"a": choice("y", x=3.0, y=2.0), "b": choice("x", x=2.0, y=5.0), "c": choice("y", x=1.0, y=1.0),
                "d": choice("x", x=None, y=None)}  # fmt: skip
    found = levels.disagreements(counted, measured)
    assert found["nodes"] == 2, "candidates of c are others, and d was not measured"
    assert found["lost"] == pytest.approx(0.25)
    assert found["kinds"] == {"x → y": {"count": 1, "lost": pytest.approx(0.25), "nodes": ["a"]}}


def test_nothing_to_choose_costs_nothing() -> None:
    assert levels.disagreements({}, {}) == {"nodes": 0, "lost": 0.0, "kinds": {}}


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.levels", "--models", "resnet18", "--small", "--rounds", "1", "--loads",
               "1 × B=1", "--seconds", "0.05", "--flags=--tune-seconds=2", "--json", str(found)]  # fmt: skip
    failures = records_of(command, 300, Path(levels.__file__).parents[1])
    assert failures == []
    record = json.loads(found.read_text())["models"]["resnet18"]
    assert set(record["seconds"]) == {"2", "3"} and record["nodes"] > 0
    assert all(rates[0] > 0 for rates in record["loads"]["1 × B=1"].values())
