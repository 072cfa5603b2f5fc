"""Data sets from tables: every kind, splits, and errors that say what was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parax.errors import ParaxError, UsageError
from parax.runtime.train.data.open import KINDS, open_dataset

IDX_IMAGES = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4])
IDX_LABELS = bytes([0, 0, 8, 1, 0, 0, 0, 2, 1, 0])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "i").write_bytes(IDX_IMAGES)
    (tmp_path / "l").write_bytes(IDX_LABELS)
    for name in ("c1.bin", "c2.bin"):
        (tmp_path / name).write_bytes(bytes(3073))
    (tmp_path / "t.txt").write_text("a b c\n" * 20)
    np.savez(tmp_path / "d.npz", x=np.arange(6.0), y=np.arange(6))
    np.save(tmp_path / "x.npy", np.arange(6.0))
    return tmp_path


SPECS: list[tuple[dict[str, Any], int, str]] = [
    ({"kind": "idx", "images": "i", "labels": "l"}, 2, "input uint8[1, 1, 2], label int64[]"),
    ({"kind": "cifar", "path": "c*.bin"}, 2, "input uint8[3, 32, 32], label int64[]"),
    ({"kind": "cifar", "path": ["c1.bin"]}, 1, "input uint8[3, 32, 32], label int64[]"),
    ({"kind": "npz", "path": "d.npz", "names": {"input": "x"}}, 6, "input float64[]"),
    ({"kind": "npy", "files": {"input": "x.npy"}}, 6, "input float64[]"),
    ({"kind": "text", "path": "t.txt", "streams": 2, "length": 4}, 18, "input int64[4], label int64[4]"),
    ({"kind": "text", "path": "*.txt", "streams": 2, "length": 9, "vocabulary": "bytes"}, 12,
     "input int64[9], label int64[9]"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "length", "specs"), SPECS)
@pytest.mark.usefixtures("here")
def test_kinds(spec: dict[str, Any], length: int, specs: str) -> None:
    data = open_dataset(spec)
    assert len(data) == length
    assert ", ".join(f"{name} {dtype}{list(shape)}" for name, (shape, dtype) in data.specs.items()) == specs
    found = data.take(np.array([length - 1]))
    assert {name: (value.shape[1:], value.dtype) for name, value in found.items()} == data.specs


def test_optional_kinds(here: Path) -> None:
    image, arrow = pytest.importorskip("PIL.Image"), pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table({"a": [1, 2]}), "t.parquet")
    assert open_dataset({"kind": "table", "path": "t.parquet", "columns": {"x": "a"}}).take(np.array([1]))["x"] == 2
    (here / "photos" / "cat").mkdir(parents=True)
    image.new("RGB", (9, 9)).save(here / "photos" / "cat" / "1.png")
    assert open_dataset({"kind": "images", "path": "photos", "size": 8}).specs["input"][0] == (3, 8, 8)
    assert open_dataset({"kind": "images", "path": "photos", "size": [4, 5]}).specs["input"][0] == (3, 4, 5)
    with pytest.raises(UsageError, match=r"data\.size"):
        open_dataset({"kind": "images", "path": "photos", "size": [4]})


def test_digits() -> None:
    pytest.importorskip("sklearn")
    parts = [open_dataset({"kind": "digits", "split": {"fraction": 0.2, "seed": 1, "part": part}})
             for part in ("train", "test")]  # fmt: skip
    assert [len(part) for part in parts] == [1438, 359]
    found = parts[1].take(np.arange(359))
    assert found["input"].shape == (359, 1, 8, 8) and 0 <= found["input"].min() < found["input"].max() <= 1
    assert set(found["label"].tolist()) == set(range(10))


@pytest.mark.parametrize(("spec", "message"), [
    ({}, "data.kind: no such kind"), ({"kind": "cifer"}, "did you mean cifar?"), ({"kind": 3}, "no such kind"),
    ({"kind": "npz", "pth": "d.npz"}, "data.pth: no such key; expected kind, split, path, names; did you mean path?"),
    ({"kind": "npz"}, "data.path: a key is missing; expected a path"),
    ({"kind": "npz", "path": 3}, "data.path: a value of another kind; expected a path; found 3"),
    ({"kind": "cifar", "path": "c1.bin", "classes": True}, "found True"),
    ({"kind": "cifar", "path": "absent*.bin"}, "no file fits the pattern"),
    ({"kind": "npz", "path": "d.npz", "split": 0.2}, "data.split: no table"),
    ({"kind": "npz", "path": "d.npz", "split": {"fractoin": 0.2}}, "did you mean fraction?"),
    ({"kind": "npz", "path": "d.npz", "split": {"fraction": 0.2, "part": "tset"}}, "data.split.part"),
    ({"kind": "npz", "path": "d.npz", "split": {"fraction": 0.01}}, "a part of the split is empty"),
    ({"kind": "text", "path": "t.txt", "streams": 1, "length": 4, "vocabulary": "letters"}, "data.vocabulary"),
])  # fmt: skip
@pytest.mark.usefixtures("here")
def test_errors_say_what_was_meant(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_dataset(spec)
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_refuses_a_key_that_it_does_not_have(kind: str) -> None:
    with pytest.raises(ParaxError, match=rf"data\.{kind}_: no such key"):
        open_dataset({"kind": kind, f"{kind}_": 1})
