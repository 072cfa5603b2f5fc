"""The cores on which kernel IR is interpreted: whose turn it is, and whether what one reads another surely wrote.

Owns interleavings and the order of memory. Cores take turns: one runs until it touches an atomic word or waits, then
chance, from a seed, says who is next. Memory itself is never stale here; instead every plain access is held against
those of other cores: unless releases and acquires order the two, it is an error (vector clocks, as in FastTrack by
Flanagan and Freund, 2009), on every machine and in every interleaving that reaches both. It must not know what
operations mean.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

import numpy as np

from ...errors import InternalError

MOST_PAUSES = 100  # of every core in a row while nobody writes: then nobody ever will


class Access(Enum):
    """What a core does to a byte: whether it writes, whether as part of an atomic word."""

    READ = (False, False)
    WRITE = (True, False)
    ATOMIC_READ = (False, True)
    ATOMIC_WRITE = (True, True)

    def conflicts(self, other: Access) -> bool:
        """Whether the order of the two must be known."""
        (writes, is_atomic), (also_writes, also_atomic) = self.value, other.value
        return (writes or also_writes) and not (is_atomic and also_atomic)


@dataclass(frozen=True)
class Pointer:
    """Byte `offset` of the bytes of `memory` (uint8), which a kernel may read and, unless frozen, write."""

    memory: np.ndarray
    offset: int = 0
    name: str = "memory"

    def moved(self, nbytes: int) -> Pointer:
        """So many bytes further; only what is read or written must lie inside."""
        return Pointer(self.memory, self.offset + nbytes, self.name)

    @property
    def address(self) -> int:
        """Of the memory's first byte, in this process: the same for all views of it."""
        return int(self.memory.__array_interface__["data"][0])


class _Stopped(Exception):
    """Another core has failed."""


class Cores:
    """Cores that share memory.

    Args:
        n: how many. seed: of the interleaving; equal seeds give equal ones.
        reachable: memory to which pointers lie in memory.
    """

    def __init__(self, n: int, seed: int = 0, reachable: Sequence[Pointer] = ()) -> None:
        self.n = n
        self._reachable = reachable
        self._random = random.Random(seed)
        self._batons = [threading.Semaphore(0) for _ in range(n)]
        self._live = list(range(n))
        self._pauses = [0] * n
        self._memory: list[np.ndarray] = []
        self._errors: list[BaseException] = []
        self._clocks = [[int(i == core) for i in range(n)] for core in range(n)]
        self._released: dict[int, list[int]] = {}  # by a word's address: what who acquires it knows of each core
        self._history: dict[int, dict[tuple[Access, int], int]] = {}  # by a byte's address: the last time of each

    def run(self, body: Callable[[int], None]) -> None:
        """body(core) on every core. Raises what the first one that fails does."""
        if self.n == 1:
            body(0)
            return
        threads = [threading.Thread(target=self._thread, args=(core, body), daemon=True) for core in range(self.n)]
        for thread in threads:
            thread.start()
        self._batons[self._random.choice(self._live)].release()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _thread(self, core: int, body: Callable[[int], None]) -> None:
        self._batons[core].acquire()
        try:
            if not self._errors:
                with suppress(_Stopped):
                    body(core)
        except BaseException as error:  # whatever it is, the thread that called `run` raises it
            self._errors.append(error)
        self._live.remove(core)
        self._pauses = [0] * self.n
        if self._live:
            self._batons[self._random.choice(self._live)].release()

    def turn(self, core: int) -> None:
        """Maybe another core goes on here."""
        chosen = self._random.choice(self._live)
        if chosen != core:
            self._batons[chosen].release()
            self._batons[core].acquire()
        if self._errors:
            raise _Stopped

    def pause(self, core: int, where: str) -> None:
        """A core waits; InternalError where all that are left do, and nobody writes any more."""
        self._pauses[core] += 1
        if all(self._pauses[other] > MOST_PAUSES for other in self._live):
            alone, several = "it waits for other cores: interpret all of them at once", "cores wait for each other"
            raise InternalError(alone if self.n == 1 else f"all of {len(self._live)} {several}", where=where)
        if self.n > 1:
            self.turn(core)

    def pointer(self, address: int) -> Pointer | None:
        """What an address in memory points to; null to no byte."""
        if address == 0:
            return Pointer(np.zeros(0, np.uint8), 0, "null")
        for memory in self._reachable:
            offset = address - memory.address
            if 0 <= offset <= memory.memory.size:
                return Pointer(memory.memory, offset, memory.name)
        return None

    def kept(self, memory: np.ndarray) -> np.ndarray:
        """Memory of a core's own, which lives on with these cores: nobody else's may get its addresses."""
        if self.n > 1:
            self._memory.append(memory)
        return memory

    # -- order --------------------------------------------------------------------------------------------------------
    def touch(self, core: int, access: Access, addresses: Iterable[int], where: str) -> None:
        """A core reads or writes bytes. Raises InternalError where another core's access is not ordered before it."""
        if access.value[0]:
            self._pauses = [0] * self.n
        if self.n == 1:
            return
        clock = self._clocks[core]
        for address in addresses:
            history = self._history.setdefault(address, {})
            for (other_access, other), time in history.items():
                if other != core and time > clock[other] and access.conflicts(other_access):
                    message = f"core {core} {_word(access)} what core {other} {_word(other_access)} in no order"
                    raise InternalError(message, where=where)
            history[access, core] = clock[core]

    def acquire(self, core: int, address: int) -> None:
        """The core knows from now on what was before the releases whose word it has read."""
        self._clocks[core] = [max(pair) for pair in zip(self._clocks[core], self._released.get(address, [0] * self.n))]

    def release(self, core: int, address: int, *, adds: bool = False) -> None:
        """Who acquires the word knows what the core did before; with `adds` what was known of the word stays."""
        before = self._released.get(address) if adds else None
        clock = self._clocks[core]
        self._released[address] = [max(pair) for pair in zip(clock, before or clock)]
        clock[core] += 1

    def forget(self, address: int) -> None:
        """A word is written without a release: who acquires it knows nothing."""
        self._released.pop(address, None)


def _word(access: Access) -> str:
    return "writes" if access.value[0] else "reads"
