"""Times of single kernels, warm and cold, in interleaved rounds, and the memory that they run in.

Owns what is measured and how; must not know which kernels there are or what their times are compared with.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from parax.runtime.limits import physical_nbytes
from parax.runtime.memory import aligned_bytes
from parax.runtime.topology import Cache, machine

LEAST_SWEPT_NBYTES = 64 << 20  # read before a cold run, where the caches are small or the machine hides them
MOST_SHARE_OF_MEMORY = 1 / 8
PAGE_NBYTES, STAGGER_NBYTES = 4096, 320  # see compiler/passes/dataflow/memory_planning.py
WARM_SECONDS = 2e-3  # of runs as long as the cold one
REGION_NBYTES = 32 << 20  # of memory asked for at a time


@dataclass
class Case:
    """One measured kernel: a closure, its arithmetic, its compulsory traffic."""

    name: str
    run: Callable[[], None]
    flops: float
    nbytes: float
    compile_seconds: float = 0.0


_region = np.zeros(0, np.uint8)


def aligned(nbytes: int) -> np.ndarray:
    """A zeroed buffer at a multiple of 64 bytes, one behind the other on huge pages: memory as a session has it.

    Like the memory planner, it lets no buffer of whole pages make the next begin at the same place of a page.
    """
    global _region
    whole = -(-max(nbytes, 1) // 64) * 64
    whole += 0 if whole % PAGE_NBYTES else STAGGER_NBYTES
    if whole > _region.size:
        _region = aligned_bytes(max(whole, REGION_NBYTES))
    buffer, _region = _region[:nbytes], _region[whole:]
    return buffer


@dataclass(frozen=True)
class Times:
    """Median processor seconds of a run: `cold` with all operands in memory, `warm` right after another run."""

    cold: float
    warm: float


def swept_nbytes(caches: Sequence[Cache], memory_nbytes: int) -> int:
    """What to read so that nothing older is cached: twice the largest cache, within an eighth of the memory."""
    wanted = 2 * max((cache.nbytes for cache in caches), default=0)
    return max(LEAST_SWEPT_NBYTES, min(wanted, int(memory_nbytes * MOST_SHARE_OF_MEMORY)) // 4 * 4)


def measure(cases: list[Case], repeats: int) -> dict[str, Times]:
    """Times of each case, in interleaved rounds; warm runs follow as many unmeasured ones."""
    cold: dict[str, list[float]] = {c.name: [] for c in cases}
    warm: dict[str, list[float]] = {c.name: [] for c in cases}
    others = aligned(swept_nbytes(machine().caches, physical_nbytes())).view(np.float32)
    for c in cases:
        c.run()
    for _ in range(repeats):
        for c in cases:
            others.max()
            start = time.thread_time()
            c.run()
            cold[c.name].append(time.thread_time() - start)
            count = max(2, math.ceil(WARM_SECONDS / max(1e-7, cold[c.name][-1])))
            for _ in range(count):  # a last cache may take in what passed it once only when it comes again
                c.run()
            start = time.thread_time()
            for _ in range(count):
                c.run()
            warm[c.name].append((time.thread_time() - start) / count)
    return {c.name: Times(statistics.median(cold[c.name]), statistics.median(warm[c.name])) for c in cases}
