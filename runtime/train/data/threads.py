"""Loader workers that are threads, or the caller's own: for data sets that wait for files or compute in native code."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

from .loading import Job, Loaded, Recipe


class Inline:
    """No worker: batches are loaded when they are asked for."""

    depth = 1

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._jobs: deque[Job] = deque()

    def put(self, job: Job) -> None:
        self._jobs.append(job)

    def get(self) -> Loaded:
        return self._recipe.load(self._jobs.popleft())

    def close(self) -> None:
        self._jobs.clear()


class ThreadPool:
    """Threads. workers: how many; prefetch: batches that lie ready besides those in the making."""

    def __init__(self, recipe: Recipe, workers: int, prefetch: int) -> None:
        self._recipe, self._depth = recipe, workers + prefetch
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="parax-loader")
        self._jobs: deque[Future[Loaded]] = deque()

    @property
    def depth(self) -> int:
        return self._depth

    def put(self, job: Job) -> None:
        self._jobs.append(self._threads.submit(self._recipe.load, job))

    def get(self) -> Loaded:
        return self._jobs.popleft().result()

    def close(self) -> None:
        self._jobs.clear()
        self._threads.shutdown(wait=True, cancel_futures=True)
