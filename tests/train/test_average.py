"""The moving average of the parameters: its values, what is evaluated and exported, and going on from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import parax
from parax.compiler.trainer import Trainer
from train.small_models import classifier, rows


def trainer(**more: object) -> Trainer:
    given = {"optimizer": parax.Adam(lr=0.05), "batch": 12, "ema": 0.9, "groups": [parax.ParameterGroup(["b*"])]}
    return Trainer(classifier(), **(given | more))  # type: ignore[arg-type]


def averages(of: Trainer) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in of.state.values(average=True).items()}


@pytest.mark.parametrize("ema", [0.9, 0.0])
def test_it_follows_the_parameters(ema: float) -> None:
    with trainer(ema=ema) as own:
        expected = {name: array.astype(np.float64) for name, array in own.parameters.items()}
        np.testing.assert_equal(averages(own), own.parameters)
        for seed in range(10):
            own.step(rows(seed, 12))
            for name, array in own.parameters.items():
                expected[name] = ema * expected[name] + (1 - ema) * array
        for name, array in averages(own).items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)
            assert np.array_equal(array, own.parameters[name]) == (ema == 0)


def test_it_is_evaluated_and_exported_where_that_is_asked_for(tmp_path: Path) -> None:
    test = rows(99, 31)
    with trainer() as own:
        own.fit(rows(0, 48), 2)
        plain, average = own.evaluate([test])["loss"], own.evaluate([test], average=True)["loss"]
        own.export(tmp_path / "plain.onnx")
        own.export(tmp_path / "average.onnx", average=True)
        kept = averages(own)
    assert plain != average
    for name, loss in (("plain", plain), ("average", average)):
        with Trainer(onnx.load(tmp_path / f"{name}.onnx"), batch=12) as again:
            assert again.evaluate([test])["loss"] == pytest.approx(loss, rel=1e-6)
    written = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "average.onnx").graph.initializer}
    np.testing.assert_equal({name: written[name] for name in kept}, kept)


def test_a_training_can_be_evaluated_by_it() -> None:
    records: list[dict] = []
    with trainer() as own:
        own.fit(rows(0, 48), 1, test=rows(1, 24), average=True, log=records.append)
        found, plain = records[-1]["evaluation"]["loss"], own.evaluate([rows(1, 24)])["loss"]
        assert found == pytest.approx(own.evaluate([rows(1, 24)], average=True)["loss"], rel=1e-5)
        assert found != pytest.approx(plain, rel=1e-3)


def test_going_on_changes_no_bit(tmp_path: Path) -> None:
    data = rows(0, 60)
    with trainer() as whole:
        whole.fit(data, 4)
        expected = averages(whole)
    with trainer() as first:
        first.fit(data, 2, checkpoints=tmp_path)
    with trainer() as second:
        second.fit(data, 4, checkpoints=tmp_path, resume=True)
        for name, array in averages(second).items():
            np.testing.assert_array_equal(array.view(np.int32), expected[name].view(np.int32))
    with trainer(ema=None) as other, pytest.raises(parax.InvalidInput, match="not the state of this training"):
        other.fit(data, 5, checkpoints=tmp_path, resume=True)


def test_without_one_it_cannot_be_asked_for(tmp_path: Path) -> None:
    with trainer(ema=None) as own:
        for use in (lambda: own.evaluate([rows(0, 12)], average=True), lambda: own.export(tmp_path / "m", average=True),
                    lambda: own.fit(rows(0, 24), average=True)):  # fmt: skip
            with pytest.raises(parax.UsageError, match="no moving average"):
                use()
    with pytest.raises(parax.UsageError, match="out of range"):
        trainer(ema=1.0)
