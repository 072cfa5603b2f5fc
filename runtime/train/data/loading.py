"""One batch from its place in the order: what every worker does, thread or process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from ....errors import InvalidData, ParaxError
from .dataset import Batch, Dataset, Specs, worded
from .transforms import Transform, transformed, transformed_specs


class Job(NamedTuple):
    """A batch to load: its number among all that a pool was given, the epoch, the samples."""

    number: int
    epoch: int
    indices: np.ndarray


class Loaded(NamedTuple):
    """A batch, and the seconds that one worker was busy with it."""

    batch: Batch
    seconds: float


class Pool(Protocol):
    """Workers that load jobs and hand the batches back in the order of the jobs."""

    def put(self, job: Job) -> None:
        """Begin a job; at most `depth` of them before the first is taken."""
        ...

    def get(self) -> Loaded:
        """The oldest job's batch. Raises ParaxError as its worker did, ResourceLimit where that was ended."""
        ...

    @property
    def depth(self) -> int: ...

    def close(self) -> None:
        """End the workers. May be called twice."""
        ...


@dataclass(frozen=True)
class Recipe:
    """What makes a batch of samples: the data set, the transforms, the seed of those that are random."""

    dataset: Dataset
    transforms: tuple[Transform, ...]
    seed: int

    def specs(self) -> Specs:
        """Of one row of a batch."""
        return transformed_specs(self.dataset.specs, self.transforms)

    def load(self, job: Job) -> Loaded:
        """The batch.

        Raises:
            ParaxError: as the data set says. InvalidData: another exception of it, or a batch unlike the specs.
        """
        begin = time.perf_counter()
        try:
            rows = self.dataset.take(job.indices)
            batch = transformed(rows, self.transforms, self.seed, job.epoch, job.indices)
        except (ParaxError, MemoryError):
            raise
        except Exception as error:
            raise InvalidData(
                f"loading raised {type(error).__name__}: {error}", where=f"a batch with sample {_first(job.indices)}"
            ) from error
        self._check(batch, job)
        return Loaded(batch, time.perf_counter() - begin)

    def _check(self, batch: Batch, job: Job) -> None:
        expected = {name: ((len(job.indices), *shape), dtype) for name, (shape, dtype) in self.specs().items()}
        found = {name: (values.shape, values.dtype) for name, values in batch.items()}
        if found != expected:
            raise InvalidData("a batch of other tensors than promised", expected=worded(expected), found=worded(found),
                              where=f"a batch with sample {_first(job.indices)}")  # fmt: skip


def _first(indices: np.ndarray) -> str:
    return str(indices[0]) if len(indices) else "none"
