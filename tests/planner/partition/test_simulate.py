"""The simulator: small cases by hand, conservation, and bounds that any schedule keeps, on random DAGs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parax.compiler.costs.cost import Cost
from parax.compiler.planner.partition.simulate import (
    SPREAD,
    Greedy,
    Instances,
    Latencies,
    Layers,
    Part,
    Pipeline,
    Policy,
    Sequential,
    Timeline,
    Work,
    lat_greedy,
    lat_sequential,
    seconds_alone,
    simulate,
)
from parax.compiler.targets.machine import Machine
from parax.errors import UsageError
from sampling import thorough

BOX = Machine(
    "box", cores_per_socket=4, flops_per_core=1.0, bandwidth_per_core=2.0, bandwidth_per_socket=4.0,
    barrier_seconds=0.0, kernel_seconds=0.0, call_seconds=0.0, efficiency={"conv": 1.0},
)  # fmt: skip
TWO_SOCKETS = replace(BOX, n_sockets=2, cores_per_socket=2, remote_bandwidth=1.0)


def work(flops: float, nbytes: float = 0.0, after: tuple[int, ...] = (), items: int = 1 << 20) -> Work:
    return Work("w", Cost(flops, nbytes, 0.0, 0.0, items, "conv"), after)


def view(*after: int) -> Work:
    return Work("v", Cost(0.0, 0.0, 0.0, 0.0, 1, "view"), after)


def starts(timeline: Timeline) -> dict[tuple[int, int], float]:
    return {(span.work, span.batch): span.start for span in timeline.spans}


def test_arithmetic_or_memory_decides() -> None:
    assert seconds_alone(work(8).cost, BOX, 1) == pytest.approx(8)
    assert seconds_alone(work(8).cost, BOX, 4) == pytest.approx(2, rel=1e-4)
    assert seconds_alone(work(8, 32).cost, BOX, 1) == pytest.approx(16), "2 bytes a second and core"
    assert seconds_alone(work(8, 32).cost, BOX, 4) == pytest.approx(8), "4 bytes a second and socket"
    assert seconds_alone(work(8, items=2).cost, BOX, 4) == pytest.approx(4), "no more cores than items"
    assert seconds_alone(work(9, items=3).cost, BOX, 2) == pytest.approx(6), "two items, then one"


def test_arithmetic_hides_memory_but_for_what_is_exposed() -> None:
    machine = replace(BOX, exposed=0.25)
    assert seconds_alone(work(8, 4).cost, machine, 1) == pytest.approx(8 + 0.25 * 2), "arithmetic is longer"
    assert seconds_alone(work(8, 32).cost, machine, 1) == pytest.approx(16 + 0.25 * 8), "memory is longer"
    assert seconds_alone(work(8).cost, machine, 1) == pytest.approx(8), "nothing from memory"


def test_fixed_costs() -> None:
    machine = replace(BOX, barrier_seconds=1.0, kernel_seconds=0.5, call_seconds=10.0)
    assert seconds_alone(work(4).cost, machine, 4) == pytest.approx(1 + 0.5 + 2, rel=1e-4)
    assert simulate([work(1), work(1, after=(0,))], machine, Sequential(1)).total_seconds == pytest.approx(13)


def test_sequential_runs_in_order() -> None:
    found = simulate([work(4), work(8, after=(0,)), view(1)], BOX, Sequential(4))
    assert found.total_seconds == pytest.approx(3, rel=1e-4)
    assert [(s.work, s.cores) for s in found.spans] == [(0, (0, 4)), (1, (0, 4))]
    assert found.core_use == pytest.approx(1)
    assert found.flops == 12


def test_greedy_shares_cores_by_what_is_to_do() -> None:
    found = simulate([work(6), work(2)], BOX, Greedy(4))
    assert found.total_seconds == pytest.approx(2, rel=1e-4)
    assert sorted(s.cores[1] for s in found.spans) == [1, 3]
    assert lat_greedy([work(6), work(2)], BOX, 4) == pytest.approx(2, rel=1e-4)
    assert lat_sequential([work(6), work(2)], BOX, 4) == pytest.approx(2, rel=1e-4)


def test_greedy_prefers_the_longest_way_to_the_end() -> None:
    works = [work(1, items=1), work(1, items=1), work(3, items=1, after=(1,))]
    found = simulate(works, BOX, Greedy(1))
    assert [s.work for s in found.spans] == [1, 2, 0]


def test_greedy_sees_through_views() -> None:
    found = simulate([work(4), view(0), work(4, after=(1,))], BOX, Greedy(4))
    assert found.total_seconds == pytest.approx(2, rel=1e-4)
    assert starts(found)[2, 0] == pytest.approx(1, rel=1e-4)


def test_bandwidth_is_shared_max_min_fairly() -> None:
    """Three cores want 0.5, 2 and 2 of 4 bytes a second: the small one gets its wish, the others 1.75 each."""
    works = [work(8, 4, items=1), work(0, 7, items=1), work(0, 7, items=1)]
    layers = Layers(((Part(0, 1, (0,)), Part(1, 1, (1,)), Part(2, 1, (2,))),), beside=1.0)
    for found in (simulate(works, BOX, layers), simulate(works, BOX, Greedy(4))):
        ends = {s.work: s.end for s in found.spans}
        assert ends == pytest.approx({0: 8.0, 1: 4.0, 2: 4.0})
        assert found.bandwidth_peak == pytest.approx(1)
        assert found.bandwidth_use == pytest.approx(18 / (4 * 8))


def test_instances_share_the_memory() -> None:
    alone = simulate([work(1, 2)], BOX, Instances(1))
    four = simulate([work(1, 2)], BOX, Instances(4, batch_each=3))
    assert alone.total_seconds == pytest.approx(1)
    assert four.total_seconds == pytest.approx(2), "8 bytes at 4 a second"
    assert (four.rows, four.rows_per_second) == (12, pytest.approx(6))
    assert sorted((s.cores, s.batch) for s in four.spans) == [((i, 1), i) for i in range(4)]


def test_instances_read_their_common_weights_once_a_socket() -> None:
    weights = Work("w", Cost(1.0, 0.0, 0.0, 8.0, 1, "conv"))
    assert simulate([weights], BOX, Instances(4)).total_seconds == pytest.approx(2)
    assert simulate([weights], BOX, Instances(4, shares_weights=False)).total_seconds == pytest.approx(8)
    assert simulate([weights], TWO_SOCKETS, Instances(4)).total_seconds == pytest.approx(2)


def test_delayed_start_takes_turns_at_the_memory() -> None:
    """Compute 4 s, then move 8 bytes: all four at once wait for memory; two groups hide one half's moves."""
    works = [work(4), work(0, 8, after=(0,))]
    together = simulate(works, BOX, Instances(4))
    turns = simulate(works, BOX, Instances(4, delay_groups=2, delay_seconds=4.0))
    assert together.total_seconds == pytest.approx(4 + 8)
    assert turns.total_seconds == pytest.approx(4 + 4 + 4), "each pair has 2 bytes a second and core"
    assert {b: t for (w, b), t in starts(turns).items() if w == 0} == pytest.approx({0: 0, 1: 0, 2: 4, 3: 4})


def test_delay_groups_are_those_of_the_paper() -> None:
    """Of p instances of a socket, instance j belongs to group ⌊j·n/p⌋."""
    found = simulate([work(1)], replace(BOX, cores_per_socket=5), Instances(5, delay_groups=3, delay_seconds=1.0))
    assert {b: round(t) for (_, b), t in starts(found).items()} == {j: j * 3 // 5 for j in range(5)}


def test_data_on_one_socket_is_slow_for_the_other() -> None:
    job = [work(0, 8)]
    assert simulate(job, TWO_SOCKETS, Sequential(4)).total_seconds == pytest.approx(1)
    assert simulate(job, TWO_SOCKETS, Sequential(4, home=0)).total_seconds == pytest.approx(4), "4 of 8 at 1 a second"


def test_spread_data_cross_between_sockets_half_of_the_time() -> None:
    job = [work(0, 8)]
    near = simulate(job, TWO_SOCKETS, Sequential(4)).total_seconds
    spread = simulate(job, TWO_SOCKETS, Sequential(4, home=SPREAD)).total_seconds
    assert spread == pytest.approx(2), "each socket takes 4, 2 of them at 1 a second from the other"
    assert near < spread < simulate(job, TWO_SOCKETS, Sequential(4, home=0)).total_seconds
    one_socket = simulate(job, TWO_SOCKETS, Sequential(2, home=SPREAD)).total_seconds
    assert one_socket == simulate(job, TWO_SOCKETS, Sequential(2)).total_seconds


def test_a_pipeline_has_its_bubble() -> None:
    """K equal stages and M micro-batches take M + K − 1 steps: idle (K − 1)/(M + K − 1) of the time."""
    stages = tuple(Part(k, 1, (k,)) for k in range(3))
    works = [work(2, items=1), work(2, items=1, after=(0,)), work(2, items=1, after=(1,))]
    found = simulate(works, replace(BOX, cores_per_socket=3), Pipeline(stages, 6))
    assert found.total_seconds == pytest.approx(2 * (6 + 3 - 1))
    assert 1 - found.core_use == pytest.approx(2 / 8)


def test_a_pipeline_waits_for_a_free_buffer() -> None:
    """The second stage is slow: the first may be two micro-batches ahead of its end, no more."""
    stages = (Part(0, 1, (0,)), Part(1, 1, (1,)))
    found = starts(simulate([work(1), work(5, after=(0,))], BOX, Pipeline(stages, 4)))
    assert [found[0, m] for m in range(4)] == pytest.approx([0, 1, 6, 11])


def test_layers_meet_at_their_end() -> None:
    works = [work(2, items=1), work(1, items=1), work(4, after=(0, 1))]
    layers = Layers(((Part(0, 1, (0,)), Part(1, 3, (1,))), (Part(0, 4, (2,)),)), beside=1.5)
    found = simulate(works, replace(BOX, barrier_seconds=0.5), layers)
    assert starts(found)[2, 0] == pytest.approx(2 * 1.5 + 2 * 0.5)
    assert found.total_seconds == pytest.approx(2 * 1.5 + 2 * 0.5 + 1 + 2 * 0.5 + BOX.call_seconds)


def test_measured_seconds_replace_predicted_ones() -> None:
    """A work that took twice the predicted time on one core is taken to do so on two; the nearest number decides."""
    slow = replace(work(4), measured={1: 8.0})
    assert simulate([slow], BOX, Sequential(1)).total_seconds == pytest.approx(8)
    assert simulate([slow], BOX, Sequential(2)).total_seconds == pytest.approx(4)
    uneven = replace(work(4), measured={1: 4.0, 4: 3.0})
    assert [simulate([uneven], BOX, Sequential(n)).total_seconds for n in (1, 4)] == pytest.approx([4, 3])


@pytest.mark.parametrize(
    "policy",
    [Sequential(5), Sequential(0), Greedy(5), Instances(3, 2), Layers(((Part(3, 2, (0, 1)),),)),
     Layers(((Part(0, 1, (0,)),),)), Layers(((Part(0, 1, (0, 0, 1)),),)), Pipeline((Part(0, 1, (0,)),), 2)],
)  # fmt: skip
def test_impossible_policies_are_refused(policy: Policy) -> None:
    with pytest.raises(UsageError):
        simulate([work(1), work(1)], BOX, policy)


@st.composite
def dags(draw: st.DrawFn) -> list[Work]:
    works: list[Work] = []
    for i in range(draw(st.integers(1, 14))):
        after = tuple(sorted(draw(st.sets(st.integers(0, i - 1), max_size=3)))) if i else ()
        if draw(st.integers(0, 9)) == 0:
            works.append(view(*after))
        else:
            flops, nbytes = draw(st.floats(0.01, 10)), draw(st.sampled_from([0.0, 0.5, 3.0, 20.0]))
            works.append(work(flops, nbytes, after, draw(st.sampled_from([1, 2, 3, 64]))))
    return works


def longest_way(works: list[Work], machine: Machine) -> float:
    """Seconds of the critical path when every work has all cores and the memory for itself, barriers left out."""
    ends: list[float] = []
    for w in works:
        least = min(seconds_alone(w.cost, machine, n) for n in range(1, machine.n_cores + 1))
        ends.append(least + max((ends[b] for b in w.after), default=0.0))
    return max(ends)


@thorough(150, deadline=None)
@given(dags(), st.sampled_from([1, 2, 4]))
def test_greedy_keeps_the_bounds_of_every_schedule(works: list[Work], n_cores: int) -> None:
    machine = replace(BOX, cores_per_socket=n_cores, bandwidth_per_socket=3.0)
    found = simulate(works, machine, Greedy(n_cores))
    flops, nbytes = sum(w.cost.flops for w in works), sum(w.cost.nbytes for w in works)
    slack = 1 - 1e-9
    assert found.flops == pytest.approx(flops)
    assert found.total_seconds >= flops / n_cores * slack
    assert found.total_seconds >= nbytes / machine.bandwidth * slack
    assert found.total_seconds >= longest_way(works, machine) * slack
    assert found.total_seconds <= sum(seconds_alone(w.cost, machine, 1) for w in works) / slack, "worse than one core"
    assert found.bandwidth_peak <= 1 + 1e-9
    assert found.core_use <= 1 + 1e-9
    _runs_each_once_in_order(works, found)


@thorough(100, deadline=None)
@given(dags(), st.sampled_from([(1, 1), (2, 1), (2, 2), (4, 1)]), st.integers(1, 3), st.booleans())
def test_instances_conserve_work_and_bandwidth(
    works: list[Work], shape: tuple[int, int], groups: int, two: bool
) -> None:
    machine = TWO_SOCKETS if two else BOX
    found = simulate(works, machine, Instances(*shape, delay_groups=groups, delay_seconds=0.3))
    assert found.flops == pytest.approx(shape[0] * sum(w.cost.flops for w in works))
    assert found.bandwidth_peak <= 1 + 1e-9
    one = simulate(works, machine, Instances(1, shape[1]))
    assert found.total_seconds >= one.total_seconds * (1 - 1e-9), "company makes nobody faster"
    _runs_each_once_in_order(works, found)


@thorough(100, deadline=None)
@given(dags())
def test_sequential_is_the_sum_of_its_works(works: list[Work]) -> None:
    found = simulate(works, BOX, Sequential(4))
    assert found.total_seconds == pytest.approx(lat_sequential(works, BOX, 4))
    assert found.total_seconds == pytest.approx(Latencies(works, BOX, 4).sequential(range(len(works))))
    _runs_each_once_in_order(works, found)


def _runs_each_once_in_order(works: list[Work], found: Timeline) -> None:
    ended = {(s.work, s.batch): s.end for s in found.spans}
    real = {i for i, w in enumerate(works) if w.cost.kind != "view"}
    assert {i for i, _ in ended} == real
    for (i, batch), start in starts(found).items():
        for b in works[i].after:
            assert b not in real or ended[b, batch] <= start + 1e-9
    at = sorted((s.cores[0] + k, s.start, s.end) for s in found.spans for k in range(s.cores[1]))
    for (core, _, end), (other, start, _) in zip(at, at[1:]):
        assert core != other or end <= start + 1e-9, "two works on one core"


def test_latencies_of_subsets_are_quick_and_agree() -> None:
    works = [work(1 + i % 5, (i % 3) * 2.0, (i - 3,) if i >= 3 else ()) for i in range(30)]
    known = Latencies(works, BOX, 4)
    part = [0, 3, 6, 1, 4]
    picked = [replace(works[i], after=tuple(part.index(b) for b in works[i].after if b in part)) for i in part]
    assert known.greedy(part) == pytest.approx(lat_greedy(picked, BOX, 4))
    assert known.sequential(part) == pytest.approx(lat_sequential(picked, BOX, 4))
    assert known.greedy(set(part)) == known.greedy(tuple(part))
