"""Loader workers that are processes: for data sets whose loading is Python. Batches come back through shared memory.

The memory is anonymous and mapped before the fork, so that no name of it can be left behind; a worker ends when the
pipe to its parent closes, or when it finds another parent, so that no process is left behind, however the parent ended.
"""

from __future__ import annotations

import mmap
import os
import signal
import warnings
from collections import deque
from itertools import accumulate
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess

import numpy as np

from ....errors import InvalidData, ParaxError, ResourceLimit
from .dataset import Batch, Specs
from .loading import Job, Loaded, Recipe

LINE = 64
"""Tensors begin at multiples of so many bytes."""
POLL_SECONDS = 1.0
"""How often an idle worker looks whether its parent lives."""
PATIENCE_SECONDS = 5.0
"""For a worker to end by itself before it is killed."""


class ProcessPool:
    """Forked processes.

    Args:
        workers: how many. prefetch: batches that lie ready besides those in the making. rows: at most, of a batch.

    Raises:
        ResourceLimit: no memory for the batches.
    """

    def __init__(self, recipe: Recipe, workers: int, prefetch: int, rows: int) -> None:
        self._specs, self._depth, self._rows = recipe.specs(), workers + prefetch, rows
        self._slot_nbytes = max(sum(_sizes(self._specs, rows)), LINE)
        nbytes = self._slot_nbytes * self._depth
        try:
            self._memory = mmap.mmap(-1, nbytes)
        except (OSError, OverflowError, MemoryError, ValueError) as error:
            raise ResourceLimit("no memory for the loader's batches", found=f"{nbytes} bytes for {self._depth} batches",
                                hint="fewer rows, workers or batches ahead") from error  # fmt: skip
        self._jobs: deque[Job] = deque()
        self._processes: list[ForkProcess] = []
        self._pipes: list[Connection] = []
        context = get_context("fork")
        for _ in range(workers):
            here, there = context.Pipe()
            arguments = (recipe, self, there, [*self._pipes, here], os.getpid())
            process = context.Process(target=_serve, args=arguments, daemon=True, name="parax-loader")
            with warnings.catch_warnings():  # a forked worker touches no thread or lock of its parent
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            there.close()
            self._processes.append(process)
            self._pipes.append(here)

    @property
    def depth(self) -> int:
        return self._depth

    @property
    def pids(self) -> list[int]:
        """Of the workers."""
        return [process.pid or 0 for process in self._processes]

    def put(self, job: Job) -> None:
        self._jobs.append(job)
        number = job.number % len(self._pipes)
        try:
            self._pipes[number].send(job)
        except OSError as error:
            raise self._ended(number) from error

    def get(self) -> Loaded:
        job = self._jobs.popleft()
        number = job.number % len(self._pipes)
        pipe, process = self._pipes[number], self._processes[number]
        ready = wait([pipe, process.sentinel])
        try:
            answer = pipe.recv() if pipe in ready else None
        except (EOFError, OSError) as error:
            raise self._ended(number) from error
        if answer is None:
            raise self._ended(number)
        if isinstance(answer, Exception):
            raise answer
        views = self.slot(job.number, len(job.indices))
        return Loaded({name: view.copy() for name, view in views.items()}, answer)

    def slot(self, number: int, rows: int) -> Batch:
        """The tensors of the slot of a job, as views of the shared memory."""
        base = number % self._depth * self._slot_nbytes
        views: Batch = {}
        for (name, (shape, dtype)), skip in zip(self._specs.items(), _starts(self._specs, self._rows)):
            count = rows * int(np.prod(shape, dtype=np.int64))
            flat = np.frombuffer(self._memory, dtype, count, base + skip)
            views[name] = flat.reshape(rows, *shape)
        return views

    def _ended(self, number: int) -> ResourceLimit:
        """The error for a worker that is gone; the others are ended, too."""
        process = self._processes[number]
        process.join(PATIENCE_SECONDS)
        code, pid = process.exitcode, process.pid
        self.close()
        how = f"by signal {signal.Signals(-code).name}" if code and code < 0 else f"with exit code {code}"
        return ResourceLimit(f"loader process {pid} ended {how}", expected="it to load batches until it is closed",
                             hint="if the system ended it for its memory: fewer workers, or fewer rows")  # fmt: skip

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.terminate()  # it may be in the middle of a batch that nobody wants
        for process in self._processes:
            process.join(PATIENCE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        self._processes, self._pipes = [], []
        self._jobs.clear()


def _sizes(specs: Specs, rows: int) -> list[int]:
    """Bytes of each tensor of so many rows, rounded up to lines."""
    sizes = [rows * int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in specs.values()]
    return [-(-size // LINE) * LINE for size in sizes]


def _starts(specs: Specs, rows: int) -> list[int]:
    """Where each tensor begins in a slot, in bytes."""
    return [0, *accumulate(_sizes(specs, rows))][: len(specs)]


def _serve(recipe: Recipe, pool: ProcessPool, pipe: Connection, others: list[Connection], parent: int) -> None:
    """A worker's life: load what comes until the pipe closes or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()  # the parent's ends: while one is open here, nobody sees the parent's end
    try:
        while os.getppid() == parent:
            if pipe.poll(POLL_SECONDS):
                pipe.send(_answer(recipe, pool, pipe.recv()))
    except (EOFError, OSError):
        return  # the parent closed its end, or is gone


def _answer(recipe: Recipe, pool: ProcessPool, job: Job) -> float | Exception:
    """The seconds that the batch took, which lies in its slot then; or why there is none."""
    try:
        batch, seconds = recipe.load(job)
        for name, view in pool.slot(job.number, len(job.indices)).items():
            view[...] = batch[name]
    except ParaxError as error:
        return error
    except MemoryError:
        return ResourceLimit("no memory for a batch in a loader process", hint="fewer rows or workers")
    except Exception as error:
        return InvalidData(f"a loader process raised {type(error).__name__}: {error}")
    return seconds
