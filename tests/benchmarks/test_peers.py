"""The table of peers: statistics, ratios, rows, the README's section, and a run on small editions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks import peers, peers_table, readme
from benchmarks.children import records_of
from benchmarks.peers_case import disagreement, distance
from examples.models import build, feeds
from parax.compiler.commands.peers import onnxruntime, outputs
from parax.errors import UsageError

BEGIN, END = f"<!-- {readme.PEERS}: begin -->", f"<!-- {readme.PEERS}: end -->"


def contestant(side: str, *rates: float, setup: str = "1 × 2 cores") -> dict[str, Any]:
    middle = peers_table.figure(rates)
    return {
        "side": side, "setup": setup, "rate": middle.median, "spread": middle.spread, "rates": list(rates),
        "p50": 1 / middle.median,
    }  # fmt: skip


SPEED = {
    "contestants": [
        contestant("parax", 20.0, 30.0, 40.0, setup="2 × 1 core"), contestant("parax", 10.0, 10.0, 10.0),
        contestant("onnxruntime", 10.0, 20.0, 10.0), contestant("openvino", 12.0, 10.0, 20.0),
    ],
    "flops": 1e9, "batch": 8,
}  # fmt: skip
DOCUMENT = {
    "command": "python -m benchmarks.peers", "date": "2026-01-02", "versions": {"parax": "0.1.0"},
    "machine": {"cpu": "a CPU", "cores": 2, "kernel": "Linux 6", "flops_all": 60e9, "copy_all": 30e9},
    "settings": {"rounds": 3},
    "models": {
        "a": {
            "throughput": SPEED,
            "compile": {"seconds": 2.0, "peak": 3e8, "plan": 5e6},
            "start": {side: {"seconds": {"median": s}, "peak": 1e8} for side, s in (("parax", 0.1), ("openvino", 0.4))},
            "memory": {"parax": {"growth": 1e6}, "plan": {"weights": 4_000_000, "arena": 2_000_000}},
        },
        "b": {"compile": {"problem": "operators without a kernel: Foo ×1"}},
    },
}  # fmt: skip


def test_a_figure_is_the_median_and_the_range() -> None:
    assert peers_table.figure([4.0, 1.0, 2.0]) == peers_table.Figure(2.0, 1.5)
    assert peers_table.figure([0.0]) == peers_table.Figure(0.0, 0.0)


def test_the_ratio_takes_the_best_of_each_side_and_the_same_rounds() -> None:
    ratio = peers_table.against_best_peer(SPEED)
    assert ratio is not None
    assert ratio["peer"] == "openvino"
    assert (ratio["least"], ratio["ratio"], ratio["greatest"]) == pytest.approx((20 / 12, 2.0, 3.0))


def test_there_is_no_ratio_without_a_peer() -> None:
    assert peers_table.against_best_peer({"contestants": SPEED["contestants"][:1]}) is None
    assert peers_table.against_best_peer({"problem": "differs"}) is None


def test_the_share_of_the_peak_counts_flops_per_item() -> None:
    assert peers_table.of_peak(SPEED, "parax", 60e9) == pytest.approx(0.5)


def test_rows_show_what_was_measured_and_nothing_where_it_was_not() -> None:
    speed, cost = peers_table.all_tables(DOCUMENT)
    assert speed.rows == [["a", "8", "30.00", "10.00", "12.00", "2.00 (1.67–3.00)", "67%", "50%", "2 × 1 core"]]
    assert cost.rows[0][:9] == ["a", "2.0", "300", "5", "100", "–", "400", "0.25", "100"]
    assert peers_table.problems(DOCUMENT) == ["b, compile: operators without a kernel: Foo ×1"]


def test_markdown_has_as_many_cells_everywhere() -> None:
    for table in peers_table.all_tables(DOCUMENT):
        lines = [line for line in peers_table.markdown(table).splitlines() if line.startswith("|")]
        assert {line.count("|") for line in lines} == {len(table.columns) + 1}


def test_the_readme_is_filled_between_its_markers_and_stays_so(tmp_path: Path) -> None:
    results, document = tmp_path / "results.json", tmp_path / "README.md"
    results.write_text(json.dumps(DOCUMENT))
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert readme.main([str(results), "--readme", str(document)]) == 0
    once = document.read_text()
    assert once.startswith("before\n") and once.endswith("\nafter\n")
    assert "\nold\n" not in once and "| a | 8 | 30.00 |" in once and "a CPU, 2 cores" in once and "Foo" in once
    readme.main([str(results), "--readme", str(document)])
    assert document.read_text() == once


def test_the_defaults_have_markers_of_their_own(tmp_path: Path) -> None:
    results, document = tmp_path / "results.json", tmp_path / "README.md"
    load = {side: {"rates": [rate], "p99": 1 / rate} for side, rate in (("parax", 30.0), ("onnxruntime", 20.0))}
    model = {"compile": {"peak": 2e8, "model": 1e8}, "loads": {"1 × B=1": load}, "problem": "openvino: differs",
             "resident": {"parax": 1e8, "onnxruntime": 2e8}}  # fmt: skip
    head = {key: DOCUMENT[key] for key in ("date", "versions", "machine")}
    results.write_text(json.dumps({
        **head, "command": "python -m benchmarks.defaults", "sides": ["parax", "onnxruntime"], "rounds": 3,
        "seconds": 0.5, "beside": "nothing", "quota": None, "models": {"a": model},
    }))  # fmt: skip
    document.write_text(f"{BEGIN}\npeers\n{END}\n<!-- defaults: begin -->\nold\n<!-- defaults: end -->\n")
    assert readme.main([str(results), "--readme", str(document)]) == 0
    text = document.read_text()
    assert "\npeers\n" in text and "\nold\n" not in text
    assert "| a | 1.50 |" in text and "| a | 0.67 |" in text and "- a: openvino: differs" in text


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{END}" * 2])
def test_missing_or_repeated_markers_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        readme.filled(text, readme.PEERS, "x")


def test_our_own_readme_has_the_markers() -> None:
    text = (peers.ROOT / "README.md").read_text()
    assert all(readme.filled(text, name, "x") for name in (readme.PEERS, readme.DEFAULTS))


def test_the_command_repeats_what_was_asked_for() -> None:
    args = peers._arguments(["--models", "mlp", "ncf", "--small", "-O", "3", "--json", "out.json"])
    assert peers.command(args) == "python -m benchmarks.peers --models mlp ncf -O 3 --small"


def test_a_fixed_batch_reaches_inputs_and_outputs() -> None:
    model = build("mlp")
    peers.fix_batch(model, 3)
    values = [*model.graph.input, *model.graph.output]
    assert [value.type.tensor_type.shape.dim[0].dim_value for value in values] == [3, 3]
    onnx.checker.check_model(model, full_check=True)


def test_results_that_differ_are_told() -> None:
    one = [np.array([[0.1, 0.9]], np.float32)]
    assert disagreement(one, one, True)[0] == ""
    assert "expected" in disagreement([one[0] + 0.1], one, False)[0]
    assert disagreement([one[0][:, ::-1]], one, True)[0]
    assert "outputs" in disagreement([], one, False)[0]


def test_a_child_that_hangs_or_dies_leaves_a_record() -> None:
    hang = [sys.executable, "-c", "import time; print('{\"a\": 1}', flush=True); time.sleep(60)"]
    assert [r.get("status") for r in records_of(hang, 1.0, Path("/"))] == [None, "timeout"]
    die = [sys.executable, "-c", "import os; os.abort()"]
    assert "SIGABRT" in records_of(die, 60.0, Path("/"))[0]["problem"]


@pytest.mark.parametrize("name", ["mobilenet-v2", "unet-resize", "gnmt", "word-lm", "bert-base"])
def test_pytorch_gives_the_results_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is an optional peer")
    pytest.importorskip("onnxruntime", reason="its results are the reference")
    from benchmarks import peers_torch

    model, path, feed = build(name, small=True), tmp_path / "model.onnx", feeds(name, 2, small=True)
    peers.fix_batch(model, 2)
    path.write_bytes(model.SerializeToString())
    sides = (*peers_torch.contestants(path, feed, 2, 1), *onnxruntime(path, feed, 2, (0,)))
    assert disagreement(*map(outputs, sides), False)[0] == ""


@pytest.mark.slow
def test_a_small_run_measures_every_part(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="a peer is needed")
    out = tmp_path / "results.json"
    options = ["--sides", "parax", "onnxruntime", "--rounds", "1", "--seconds", "0.05", "--small", "--batch", "4"]
    code = peers.main(["--models", "mlp", *options, "--work", str(tmp_path), "--json", str(out)])
    found = json.loads(out.read_text())["models"]["mlp"]
    assert code == 0, found
    assert set(found) == {"compile", "throughput", "latency", "start", "memory"}
    assert found["latency"]["difference"]["parax"] <= 1
    assert found["memory"]["plan"]["weights"] > 1e6


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_a_small_run_in_few_bits_compares_the_same_numbers(precision: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="its quantiser makes the model, and a peer is needed")
    out = tmp_path / "results.json"
    options = ["--sides", "parax", "onnxruntime", "--rounds", "1", "--seconds", "0.05", "--small", "--batch", "4"]
    options += ["--modes", "throughput", "--precision", precision]
    code = peers.main(["--models", "cifar-resnet20", *options, "--work", str(tmp_path), "--json", str(out)])
    document = json.loads(out.read_text())
    found = document["models"]["cifar-resnet20"]
    assert code == 0, found
    assert f"--precision {precision}" in document["command"]
    assert found["throughput"]["difference"]["parax"] <= 1


def test_results_in_few_bits_may_lie_a_tenth_apart() -> None:
    expected = [np.array([3.0, 4.0])]
    assert distance([np.array([3.0, 4.3])], expected)[0] == ""
    assert "away" in distance([np.array([3.0, 5.0])], expected)[0]
    assert "away" in distance([np.array([np.nan, 4.0])], expected)[0]
    assert distance([], expected)[0] == "0 outputs, expected 1"
