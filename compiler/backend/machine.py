"""What this machine can do at most: multiply-add peak and copy bandwidth; and whether its cores are all there just now.

Owns these measurements. Percentages of peak in benchmarks refer to them.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.cpu import cpu_name
from ..kernel_ir.builder import F32PTR, kernel
from ..kernel_ir.loops import KFunc
from ..targets.target import Target
from .host import running_target
from .jit import load_function

CHAINS = 12  # independent multiply-adds in flight: latency 4 × 2 units, and some
STEPS = 2_000_000
COPY_NBYTES = 64 << 20  # more than the last cache of one core
REPEATS = 7
BURST_STEPS, BURSTS = 200_000, 3  # 0.7 ms each
SLOWED = 1.25  # times as long as alone: what clocks that fall with the number of cores at work account for


@dataclass(frozen=True)
class MachineFacts:
    """Limits of a machine, for code of one target.

    Attributes:
        cpu, target: what was measured. cores: how many at once for the `_all` figures.
        flops_core, flops_all: f32 operations per second, a multiply-add is two.
        copy_core, copy_all: bytes per second of a copy, read and written, beyond the caches.
    """

    cpu: str
    target: str
    cores: int
    flops_core: float
    flops_all: float
    copy_core: float
    copy_all: float


def measure_facts(cores: Sequence[int]) -> MachineFacts:
    """Measure, in about two seconds."""
    target = running_target()
    run, flops = _multiply_adds(target)
    copies = [_copy() for _ in cores]
    return MachineFacts(
        cpu_name(), target.name, len(cores),
        flops / seconds_side_by_side([run], cores[:1]),
        len(cores) * flops / seconds_side_by_side([run] * len(cores), cores),
        2 * COPY_NBYTES / seconds_side_by_side(copies[:1], cores[:1]),
        2 * COPY_NBYTES * len(cores) / seconds_side_by_side(copies, cores),
    )  # fmt: skip


def measure_peak(core: int) -> float:
    """f32 operations per second of one core at work alone, a multiply-add is two."""
    run, flops = _multiply_adds(running_target())
    return flops / seconds_side_by_side([run], [core])


def peak_kernel(target: Target) -> KFunc:
    """`for step < end: for chain: acc[chain] = a·acc[chain] + acc[chain]`, everything in registers."""
    k = kernel("peak", [("x", F32PTR), ("y", F32PTR)])
    lanes = target.f32_lanes
    a = k.load(k["x"], 0, lanes)
    start = [k.load(k["x"], lanes * (i % 4), lanes) for i in range(CHAINS)]
    sums = k.for_(0, k["end"], 1, start, lambda i, acc: [k.fma(a, v, v) if target.has_fma else a * v + v for v in acc])
    for i, v in enumerate(sums):
        k.store(k["y"], i * lanes, v)
    return k.func


def slowness(cores: Sequence[int], flops_per_core: float) -> Callable[[], float]:
    """Asks, in 3 ms, how many times as long as at their quickest the cores take over arithmetic, all at work.

    Where a host runs two virtual cores on one physical core, or others keep a core busy, for a moment or for minutes,
    it is about 2; what is measured then tells nothing of other times.

    Args:
        flops_per_core: of one core at work alone, as it was measured before; all together may be slower by SLOWED.
    """
    run, flops = _multiply_adds(running_target(), BURST_STEPS)
    least = SLOWED * flops / flops_per_core

    def ask() -> float:
        nonlocal least
        seconds = seconds_side_by_side([run] * len(cores), cores, BURSTS)
        least = min(least, seconds)
        return seconds / least

    return ask


def _multiply_adds(target: Target, steps: int = STEPS) -> tuple[Callable[[], None], float]:
    """The peak kernel as a call on fresh memory, and how many operations a call does."""
    function = load_function(peak_kernel(target), target)

    def run() -> None:
        x, y, none = np.zeros(1024, np.float32), np.zeros(1024, np.float32), np.zeros(16, np.int64)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, y, none, none)]
        function(*pointers, 0, steps)

    return run, 2.0 * steps * CHAINS * target.f32_lanes


def _copy() -> Callable[[], None]:
    source, destination = np.ones(COPY_NBYTES, np.uint8), np.ones(COPY_NBYTES, np.uint8)
    return lambda: np.copyto(destination, source)


def seconds_side_by_side(
    calls: Sequence[Callable[[], None]], cores: Sequence[int], repeats: int | None = None,
    before: Callable[[int], None] = lambda number: None,
) -> float:  # fmt: skip
    """Least time of some repeats (REPEATS) in which every call runs once, each on its own core: last end less first
    start. `before` each run its core calls this with the call's number.
    """
    spans: list[list[tuple[float, float]]] = [[] for _ in calls]
    barrier = threading.Barrier(len(calls))

    def work(number: int) -> None:
        os.sched_setaffinity(0, {cores[number]})
        calls[number]()
        for _ in range(repeats or REPEATS):
            before(number)
            barrier.wait()
            began = time.perf_counter()
            calls[number]()
            spans[number].append((began, time.perf_counter()))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rounds = zip(*spans, strict=True)
    return min(max(end for _, end in span) - min(start for start, _ in span) for span in rounds)
