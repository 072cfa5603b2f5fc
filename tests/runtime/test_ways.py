"""Sessions that find out which instances serve a lone request soonest, and go back to one each for several."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from inside import executor_of
from parax.errors import ResourceLimit
from parax.runtime import Plan
from parax.runtime.executor import Executor
from parax.runtime.topology import machine
from parax.runtime.ways import MOST_TRIALS, SAMPLES, Way, Ways

Build = Callable[..., Plan]
two_cores = pytest.mark.skipif(len(machine().default_cores()) < 2, reason="needs two usable cores")
NARROW = {"cores": 2, "instances": 2, "cores_each": 1}
CORES = machine().default_cores()[:2]


class Clock:
    """Stands for executors, of which each takes so long."""

    def __init__(self, **seconds: float) -> None:
        self.now, self.busy, self.lent = 0.0, False, 0
        self.places = {name: (self if name == "own" else Other(name), name) for name in seconds}
        self.seconds = seconds

    def is_idle(self) -> bool:
        return not self.busy

    def lend(self, work: Callable[[], None]) -> bool:
        if self.busy:
            return False
        self.lent += 1
        work()
        return True

    def ways(self) -> Ways:
        made = [Way(name, 1 if name == "narrow" else 2, lambda place=place: place)  # type: ignore[misc]
                for name, place in self.places.items()]  # fmt: skip
        return Ways(self, made)  # type: ignore[arg-type]

    def run(self, _: object, name: Any) -> None:
        self.now += self.seconds[name]

    def run_and_be_joined(self, executor: Executor, name: Any) -> None:
        self.run(executor, name)
        self.busy = True


class Other:
    def __init__(self, name: str) -> None:
        self.name = name


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Clock]:
    def make(**seconds: float) -> Clock:
        made = Clock(**seconds)
        monkeypatch.setattr("parax.runtime.ways.time.perf_counter", lambda: made.now)
        return made

    return make


@pytest.mark.parametrize(("seconds", "best"), [
    ({"own": 1.0, "wide": 0.7}, "wide"), ({"wide": 1.0, "own": 0.7}, "own"),
    ({"own": 1.0, "wide": 0.99}, "own"), ({"wide": 1.0, "own": 0.99}, "wide"),
    ({"own": 2.9, "wide": 2.0, "half": 1.4}, "half"),
])  # fmt: skip
def test_the_quickest_way_is_taken_once_all_were_timed(clock: Any, seconds: dict[str, float], best: str) -> None:
    made = clock(**seconds)
    ways = made.ways()
    for _ in range(SAMPLES * len(seconds)):
        assert ways.chosen is None
        assert ways.serve(made.run)
    assert ways.chosen is not None and ways.chosen.name == best
    assert ways.statistics()["chosen"] == best
    assert ways.serve(made.run) is (best != "own")


@pytest.mark.parametrize("slower", [1.6, 3.0])
def test_a_way_that_took_far_longer_is_not_tried_again(clock: Any, slower: float) -> None:
    made = clock(own=1.0, wide=slower)
    ways = made.ways()
    assert all(ways.serve(made.run) for _ in range(SAMPLES + 1))
    assert ways.chosen is not None and ways.chosen.name == "own" and made.lent == 1
    assert ways.statistics()["timed"]["wide"] == pytest.approx({"seconds": slower, "requests": 1})


def test_a_way_that_took_far_longer_is_given_up_when_that_shows(clock: Any) -> None:
    made = clock(own=3.0, half=1.0, wide=2.0)
    ways = made.ways()
    for _ in range(2 * SAMPLES + 1):  # the predicted way is timed as often as ever
        assert ways.chosen is None
        ways.serve(made.run)
    assert ways.chosen is not None and ways.chosen.name == "half"
    assert {name: way["requests"] for name, way in ways.statistics()["timed"].items()} == {
        "own": SAMPLES, "wide": 1, "half": SAMPLES}  # fmt: skip


def test_short_requests_are_timed_often_whatever_one_took(clock: Any) -> None:
    made = clock(own=1e-3, wide=5e-3)
    ways = made.ways()
    for _ in range(2 * SAMPLES):
        assert ways.chosen is None
        ways.serve(made.run)
    assert ways.chosen is not None and ways.chosen.name == "own"


@pytest.mark.parametrize(("seconds", "tried"), [(0.02, False), (0.005, True)])
def test_long_requests_are_not_tried_on_fewer_cores(clock: Any, seconds: float, tried: bool) -> None:
    made = clock(wide=seconds, narrow=seconds / 2, own=2 * seconds)
    ways = made.ways()
    for _ in range(4 * SAMPLES):
        ways.serve(made.run)
    assert ("narrow" in ways.statistics()["timed"]) is tried
    assert ways.chosen is not None and ways.chosen.name == ("narrow" if tried else "wide")


def test_a_way_is_timed_by_requests_that_follow_each_other(clock: Any) -> None:
    """Its threads fall asleep while others are used, and to wake them takes longer than a short request."""
    made, names = clock(own=1e-5, wide=2e-5), []
    ways = made.ways()
    for _ in range(2 * SAMPLES):
        ways.serve(lambda executor, name: names.append(name))
    assert names == ["own"] * SAMPLES + ["wide"] * SAMPLES


def test_requests_beside_others_are_not_timed(clock: Any) -> None:
    made = clock(own=1.0, wide=0.5)
    ways = made.ways()
    made.busy = True
    assert not any(ways.serve(made.run) for _ in range(50))
    assert ways.statistics() == {"chosen": None, "timed": {}} and made.now == 0


def test_a_request_that_others_join_is_served_but_does_not_count(clock: Any) -> None:
    made = clock(own=1.0, wide=0.5)
    ways = made.ways()
    assert ways.serve(made.run_and_be_joined)
    assert ways.statistics()["timed"] == {}


def test_trials_that_others_always_join_end(clock: Any) -> None:
    made = clock(wide=0.5, own=1.0)
    ways = made.ways()
    for _ in range(2 * MOST_TRIALS):
        assert ways.chosen is None
        made.busy = False
        assert ways.serve(made.run_and_be_joined)
    assert ways.chosen is not None and ways.chosen.name == "wide"  # as predicted: nothing else is known


def test_a_request_that_fails_does_not_count(clock: Any) -> None:
    ways = clock(own=1.0, wide=0.5).ways()

    def fail(*_: object) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        ways.serve(fail)
    assert ways.statistics()["timed"] == {}


def test_ways_that_cannot_be_made_are_left_out(clock: Any) -> None:
    made = clock(wide=0.5, own=1.0)

    def fail() -> Any:
        raise ResourceLimit("the system gives no more threads")

    wide, own = Way("wide", 2, fail), Way("own", 2, lambda: made.places["own"])
    ways = Ways(made, [wide, own])
    assert not ways.serve(made.run) and not ways.serve(made.run)
    assert ways.chosen is own and ways.stays
    alone = Ways(made, [wide])
    assert not alone.serve(made.run) and alone.stays


def test_another_thread_sees_a_choice_whole(clock: Any) -> None:
    """While it is made the own instances may not be lent: whoever holds them all would wait for one of them."""
    made = clock(own=1.0, wide=2.0)
    seen: list[object] = []

    class Watched(Ways):
        __slots__ = ()

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name in ("chosen", "stays") and hasattr(self, "stays") and self.chosen is not None:
                seen.append((self.stays, self.serve(made.run)))

    ways = Watched(made, made.ways()._ways)  # type: ignore[arg-type]
    assert all(ways.serve(made.run) for _ in range(SAMPLES + 1))
    assert seen == [(True, False)]
    ways.stays = False
    assert not ways.serve(made.run), "in any case"


def rows(n: int) -> np.ndarray:
    return np.arange(n * 4, dtype=np.float32).reshape(n, 4)


@two_cores
def test_a_session_decides_for_each_shape_and_says_so(add_plan: Build) -> None:
    with add_plan(arrangement=NARROW).session(cores=CORES) as session:
        assert session.statistics() == []
        for n in (1, 9):
            for _ in range(2 * SAMPLES):
                assert np.array_equal(session.run({"x": rows(n)})["y"], rows(n) + 1)
        found = session.statistics()
        assert [record["rows"] for record in found] == [1, 9] and found[0]["shapes"] == [[1, 4]]
        for record in found:
            assert record["chosen"] in ("2 × 1 core", "1 × 2 cores")
            requests = {way["requests"] for way in record["timed"].values()}
            assert requests and requests <= set(range(1, SAMPLES + 1))


@two_cores
@pytest.mark.parametrize("given", [
    {"adapt": False}, {"instances": 2}, {"cores_per_instance": 2}, {"micro_batch": 4}, {"mode": "sequential"},
])  # fmt: skip
def test_what_is_fixed_stays(add_plan: Build, given: dict[str, Any]) -> None:
    with add_plan(arrangement=NARROW).session(cores=CORES, **given) as session:
        for _ in range(4 * SAMPLES):
            session.run({"x": rows(3)})
        assert session.statistics() == []


@two_cores
def test_from_one_caller_to_eight_and_back(add_plan: Build) -> None:
    wrong: list[object] = []

    def client(seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(count):
                x = rng.standard_normal((int(rng.choice([1, 2, 8])), 4)).astype(np.float32)
                if not np.array_equal(session.run({"x": x})["y"], x + np.float32(1)):
                    wrong.append(x)
        except Exception as error:
            wrong.append(error)

    with add_plan(arrangement=NARROW).session(cores=CORES) as session:
        for turn in range(20):
            client(turn, 5)
            threads = [threading.Thread(target=client, args=(100 * turn + i, 10)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        assert not wrong
        assert len(executor_of(session).free) == session.instances
        assert {record["rows"] for record in session.statistics()} == {1, 2, 8}
