"""What a segment's function does for the cores of an instance: each kernel waits for all, scratch is each core's own.

The cores are threads of the test, of which one comes late, so that whoever does not wait for it is seen.
"""

from __future__ import annotations

import ctypes
import time
from functools import partial
from random import Random
from threading import Thread

import numpy as np
import pytest

import parax
from parax import CompileOptions
from parax.compiler import driver
from parax.compiler.compilation import Compilation
from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.ir.text import parse_graph
from parax.runtime.memory import address_of, aligned_bytes
from parax.runtime.native import code_of
from parax.runtime.plan import Plan
from parax.runtime.sync import sync_nbytes
from schedules import random_schedule

LATE_SECONDS = 0.05
CHAIN = """graph @g(%x: f32[24,40]) {
  %1 = Softmax(%x) {axis=0}
  %2 = Transpose(%1) {perm=[1,0]}
  %3 = Softmax(%2) {axis=0}
  %4 = CumSum(%3, %axis)
  %5 = Softmax(%4) {axis=0}
  %6 = Transpose(%5) {perm=[1,0]}
  %7 = Softmax(%6) {axis=0}
  return %7
}""".replace("{\n", "{\n  %axis = const i64[] [0]\n", 1)
BRANCHES = """graph @g(%x: f32[24,40]) {
  %a = Softmax(%x) {axis=0}\n  %b = Sigmoid(%x)\n  %c = Softmax(%b) {axis=1}\n  %d = Softmax(%a) {axis=1}
  %t = Transpose(%c) {perm=[1,0]}\n  %e = MatMul(%t, %d)\n  %f = Softmax(%e) {axis=0}\n  %g = Softmax(%t) {axis=0}
  %h = MatMul(%f, %g)\n  %i = Softmax(%h) {axis=0}\n  return %i
}"""
HALF = "graph @g(%x: f16[8,4096]) {\n  %1 = Softmax(%x) {axis=1}\n  return %1\n}"


class Team:
    """Threads that run a plan's only segment together, with memory of their own that the test may look at."""

    def __init__(self, plan: Plan, nt: int) -> None:
        """With `nt` cores as the plan's scheduled program has it runs that, else the sequential one."""
        code, program = code_of(plan), plan.manifest.scheduled
        assert code is not None
        step = program.step if program and program.n_cores == nt else plan.manifest.native_steps()[0]
        assert isinstance(step.arena, int) and isinstance(step.scratch, int)
        self.arena_nbytes, self.scratch_nbytes = (-(-n // 64) * 64 for n in (step.arena, step.scratch))
        self.memory = aligned_bytes(self.arena_nbytes + nt * self.scratch_nbytes)
        self.memory[:] = 0xC5
        self.sync, self.nt, self.plan = aligned_bytes(sync_nbytes(nt)), nt, plan
        arguments = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 2 + [ctypes.c_void_p]
        self.function = ctypes.CFUNCTYPE(ctypes.c_int32, *arguments)(code.address(f"parax_run_{step.segment}"))
        self.code = code

    def start(self, tid: int, io: np.ndarray) -> Thread:
        """One of the threads."""
        weights = address_of(np.frombuffer(self.plan.weights, np.uint8)) if len(self.plan.weights) else 0
        dims = np.zeros(1, np.int64)
        pointers = (address_of(io), weights, address_of(self.memory), address_of(dims))
        thread = Thread(target=lambda: (self.function(*pointers, tid, self.nt, address_of(self.sync)), dims))
        thread.start()
        return thread

    def scratch(self, tid: int) -> np.ndarray:
        """The scratch memory of a thread."""
        first = self.arena_nbytes + tid * self.scratch_nbytes
        return self.memory[first : first + self.scratch_nbytes]


def compiled(text: str, level: int = 2) -> Plan:
    return parax.compile(to_onnx(parse_graph(text)), options=CompileOptions(opt_level=level, hint="latency"))


def check_late(plan: Plan, nt: int, late: int) -> None:
    """The result is right although one core comes late."""
    x = np.random.default_rng(0).standard_normal((24, 40)).astype(np.float32)
    with plan.session(instances=1, cores_per_instance=1, mode="sequential") as session:
        (expected,) = session.run({"x": x}).values()
    team, found = Team(plan, nt), np.full_like(expected, np.nan)
    io = np.array([address_of(x), address_of(found)], np.uint64)
    threads = [team.start(tid, io) for tid in range(nt) if tid != late]
    time.sleep(LATE_SECONDS)
    for thread in [*threads, team.start(late, io)]:
        thread.join()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(("nt", "late"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_no_core_begins_a_kernel_before_all_are_done_with_the_last(level: int, nt: int, late: int) -> None:
    plan = compiled(CHAIN, level)
    assert len(plan.manifest.provenance["kernels"]) >= 5
    check_late(plan, nt, late)


@pytest.mark.parametrize("seed", range(6))
def test_no_core_begins_a_layer_before_all_are_done_with_the_last(seed: int) -> None:
    graph = parse_graph(BRANCHES)
    scheduler = partial(random_schedule, random=Random(seed), n_cores=2)
    run = Compilation(CompileOptions(), lambda phase, done: None, scheduler=scheduler)
    driver.optimise(graph, run)
    plan = driver.build_plan(graph, run)
    assert plan.manifest.scheduled is not None and plan.manifest.scheduled.mode == "layered"
    for late in (0, 1):
        check_late(plan, 2, late)


@pytest.mark.parametrize("first", [0, 1])
def test_every_core_has_scratch_of_its_own(first: int) -> None:
    plan = compiled(HALF, 1)  # at 2 it is computed in f32, without a copy of a row
    x = np.random.default_rng(0).standard_normal((8, 4096)).astype(np.float16)
    team, found = Team(plan, 2), np.zeros_like(x)
    assert team.scratch_nbytes >= 4096
    io = np.array([address_of(x), address_of(found)], np.uint64)
    thread = team.start(first, io)
    time.sleep(LATE_SECONDS)
    assert (team.scratch(first) != 0xC5).any() and (team.scratch(1 - first) == 0xC5).all()
    other = team.start(1 - first, io)
    thread.join()
    other.join()
    assert (team.scratch(1 - first) != 0xC5).any()
