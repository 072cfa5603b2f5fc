"""The running machine as a description (targets.machine): measured once, kept as TOML, read by who predicts.

Owns what is measured: the peak, the bandwidth of each level of the memory, a barrier, and the share of the peak that
each kind of work gets (reference_kernels); and where it is kept. Nothing is fitted to the models that are predicted.
It must not know models.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import llvmlite
import numpy as np

from ... import __version__
from ...errors import UsageError
from ...files import keep
from ...runtime.cpu import cpu_identity, cpu_name
from ...runtime.topology import machine as topology
from ..ir.types import BF16
from ..kernel_ir.builder import BYTES, F32PTR, I64PTR, Builder, KValue, kernel
from ..kernel_ir.loops import INDEX
from ..kernel_ir.synchronisation import barrier
from ..targets.machine import DEFAULT_EFFICIENCY, Machine, parse_machine, print_machine
from ..targets.target import Target
from .emit_llvm import ModuleEmitter
from .host import running_target
from .jit import Loaded, compile_object, load_function
from .kernels.conv.winograd.counts import KINDS as WINOGRAD_KINDS
from .kernels.matmul.strassen.counts import DIRECT
from .kernels.matmul.strassen.counts import KIND as HALVED
from .machine import measure_peak, seconds_side_by_side, slowness
from .microkernels.table import features_of, has_instruction
from .reference_kernels import BF16_REFERENCES, FAR_REFERENCES, HALVED_REFERENCES, REFERENCES, References

VERSION = 14  # of what is measured; another one is measured anew
KERNEL_SECONDS = 0.02e-6  # fixed cost of a kernel inside a plan: look-ups of one row in NCF follow one another so
CALL_SECONDS = 3e-6  # of a request through the runtime, see benchmarks.call_overhead
EXPOSED = 0.3  # see Machine: a layer's first tiles wait for its weights; found on half of the models
L3_PROBES = (2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 48, 64, 96, 128)  # MiB in both buffers of a copy
MOST_NBYTES = 256 << 20  # of memory for a measurement: virtual machines show a last cache that others use, too
ROUNDS = 15  # of kernels, a third of a second in all: others share the machine
REPEATS = 3  # of a measurement on several cores, within a try
TRIES = 3  # of a speed: one takes less time than many a disturbance
DISTURBED = 1.5  # times as long as alone that all cores at once took over arithmetic: others were at work
TRUSTED_SECONDS = 3600.0  # how long a disturbed measurement serves


def running_machine(
    folder: Path | None, cores: Sequence[int], measure: bool = True, *, again: bool = False,
    before: Callable[[], object] = lambda: None,
) -> Machine | None:  # fmt: skip
    """The machine with these cores, as it was measured before or is measured now (in a few seconds).

    What is kept holds for this CPU, its caches, this arrangement and number of cores, this quota, and these versions of
    parax and LLVM. Processes that ask at once wait for the first one's answer, instead of disturbing it. What was
    measured while others kept the cores busy is used for an hour, then measured again.

    Args:
        folder: where the description is kept; None: nowhere. measure: whether to measure what is not known.
        again: measure even what is known. before: called before measuring.

    Returns:
        None if nothing is known, and nothing was to be measured or the folder cannot be written.
    """
    path = None if folder is None else folder / f"machine-{_key(cores)}.toml"
    if path is not None and not again and (known := _read(path)):
        return known
    if not (measure or again):
        return None
    with _alone(folder) as can_keep:
        if path is not None and not again:
            known = _read(path)
            if known or not can_keep:  # measured for one compilation only, it would cost more than it gains
                return known
        before()
        found, disturbed = measure_machine(cores)
        if path is not None:
            keep(_disturbed(path) if disturbed else path, print_machine(found))
    return found


def _key(cores: Sequence[int]) -> str:
    """A name for everything that the measured figures depend on."""
    found = topology()
    used = [core for core in found.cores if core.number in cores]
    places = [sorted(getattr(core, kind) for core in used) for kind in ("node", "package", "physical")]
    shape = [[places_of.index(place) for place in places_of] for places_of in places]  # whatever the cores' numbers
    caches = [(c.level, c.nbytes, len(c.shared_by)) for c in found.caches]
    target = running_target()
    facts = [VERSION, __version__, llvmlite.__version__, cpu_identity(), target.name, target.tune, caches, shape,
             found.quota]  # fmt: skip
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _disturbed(path: Path) -> Path:
    """Where a measurement is kept that others disturbed."""
    return path.with_suffix(".disturbed.toml")


def _read(path: Path) -> Machine | None:
    """What is kept and still trusted; damaged files are as none."""
    for file, seconds in ((path, float("inf")), (_disturbed(path), TRUSTED_SECONDS)):
        try:
            if time.time() - file.stat().st_mtime < seconds:
                found = parse_machine(file.read_text(encoding="utf-8"), str(file))
                return replace(found, kernel_seconds=KERNEL_SECONDS, call_seconds=CALL_SECONDS, exposed=EXPOSED)
        except (OSError, UsageError, UnicodeDecodeError):
            continue
    return None


@contextmanager
def _alone(folder: Path | None) -> Iterator[bool]:
    """No other process that keeps its figures in this folder measures meanwhile; whether there is such a folder."""
    try:
        if folder is None:
            raise FileNotFoundError
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / "machine.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # closing unlocks, and so does a process's end
        yield True
    finally:
        os.close(handle)


def measure_machine(cores: Sequence[int]) -> tuple[Machine, bool]:
    """Measure now, and whether others disturbed it. Sockets are the memory nodes that the cores belong to."""
    target = running_target()
    peak = measure_peak(cores[0])
    slowed = slowness(cores, peak)
    disturbed = slowed() > DISTURBED
    found = topology()
    nodes = {core.node for core in found.cores if core.number in cores}
    n_sockets = max(1, len(nodes)) if len(cores) % max(1, len(nodes)) == 0 else 1
    l2 = next((c.nbytes for c in found.caches if c.level == 2), target.l2_nbytes)
    l3 = next((c.nbytes for c in found.caches if c.level == 3), l2)
    # touched once for all that needs memory: what a virtual machine sees for the first time is slow to come
    room = np.ones(min(3 * l3, MOST_NBYTES) // 4, np.float32)
    copy_speed = partial(_copy_speed, _copy_kernel(target), room, cores[0])
    in_l2, endless = copy_speed(l2 // 2), copy_speed(room.nbytes)
    far_one, far_all = _far_speeds(target, cores, l3, room)
    share = _sharing(target, cores) if len(cores) > 1 else None
    curve, shared = [], [share()] if share else []
    for nbytes in (mib << 20 for mib in L3_PROBES if l2 < mib << 20 <= l3):
        curve.append((nbytes, copy_speed(nbytes)))
        shared += [share()] if share else []  # again and again: a host may move virtual cores meanwhile
    in_l3 = statistics.median([speed for nbytes, speed in curve if nbytes <= l3 // 3] or [far_one])
    held = max([nbytes for nbytes, speed in curve if speed**2 >= in_l3 * endless], default=l2)
    peers, barrier = map(statistics.median, zip(*shared)) if shared else (in_l3, 0.0)
    blank = Machine(
        f"{cpu_name()}, {target.name}, {len(cores)} cores, calibration {VERSION}", len(cores) // n_sockets, peak,
        far_one, max(far_one, far_all / n_sockets), n_sockets,
        l2_bandwidth_per_core=in_l2, l3_bandwidth_per_core=in_l3, l2_nbytes=l2, l3_nbytes=max(l2, held),
        peer_bandwidth_per_core=peers, barrier_seconds=barrier,
        kernel_seconds=KERNEL_SECONDS, call_seconds=CALL_SECONDS, exposed=EXPOSED, simulated=False,
    )  # fmt: skip
    measured = replace(blank, efficiency=DEFAULT_EFFICIENCY | _shares(target, blank, cores))
    return measured, disturbed or slowed() > DISTURBED


def _shares(target: Target, machine: Machine, cores: Sequence[int]) -> dict[str, float]:
    """Kind → share of the peak, from kernels whose data are in the caches; the mean where a kind has several."""
    jobs, n_pair = min(2, len(cores)), len(HALVED_REFERENCES)
    bound = References(target, (*HALVED_REFERENCES, *REFERENCES), jobs).bound()
    able = running_target(features_of(BF16))
    if has_instruction(able, BF16):
        bound += References(able, BF16_REFERENCES, jobs).bound()
    seconds = _on_core(cores[0], lambda: _least_seconds([b.run for b in bound]))
    halved, (by_halves, direct) = bound[0].cost, seconds[:n_pair]
    found: dict[str, list[float]] = defaultdict(list)
    for b, spent in zip(bound[n_pair:], seconds[n_pair:]):
        known = replace(machine, efficiency=DEFAULT_EFFICIENCY | _means(found))
        cost = b.cost_on(known) if b.kind == WINOGRAD_KINDS[BF16][0] else b.cost
        found[b.kind].append(cost.arithmetic / (machine.flops_per_core * spent))
    shares = _means(found)
    return shares | {HALVED: shares[DIRECT] * (halved.arithmetic / by_halves) / (halved.flops / direct)}


def _means(shares: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {kind: statistics.geometric_mean(found) for kind, found in shares.items()}


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
    function = load_function(k.func, running_target())
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


def _copy_speed(copy: Callable[..., None], room: np.ndarray, core: int, nbytes: int) -> float:
    """Bytes per second, read and written, of a copy within the first `nbytes` of `room`, half of them to the others."""
    n = nbytes // 8 // 64 * 64
    times = max(1, (4 << 20) // nbytes)
    nothing = np.zeros(16, np.int64)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (room[:n], room[n : 2 * n], nothing, nothing)]

    def run() -> None:
        for _ in range(times):
            copy(*pointers, 0, n)

    return 8 * n * times / min(seconds_side_by_side([run], [core], REPEATS) for _ in range(TRIES))


def _far_speeds(target: Target, cores: Sequence[int], l3_nbytes: int, room: np.ndarray) -> tuple[float, float]:
    """Bytes per second from memory of kernels that wait for it, streamed weights and copies: one core, all at once.

    Where the last cache may hold what they read, other memory is read before every run. The middle one of the tries
    counts, not the best: what a host's other guests leave of the memory is less than all, most of the time.
    """
    references = References(target, FAR_REFERENCES)
    of_cores = [references.bound() for _ in cores]
    stays = min(same[0].cost.far_nbytes for same in zip(*of_cores)) < 2 * l3_nbytes
    others = room[: l3_nbytes // 4 if stays else 0]
    tries, repeats = (TRIES - 1, REPEATS - 1) if stays else (TRIES, REPEATS)  # each takes ten times as long

    def speed(n: int) -> float:
        parts = np.array_split(others, n)

        def sweep(number: int) -> None:
            parts[number].max(initial=0)

        return statistics.geometric_mean(
            n * same[0].cost.far_nbytes
            / statistics.median(
                seconds_side_by_side([b.run for b in same], cores[:n], repeats, sweep) for _ in range(tries)
            )
            for same in zip(*of_cores[:n])
        )

    return speed(1), speed(len(cores))


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
        barrier(k)

    def both_ways(_: KValue, __: list[KValue]) -> None:
        copy("x", "y", k["tid"])
        copy("y", "x", k.index(1) - k["tid"])

    k.for_(0, k["count"], 1, [], both_ways)
    emitter = ModuleEmitter(target)
    emitter.export(k.func, "parax_exchange")
    code = Loaded(compile_object(emitter.text(), target), ["parax_exchange"])
    function = code.function("parax_exchange", None, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 4)

    def seconds(half: int, count: int) -> float:
        """Of one copy and one meeting."""
        x, y, sync = np.ones(2 * half, np.float32), np.ones(2 * half, np.float32), np.zeros(256, np.uint8)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, y, sync, sync)]
        runs = [partial(function, *pointers, half, tid, 2, count) for tid in range(2)]
        return seconds_side_by_side(runs, cores[:2], REPEATS) / (2 * count)

    def sample() -> tuple[float, float]:
        small, large = 2 * lanes, 32 << 10
        meeting, moving = seconds(small, 5_000), seconds(large, 100)
        return 8 * (large - small) / max(moving - meeting, 1e-9), meeting

    return sample
