"""What the benchmark of the defaults makes of its figures, and a run of it on a small model."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from benchmarks import defaults
from benchmarks.answering import Answering
from benchmarks.children import records_of
from benchmarks.defaults_side import LOADS, MIXED
from benchmarks.neighbour import neighbour
from parax.compiler.contest import quantile_of
from parax.errors import InternalError

LOAD = {
    "parax": {"rates": [10.0, 20.0, 30.0], "p50": 1.0, "p99": 3.0, "neighbour": [6.0, 6.0, 6.0]},
    "onnxruntime": {"rates": [5.0, 5.0, 5.0], "p50": 1.0, "p99": 2.0, "neighbour": [1.0, 1.0, 1.0]},
    "openvino": {"rates": [4.0, 40.0, 10.0], "p50": 1.0, "p99": 4.0, "neighbour": [4.0, 0.0, 3.0]},
}


def test_ratios_are_those_of_the_rounds_against_the_better_peer() -> None:
    assert defaults.ratio(LOAD) == pytest.approx(2.5)
    assert defaults.tail(LOAD) == 1.5
    assert defaults.ratio(LOAD, "neighbour") == 1.75  # a round in which the neighbour did nothing has no ratio


@pytest.mark.parametrize(("beside", "quota", "words"), [
    ("nothing", None, ""), ("runtime", None, ", beside a busy ONNX Runtime"),
    ("session", 1.5, ", beside a busy parax session, each in a control group of 1.5 cores"),
])  # fmt: skip
def test_captions_say_what_ran_beside_and_within(beside: str, quota: float | None, words: str) -> None:
    record = {"compile": {"peak": 2e6, "model": 1e6}, "loads": {"a load": LOAD},
              "resident": dict.fromkeys(LOAD, 1e6), "throttled": dict.fromkeys(LOAD, 0.5)}  # fmt: skip
    made = defaults.tables({"beside": beside, "quota": quota, "models": {"m": record}, "sides": list(LOAD)})
    assert made[0].title == "Items a second: parax ÷ the better peer" + words
    assert len(made) == 3 + (beside != "nothing") + (quota is not None)
    assert all(len(row) == len(table.columns) for table in made for row in table.rows)


def test_quantiles() -> None:
    values = [float(i) for i in range(200)]
    assert quantile_of(values, 0.5) == 100 and quantile_of(values, 0.99) == 198
    assert quantile_of([7.0], 0.99) == 7.0


def test_mixed_sizes_are_the_same_for_every_side() -> None:
    assert set(MIXED) <= set(range(1, 17)) and len(set(MIXED)) > 8
    assert {load.callers for load in LOADS.values()} == {1, 4, 8}


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.defaults", "--models", "bert-base", "--small", "--rounds", "1",
               "--seconds", "0.05", "--sides", "parax", "onnxruntime", "--json", str(found)]  # fmt: skip
    failures = records_of(command, 300, Path(defaults.__file__).parents[1])
    assert failures == []
    record = json.loads(found.read_text())["models"]["bert-base"]
    assert record["problem"] == "" and set(record["loads"]) == set(LOADS)
    assert all(record["resident"][side] > 1e6 for side in ("parax", "onnxruntime"))
    assert record["compile"]["model"] > 1e5 and record["compile"]["peak"] > 1e7
    for load in record["loads"].values():
        assert load["parax"]["rates"][0] > 0 and load["parax"]["p50"] <= load["parax"]["p99"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["runtime", "session"])
def test_a_neighbour_is_busy_while_it_is_wanted(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with neighbour(kind, tmp_path, 300) as beside:
        assert beside is not None
        before, end = beside.ask()["runs"], time.monotonic() + 60
        while beside.ask()["runs"] <= before:
            assert time.monotonic() < end
            time.sleep(0.01)
    with neighbour("nothing", tmp_path, 300) as beside:
        assert beside is None


def test_a_process_that_ends_early_is_told_with_its_last_words() -> None:
    with pytest.raises(InternalError, match=r"a side: ended; found .*No module named benchmarks\.nothing"):
        Answering("a side", "benchmarks.nothing", {})
