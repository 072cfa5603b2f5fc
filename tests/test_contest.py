"""Interleaved measuring: order, at least one call each, errors, ratios."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from fake_clock import FakeClock
from parax.compiler import contest
from parax.compiler.contest import Contestant

CLOCK = FakeClock()


@pytest.fixture(autouse=True)
def time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "WARM_UP_SECONDS", 0.001)
    monkeypatch.setattr(contest, "time", CLOCK)


def sleeper(side: str, seconds: float, clients: int = 1, items: int = 1) -> Contestant:
    return Contestant(side, f"{clients} clients", [lambda: CLOCK.sleep(seconds)] * clients, items)


def test_rounds_alternate() -> None:
    order: list[str] = []

    def call(name: str) -> None:
        order.append(name)
        CLOCK.sleep(0.001)

    contestants = [Contestant(name, "", [partial(call, name)], 1) for name in "ab"]
    contest.hold(contestants, 0.001, 3, lambda what, done: order.append("|"))
    measured = "".join(order).split("|")[-6:]
    assert [set(part) for part in measured] == [{"a"}, {"b"}] * 3
    assert all(len(c.rates) == 3 for c in contestants)


def test_the_faster_side_has_the_ratio_above_one() -> None:
    fast, slow = sleeper("ours", 0.002), sleeper("theirs", 0.01)
    contest.hold([fast, slow], 0.1, 2, lambda what, done: None)
    ratios = {ratio.what: ratio for ratio in contest.compare([fast, slow], "ours", "theirs")}
    assert ratios["throughput"].least > 1
    assert ratios["latency"].middle > 1
    assert fast.latency(0.5) < slow.latency(0.5)


def test_each_side_competes_with_its_best_set_up() -> None:
    one, four = sleeper("ours", 0.01), sleeper("ours", 0.01, clients=4)
    peer = sleeper("theirs", 0.01)
    contest.hold([one, four, peer], 0.1, 2, lambda what, done: None)
    ratios = {ratio.what: ratio for ratio in contest.compare([one, four, peer], "ours", "theirs")}
    assert ratios["throughput"].ours == "4 clients"
    assert ratios["latency"].ours == "1 clients"


def test_items_count_rows() -> None:
    contestant = sleeper("a", 0.25, items=10)
    rate, seconds = contestant.run_for(1.0)
    assert rate == pytest.approx(10 / 0.25)
    assert seconds == pytest.approx([0.25] * 4)


def test_an_error_in_a_client_reaches_the_caller() -> None:
    def fail() -> None:
        raise ValueError("no")

    contestant = Contestant("a", "", [fail, lambda: CLOCK.sleep(0.001)], 1)
    with pytest.raises(ValueError, match="no"):
        contestant.run_for(0.01)
    assert threading.active_count() < 10
