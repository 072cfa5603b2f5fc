"""`benchmarks.training_curves`: trainings on real tasks end where PyTorch's do, from one start, over three seeds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import training_curves
from benchmarks.training_curves import EARLY, MODELS, apart, compared, verdict
from parax.errors import UsageError

LEARNT = {"resnet": 0.95, "mobilenet": 0.9, "unet": 0.8, "lstm": 0.28, "transformer": 0.25}
"""Accuracies above those of guessing the most frequent label: 0.1 of digits, 0.76 of shapes, 0.18 of text."""


@pytest.fixture
def torch() -> None:
    """For what needs PyTorch; an argument of the command is refused without."""
    pytest.importorskip("torch", reason="PyTorch is the other side of the comparison")
    pytest.importorskip("onnxscript", reason="onnxscript is an extra: pip install 'parax[torch]'")
    pytest.importorskip("sklearn", reason="the digits are scikit-learn's: pip install 'parax[data]'")


@pytest.mark.slow
@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("name", MODELS)
def test_the_same_is_learnt(name: str) -> None:
    found = compared(name, 3, 200)
    assert found["agrees"], (found["difference"], found["noise"])
    for run in found["runs"]:
        assert min(run["accuracy"].values()) > LEARNT[name]
        assert apart(run)[:EARLY].max() < 1e-3


@pytest.mark.usefixtures("torch")
def test_sides_begin_alike_and_seeds_do_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "figures.json"
    given = ["--models", "transformer", "--seeds", "2", "--steps", "2", "--json", str(out)]
    code = training_curves.main(given)
    (found,) = json.loads(out.read_text())["models"]
    assert code == (not found["agrees"])
    for run in found["runs"]:
        assert apart(run).shape == (2,) and apart(run).max() < 1e-5
        assert abs(run["losses"]["parax"][1] - run["losses"]["parax"][0]) > 1e-3
    first, second = found["runs"]
    assert abs(first["losses"]["parax"][0] - second["losses"]["parax"][0]) > 1e-3
    assert "transformer" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("own", "agrees"),
    [([0.90, 0.92, 0.94], True), ([0.92, 0.92, 0.95], True), ([0.94, 0.94, 0.97], True), ([0.96, 0.97, 0.97], False),
     ([0.85, 0.88, 0.88], False)],
)  # fmt: skip
def test_noise_is_what_the_other_sides_seeds_differ_by(own: list[float], agrees: bool) -> None:
    found = verdict(own, [0.90, 0.92, 0.94], 1000)
    assert found["noise"] == pytest.approx(0.04) and found["agrees"] is agrees
    assert found["difference"] == pytest.approx(abs(np.mean(own) - 0.92))


def test_where_no_seed_differs_one_label_may() -> None:
    assert verdict([0.75], [0.5], 4)["agrees"] and not verdict([0.75], [0.5], 8)["agrees"]


def test_no_training_is_refused() -> None:
    with pytest.raises(UsageError, match="--seeds and --steps"):
        training_curves.main(["--seeds", "0"])
