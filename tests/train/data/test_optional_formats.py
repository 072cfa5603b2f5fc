"""Folders of images by Pillow, tables by pyarrow; each is skipped where that is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parax.errors import InvalidData, UsageError
from parax.runtime.train.data import pictures, tables
from parax.runtime.train.data.loader import Loader

RNG = np.random.default_rng(3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    for label, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        for i in range(3):
            values = np.full((8, 10, 3), 100 * label + 10 * i, np.uint8)
            image.fromarray(values).save(tmp_path / name / f"{i}.{'png' if i else 'jpg'}")
    return tmp_path


def test_image_folders(folder: Path) -> None:
    data = pictures.ImageFolder(folder, (8, 10))
    assert data.classes == ["cat", "dog"] and len(data) == 6
    found = data.take(np.array([4, 0]))
    assert found["label"].tolist() == [1, 0] and found["input"].shape == (2, 3, 8, 10)
    assert (found["input"][0] == 110).all() and np.abs(found["input"][1].astype(int)).max() <= 2
    grey = pictures.ImageFolder(folder, (4, 4), channels=1).take(np.array([5]))["input"]
    assert grey.shape == (1, 1, 4, 4) and (grey == 120).all()


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_an_unreadable_image_is_named(folder: Path, kind: str) -> None:
    path = folder / "dog" / "1.png"
    pytest.importorskip("PIL.Image").fromarray(RNG.integers(0, 256, (8, 10, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:150])
    whole = pictures.ImageFolder(folder, (8, 10))
    with (
        Loader(whole, 2, kind=kind, workers=2) as data,
        pytest.raises(InvalidData, match=r"dog/1\.png: an unreadable image"),
    ):
        list(data)


def test_no_images(folder: Path) -> None:
    with pytest.raises(UsageError):
        pictures.ImageFolder(folder / "absent", (8, 8))
    with pytest.raises(UsageError):
        pictures.ImageFolder(folder, (0, 8))
    with pytest.raises(InvalidData, match="a folder for each class"):
        pictures.ImageFolder(folder / "cat", (8, 8))
    (folder / "emu").mkdir()
    with pytest.raises(InvalidData, match="emu: a class without an image"):
        pictures.ImageFolder(folder, (8, 8))


def test_large_images_are_refused_before_they_are_decoded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MOST_PIXELS", 79)
    with pytest.raises(InvalidData, match="too large"):
        pictures.ImageFolder(folder, (7, 7)).take(np.array([0]))


def saved(path: Path, columns: dict[str, Any]) -> Path:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table(columns)
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    else:
        pytest.importorskip("pyarrow.feather").write_feather(table, path)
    return path


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_tables(tmp_path: Path, ending: str) -> None:
    x = RNG.standard_normal((5, 3)).astype(np.float32)
    path = saved(tmp_path / f"t.{ending}", {"x": list(x), "y": np.arange(5), "s": list("abcde")})
    found = tables.table_dataset(path, {"input": "x", "label": "y"}).take(np.array([4, 0]))
    assert np.array_equal(found["input"], x[[4, 0]]) and found["label"].tolist() == [4, 0]
    with pytest.raises(InvalidData, match="column s: values that are no numbers"):
        tables.table_dataset(path)
    with pytest.raises(InvalidData, match="no such column; expected z"):
        tables.table_dataset(path, {"input": "z"})


@pytest.mark.parametrize(("values", "message"), [
    ([1, None, 2], "missing values"), ([[1, 2], [3]], "lists of different lengths"), ([], "empty data set"),
    ([[1, 2], None], "missing values"), ([[1, 2], [None, 4]], "missing values"),
])  # fmt: skip
def test_tables_that_are_no_tensors(tmp_path: Path, values: list[Any], message: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    column = arrow.array(values, None if values else arrow.int64())
    with pytest.raises(InvalidData, match=message):
        tables.table_dataset(saved(tmp_path / "t.parquet", {"x": column}))


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_damaged_tables(tmp_path: Path, ending: str) -> None:
    path = saved(tmp_path / f"t.{ending}", {"x": np.arange(1000)})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidData, match="no sound Parquet or Arrow file"):
        tables.table_dataset(path)
