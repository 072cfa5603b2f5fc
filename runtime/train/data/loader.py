"""Batches of a data set, epoch after epoch, loaded ahead of training by threads or processes.

Owns the place in the order, which a run is resumed at, and the number of workers. What comes depends on the seed and
the place alone, never on the workers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType

import numpy as np

from ....errors import UsageError
from ..arguments import require_whole
from .dataset import Batch, Dataset, Specs
from .loading import Job, Pool, Recipe
from .order import Shuffle
from .processes import ProcessPool
from .threads import Inline, ThreadPool
from .transforms import Transform
from .workers import Balance, Times, measured_speedups, workers_needed

KINDS = ("threads", "processes")
MOST_WORKERS = 256
PROBE_SECONDS = 0.5
"""About so long each number of workers is measured for."""


class Loader:
    """Iterating gives the batches that are left of the epoch; then the next epoch begins.

    Args:
        dataset: where samples come from. batch: rows.
        shuffle: the samples of each epoch in an order of its own, else as they are.
        seed: of the order and of random transforms.
        transforms: in this order.
        workers: threads or processes that load; 0: the caller's thread does.
        kind: "threads" or "processes".
        prefetch: batches that lie ready.
        drop_last: leave out the rows at the end that fill no batch, else the last batch has fewer rows.

    Raises:
        UsageError: an argument out of its range, a transform that does not fit the data, an epoch without a batch.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        transforms: Sequence[Transform] = (),
        workers: int = 0,
        kind: str = "threads",
        prefetch: int = 2,
        drop_last: bool = True,
    ) -> None:
        require_whole("batch", batch, 1)
        require_whole("workers", workers, 0, MOST_WORKERS)
        require_whole("prefetch", prefetch)
        require_whole("seed", seed)
        if kind not in KINDS:
            raise UsageError("no such workers", where="kind", expected=" or ".join(KINDS), found=repr(kind)[:60])
        self.recipe = Recipe(dataset, tuple(transforms), seed)
        self.specs: Specs = self.recipe.specs()
        self.batch, self.shuffle, self.kind, self.prefetch, self.drop_last = batch, shuffle, kind, prefetch, drop_last
        self._workers, self._epoch, self._place = workers, 0, 0
        self._pool: Pool | None = None
        self._sample_seconds: float | None = None
        self._speedups: tuple[float, ...] = ()
        if not len(self):
            raise UsageError("an epoch without a batch", expected=f"{batch} samples or more", found=len(dataset),
                             hint="a smaller batch, or drop_last=False")  # fmt: skip

    def __len__(self) -> int:
        """Batches of an epoch."""
        n_samples = len(self.recipe.dataset)
        return n_samples // self.batch if self.drop_last else -(-n_samples // self.batch)

    @property
    def workers(self) -> int:
        """How many load now."""
        return self._workers

    def __iter__(self) -> Iterator[Batch]:
        """The batches that are left of this epoch. A loop that is left early goes on where it was, in the next one."""
        pool, workers = self._start(), self._workers
        epoch, begun, number = self._epoch, self._place, 0
        try:
            while self._epoch == epoch and self._pool is pool:
                if workers != self._workers:
                    pool, workers = self._start(), self._workers
                    begun, number = self._place, 0
                while begun < len(self) and begun - self._place < pool.depth:
                    pool.put(Job(number, epoch, self._samples(epoch, begun)))
                    begun, number = begun + 1, number + 1
                loaded = pool.get()
                rows = len(next(iter(loaded.batch.values()), ()))
                self._note(loaded.seconds / max(rows, 1) * self._ease(workers))
                self._step()
                yield loaded.batch
        finally:
            if self._pool is pool:
                self.close()

    def _step(self) -> None:
        self._place += 1
        if self._place == len(self):
            self._epoch, self._place = self._epoch + 1, 0

    def _ease(self, workers: int) -> float:
        """Seconds of a sample on one worker alone over those on each of several, which hinder each other: S(n)/n."""
        return self._speedups[workers - 1] / workers if 0 < workers <= len(self._speedups) else 1.0

    def _note(self, seconds: float) -> None:
        """Seconds of one sample, averaged over the last batches, as caches fill and files differ."""
        before = self._sample_seconds
        self._sample_seconds = seconds if before is None else 0.9 * before + 0.1 * seconds

    def _samples(self, epoch: int, place: int) -> np.ndarray:
        """Of one batch, i64[rows]."""
        n_samples, begin = len(self.recipe.dataset), place * self.batch
        if self.shuffle:
            return Shuffle(self.recipe.seed).order(epoch, n_samples, begin, begin + self.batch)
        return np.arange(begin, min(begin + self.batch, n_samples), dtype=np.int64)

    def _start(self) -> Pool:
        """A new pool: jobs of an iteration that was left must not come out of the next one."""
        self.close()
        self._pool = self._made(self._workers)
        return self._pool

    def _made(self, workers: int) -> Pool:
        if not workers:
            return Inline(self.recipe)
        if self.kind == "threads":
            return ThreadPool(self.recipe, workers, self.prefetch)
        return ProcessPool(self.recipe, workers, self.prefetch, self.batch)

    def state(self) -> dict[str, int]:
        """What `resume` continues from at the batch after the last that was taken: numbers that JSON holds."""
        n_samples = len(self.recipe.dataset)
        return {"seed": self.recipe.seed, "epoch": self._epoch, "place": self._place, "batch": self.batch,
                "samples": n_samples, "shuffle": int(self.shuffle), "drop_last": int(self.drop_last)}  # fmt: skip

    def resume(self, state: Mapping[str, int]) -> None:
        """Go on at a state, with the same batches, whatever the number of workers.

        Raises:
            UsageError: a state of another data set, seed, batch or order.
        """
        own = self.state()
        others = [name for name in own if name not in ("epoch", "place") and state.get(name) != own[name]]
        epoch, place = state.get("epoch"), state.get("place")
        if others or not isinstance(epoch, int) or not isinstance(place, int):
            name = others[0] if others else "epoch"
            raise UsageError("the state of another loader", where=name, expected=own[name], found=state.get(name))
        if epoch < 0 or not 0 <= place < len(self):
            raise UsageError("no place in the data", where="place", expected=f"0 to {len(self) - 1}", found=place)
        self.close()
        self._epoch, self._place = epoch, place

    def adapt(self, step_seconds: float, most: int | None = None) -> Balance:
        """Choose the number of workers for steps of so many seconds; the running iteration goes on with the new ones.

        Speed-ups of 1, 2, … workers are measured the first time, half a second each.

        Args:
            step_seconds: of one training step without waiting for data. most: workers; all cores otherwise.
        """
        most = most or len(os.sched_getaffinity(0))
        if len(self._speedups) < most:
            self._sample_seconds = None  # what was noted of several workers says nothing of one
            self._speedups = measured_speedups([self._rate(workers) for workers in range(1, most + 1)])
        begin = time.perf_counter()
        self._samples(self._epoch, self._place)
        listing = time.perf_counter() - begin
        times = Times(listing, self._sample_seconds or 0.0, step_seconds, self._speedups[:most])
        before, self._workers = self._workers, workers_needed(times, self.batch)
        return Balance(self._workers, before, most, self.batch, times)

    def _rate(self, workers: int) -> float:
        """Samples a second of so many workers, on batches of an epoch of their own."""
        pool = self._made(workers)
        try:
            ahead, loaded, begin = 0, 0, time.perf_counter()
            while loaded < 2 * workers or time.perf_counter() - begin < PROBE_SECONDS:
                while ahead - loaded < pool.depth:
                    pool.put(Job(ahead, self._epoch, self._samples(self._epoch, ahead % len(self))))
                    ahead += 1
                if workers == 1:
                    self._note(pool.get().seconds / self.batch)
                else:
                    pool.get()
                loaded += 1
            return loaded * self.batch / (time.perf_counter() - begin)
        finally:
            pool.close()

    def close(self) -> None:
        """End the workers; iterating again starts new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
