"""The running machine as a description (ir.machine): measured once, kept as TOML, read by who predicts.

Owns what is measured: the peak, the bandwidth of each level of the memory, a barrier, and the share of the peak that
each kind of work gets (reference_kernels). Nothing is fitted to the models that are predicted. It must not know models.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from ...errors import UsageError
from ...files import keep
from ...runtime.topology import machine as topology
from ..ir.cost import Cost
from ..ir.kernel_builder import BYTES, F32PTR, I64PTR, Builder, KValue, kernel
from ..ir.loops import INDEX
from ..ir.machine import DEFAULT_EFFICIENCY, Machine, parse_machine, print_machine
from ..ir.target import Target
from .emit_llvm import ModuleEmitter
from .host import resolve_target
from .jit import Loaded, compile_object, load_function
from .link import BARRIER
from .llvm_meeting import declare_waiting
from .machine import cached_facts, cpu_name, measure_facts, seconds_side_by_side
from .reference_kernels import FAR_REFERENCES, bind_references

VERSION = 5  # of what is measured; another one is measured anew
KERNEL_SECONDS = 0.02e-6  # fixed cost of a kernel inside a plan: look-ups of one row in NCF follow one another so
CALL_SECONDS = 3e-6  # of a request through the runtime, see benchmarks.call_overhead
EXPOSED = 0.3  # see Machine: a layer's first tiles wait for its weights; found on half of the models
L3_PROBES = (2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 48, 64)  # MiB in both buffers of a copy
ROUNDS = 21  # of kernels, half a second in all: others share the machine
TRIES = 3  # of a speed: one takes less time than many a disturbance


def running_machine(folder: Path | None, cores: Sequence[int], measure: bool = True) -> Machine | None:
    """The machine with these cores, as it was measured before or is measured now (in a few seconds).

    Args:
        folder: where the description is kept; None: nowhere. measure: whether to measure what is not known.

    Returns:
        None if nothing is known and nothing was to be measured.
    """
    name = f"{cpu_name()}, {resolve_target('native').name}, {len(cores)} cores, calibration {VERSION}"
    path = None if folder is None else folder / "machine.toml"
    if path is not None and path.is_file():
        try:
            found = parse_machine(path.read_text(encoding="utf-8"), str(path))
        except (UsageError, UnicodeDecodeError):
            found = None  # damaged: as if it were not there
        if found is not None and found.name == name:
            return replace(found, kernel_seconds=KERNEL_SECONDS, call_seconds=CALL_SECONDS, exposed=EXPOSED)
    if not measure:
        return None
    found = measure_machine(folder, cores, name)
    if path is not None:
        keep(path, print_machine(found))
    return found


def measure_machine(folder: Path | None, cores: Sequence[int], name: str) -> Machine:
    """Measure now. Sockets are the memory nodes that the cores belong to."""
    target = resolve_target("native")
    facts = cached_facts(folder, cores) if folder is not None else None
    facts = facts or measure_facts(folder, cores)
    found = topology()
    nodes = {core.node for core in found.cores if core.number in cores}
    n_sockets = max(1, len(nodes)) if len(cores) % max(1, len(nodes)) == 0 else 1
    l2 = next((c.nbytes for c in found.caches if c.level == 2), target.l2_nbytes)
    l3 = next((c.nbytes for c in found.caches if c.level == 3), l2)
    copy = _copy_kernel(target)
    in_l2, endless = _copy_speed(copy, l2 // 2, cores[:1]), _copy_speed(copy, 3 * l3, cores[:1])
    far_one, far_all = _far_speed(target, cores[:1]), _far_speed(target, cores)
    share = _sharing(target, cores) if len(cores) > 1 else None
    curve, shared = [], [share()] if share else []
    for nbytes in (mib << 20 for mib in L3_PROBES if l2 < mib << 20 <= l3):
        curve.append((nbytes, _copy_speed(copy, nbytes, cores[:1])))
        shared += [share()] if share else []  # again and again: a host may move virtual cores meanwhile
    in_l3 = statistics.median([speed for nbytes, speed in curve if nbytes <= l3 // 3] or [far_one])
    held = max([nbytes for nbytes, speed in curve if speed**2 >= in_l3 * endless], default=l2)
    peers, barrier = map(statistics.median, zip(*shared)) if shared else (in_l3, 0.0)
    blank = Machine(
        name, len(cores) // n_sockets, facts.flops_core, far_one, max(far_one, far_all / n_sockets), n_sockets,
        l2_bandwidth_per_core=in_l2, l3_bandwidth_per_core=in_l3, l2_nbytes=l2, l3_nbytes=max(l2, held),
        peer_bandwidth_per_core=peers, barrier_seconds=barrier,
        kernel_seconds=KERNEL_SECONDS, call_seconds=CALL_SECONDS, exposed=EXPOSED, simulated=False,
    )  # fmt: skip
    return replace(blank, efficiency=DEFAULT_EFFICIENCY | _shares(target, blank, cores[0]))


def _shares(target: Target, machine: Machine, core: int) -> dict[str, float]:
    """Kind → share of the peak, from kernels whose data are in the caches; the mean where a kind has several."""
    bound = bind_references(target)
    seconds = _on_core(core, lambda: _least_seconds([b.run for b in bound]))
    found: dict[str, list[float]] = defaultdict(list)
    for b, spent in zip(bound, seconds):
        found[b.kind].append(_share(b.cost, spent, machine))
    return {kind: statistics.geometric_mean(shares) for kind, shares in found.items()}


def _share(cost: Cost, seconds: float, machine: Machine) -> float:
    return cost.arithmetic / (machine.flops_per_core * seconds)


def _least_seconds(calls: Sequence[Callable[[], None]]) -> list[float]:
    """Seconds of one call each, the overhead of a Python call taken off; least of interleaved rounds."""
    repeats = []
    for call in calls:
        call()
        began = time.perf_counter()
        call()
        repeats.append(max(3, int(1e-3 / (time.perf_counter() - began))))
    least = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for i, (call, n) in enumerate(zip(calls, repeats)):
            began = time.perf_counter()
            for _ in range(n):
                call()
            least[i] = min(least[i], (time.perf_counter() - began) / n)
    empty = _empty_call_seconds()
    return [max(seconds - empty, seconds / 4) for seconds in least]


def _empty_call_seconds() -> float:
    """Seconds of a ctypes call of a few pointers that does nothing."""
    k = kernel("empty", [("x", F32PTR), ("y", F32PTR)])
    function = load_function(k.func, resolve_target("native"))
    x = np.zeros(64, np.float32)
    pointers = [ctypes.c_void_p(x.ctypes.data)] * 4
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(1000):
            function(*pointers, 0, 0)
        best = min(best, (time.perf_counter() - began) / 1000)
    return best


def _on_core(core: int, work: Callable[[], list[float]]) -> list[float]:
    """What `work` returns on a thread pinned to a core."""
    result: list[float] = []

    def pinned() -> None:
        os.sched_setaffinity(0, {core})
        result.extend(work())

    thread = threading.Thread(target=pinned)
    thread.start()
    thread.join()
    return result


def _copy_kernel(target: Target) -> Callable[..., None]:
    """y[begin:end] = x[begin:end], vector by vector, as the kernels move data: through the caches."""
    k = kernel("copy", [("x", F32PTR), ("y", F32PTR)])
    lanes = target.f32_lanes

    def step(i: object, _: object) -> None:
        k.store(k["y"], i, k.load(k["x"], i, lanes))

    k.for_(k["begin"], k["end"], lanes, [], step, unroll=4)
    function: Callable[..., None] = load_function(k.func, target)
    return function


def _copy_speed(copy: Callable[..., None], nbytes: int, cores: Sequence[int]) -> float:
    """Bytes per second, read and written, of a copy whose two buffers take `nbytes`, on all cores at once."""
    n = nbytes // 8 // 64 * 64
    times = max(1, (4 << 20) // nbytes)

    def one() -> Callable[[], None]:
        x, y = np.ones(n, np.float32), np.ones(n, np.float32)
        nothing = np.zeros(16, np.int64)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, y, nothing, nothing)]

        def run() -> None:
            assert x.size == y.size  # both live as long as this
            for _ in range(times):
                copy(*pointers, 0, n)

        return run

    least = min(seconds_side_by_side([one() for _ in cores], cores) for _ in range(TRIES))
    return 8 * n * times * len(cores) / least


def _far_speed(target: Target, cores: Sequence[int]) -> float:
    """Bytes per second from memory of kernels that wait for it, on all cores at once: streamed weights, and copies."""
    of_cores = [bind_references(target, FAR_REFERENCES) for _ in cores]
    speeds = [
        len(cores) * same[0].cost.far_nbytes
        / min(seconds_side_by_side([b.run for b in same], cores) for _ in range(TRIES))
        for same in zip(*of_cores)
    ]
    return statistics.geometric_mean(speeds)


def _sharing(target: Target, cores: Sequence[int]) -> Callable[[], tuple[float, float]]:
    """Measures bytes per second that a core gets of what another has written, and seconds in which two cores meet.

    Two cores copy halves of a buffer to another one, meet, and copy the other's halves back: every line read is one
    that the other core wrote. Two sizes tell bytes and meetings apart.
    """
    k = Builder("exchange", [("x", F32PTR), ("y", F32PTR), ("sync", BYTES), ("dims", I64PTR), ("half", INDEX),
                             ("tid", INDEX), ("nt", INDEX), ("count", INDEX)], (), inline="never")  # fmt: skip
    lanes = target.f32_lanes

    def copy(source: str, target_: str, which: KValue) -> None:
        begin = which * k["half"]
        k.for_(begin, begin + k["half"], lanes, [],
               lambda i, _: k.store(k[target_], i, k.load(k[source], i, lanes)), unroll=4)  # fmt: skip
        k.barrier()

    def both_ways(_: KValue, __: list[KValue]) -> None:
        copy("x", "y", k["tid"])
        copy("y", "x", k.index(1) - k["tid"])

    k.for_(0, k["count"], 1, [], both_ways)
    emitter = ModuleEmitter(target)
    declare_waiting(emitter)
    emitter.export(k.func, "parax_exchange")
    code = Loaded(compile_object(emitter.text(extra=BARRIER), target), ["parax_exchange"])
    function = code.function("parax_exchange", None, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 4)

    def seconds(half: int, count: int) -> float:
        """Of one copy and one meeting."""
        x, y, sync = np.ones(2 * half, np.float32), np.ones(2 * half, np.float32), np.zeros(256, np.uint8)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, y, sync, sync)]
        runs = [partial(function, *pointers, half, tid, 2, count) for tid in range(2)]
        return seconds_side_by_side(runs, cores[:2]) / (2 * count)

    def sample() -> tuple[float, float]:
        small, large = 2 * lanes, 32 << 10
        meeting, moving = seconds(small, 5_000), seconds(large, 100)
        return 8 * (large - small) / max(moving - meeting, 1e-9), meeting

    return sample
