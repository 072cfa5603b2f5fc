"""What a trainer is handed that does not fit: said before the work, never taken for something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parax
from parax.compiler.trainer import Trainer
from parax.runtime.train.batches import IteratedBatches
from parax.runtime.train.data.dataset import ArrayDataset, fitted
from parax.runtime.train.data.loader import Loader
from train.small_models import classifier, rows

BATCH, ROWS = 8, 32


@pytest.fixture(scope="module")
def trainer() -> Iterator[Trainer]:
    with Trainer(classifier(), batch=BATCH) as made:
        yield made


@pytest.mark.parametrize(
    "given, message",
    [
        ({"batch": None}, "batch: must be a whole number above 0"),
        ({"accumulate": True}, "accumulate: must be a whole number above 0"),
        ({"clip": 1.0}, "clip: a value of another kind"),
        ({"head": 3}, "head: a value of another kind"),
        ({"options": 3}, "options: a value of another kind"),
        ({"weights": 3}, "weights: a value of another kind"),
        ({"groups": [3]}, r"groups\[0\]: a value of another kind"),
        ({"groups": 3}, "groups: a value of another kind"),
        ({"rate": 0.1}, "rate: a value of another kind"),
        ({"trained": "w1"}, "trained: patterns are a list"),
        ({"frozen": "w1"}, "frozen: patterns are a list"),
        ({"frozen": [1]}, "frozen: patterns are a list"),
    ],
)
def test_arguments_of_another_kind(given: dict[str, Any], message: str) -> None:
    with pytest.raises(parax.UsageError, match=message):
        Trainer(classifier(), **given)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"epochs": 0}, "epochs: must be a whole number above 0"),
        ({"epochs": 1.5}, "epochs: must be a whole number above 0"),
        ({"every": -1}, "every: must be a whole number 0 or more"),
        ({"patience": 0}, "patience: must be a whole number above 0"),
        ({"keep": 0}, "keep: must be a whole number above 0"),
        ({"keep": -1}, "keep: must be a whole number above 0"),
        ({"seed": "a"}, "seed: must be a whole number 0 or more"),
        ({"metric": "acuracy", "test": rows(1, 9)}, "did you mean accuracy"),
        ({"metric": "accuracy"}, "no such metric"),
    ],
)
def test_numbers_and_names_of_fit(trainer: Trainer, tmp_path: Path, given: dict[str, Any], message: str) -> None:
    before = trainer.state.steps
    with pytest.raises(parax.UsageError, match=message):
        trainer.fit(rows(0, ROWS), checkpoints=tmp_path, **given)
    assert trainer.state.steps == before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, "a", None])
def test_a_rate_is_a_finite_number(value: Any) -> None:
    with Trainer(classifier(), batch=BATCH, rate=lambda step: 0.1 if step < 2 else value) as own:
        with pytest.raises(parax.UsageError, match="rate of step 3"):
            own.fit(rows(0, ROWS))
        assert own.state.steps == 2


@pytest.mark.parametrize(
    "data, error, message",
    [
        (5, parax.InvalidInput, "no batches"),
        (lambda: iter([rows(0, BATCH)]), parax.InvalidInput, "no batches"),
        ({"x": [[1.0] * 6, [1.0]], "labels": [0, 1]}, parax.InvalidData, "x is no array"),
        ({**rows(0, ROWS), "x": np.ma.masked_invalid(rows(0, ROWS)["x"])}, parax.InvalidData, "masked"),
        ({"labels": rows(0, ROWS)["labels"], "picture": rows(0, ROWS)["x"]}, parax.InvalidData, "other tensors"),
    ],
)  # fmt: skip
def test_data_of_another_kind(trainer: Trainer, data: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        trainer.fit(data)


def test_a_tensor_that_has_its_name_is_not_taken_for_another() -> None:
    a, b, c = (np.full((4, 2), value, np.float32) for value in range(3))
    for arrays in ({"b": b, "a": a, "labels": c}, {"a": a, "b": b, "digit": c}, {"p": a, "q": b, "r": c}):
        found = fitted(ArrayDataset(arrays), ["a", "b", "labels"]).take(np.array([1]))
        assert {name: array[0, 0] for name, array in found.items()} == {"a": 0, "b": 1, "labels": 2}
    for arrays in ({"b": b, "a": a, "digit": c}, {"digit": c, "a": a, "b": b}):
        with pytest.raises(parax.InvalidData, match="other tensors"):
            fitted(ArrayDataset(arrays), ["a", "b", "labels"])


def test_a_state_of_a_loader_is_none_of_an_iterable() -> None:
    state = Loader(ArrayDataset(rows(0, ROWS)), BATCH).state()
    with pytest.raises(parax.InvalidInput, match="another kind of data"):
        IteratedBatches([rows(0, BATCH)], ["x", "labels"]).resume(state)


def test_an_evaluation_that_is_no_number_ends_it_before_it_counts_as_the_best(trainer: Trainer, tmp_path: Path) -> None:
    broken = rows(1, 9)
    broken["x"][3, 2] = np.nan
    with pytest.raises(parax.Diverged, match="evaluation is no number"):
        trainer.fit(rows(0, ROWS), 2, test=broken, checkpoints=tmp_path)
    assert not list(tmp_path.iterdir())


def test_parameters_that_the_last_update_broke_are_not_kept(tmp_path: Path) -> None:
    """Loss and gradient are finite in the only step of the epoch: no later one would tell."""
    data = rows(0, ROWS)
    data["x"] *= 100
    with Trainer(classifier(), batch=ROWS, rate=lambda step: 3e38 if step else 1e-3) as own:
        own.fit(data, 1, checkpoints=tmp_path)
        whole = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(parax.Diverged, match="a parameter is not finite"):
            own.fit(data, 2, checkpoints=tmp_path, resume=True)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == whole
