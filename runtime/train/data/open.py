"""Data sets from a job file's table: `kind` says which, the other keys what it needs.

Owns the keys of every kind; the files that read them are those of their formats.
"""

from __future__ import annotations

import difflib
import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import UsageError
from .arrays import npy_dataset, npz_dataset
from .cifar import cifar_dataset
from .dataset import ArrayDataset, Dataset, split
from .idx import idx_dataset
from .pictures import ImageFolder
from .tables import table_dataset
from .text import Bytes, Words, text_dataset

Table = Mapping[str, Any]


@dataclass(frozen=True)
class Key:
    """A key of a kind: the types of its value, in words, and its default; without one it must be given."""

    types: tuple[type, ...]
    expected: str
    default: Any = ...


PATH = Key((str, Path), "a path")
PATHS = Key((str, Path, list), "a path, a pattern, or a list of them")
NAMES = Key((dict,), "a table: tensor = name there", None)


def _size(value: Any) -> tuple[int, int]:
    sides = [value, value] if isinstance(value, int) else value
    if len(sides) != 2 or not all(type(side) is int for side in sides):
        raise UsageError("no size of images", where="data.size", expected="32 or [height, width]", found=value)
    return sides[0], sides[1]


def _paths(value: Any) -> list[Path]:
    """Of files; a pattern stands for those that fit, by name."""
    paths: list[Path] = []
    for given in map(str, value if isinstance(value, list) else [value]):
        found = sorted(glob.glob(given, recursive=True)) if glob.has_magic(given) else [given]
        if not found:
            raise UsageError("no file fits the pattern", where="data.path", expected=given, found="none")
        paths += map(Path, found)
    return paths


def _text(table: Table) -> Dataset:
    paths, kinds = _paths(table["path"]), ("words", "bytes")
    if table["vocabulary"] not in kinds:
        raise UsageError("no such vocabulary", where="data.vocabulary", expected=" or ".join(kinds),
                         found=table["vocabulary"])  # fmt: skip
    words = table["vocabulary"] == "words"
    vocabulary = Words.of(_paths(table["words_of"] or table["path"]), table["most_words"]) if words else Bytes()
    return text_dataset(paths, vocabulary, table["streams"], table["length"])


def digits() -> ArrayDataset:
    """scikit-learn's digits: input f32[1,8,8] in 0 to 1, label i64. Raises UsageError where it is not installed."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UsageError("the digits are scikit-learn's", hint="pip install 'parax[data]'") from error
    images, labels = load_digits(return_X_y=True)
    scaled = np.asarray(images, np.float32).reshape(-1, 1, 8, 8) / 16
    return ArrayDataset({"input": scaled, "label": np.asarray(labels, np.int64)})


Kind = tuple[dict[str, Key], Callable[[Table], Dataset]]
KINDS: dict[str, Kind] = {
    "idx": (
        {"images": PATH, "labels": PATH, "classes": Key((int,), "a number", 10)},
        lambda t: idx_dataset(t["images"], t["labels"], t["classes"]),
    ),
    "cifar": (
        {"path": PATHS, "classes": Key((int,), "10 or 100", 10)},
        lambda t: cifar_dataset(_paths(t["path"]), t["classes"]),
    ),
    "images": (
        {"path": PATH, "size": Key((int, list), "32 or [height, width]"), "channels": Key((int,), "1, 3 or 4", 3)},
        lambda t: ImageFolder(t["path"], _size(t["size"]), t["channels"]),
    ),
    "npz": ({"path": PATH, "names": NAMES}, lambda t: npz_dataset(t["path"], t["names"])),
    "npy": ({"files": Key((dict,), "a table: tensor = path")}, lambda t: npy_dataset(t["files"])),
    "table": ({"path": PATH, "columns": NAMES}, lambda t: table_dataset(t["path"], t["columns"])),
    "text": (
        {
            "path": PATHS, "streams": Key((int,), "the batch of training"), "length": Key((int,), "tokens of a sample"),
            "vocabulary": Key((str,), "words or bytes", "words"), "most_words": Key((int,), "a number", 10_000),
            "words_of": Key((str, Path, list), "paths that the words are taken from", None),
        },
        _text,
    ),
    "digits": ({}, lambda _: digits()),
}  # fmt: skip
PLACES = ("path", "images", "labels", "files", "words_of")  # keys whose values are paths
SPLIT = {
    "fraction": Key((float,), "a number inside (0, 1)"), "seed": Key((int,), "an integer", 0),
    "part": Key((str,), "train or test", "train"),
}  # fmt: skip


def open_dataset(spec: Mapping[str, Any], folder: Path | None = None) -> Dataset:
    """The data set of a job file's table.

    Args:
        folder: that paths are relative to; None: the current one.
        spec: `kind`, the keys of that kind, and `split`: a table of `fraction` (held out), `seed` and `part` ("train",
            or "test" for what is held out).

    Raises:
        UsageError: an unknown kind or key, with what is like it; a missing one; a value of another type.
        InvalidData: the files are malformed. ParaxError: as the kind says.
    """
    kind = spec.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise UsageError("no such kind of data", where="data.kind", expected=", ".join(KINDS), found=kind,
                         hint=_like(str(kind), KINDS))  # fmt: skip
    keys, make = KINDS[kind]
    given = {name: value for name, value in spec.items() if name not in ("kind", "split")}
    parts = spec.get("split")
    table = _checked(given, keys, "data", also=("kind", "split"))
    cut = None if parts is None else _checked(_table(parts), SPLIT, "data.split")
    if cut and cut["part"] not in ("train", "test"):
        raise UsageError("no such part", where="data.split.part", expected="train or test", found=cut["part"])
    whole = make({name: _placed(value, folder) if name in PLACES else value for name, value in table.items()})
    if cut is None:
        return whole
    train, test = split(whole, cut["fraction"], cut["seed"])
    return train if cut["part"] == "train" else test


def _placed(value: Any, folder: Path | None) -> Any:
    """A path, or a list or table of them, within the folder."""
    if folder is None or value is None:
        return value
    if isinstance(value, list):
        return [_placed(v, folder) for v in value]
    if isinstance(value, Mapping):
        return {name: _placed(v, folder) for name, v in value.items()}
    return str(folder / value) if isinstance(value, (str, Path)) else value


def _table(value: object) -> Table:
    if not isinstance(value, Mapping):
        raise UsageError("no table", where="data.split", expected="fraction, seed and part", found=value)
    return value


def _checked(given: Table, keys: Mapping[str, Key], where: str, also: tuple[str, ...] = ()) -> dict[str, Any]:
    """All keys, defaults filled in. Raises UsageError for an unknown, a missing and an ill-typed one."""
    for name, value in given.items():
        if name not in keys:
            raise UsageError("no such key", where=f"{where}.{name}", expected=", ".join((*also, *keys)) or "none",
                             hint=_like(name, (*also, *keys)))  # fmt: skip
        if not isinstance(value, keys[name].types) or isinstance(value, bool):
            raise UsageError("a value of another kind", where=f"{where}.{name}", expected=keys[name].expected,
                             found=repr(value))  # fmt: skip
    absent = [name for name, key in keys.items() if name not in given and key.default is ...]
    if absent:
        raise UsageError("a key is missing", where=f"{where}.{absent[0]}", expected=keys[absent[0]].expected)
    return {name: given.get(name, key.default) for name, key in keys.items()}


def _like(name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str | None:
    """A question for what was meant."""
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else None
