"""A model at every precision side by side: what is compiled, predicted and measured, and what a row says instead."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from commanding import run_here
from parax import CompileOptions
from parax.compiler.commands.precisions import COLUMNS
from parax.compiler.precision import gates, weights_only
from parax.compiler.precision.speed import Gain
from parax.compiler.side_by_side import LOWER, side_by_side
from parax.errors import UsageError
from precision.small_models import classifier, images, relu

COMMAND = ("plan", "m.onnx", "--precisions", "--calibrate", "data.npz")
EQUAL = Gain(1.0, 0.9, 1.1, 1.0, 3)


@pytest.fixture(autouse=True)
def _unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speed is not what is tested."""
    for module in (gates, weights_only):
        monkeypatch.setattr(module, "measured_gain", lambda *args: EQUAL)


def quiet(what: str, done: float) -> None:
    """Nobody looks."""


@pytest.mark.usefixtures("any_target")  # x86-64-v3 multiplies no bytes: layers as small as these take no less memory
def test_every_precision_has_its_weights_speed_and_loss() -> None:
    told: list[str] = []
    options = CompileOptions(calibration={"x": images(64)}, max_accuracy_drop=0.0)
    rows = side_by_side(classifier(), options, lambda what, done: told.append(what))
    assert [row.precision for row in rows] == ["fp32", *LOWER]
    assert not any(row.reason for row in rows)
    exact, half, whole, *_ = rows
    assert half.weights_nbytes < exact.weights_nbytes and whole.weights_nbytes < 0.5 * exact.weights_nbytes
    assert all(row.predicted_seconds and row.predicted_seconds > 0 for row in rows)
    assert exact.gain is None and all(row.gain == EQUAL and row.drop is not None and row.metric for row in rows[1:])
    assert (whole.n_lowered, whole.n_layers) == (3, 3)
    assert {what.partition(":")[0] for what in told} == set(LOWER)


def test_a_precision_that_there_is_nothing_for_says_so() -> None:
    rows = side_by_side(relu(), CompileOptions(calibration={"x": np.ones((32, 4), np.float32)}), quiet)
    assert not rows[0].reason and all(row.reason and not row.weights_nbytes for row in rows[1:])


def test_without_data_nothing_is_compiled() -> None:
    with pytest.raises(UsageError, match="measured on data"):
        side_by_side(classifier(), CompileOptions(), quiet)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(classifier(), "m.onnx")
    np.savez("data.npz", x=images(64))
    shown = run_here("main", [*COMMAND, "-q"])
    assert shown.returncode == 0 and all(column in shown.stdout for column in COLUMNS)
    begins = [line.split()[0] for line in shown.stdout.splitlines()]
    assert begins[2:] == ["fp32", *LOWER]
    found = json.loads(run_here("main", [*COMMAND, "--format", "json"]).stdout)
    assert [row["precision"] for row in found["precisions"]] == ["fp32", *LOWER]
    assert found["precisions"][2]["gain"]["middle"] == 1.0


@pytest.mark.parametrize("other", [("--svg", "x.svg"), ("--html", "x.html"), ("--machine", "laptop-8"),
                                   ("--batch", "3")])  # fmt: skip
def test_what_says_nothing_of_precisions_is_refused(other: tuple[str, str], tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    onnx.save(classifier(), "m.onnx")
    np.savez("data.npz", x=images(64))
    shown = run_here("main", [*COMMAND, *other])
    assert shown.returncode == 2 and other[0] in shown.stderr and not list(tmp_path.glob("x.*"))
