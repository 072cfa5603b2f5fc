"""An instance: one or more pinned threads with an arena of their own, that run one plan. Knows no requests.

The thread that calls leads the instance where it can (no hand-off); an instance that works off another's queue is led
by its own thread. Threads start when they are first needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Sequence

import numpy as np

from ..errors import ResourceLimit
from .bindings import Binding
from .handoff import STOP, Worker
from .memory import address_of, aligned_bytes
from .native import MachineCode
from .stamps import TRACE_OFFSET
from .sync import sync_nbytes

_LIBC = ctypes.CDLL(None)
_N_SPINS = 2000  # tries, at most; the code stops by the clock after 40 µs (handoff.py): longer than most hand-offs take


class Instance:
    """Threads, arena and native entry of one instance; one request at a time uses it.

    Attributes:
        cores: the core of each thread.
        worker: ready argument of `code.team`.
        leader: the native worker of the calling thread.
        io: native array of the current step's pointers, as indexable unsigned 64-bit integers, and its address.
        binding: what the worker's dims are set to.
        sync: the memory in which the threads meet and report failures (see sync.py).
    """

    def __init__(
        self, code: MachineCode, weights: int, cores: Sequence[int], n_io: int, left: Callable[[], None]
    ) -> None:
        """Allocate. `start` must follow.

        Args:
            code: the plan's code.
            weights: address of the weights.
            cores: one core per thread.
            n_io: the most inputs and outputs of any native step.
            left: called by the leading thread when it is done with another's queue, if it was told to say that.
        """
        self.code, self.cores, self._left = code, tuple(cores), left
        nt = len(self.cores)
        self._memory = aligned_bytes(ctypes.sizeof(Worker) * nt)
        self._workers = (Worker * nt).from_address(address_of(self._memory))
        self.sync = aligned_bytes(sync_nbytes(nt))
        self._arena = aligned_bytes(0)
        self._io = (ctypes.c_uint64 * max(n_io, 1))()
        self.io = memoryview(self._io).cast("B").cast("Q")
        self.io_address = ctypes.addressof(self._io)
        self.worker_address = ctypes.addressof(self._workers)
        self.worker = ctypes.c_void_p(self.worker_address)
        self.binding: Binding | None = None
        self.arena_nbytes = 0
        self._logs: np.ndarray | None = None
        self._threads: dict[int, threading.Thread] = {}
        for tid, worker in enumerate(self._workers):
            worker.weights, worker.sync = weights, address_of(self.sync)
            worker.tid, worker.nt, worker.io = tid, nt, self.io_address
            worker.n_spins, worker.core = _N_SPINS, self.cores[tid]
            _LIBC.sem_init(ctypes.c_void_p(self._address(tid, "wake")), 0, 0)
            _LIBC.sem_init(ctypes.c_void_p(self._address(tid, "done")), 0, 0)
        self.leader = self._workers[0]
        self.leader.arena = address_of(self._arena)

    def _address(self, tid: int, field: str) -> int:
        return self.worker_address + tid * ctypes.sizeof(Worker) + int(getattr(Worker, field).offset)

    def start(self) -> None:
        """Start the followers.

        Raises:
            ResourceLimit: the system gives no more threads.
        """
        for tid in range(1, len(self.cores)):
            self._start(tid)

    def reserve(
        self, arena_nbytes: int, scratch_nbytes: int, afford: Callable[[int, str], None] | None = None
    ) -> None:
        """Make the arena large enough for that and for every thread's scratch memory. Its content is lost.

        Args:
            afford: asked before more is allocated.

        Raises:
            ResourceLimit: the machine has not that much memory.
        """
        nbytes = arena_nbytes + scratch_nbytes * len(self.cores)
        if nbytes <= self.arena_nbytes:
            return
        if afford is not None:
            afford(nbytes - self.arena_nbytes, "an instance's arena")
        if nbytes <= self._arena.nbytes:
            self.arena_nbytes = nbytes
            return
        room = nbytes + nbytes // 4 if self.arena_nbytes else nbytes  # calls that grow again and again fault no pages
        try:
            arena = aligned_bytes(room)
        except (MemoryError, OSError, OverflowError) as error:
            raise ResourceLimit("no memory for an instance's arena", found=f"{nbytes} bytes") from error
        address = address_of(arena)  # before: no call, and so no Ctrl-C, parts the memory from its address
        self._arena, self.arena_nbytes, self.leader.arena = arena, nbytes, address

    def bind(self, binding: Binding, segment: int) -> None:
        """Make the worker ready for whole requests of one shape."""
        self.reserve(binding.arena_nbytes, binding.scratch_nbytes)
        self.point(segment, binding.dims_address)
        self.binding = binding

    def point(self, segment: int, dims_address: int, io_address: int = 0) -> None:
        """Make the worker ready for a segment with dimensions at an address, and pointers, if not its own."""
        self.binding = None
        self.leader.run = self.code.segments[segment]
        self.leader.io = io_address or self.io_address
        self.leader.dims = dims_address

    def begin_after(self, nanoseconds: int) -> None:
        """Begin to work off a queue so long after it began."""
        self.leader.delay = nanoseconds

    def ready_for(self, arena_nbytes: int, scratch_nbytes: int) -> None:
        """Make it able to work off another's queue: memory, and a leading thread of its own.

        Raises:
            ResourceLimit: there is no more of either.
        """
        self.binding = None  # native code sets the worker
        self.reserve(arena_nbytes, scratch_nbytes)
        if 0 not in self._threads:
            self._start(0)

    def is_ready_for(self, arena_nbytes: int, scratch_nbytes: int) -> bool:
        """Whether it is."""
        return 0 in self._threads and arena_nbytes + scratch_nbytes * len(self.cores) <= self.arena_nbytes

    @property
    def is_busy(self) -> bool:
        """Whether it works off another's queue."""
        return bool(self.leader.busy)

    @property
    def status(self) -> int:
        """The answer of the segment that it ran behind a queue."""
        return int(self.leader.status)

    def followers(self) -> dict[int, int]:
        """The addresses of the followers' workers by their cores."""
        size = ctypes.sizeof(Worker)
        return {self.cores[tid]: self.worker_address + tid * size for tid in range(1, len(self.cores))}

    @property
    def told(self) -> int:
        """What it was told last since it joined; see handoff.py."""
        return int(self.leader.leave)

    def tell(self, what: int) -> None:
        """Tell it to stay, to leave between two pieces, or to say when it is done."""
        self.leader.leave = what

    def record_into(self, logs: np.ndarray | None) -> None:
        """Have the threads stamp their kernels' times into these logs, see stamps.py; None: no more.

        A stamp may be on its way: the last logs live on until there are others.
        """
        address = 0 if logs is None else address_of(logs)
        self.sync[TRACE_OFFSET : TRACE_OFFSET + 8].view(np.int64)[0] = address
        self._logs = logs if logs is not None else self._logs

    def clear_failure(self) -> None:
        """Forget the error that native code left in the sync block, and what it counted there until then."""
        self.sync[:TRACE_OFFSET] = 0
        self.sync[TRACE_OFFSET + 8 :] = 0

    def _start(self, tid: int) -> None:
        thread = threading.Thread(
            target=_serve,
            args=(self.code, self.worker_address + tid * ctypes.sizeof(Worker), self.cores[tid], self._left),
            name=f"parax-core{self.cores[tid]}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise ResourceLimit("the system gives no more threads", found=error) from error
        self._threads[tid] = thread

    def stop(self) -> None:
        """End the instance's threads; no request may be running on it."""
        for tid in self._threads:
            self._workers[tid].command = STOP
            _LIBC.sem_post(ctypes.c_void_p(self._address(tid, "wake")))
        for thread in self._threads.values():
            thread.join()
        self._threads.clear()


def _serve(code: MachineCode, worker: int, core: int, left: Callable[[], None]) -> None:
    """A thread's life: pinned to its core, in native code until told to stop, or to say that it is done."""
    with contextlib.suppress(OSError):  # where pinning is forbidden, the thread runs wherever the system puts it
        os.sched_setaffinity(0, {core})
    while code.worker(worker):
        left()
