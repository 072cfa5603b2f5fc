"""Which ways to run a plan are tried, and what the model says of them on described machines."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.ir.text import parse_graph
from parax.compiler.planner.candidate import (
    PIPELINED,
    Candidate,
    Load,
    arrangements,
    micro_batches,
    sequential_candidates,
)
from parax.compiler.planner.planner import Planner, worth_running
from parax.compiler.planner.predict import CUT_SECONDS, JOIN_SECONDS, Predictor, fewest_rows
from parax.compiler.targets.machine import Machine
from parax.runtime.cut import row_ranges

MACHINE = Machine("four", 4, 100e9, 10e9, 20e9, l2_nbytes=1 << 20, l3_nbytes=8 << 20)
CHAIN = """graph @g(%x: f32[N,512]) {
  %a = const f32[512,512] "a"
  %1 = MatMul(%x, %a)
  %2 = Relu(%1)
  %3 = MatMul(%2, %a)
  return %3
}"""


def test_cores_are_divided_evenly_and_by_powers_of_two() -> None:
    assert arrangements(1) == [(1, 1)]
    assert arrangements(2) == [(1, 2), (2, 1)]
    assert arrangements(7) == [(1, 7), (2, 3), (7, 1)]
    assert arrangements(56) == [(1, 56), (2, 28), (4, 14), (7, 8), (8, 7), (14, 4), (16, 3), (28, 2), (56, 1)]


def test_micro_batches_are_powers_of_two_and_the_whole() -> None:
    assert micro_batches(1) == [1]
    assert micro_batches(6) == [1, 2, 4, 6]
    assert micro_batches(64) == [1, 2, 4, 8, 16, 32, 64]
    assert micro_batches(5000)[-1] == 1024


def test_candidates_of_a_request_that_is_cut() -> None:
    names = [c.name for c in sequential_candidates(2, Load(4), most_rows=None)]
    assert names == ["1 × 2 cores", "2 × 1 core"]
    names = [c.name for c in sequential_candidates(2, Load(4), most_rows=2)]
    assert names == [
        "1 × 2 cores, 1 row a call", "1 × 2 cores, 2 rows a call",
        "2 × 1 core, 1 row a call", "2 × 1 core, 2 rows a call",
    ]  # fmt: skip


def test_a_candidate_says_what_it_is() -> None:
    candidate = Candidate(2, 14, 3, "pipelined", 2, 6, 2, 0.01)
    assert candidate.name == (
        "2 × 14 cores, pipelined, 2 stages, 6 micro-batches, 2 groups 10 ms apart, 3 rows a call"
    )


def planner(hint: str = "latency", text: str = CHAIN, machine: Machine = MACHINE) -> Planner:
    graph = parse_graph(text, {"a": np.ones((512, 512), np.float32)})
    return Planner(graph, machine, machine.n_cores, hint)


def test_a_request_takes_its_pieces_on_the_instance_that_ends_last_and_one_call() -> None:
    predictor = planner().predictor
    found = predictor.predict(Candidate(2, 2, 3), Load(14))
    sizes = [n for _, n in row_ranges(14, 2, 3)]
    each = [predictor.run(2, 2, n).total_seconds - MACHINE.call_seconds for n in sizes]
    ends = [0.0, 0.0]
    for seconds in each:  # the first that is free takes the next piece
        ends[ends.index(min(ends))] += seconds
    assert len(set(sizes)) > 1
    assert found.seconds == pytest.approx(max(ends) + MACHINE.call_seconds + CUT_SECONDS + JOIN_SECONDS)
    assert (found.active, found.calls) == (2, len(sizes) // 2)
    assert found.items_per_second == pytest.approx(14 / found.seconds)


def test_whole_requests_are_not_cut_and_single_cores_wait_for_nobody() -> None:
    predictor = planner().predictor
    alone, four = (predictor.predict(Candidate(1, cores, 8), Load(8)) for cores in (1, 4))
    assert alone.seconds == pytest.approx(predictor.run(1, 1, 8).total_seconds)
    assert four.seconds == pytest.approx(predictor.run(1, 4, 8).total_seconds + JOIN_SECONDS)


def test_a_pipelines_request_is_cut_too() -> None:
    predictor = planner().predictor
    found = predictor.pipelined(4, 64)
    assert found is not None and found.schedule.micro_batches is not None
    piped = Candidate(1, 4, None, PIPELINED, len(found.schedule.stages), found.schedule.micro_batches)
    seconds = predictor.predict(piped, Load(64)).seconds
    assert seconds == pytest.approx(found.timeline.total_seconds + CUT_SECONDS + JOIN_SECONDS)


def test_one_request_leaves_instances_without_rows_idle() -> None:
    predictor = planner().predictor
    alone, both = (predictor.predict(Candidate(4, 1, 8), Load(1, saturated)) for saturated in (False, True))
    assert (alone.active, both.active) == (1, 4)
    assert both.items_per_second > 2 * alone.items_per_second


def test_barriers_are_counted_where_cores_share_kernels() -> None:
    predictor = planner().predictor
    assert predictor.predict(Candidate(4, 1, 1), Load(1)).barrier_share == 0.0
    shared = predictor.predict(Candidate(1, 4, 1), Load(1))
    assert shared.barrier_share == pytest.approx(3 * MACHINE.barrier(4) / shared.timeline.total_seconds)


def test_weights_that_no_cache_holds_make_a_single_row_wait_for_memory() -> None:
    small = Machine("small", 4, 100e9, 10e9, 20e9, l2_nbytes=1 << 14, l3_nbytes=1 << 16)
    predictor = planner(machine=small).predictor
    shares = [predictor.predict(Candidate(1, 4, rows), Load(256)).memory_share for rows in (1, 256)]
    assert shares[0] > 0.9 > 0.5 > shares[1]


def test_each_instance_has_its_part_of_the_last_cache() -> None:
    assert MACHINE.caches(1, 4) == (4 << 20, 8 << 20)
    assert MACHINE.caches(4, 1) == (1 << 20, 2 << 20)
    assert MACHINE.caches(1, 1) == (1 << 20, 8 << 20)


def test_an_instance_is_not_woken_for_less_than_its_hand_off() -> None:
    predictor = planner().predictor
    rows = fewest_rows(predictor)
    assert predictor.run(1, 1, rows).total_seconds >= 2 * MACHINE.call_seconds
    assert rows == 1 or predictor.run(1, 1, rows // 2).total_seconds < 2 * MACHINE.call_seconds


def test_a_batch_that_mixes_rows_is_not_cut() -> None:
    mixed = "graph @g(%x: f32[N,512]) {\n%1 = Softmax(%x) {axis=0}\n return %1\n}"
    found = planner(text=mixed)
    assert found.symbol is None
    assert found.load() == Load(32)
    assert [row.candidate.rows for row in found.rows(found.load())] == [None] * 3


def test_what_is_run_covers_every_arrangement_that_may_win() -> None:
    found = planner("throughput")
    load = found.load(64)
    rows = found.rows(load)
    few = worth_running(rows, load, 3)
    assert len({(row.candidate.instances, row.candidate.cores_each) for row in few}) == 3
    assert few[0].cost(load) == min(row.cost(load) for row in rows)


def test_predictions_are_remembered() -> None:
    predictor = Predictor(planner().graph, MACHINE, "N")
    assert predictor.run(2, 1, 4) is predictor.run(2, 1, 4)
