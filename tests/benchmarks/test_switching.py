"""What the benchmark of changing loads makes of its figures, its callers, and a run of it on a small model."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import switching, switching_side
from benchmarks.children import records_of
from benchmarks.switching_side import Caller, visit_together

FOUND: dict[str, Any] = {
    "loads": {
        "1": [{"steady": [[1.0, 1.0, 1.0, 2.0]], "switching": [[1.3, 1.0], [1.1]]},
              {"steady": [[10.0, 10.0]], "switching": [[11.0], [12.1]]}],
        "2": [{"steady": [[2.0], [2.0, 2.0]], "switching": [[2.0, 2.0], [9.0]]}],
    },
    "asked": 15, "lost": 0, "differing": 0, "failures": [],
}  # fmt: skip


def test_slow_requests_are_those_beyond_the_median_of_their_own_block() -> None:
    found = switching.figures(FOUND)["loads"]
    assert found["1"]["steady"] == {"requests": 6, "p50": 2.0, "p99": 10.0, "slow": 1, "worst": 2.0}
    assert found["1"]["switching"] == {"requests": 5, "p50": 1.3, "p99": 12.1, "slow": 2, "worst": 1.3}
    assert (found["1"]["slow_first"], found["1"]["first"]) == (2, 4)
    assert found["2"]["switching"]["slow"] == 1 and found["2"]["switching"]["worst"] == 4.5


def test_lost_and_differing_answers_are_problems_and_in_the_table() -> None:
    bad = {**FOUND, "lost": 2, "differing": 1, "failures": ["ValueError: no"]}
    models = {"good": {"parax": switching.figures(FOUND)},
              "bad": {"parax": switching.figures(bad), "onnxruntime": switching.figures(bad)}}  # fmt: skip
    assert switching.problems(models) == ["bad: 2 lost, 1 differing ValueError: no"]
    latencies, answers = switching.tables(models, 100)
    assert len(latencies.rows) == 6 and [row[3:] for row in answers.rows] == [["0", "0"], ["2", "1"], ["2", "1"]]
    assert all(len(row) == len(table.columns) for table in (latencies, answers) for row in table.rows)


def test_a_side_that_stopped_early_has_figures_for_what_it_did() -> None:
    loads = {"1": [{"steady": [[1.0]], "switching": [[1.0]]}, {"steady": [[1.0]], "switching": []}],
             "2": [{"steady": [[1.0]], "switching": []}]}  # fmt: skip
    found = switching.figures({**FOUND, "loads": loads, "lost": 1})["loads"]
    assert list(found) == ["1"] and found["1"]["switching"]["requests"] == 1


def test_changes_are_spread_over_the_blocks() -> None:
    assert switching_side.split(10, 4) == [2, 3, 2, 3] and switching_side.split(2, 3) == [0, 1, 1]


def test_callers_count_what_differs_and_what_fails() -> None:
    answers = iter([[np.zeros(2)], [np.zeros(2)], [np.array([0.0, -0.0])]])
    caller = Caller(lambda _: next(answers), {})
    assert visit_together([caller], "part", 0.0, 2)
    assert (caller.asked, caller.lost, caller.differing) == (2, 0, 1)  # 0.0 is not -0.0
    assert visit_together([caller], "part", 0.0, 1)
    assert (caller.asked, caller.lost) == (3, 1) and caller.failures == ["StopIteration: "]


def test_a_caller_that_is_never_answered_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching_side, "PATIENCE_SECONDS", 0.1)
    caller = Caller(lambda _: [], {})
    caller._call = lambda _: time.sleep(2) or []
    assert not visit_together([caller], "part", 0.0, 1)
    assert caller.lost == 1


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.switching", "bert-base", "--small", "--switches", "10",
               "--blocks", "2", "--seconds", "0.1", "--visit", "0.005", "--json", str(found)]  # fmt: skip
    assert records_of(command, 300, Path(switching.__file__).parents[1]) == []
    record = json.loads(found.read_text())["models"]["bert-base"]
    assert set(record) == {"parax", "onnxruntime"} and record["parax"]["lost"] == record["parax"]["differing"] == 0
    assert record["parax"]["asked"] >= 10 * (3 + 8 * 3)
    assert {load: each["switching"]["requests"] >= 30 for load, each in record["parax"]["loads"].items()} == {
        "1": True, "8": True,
    }  # fmt: skip
