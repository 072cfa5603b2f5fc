"""Training over epochs: checkpoints, going on bit for bit, stopping, and what ends it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import parax
from parax.compiler.trainer import Trainer
from parax.runtime.train.checkpoint import Checkpoints, read
from parax.runtime.train.data.dataset import ArrayDataset
from parax.runtime.train.data.loader import Loader
from train.small_models import CLASSES, WIDTH, classifier

ROWS, BATCH = 90, 12


def data(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    return {"x": x, "labels": (x[:, :CLASSES]).argmax(1)}


def trainer(lr: float = 0.05) -> Trainer:
    return Trainer(classifier(), optimizer=parax.Adam(lr=lr), batch=BATCH)


def test_it_learns(tmp_path: Path) -> None:
    records: list[dict] = []
    with trainer() as own:
        own.fit(data(), 12, test=data(1), log=records.append)
    evaluations = [record["evaluation"] for record in records if "evaluation" in record]
    assert len(evaluations) == 12 and evaluations[-1]["accuracy"] > 0.9 > evaluations[0]["accuracy"]
    assert [r["step"] for r in records if "rate" in r] == list(range(1, 12 * (ROWS // BATCH) + 1))


@pytest.mark.parametrize("stop_at", [3, 7, 10])
def test_going_on_is_the_same_bit_for_bit(tmp_path: Path, stop_at: int) -> None:
    def losses(folder: Path, stop: int | None, resume: bool) -> list[float]:
        found: list[float] = []

        def log(record: dict) -> None:
            if "rate" in record:
                found.append(record["loss"])
                if len(found) == stop:
                    raise KeyboardInterrupt

        with trainer() as own:
            try:
                own.fit(data(), 3, test=data(1), checkpoints=folder, every=2, resume=resume, log=log)
            except KeyboardInterrupt:
                return found
            state.append(own.parameters)
        return found

    state: list[dict] = []
    whole = losses(tmp_path / "a", None, False)
    first = losses(tmp_path / "b", stop_at, False)
    rest = losses(tmp_path / "b", None, True)
    done = len(whole) - len(rest)
    assert first[:done] + rest == whole and 0 < done < len(whole)
    for name, array in state[0].items():
        np.testing.assert_array_equal(array.view(np.int32), state[1][name].view(np.int32))


def test_a_loss_that_is_no_number_ends_it(tmp_path: Path) -> None:
    broken = data()
    with trainer() as own:
        own.fit(data(), 1, checkpoints=tmp_path)
        before = own.parameters
        broken["x"][40, 2] = np.nan
        with pytest.raises(parax.Diverged, match="not finite"):
            own.fit(broken, 2, checkpoints=tmp_path, resume=True)
    (path,) = tmp_path.glob("step-*")
    for name, array in before.items():
        np.testing.assert_array_equal(read(path).tensors[f"weights/{name}"], array)


def test_what_a_killed_process_left_is_taken_away(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = [f".step-000000004.safetensors.{gone.pid}-00ff.tmp", f".best.safetensors.{os.getpid()}-0f.tmp", "mine.tmp"]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    Checkpoints(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_patience() -> None:
    records: list[dict] = []
    with trainer(lr=0.0) as own:
        own.fit(data(), 50, test=data(1), patience=3, log=records.append)
    assert len([r for r in records if "evaluation" in r]) == 4


def test_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    with trainer() as own:
        own.fit(data(), 5, checkpoints=tmp_path, keep=2)
    per_epoch = ROWS // BATCH
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "best.safetensors", f"step-{4 * per_epoch:09d}.safetensors", f"step-{5 * per_epoch:09d}.safetensors",
    ]  # fmt: skip


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    with trainer() as own:
        for given, message in (
            ({"x": data()["x"]}, "other tensors"),
            ({"x": data()["x"][:5], "labels": data()["labels"][:5]}, "without a batch"),
            ({"x": data()["x"], "labels": data()["labels"][:5]}, "rows|samples"),
            (iter([data()]), "one pass only"),
            ([], "no data"),
            ([3], "not a batch"),
        ):
            with pytest.raises((parax.InvalidInput, parax.InvalidData, parax.UsageError), match=message):
                own.fit(given)
        (tmp_path / "step-000000001.safetensors").write_bytes(b"nonsense")
        with pytest.raises(parax.CorruptPlan, match="damaged"):
            own.fit(data(), checkpoints=tmp_path, resume=True)
        with pytest.raises(parax.UsageError, match="checkpoints"):
            own.fit(data(), resume=True)


def test_other_data_is_no_continuation(tmp_path: Path) -> None:
    with trainer() as own:
        own.fit(data(), 1, checkpoints=tmp_path)
        other = {name: array[:50] for name, array in data().items()}
        with pytest.raises(parax.UsageError, match="another loader"):
            own.fit(other, 2, checkpoints=tmp_path, resume=True)


def test_batches_of_a_loader_are_taken() -> None:
    source = list(Loader(ArrayDataset(data()), BATCH, shuffle=False))
    with trainer() as own, trainer() as twin:
        own.fit([(b["x"], b["labels"]) for b in source], 2)
        twin.fit(data(), 2, shuffle=False)
        for name, array in own.parameters.items():
            np.testing.assert_array_equal(array, twin.parameters[name])
