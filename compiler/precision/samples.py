"""Calibration data as requests of a model: read from files or arrays, checked against its inputs, and divided.

Owns which part ranges are observed on and which is held back for the accuracy gate. Knows no plan.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InvalidData, UsageError
from ...runtime.train.data.arrays import npy_dataset, npz_dataset
from ...runtime.train.data.dataset import ArrayDataset
from ..ir.graph import Graph
from ..ir.types import TensorType

LABELS = ("label", "labels")
MOST_ROWS = 8  # of a request whose batch is open: every activation of one is in memory at once
FEWEST_REQUESTS = 2  # one to observe ranges on, one to judge by
SEED = 0  # of the division
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Request:
    """One call of the model.

    Attributes:
        inputs: by name, as a session takes them. others: what comes with them: labels, and what a script asks for.
        n_samples: rows, where the model's batch counts them, else 1.
    """

    inputs: dict[str, np.ndarray]
    others: dict[str, np.ndarray]
    n_samples: int

    @property
    def labels(self) -> np.ndarray | None:
        """The classes that are right, i64 of any shape; None where nobody says."""
        return next((self.others[name] for name in LABELS if name in self.others), None)


@dataclass(frozen=True)
class Samples:
    """Requests in two parts.

    Attributes:
        observed: that ranges are found on. held_back: that accuracy is judged on.
    """

    observed: tuple[Request, ...]
    held_back: tuple[Request, ...]

    @property
    def has_labels(self) -> bool:
        return all(request.labels is not None for request in self.held_back)


def count(requests: Sequence[Request]) -> int:
    """How many samples some requests have."""
    return sum(request.n_samples for request in requests)


def read_samples(data: str | Path | Mapping[str, Any], graph: Graph, *, takes_others: bool = False) -> Samples:
    """Calibration data, divided in two halves by a seed.

    Args:
        data: a .npz file whose arrays are called like the inputs; a .npy file, for a model of one input; a folder of
            such files; or arrays by name. Arrays have as many samples along their first axis, which is either the
            batch of the inputs, or one axis more than they have: then each sample is a request of its own.
        graph: of the model. takes_others: whether arrays beside inputs and labels are welcome.

    Raises:
        UsageError: a wrong name, shape or type. InvalidData: malformed files, fewer than two requests.
    """
    inputs = {v.name: v.tensor for v in graph.inputs}
    datasets = _opened(data, list(inputs))
    where = str(data) if isinstance(data, (str, Path)) else "the calibration data"
    for dataset in datasets:
        _check_names(dataset.arrays, graph, takes_others, where)
    stacked, rows = _division(datasets[0].arrays, inputs, where)
    for dataset in datasets:
        for name, array in dataset.arrays.items():
            if name in inputs:
                _check(name, array, inputs[name], stacked, where)
    return _divided(datasets, set(inputs), stacked, rows, where)


def _opened(data: str | Path | Mapping[str, Any], names: list[str]) -> list[ArrayDataset]:
    if isinstance(data, Mapping):
        return [ArrayDataset(data, "the calibration data")]
    path = Path(data)
    files = sorted(p for p in path.iterdir() if p.suffix in (".npz", ".npy")) if path.is_dir() else [path]
    if not files:
        raise InvalidData("no calibration data", where=str(path), expected=".npz or .npy files", found="none")
    return [_opened_file(file, names) for file in files]


def _opened_file(path: Path, names: list[str]) -> ArrayDataset:
    if not path.exists():
        raise UsageError("no such file or folder", where=str(path), expected="calibration data: .npz, .npy or a folder")
    if path.suffix == ".npy":
        if len(names) != 1:
            raise UsageError("one array for several inputs", where=str(path), expected=", ".join(names),
                             hint="give a .npz file with an array for each")  # fmt: skip
        return npy_dataset({names[0]: path})
    return npz_dataset(path)


def _check_names(arrays: Arrays, graph: Graph, takes_others: bool, where: str) -> None:
    wanted = [v.name for v in graph.inputs if v.name not in graph.defaults]
    known = [v.name for v in graph.inputs]
    unknown = [name for name in arrays if name not in (*known, *LABELS)]
    if unknown and not takes_others:
        near = difflib.get_close_matches(unknown[0], known, 1)
        raise UsageError("no such input", where=f"{where}, array {unknown[0]}", expected=", ".join(known),
                         found=unknown[0], hint=f"did you mean {near[0]}?" if near else None)  # fmt: skip
    absent = [name for name in wanted if name not in arrays]
    if absent:
        raise UsageError("an input without calibration data", where=where, expected=", ".join(wanted),
                         found=", ".join(arrays), hint=f"add an array called {absent[0]}")  # fmt: skip


def _division(arrays: Arrays, inputs: Mapping[str, TensorType], where: str) -> tuple[bool, int | None]:
    """Whether samples are requests of their own, else how many rows make one (None: any number)."""
    given = {name: inputs[name] for name in arrays if name in inputs}
    if all(arrays[name].ndim == t.rank + 1 for name, t in given.items()):
        return True, None
    first = {str(t.dims[0]): t.dims[0] for t in given.values() if t.rank}
    if len(first) != 1 or not all(t.rank for t in given.values()):
        shapes = ", ".join(f"{name}: {t}" for name, t in given.items())
        raise UsageError("the inputs have no batch in common", where=where, expected="arrays of one axis more",
                         found=shapes, hint="stack whole requests along a new first axis")  # fmt: skip
    size = next(iter(first.values()))
    return False, size if isinstance(size, int) else None


def _check(name: str, array: np.ndarray, t: TensorType, stacked: bool, where: str) -> None:
    place = f"{where}, array {name}"
    if array.dtype != t.dtype.numpy:
        raise UsageError("another element type than the input's", where=place, expected=t.dtype.name, found=array.dtype)
    shape, dims = (array.shape[1:], t.dims) if stacked else (array.shape[1:], t.dims[1:])
    fits = len(shape) == len(dims) and all(n == d for n, d in zip(shape, dims, strict=True) if isinstance(d, int))
    if not fits:
        shown = ["samples", *map(str, dims)]
        raise UsageError("another shape than the input's", where=place, expected=f"[{', '.join(shown)}]",
                         found=list(array.shape))  # fmt: skip
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidData("NaN or infinity in the calibration data", where=place, expected="finite numbers")


def _divided(
    datasets: Sequence[ArrayDataset], inputs: set[str], stacked: bool, rows: int | None, where: str
) -> Samples:
    total = sum(len(dataset) for dataset in datasets)
    if rows is None:
        rows = 1 if stacked else max(1, min(MOST_ROWS, total // (2 * FEWEST_REQUESTS)))
    n_requests = total // rows
    if n_requests < FEWEST_REQUESTS:
        raise InvalidData("too little calibration data", where=where, expected=f"at least {FEWEST_REQUESTS * rows} "
                          "samples: half of them observe ranges, half judge the accuracy", found=total)  # fmt: skip
    order = np.random.default_rng(SEED).permutation(total)[: n_requests * rows].reshape(n_requests, rows)
    requests = [_request(datasets, indices, inputs, stacked) for indices in order]
    return Samples(tuple(requests[n_requests // 2 :]), tuple(requests[: n_requests // 2]))


def _request(datasets: Sequence[ArrayDataset], indices: np.ndarray, inputs: set[str], stacked: bool) -> Request:
    found: dict[str, list[np.ndarray]] = {}
    for index in indices:
        for dataset in datasets:
            if index < len(dataset):
                for name, array in dataset.arrays.items():
                    found.setdefault(name, []).append(array[index])
                break
            index -= len(dataset)
    arrays = {name: parts[0] if stacked else np.stack(parts) for name, parts in found.items()}
    taken = {name: np.ascontiguousarray(array) for name, array in arrays.items() if name in inputs}
    return Request(taken, {n: a for n, a in arrays.items() if n not in inputs}, len(indices))
