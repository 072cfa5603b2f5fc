"""A loader that finds its number of workers while it is gone through: the fewest that keep up with training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median

from .dataset import Batch
from .loader import Loader
from .workers import Balance

FIRST = 8  # batches after which workers are counted; the first few of them may be slower
EVERY = 256  # batches between later looks: files and caches differ along the data
RECENT = 6  # of them a step's time is told from


class AdaptiveLoader:
    """Goes through a loader; the batches and their order are its own.

    Args:
        loader: of one worker or more. most: workers; all cores otherwise. tell: is handed each new number of workers
            with the measurements that it follows from.
    """

    def __init__(self, loader: Loader, tell: Callable[[Balance], None], most: int | None = None) -> None:
        self.loader, self._tell, self._most = loader, tell, most
        self._taken = 0
        self._seconds: list[float] = []

    def __len__(self) -> int:
        """See Batches."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        """See Batches. The time until the next batch is asked for is that of a step."""
        for batch in self.loader:
            began = time.perf_counter()
            yield batch
            self._note(time.perf_counter() - began)

    def _note(self, seconds: float) -> None:
        self._taken, self._seconds = self._taken + 1, [*self._seconds[1 - RECENT :], seconds]
        if self._taken != FIRST and self._taken % EVERY:
            return
        balance = self.loader.adapt(median(self._seconds), self._most)
        if balance.workers != balance.before or self._taken == FIRST:
            self._tell(balance)

    def state(self) -> dict[str, int]:
        """See Batches."""
        return self.loader.state()

    def resume(self, state: Mapping[str, int]) -> None:
        """See Batches."""
        self.loader.resume(state)
