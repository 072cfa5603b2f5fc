"""What a training goes through, epoch after epoch: a loader, or anything else that gives batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Protocol

import numpy as np

from ...errors import InvalidInput

Batch = dict[str, np.ndarray]


class Batches(Protocol):
    """What a training goes through, epoch after epoch, and where it is."""

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the epoch that are left; then the next epoch begins."""

    def state(self) -> dict[str, Any]:
        """Where it is, as JSON can hold it: the next batch is the first that is not done."""

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. Raises InvalidInput where it is of other data."""

    def __len__(self) -> int:
        """Batches of an epoch; 0 where it is not known."""


def named(batch: Any, names: Sequence[str]) -> Batch:
    """A batch as arrays by name: of a mapping, or of a tuple in the order of `names`; torch's tensors are taken, too.

    Raises:
        InvalidInput: neither.
    """
    if isinstance(batch, Mapping):
        return {name: np.asarray(value) for name, value in batch.items()}
    if not isinstance(batch, (tuple, list)) or len(batch) != len(names):
        raise InvalidInput("not a batch", expected=f"a mapping, or a tuple of {', '.join(names)}",
                           found=type(batch).__name__)  # fmt: skip
    return {name: np.asarray(value) for name, value in zip(names, batch, strict=True)}


class IteratedBatches:
    """Batches of anything that can be gone through again and again, a pass an epoch, such as a torch DataLoader.

    Batches are mappings, or tuples in the order of `names`. Going on from a checkpoint needs passes that are alike.
    """

    def __init__(self, source: Iterable[Any], names: Sequence[str]) -> None:
        """Raises InvalidInput: nothing to go through; an iterator, which ends after one pass."""
        if not isinstance(source, Iterable):
            raise InvalidInput("no batches", expected="arrays by name, a data set, a list, a data loader, …",
                               found=type(source).__name__)  # fmt: skip
        if isinstance(source, Iterator):
            raise InvalidInput("an iterator has one pass only", where="batches", expected="a list, a data loader, …",
                               found=type(source).__name__)  # fmt: skip
        self._source, self._names = source, tuple(names)
        self._epoch = self._position = 0

    def __len__(self) -> int:
        return len(self._source) if isinstance(self._source, Sized) else 0

    def __iter__(self) -> Iterator[Batch]:
        for i, batch in enumerate(self._source):
            if i >= self._position:
                self._position += 1
                yield named(batch, self._names)
        self._epoch, self._position = self._epoch + 1, 0

    def state(self) -> dict[str, Any]:
        """See Batches."""
        return {"epoch": self._epoch, "position": self._position}

    def resume(self, state: Mapping[str, Any]) -> None:
        """See Batches."""
        if set(state) != set(self.state()):
            raise InvalidInput("a state of another kind of data", where="resume", found=", ".join(sorted(state)),
                               expected=", ".join(self.state()))  # fmt: skip
        self._epoch, self._position = int(state["epoch"]), int(state["position"])
