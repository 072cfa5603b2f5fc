"""`python -m benchmarks.planner`: every candidate is run, both choices are judged, a miss is seen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import planner
from parax import CompileOptions
from parax.compiler.planner.plan_search import PlanSearch
from parax.compiler.planning import study_of


def quiet(what: str, done: float) -> None:
    """Progress that nobody sees."""


@pytest.fixture(scope="module")
def verdict(tmp_path_factory: pytest.TempPathFactory) -> planner.Verdict:
    path = planner.model_file("mlp", tmp_path_factory.mktemp("models"), small=True)
    return planner.judge(study_of(path, CompileOptions(hint="latency")), "mlp", 4, 0.1, 1.0)


def test_every_candidate_is_measured_and_the_best_is_the_measure(verdict: planner.Verdict) -> None:
    assert verdict.left_out == ()
    assert all(figures["measured"] > 0 for figures in verdict.candidates.values())
    assert verdict.seconds == min(figures["measured"] for figures in verdict.candidates.values())
    assert verdict.verified[1] >= 1.0
    assert verdict.predicted[1] >= 1.0
    names = set(verdict.candidates)
    assert {verdict.predicted[0], verdict.verified[0]} <= names


def test_a_miss_is_marked(verdict: planner.Verdict) -> None:
    hit = replace(verdict, predicted=("x", 1.04), verified=("x", 1.0))
    assert planner.cells(hit)[-1] == ""
    assert planner.cells(replace(hit, predicted=("x", 1.06)))[-1] == "miss"


def test_the_command_writes_what_it_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.json"
    planner.main(["--models", "mlp", "--batches", "2", "--budget", "0.1", "--small", "--json", str(out)])
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["model"], row["rows"]) == ("mlp", 2)
    assert row["candidates"]
    assert "mlp" in capsys.readouterr().out


def test_figures_at_hand_are_judged_anew_and_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "r.json"
    arguments = ["--models", "mlp", "--batches", "2", "--budget", "0.1", "--small", "--json", str(out)]
    planner.main(arguments)
    rows = json.loads(out.read_text())["rows"]
    monkeypatch.setattr(PlanSearch, "measured", lambda *_: pytest.fail("measured again"))
    planner.main([*arguments, "--resume"])
    again = json.loads(out.read_text())["rows"]
    assert [row["candidates"] for row in again] == [row["candidates"] for row in rows]
    with pytest.raises(SystemExit):
        planner.main(["--resume"])
    assert "--resume needs --json" in capsys.readouterr().err


def test_candidates_with_long_calls_are_named_and_left_out(tmp_path: Path) -> None:
    path = planner.model_file("mlp", tmp_path, small=True)
    found = planner.judge(study_of(path, CompileOptions(hint="latency")), "mlp", 64, 0.1, 1e-5)
    assert found.left_out
    assert not set(found.left_out) & set(found.candidates)
    assert "too long" in planner.cells(found)[-2]
