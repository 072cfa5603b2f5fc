"""What the linker makes of schedules, on interpreted cores: pipelines and layers, in many interleavings.

Whatever one core reads of another's must be ordered by a release and an acquire, which no run on x86-64 shows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from parax.compiler.backend import link_programs, link_schedule, link_waves
from parax.compiler.backend.link import entry
from parax.compiler.backend.link_parts import segment_parts
from parax.compiler.backend.link_schedule import scheduled_entry
from parax.compiler.backend.lower import (
    Arena,
    Input,
    Output,
    Place,
    PlacedBranch,
    PlacedCall,
    PlacedStage,
    RotatingBuffer,
    ScheduledSegment,
    Segment,
)
from parax.compiler.backend.lowering import KernelCall
from parax.compiler.backend.programs import Body, Kernels, Program, Repetition
from parax.compiler.ir.ops.iterations import Iterations, Slices
from parax.compiler.ir.schedule import Schedule
from parax.compiler.ir.types import F32, TensorType
from parax.compiler.kernel_ir import synchronisation
from parax.compiler.kernel_ir.builder import F32PTR, kernel
from parax.compiler.kernel_ir.interpreter import Pointer, interpret_cores
from parax.compiler.kernel_ir.loops import KFunc, all_functions
from parax.compiler.kernel_ir.parser import parse_function
from parax.compiler.kernel_ir.verifier import verify_function
from parax.errors import InternalError
from parax.runtime.sync import SLOT_NBYTES, sync_nbytes

N, NBYTES, SEEDS = 6, 64, range(12)  # elements of every buffer, each in a line of its own
SITE = 7  # that a kernel leaves for an element below 0


def doubling() -> KFunc:
    """y[i] = 2 x[i] + 1 for the items; an error where x[i] < 0."""
    k = kernel("double", [("x", F32PTR), ("y", F32PTR)])

    def item(i: object, _: object) -> None:
        x = k.load(k["x"], i)
        k.if_(x < 0.0, lambda: k.fail(SITE))
        k.store(k["y"], i, x * 2.0 + 1.0)

    k.for_(k["begin"], k["end"], 1, [], item)
    return k.func


DOUBLE = doubling()


def placed(source: Place, result: Place) -> PlacedCall:
    return PlacedCall(KernelCall(DOUBLE, (), N), (source, result), 0, "v")


def pipeline(n_turns: int = 2) -> Segment:
    """Three stages on four cores, the second one's two meet between its layers; what crosses takes turns in buffers."""
    first, second = (RotatingBuffer(2 * NBYTES * i, NBYTES, n_turns) for i in range(2))
    inner = Arena(4 * NBYTES)
    stages = [
        PlacedStage(0, 1, [[PlacedBranch(0, 1, [placed(Input(0), first)])]]),
        PlacedStage(1, 2, [[PlacedBranch(1, 2, [placed(*places)])] for places in ((first, inner), (inner, second))]),
        PlacedStage(3, 1, [[PlacedBranch(3, 1, [placed(second, Output(0))])]]),
    ]
    scheduled = ScheduledSegment(Schedule("pipelined", 4, (), 3), stages, 5 * NBYTES)
    return Segment([], 1, 1, scheduled=scheduled)


def layers() -> Segment:
    """Two branches side by side on a core each, then a layer of both cores that has waves."""
    one, two, three = (Arena(NBYTES * i) for i in range(3))
    beside = [PlacedBranch(0, 1, [placed(Input(0), one)]), PlacedBranch(1, 1, [placed(Input(0), two)])]
    together = [PlacedBranch(0, 2, [placed(one, three), placed(three, Output(0))]),
                PlacedBranch(0, 2, [placed(two, Output(1))])]  # fmt: skip
    stages = [PlacedStage(0, 2, [beside, together])]
    return Segment([], 1, 2, scheduled=ScheduledSegment(Schedule("layered", 2, ()), stages, 3 * NBYTES))


def row() -> Segment:
    """Two calls, one after the other, on all cores."""
    return Segment([placed(Input(0), Arena(0)), placed(Arena(0), Output(0))], 1, 1, NBYTES)


class Memory:
    """Everything that the entry of a segment gets, and what its cores may reach from there."""

    def __init__(self, n_cores: int) -> None:
        self.n_cores = n_cores
        self.sync, self.arena = np.zeros(sync_nbytes(n_cores), np.uint8), np.zeros(5 * NBYTES, np.uint8)
        self.dims = np.zeros(1, np.int64)
        self.reachable = [Pointer(self.dims.view(np.uint8), 0, "dims")]

    def known(self, array: np.ndarray, name: str) -> int:
        """The address of an array that the cores may reach from now on."""
        self.reachable.append(Pointer(array.view(np.uint8), 0, name))
        return self.reachable[-1].address

    def run(self, f: KFunc, io: np.ndarray, seed: int) -> list[int]:
        """What the cores answer."""
        for each in all_functions([f]):
            verify_function(each)
        front = [Pointer(io.view(np.uint8), 0, "io"), Pointer(np.zeros(0, np.uint8), 0, "weights"),
                 Pointer(self.arena, 0, "arena"), self.reachable[0]]  # fmt: skip
        sync = Pointer(self.sync, 0, "sync")
        arguments = [[*front, tid, self.n_cores, sync] for tid in range(self.n_cores)]
        return [int(r[0]) for r in interpret_cores(f, arguments, seed, self.reachable) if r is not None]


def flow(
    segment: Segment, n_pieces: int, seed: int, negative: bool = False
) -> tuple[list[np.ndarray], list[int], Memory]:
    """The results of micro-batches that flow through a pipeline; piece p is the numbers from p on."""
    memory = Memory(4)
    sources = [np.arange(N, dtype=np.float32) + p for p in range(n_pieces)]
    if negative:
        sources[-1][2] = -1
    results = [np.zeros(N, np.float32) for _ in sources]
    tables = [np.array([memory.known(x, "in"), memory.known(y, "out")]) for x, y in zip(sources, results, strict=True)]
    pieces = np.array([[memory.known(table, "table"), memory.reachable[0].address] for table in tables]).reshape(-1)
    f = scheduled_entry(segment, 1, 0, (), trace=False)
    answers = memory.run(f, np.array([n_pieces, memory.known(pieces, "pieces")]), seed)
    return results, answers, memory


def doubled(x: np.ndarray, times: int) -> np.ndarray:
    return x * 2**times + (2**times - 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pipeline(seed: int) -> None:
    results, answers, memory = flow(pipeline(), 5, seed)
    for p, result in enumerate(results):
        np.testing.assert_array_equal(result, doubled(np.arange(N, dtype=np.float32) + p, 4))
    assert answers == [0] * 4
    slots = memory.sync.view(np.int64).reshape(-1, SLOT_NBYTES // 8)
    assert not slots[:, 12].any(), "the stages' counts must be as they were before"


def test_no_pieces_flow_through_a_pipeline() -> None:
    assert flow(pipeline(), 0, 0)[1] == [0] * 4


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pipeline_says_to_all_cores_that_a_kernel_failed(seed: int) -> None:
    assert flow(pipeline(), 3, seed, negative=True)[1] == [SITE] * 4


def fails(run: Callable[[int], object]) -> None:
    """In some interleaving a core reads or writes what another one writes, and nothing says in which order."""
    with pytest.raises(InternalError, match="in no order"):
        for seed in SEEDS:
            run(seed)


def test_one_buffer_between_stages_is_too_few() -> None:
    fails(lambda seed: flow(pipeline(n_turns=1), 5, seed))


def test_a_count_that_is_posted_without_a_release_orders_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = str(synchronisation.post_function()).replace("order=release", "order=relaxed")
    relaxed = parse_function(text)
    monkeypatch.setattr(synchronisation, "post_function", lambda: relaxed)
    fails(lambda seed: flow(pipeline(), 5, seed))


def test_a_pipeline_whose_stages_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_schedule, "barrier", lambda k, *_: None)
    fails(lambda seed: flow(pipeline(), 5, seed))


def stepped(segment: Segment, f: KFunc, n_cores: int, seed: int) -> list[np.ndarray]:
    """The results for the numbers from 0 on."""
    memory, x = Memory(n_cores), np.arange(N, dtype=np.float32)
    results = [np.zeros(N, np.float32) for _ in range(segment.n_outputs)]
    io = np.array([memory.known(x, "in"), *(memory.known(y, "out") for y in results)])
    assert memory.run(f, io, seed) == [0] * n_cores
    return results


@pytest.mark.parametrize("least", [0, link_waves.LEAST_NANOSECONDS])
@pytest.mark.parametrize("seed", SEEDS)
def test_layers_with_kernels_that_are_divided_before_and_while_they_run(
    seed: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_waves, "LEAST_NANOSECONDS", least)
    segment = layers()
    found = stepped(segment, scheduled_entry(segment, 1, 0, (), trace=False), 2, seed)
    for result, times in zip(found, (3, 2), strict=True):
        np.testing.assert_array_equal(result, doubled(np.arange(N, dtype=np.float32), times))


def test_layers_whose_cores_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_schedule, "barrier", lambda k, *_: None)
    segment = layers()
    f = scheduled_entry(segment, 1, 0, (), trace=False)
    fails(lambda seed: stepped(segment, f, 2, seed))


@pytest.mark.parametrize("n_cores", [1, 2, 3, 8])
def test_kernels_one_after_the_other_on_all_cores(n_cores: int) -> None:
    segment = row()
    f = entry(segment_parts(segment, 0, ()), 0)
    for seed in SEEDS:
        (result,) = stepped(segment, f, n_cores, seed)
        np.testing.assert_array_equal(result, doubled(np.arange(N, dtype=np.float32), 2))


def repeated(n_trips: int, n_cores: int, seed: int, is_alone: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """A loop whose state is doubled twice in each iteration, and stacked."""
    whole = TensorType(F32, (n_trips, N))
    body = Body(("i", "c", "s"), ("c", "t", "t"), (Kernels(0, ("s",), ("t",)),))
    loop = Repetition(Iterations(True, 1, (), (Slices(),)), None, None, ("x",), ("y", "rows"), body, is_led=True)
    types = {**dict.fromkeys("xsty", TensorType(F32, (N,))), "rows": whole}
    program = Program(1, loop, ("x",), ("y", "rows"), types, {}, 0, is_alone)
    f = entry([link_programs.program_part(program, {0: segment_parts(row(), 0, ())}, ())], 1)
    memory, words = Memory(n_cores), np.array([3, 3 + n_trips, 0, 0])
    x, y, rows = np.arange(N, dtype=np.float32), np.zeros(N, np.float32), np.zeros(n_trips * N, np.float32)
    io = np.array([memory.known(array, "io") for array in (words, x, y, rows)])
    assert memory.run(f, io, seed) == [0] * n_cores
    assert words.tolist() == [3, 3 + n_trips, 3 + n_trips, 1]
    return y, rows.reshape(n_trips, N)


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("n_cores", [1, 2, 3])
@pytest.mark.parametrize("n_trips", [0, 1, 4])
def test_kernels_that_are_repeated(n_trips: int, n_cores: int, is_alone: bool) -> None:
    x = np.arange(N, dtype=np.float32)
    for seed in SEEDS:
        y, rows = repeated(n_trips, n_cores, seed, is_alone)
        np.testing.assert_array_equal(y, doubled(x, 2 * n_trips))
        np.testing.assert_array_equal(rows, [doubled(x, 2 * (i + 1)) for i in range(n_trips)] or np.zeros((0, N)))


def test_iterations_whose_cores_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_programs, "barrier", lambda k, *_: None)
    fails(lambda seed: repeated(4, 2, seed))


def test_an_address_of_memory_that_is_not_the_segments() -> None:
    memory = Memory(1)
    with pytest.raises(InternalError, match="0x1000 in io is the address of no memory"):
        memory.run(entry(segment_parts(row(), 0, ()), 0), np.array([0x1000, 0x1000]), 0)
