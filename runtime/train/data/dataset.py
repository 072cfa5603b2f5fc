"""What a data set is: samples by index, of named tensors whose shapes and types are known.

Owns the protocol, data sets of arrays and of any sequence, and splits. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np

from ....errors import InvalidData, ResourceLimit, UsageError
from .order import Shuffle

Batch = dict[str, np.ndarray]
"""Name → tensor [rows, …], contiguous."""
Specs = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]
"""Name → (shape of one sample, element type)."""
MOST_NBYTES = 1 << 40
"""Of a tensor that a file promises: more is taken for damage."""


class Dataset(Protocol):
    """Samples by index. `take` is called by several threads or processes at once."""

    @property
    def specs(self) -> Specs:
        """Shapes and types of one sample."""
        ...

    def __len__(self) -> int: ...

    def take(self, indices: np.ndarray) -> Batch:
        """The samples at `indices` (i64[rows], each in [0, len)), a row each."""
        ...


class ArrayDataset:
    """Arrays in memory, or mapped, whose rows are the samples; lists and torch's tensors become arrays.

    Raises:
        InvalidData: no array, no row, different numbers of rows, masked rows.
    """

    def __init__(self, arrays: Mapping[str, Any], where: str | None = None) -> None:
        arrays = {name: _whole(name, array, where) for name, array in arrays.items()}
        lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
        if not lengths or not min(lengths.values()):
            raise InvalidData("an empty data set", where=where, expected="a sample or more", found="none")
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            raise InvalidData("arrays of different lengths", where=where, expected="as many rows in each", found=found)
        for name, array in arrays.items():
            if array.dtype.hasobject:
                raise InvalidData(f"{name} holds Python objects", where=where, expected="numbers", found=array.dtype)
        self.arrays = arrays

    @property
    def specs(self) -> Specs:
        return {name: (array.shape[1:], array.dtype) for name, array in self.arrays.items()}

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def take(self, indices: np.ndarray) -> Batch:
        return {name: np.ascontiguousarray(array[indices]) for name, array in self.arrays.items()}


def _whole(name: str, given: Any, where: str | None) -> np.ndarray:
    """An array of what was given. Raises InvalidData where it is none."""
    try:
        found = np.asanyarray(given)
    except (ValueError, TypeError) as error:  # a list of lists of different lengths
        raise InvalidData(f"{name} is no array", where=where, expected="numbers", found=str(error)[:100]) from error
    if isinstance(found, np.ma.MaskedArray):
        raise InvalidData(f"{name} is masked", where=where, expected="an array of which every number counts")
    return found


class SequenceDataset:
    """Any object with `len` and samples by index, a `torch.utils.data` data set among them.

    A sample is a mapping, or a tuple of as many values as there are `names`, or one value. Python's numbers become
    i64 and f32. The first sample says the shapes and types; all others must have them.

    Raises:
        UsageError: no length, or names that do not fit. InvalidData: no sample.
    """

    def __init__(self, samples: Any, names: Sequence[str] = ("input", "label")) -> None:
        if not (hasattr(samples, "__len__") and hasattr(samples, "__getitem__")):
            raise UsageError("not a data set", expected="len and samples by index", found=type(samples).__name__,
                             hint="read an iterable with `collected`")  # fmt: skip
        self.samples, self.names = samples, tuple(names)
        if not len(samples):
            raise InvalidData("an empty data set", expected="a sample or more", found="none")
        self._specs: Specs = {name: (value.shape, value.dtype) for name, value in self._sample(0).items()}

    @property
    def specs(self) -> Specs:
        return dict(self._specs)

    def __len__(self) -> int:
        return len(self.samples)

    def take(self, indices: np.ndarray) -> Batch:
        rows = [self._checked(int(index)) for index in indices]
        return {
            name: np.stack([row[name] for row in rows]) if rows else np.empty((0, *shape), dtype)
            for name, (shape, dtype) in self._specs.items()
        }

    def _checked(self, index: int) -> Batch:
        sample = self._sample(index)
        found: Specs = {name: (value.shape, value.dtype) for name, value in sample.items()}
        if found != self._specs:
            raise InvalidData("a sample unlike the first one", where=f"sample {index}", expected=worded(self._specs),
                              found=worded(found))  # fmt: skip
        return sample

    def _sample(self, index: int) -> Batch:
        return named(self.samples[index], self.names, f"sample {index}")


def named(sample: object, names: Sequence[str], where: str) -> Batch:
    """The tensors of one sample. Raises UsageError where there are more or fewer than names."""
    if isinstance(sample, Mapping):
        return {str(name): _array(value) for name, value in sample.items()}
    values = sample if isinstance(sample, (tuple, list)) else (sample,)
    if len(values) != len(names):
        found = f"{len(values)} values"
        raise UsageError("other tensors than names", where=where, expected=", ".join(names), found=found,
                         hint="give the names of a sample's values")  # fmt: skip
    return dict(zip(names, map(_array, values)))


def _array(value: object) -> np.ndarray:
    if isinstance(value, float):
        return np.array(value, np.float32)
    return np.asarray(value)


def collected(
    samples: Iterable[Any], names: Sequence[str] = ("input", "label"), *, most: int = 1 << 24
) -> ArrayDataset:
    """All samples of an iterable, in memory.

    Raises:
        ResourceLimit: more than `most` samples. InvalidData: none, or one unlike the first.
    """
    rows = list(islice(samples, most + 1))
    if len(rows) > most:
        raise ResourceLimit("an iterable without end", expected=f"at most {most} samples", hint="give a sequence")
    whole = SequenceDataset(rows, names)
    return ArrayDataset(whole.take(np.arange(len(rows))))


class Renamed:
    """A data set whose tensors have other names.

    Args:
        names: of the tensors, in order.

    Raises:
        InvalidData: another number of tensors, or one of the names is that of another tensor already.
    """

    def __init__(self, whole: Dataset, names: Sequence[str]) -> None:
        own = list(whole.specs)
        moved = [a for a, b in zip(own, names) if a != b and (a in names or b in own)]
        if len(names) != len(own) or moved:  # one that has its name already is not taken for another
            raise InvalidData("other tensors than are needed", expected=", ".join(names), found=worded(whole.specs))
        self._whole, self._names = whole, dict(zip(whole.specs, names, strict=True))

    @property
    def specs(self) -> Specs:
        return {self._names[name]: spec for name, spec in self._whole.specs.items()}

    def __len__(self) -> int:
        return len(self._whole)

    def take(self, indices: np.ndarray) -> Batch:
        """See Dataset."""
        return {self._names[name]: array for name, array in self._whole.take(indices).items()}


def fitted(dataset: Dataset, names: Sequence[str]) -> Dataset:
    """The data set with the tensors of those names: as it is where it has them, else renamed in order."""
    return dataset if set(names) == set(dataset.specs) else Renamed(dataset, names)


@dataclass(frozen=True)
class Subset:
    """Some samples of another data set. indices: i64[rows]."""

    whole: Dataset
    indices: np.ndarray

    @property
    def specs(self) -> Specs:
        return self.whole.specs

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, indices: np.ndarray) -> Batch:
        return self.whole.take(self.indices[indices])


def split(dataset: Dataset, fraction: float, seed: int = 0) -> tuple[Subset, Subset]:
    """Two disjoint parts that hold every sample: about (1 − fraction) of them, and `fraction`; drawn by the seed.

    Raises:
        UsageError: a fraction that leaves one part empty.
    """
    n_samples = len(dataset)
    n_held = round(n_samples * fraction) if 0 < fraction < 1 else 0
    if not 0 < n_held < n_samples:
        raise UsageError("a part of the split is empty", where="split", expected="a fraction inside (0, 1)",
                         found=f"{fraction} of {n_samples} samples")  # fmt: skip
    order = Shuffle(seed).order(0, n_samples)
    return Subset(dataset, np.sort(order[n_held:])), Subset(dataset, np.sort(order[:n_held]))


def worded(specs: Specs) -> str:
    """Specs as messages show them."""
    return ", ".join(f"{name} {dtype}{list(shape)}" for name, (shape, dtype) in specs.items())
