"""Waves: every item of every call runs once, however many cores share it and however late they come."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from parax.compiler.backend import link_waves
from parax.compiler.backend.emit_llvm import ModuleEmitter
from parax.compiler.backend.host import resolve_target
from parax.compiler.backend.jit import Loaded, compile_object
from parax.compiler.backend.link_calls import segment_builder, share_of
from parax.compiler.backend.link_waves import Group, is_open, run_waves, waves_of
from parax.compiler.backend.lower import Input, MeetingWord, PlacedBranch, PlacedCall, Segment
from parax.compiler.backend.lowering import BarrierSlot, KernelCall
from parax.compiler.kernel_ir.builder import F32PTR, kernel
from parax.compiler.kernel_ir.loops import KFunc
from parax.runtime.sync import N_CLAIMS, branch_slot, stage_slot, sync_nbytes

TARGET = resolve_target("native")
OPEN, SMALL = 10**9, 1  # flops


def counting() -> KFunc:
    """y[i] += 1 for the items."""
    k = kernel("count", [("y", F32PTR)])
    k.for_(k["begin"], k["end"], 1, [], lambda i, _: k.store(k["y"], i, k.load(k["y"], i) + 1.0))
    return k.func


COUNT = counting()


def placed(work: int, flops: int, where: int = 0, meets: bool = False) -> PlacedCall:
    operands = (BarrierSlot(),) if meets else ()
    places = (Input(where), *([MeetingWord()] if meets else []))
    return PlacedCall(KernelCall(COUNT, operands, work, flops=flops), places, 0, "v")


def probe(branches: list[PlacedBranch], n_cores: int, n_inputs: int) -> Loaded:
    """`parax_probe(in…, weights, arena, dims, sync, tid, nt)`: one core's part of the waves of some branches."""
    segment = Segment(n_inputs=n_inputs)
    k = segment_builder(segment, "probe", ())
    share = share_of(k, segment, k["tid"], k.index(n_cores), 0, stage_slot(0))
    group = Group(0, n_cores, share, k.gep(k["sync"], branch_slot(0, n_cores)))
    run_waves(k, waves_of(branches), group, lambda placed: None)
    emitter = ModuleEmitter(TARGET)
    emitter.export(k.func, "parax_probe")
    return Loaded(compile_object(emitter.text(), TARGET), ["parax_probe"])


@pytest.mark.parametrize("n_cores", [1, 2, 3, 4, 5])
def test_every_item_runs_once(n_cores: int) -> None:
    sizes = [0, 1, 2, 3, 5, 7, 14, 40, 1000] * 3  # more than there are counts
    branches = [PlacedBranch(0, n_cores, [placed(n, SMALL if i % 4 == 3 else OPEN, i)]) for i, n in enumerate(sizes)]
    branches[0].calls.append(placed(sizes[8], OPEN, 8))  # its second call: a wave of its own
    code = probe(branches, n_cores, len(sizes))
    n_pointers = len(sizes) + 4
    run = code.function("parax_probe", None, *[ctypes.c_void_p] * n_pointers, *[ctypes.c_int64] * 2)
    counts = [np.zeros(max(n, 1), np.float32) for n in sizes]
    sync = np.zeros(sync_nbytes(n_cores) + 64, np.uint8)
    sync = sync[-sync.ctypes.data % 64 :][: sync_nbytes(n_cores)]
    nothing = np.zeros(16, np.int64)
    pointers = [a.ctypes.data for a in (*counts, nothing, nothing, nothing, sync)]
    for _ in range(20):
        threads = [threading.Thread(target=run, args=(*pointers, tid, n_cores)) for tid in range(n_cores)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    wanted = [np.full(n, 40.0 if i == 8 else 20.0) for i, n in enumerate(sizes)]
    assert all(np.array_equal(count[:n], want) for count, n, want in zip(counts, sizes, wanted, strict=True))
    assert not sync[branch_slot(0, n_cores) :].any(), "counts must be as they were before"


def test_a_late_core_leaves_its_items_to_its_neighbour() -> None:
    work = 16
    code = probe([PlacedBranch(0, 2, [placed(work, OPEN)])], 2, 1)
    run = code.function("parax_probe", None, *[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 2)
    counts, sync, nothing = np.zeros(work, np.float32), np.zeros(sync_nbytes(2), np.uint8), np.zeros(16, np.int64)
    pointers = [a.ctypes.data for a in (counts, nothing, nothing, nothing, sync)]
    run(*pointers, 0, 2)  # alone: its own items and all that were nobody's
    assert list(np.flatnonzero(counts)) == list(range(11))
    run(*pointers, 1, 2)
    assert np.array_equal(counts, np.ones(work))


def test_small_calls_come_first_and_those_that_meet_alone() -> None:
    large, small, meeting = placed(8, OPEN), placed(8, SMALL), placed(8, OPEN, meets=True)
    assert [is_open(call) for call in (large, small, meeting, placed(1, OPEN))] == [True, False, False, False]
    waves = waves_of([PlacedBranch(0, 2, [call, small]) for call in (large, small, meeting)])
    assert waves == [[meeting], [small, large], [small, small, small]]
    many = waves_of([PlacedBranch(0, 2, [large])] * (N_CLAIMS + 1) + [PlacedBranch(0, 2, [small])])
    assert [len(wave) for wave in many] == [N_CLAIMS + 1, 1]


def test_a_wave_of_small_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    call = placed(8, SMALL)
    assert waves_of([PlacedBranch(0, 2, [call])]) == [[call]] and waves_of([]) == []
    monkeypatch.setattr(link_waves, "LEAST_NANOSECONDS", 0)
    assert is_open(call)
