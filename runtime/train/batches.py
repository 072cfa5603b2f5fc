"""Batches from arrays in memory: shuffled anew each epoch, by the seed and the epoch alone, from any place on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Protocol

import numpy as np

from ...errors import InvalidInput

Batch = dict[str, np.ndarray]


class Batches(Protocol):
    """What a training goes through, epoch after epoch, and where it is."""

    def epoch(self) -> Iterator[Batch]:
        """The batches of the epoch that are left; then the next epoch begins."""

    def state(self) -> dict[str, Any]:
        """Where it is, as JSON can hold it: the next batch is the first that is not done."""

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. Raises InvalidInput where it is of other data."""

    def __len__(self) -> int:
        """Batches of an epoch."""


class ArrayBatches:
    """Whole batches of arrays that have their rows along the first axis; the rows that are left over wait for another
    epoch's order. In order where there is no seed.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], batch: int, seed: int | None = 0) -> None:
        """Raises InvalidInput: no arrays, other numbers of rows, or fewer than a batch has."""
        self._arrays, self._batch, self._seed = dict(arrays), batch, seed
        counts = {name: len(array) if np.ndim(array) else 0 for name, array in self._arrays.items()}
        self.rows = min(counts.values(), default=0)
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{name}: {count}" for name, count in counts.items())
            raise InvalidInput("arrays of other numbers of rows", found=found)
        if self.rows < batch:
            raise InvalidInput("fewer rows than a batch has", expected=f"{batch} or more", found=self.rows)
        self._epoch = self._position = 0

    def __len__(self) -> int:
        return self.rows // self._batch

    def order(self, epoch: int) -> np.ndarray:
        """Row numbers of an epoch."""
        if self._seed is None:
            return np.arange(self.rows)
        return np.random.Generator(np.random.Philox(key=[self._seed, epoch])).permutation(self.rows)

    def epoch(self) -> Iterator[Batch]:
        """See Batches."""
        order = self.order(self._epoch)
        while self._position < len(self):
            rows = order[self._position * self._batch : (self._position + 1) * self._batch]
            self._position += 1
            yield {name: array[rows] for name, array in self._arrays.items()}
        self._epoch, self._position = self._epoch + 1, 0

    def state(self) -> dict[str, Any]:
        """See Batches."""
        return {"epoch": self._epoch, "position": self._position, "rows": self.rows, "batch": self._batch,
                "seed": self._seed}  # fmt: skip

    def resume(self, state: Mapping[str, Any]) -> None:
        """See Batches."""
        for name, own in (("rows", self.rows), ("batch", self._batch), ("seed", self._seed)):
            if state.get(name) != own:
                raise InvalidInput("the checkpoint is of other data", where=name, expected=own, found=state.get(name))
        self._epoch, self._position = int(state["epoch"]), int(state["position"])


class IteratedBatches:
    """Batches of anything that can be gone through again and again, a pass an epoch, such as a torch DataLoader.

    Batches are mappings, or tuples in the order of `names`. Going on from a checkpoint needs passes that are alike.
    """

    def __init__(self, source: Iterable[Any], names: Sequence[str]) -> None:
        """Raises InvalidInput: an iterator, which ends after one pass."""
        if isinstance(source, Iterator):
            raise InvalidInput("an iterator has one pass only", where="batches", expected="a list, a data loader, …",
                               found=type(source).__name__)  # fmt: skip
        self._source, self._names = source, tuple(names)
        self._epoch = self._position = 0

    def __len__(self) -> int:
        return len(self._source) if isinstance(self._source, Sized) else 0

    def epoch(self) -> Iterator[Batch]:
        """See Batches."""
        for i, batch in enumerate(self._source):
            if i >= self._position:
                self._position += 1
                yield self._named(batch)
        self._epoch, self._position = self._epoch + 1, 0

    def _named(self, batch: Any) -> Batch:
        if isinstance(batch, Mapping):
            return {name: np.asarray(value) for name, value in batch.items()}
        if not isinstance(batch, (tuple, list)) or len(batch) != len(self._names):
            raise InvalidInput("not a batch", expected=f"a mapping, or a tuple of {', '.join(self._names)}",
                               found=type(batch).__name__)  # fmt: skip
        return {name: np.asarray(value) for name, value in zip(self._names, batch, strict=True)}

    def state(self) -> dict[str, Any]:
        """See Batches."""
        return {"epoch": self._epoch, "position": self._position}

    def resume(self, state: Mapping[str, Any]) -> None:
        """See Batches."""
        self._epoch, self._position = int(state["epoch"]), int(state["position"])


def in_pieces(arrays: Mapping[str, np.ndarray], rows: int) -> Iterator[Batch]:
    """Every row, in order, so many at a time; the last piece may be smaller."""
    count = min((len(array) for array in arrays.values()), default=0)
    for first in range(0, count, rows):
        yield {name: array[first : first + rows] for name, array in arrays.items()}
