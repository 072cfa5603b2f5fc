"""A few requests on many cores: each gets an equal share of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from gates import give
from inside import executor_of, executors_made, has_others_beside, router_of
from parax.errors import UsageError
from parax.runtime import Plan
from parax.runtime.session import Session
from parax.runtime.teams import Teams
from parax.runtime.topology import machine

Build = Callable[..., Plan]
CORES = machine().default_cores()
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two usable cores")


def wide(n: int) -> dict[str, Any]:
    lone = {"least": 1, "most": None, "instances": 1, "cores_each": n}
    return {"cores": n, "instances": n, "cores_each": 1, "for_rows": [lone]}


@pytest.fixture(params=[4, 6])
def session(request: pytest.FixtureRequest, add_plan: Build, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """As on a machine of so many cores: there may be fewer, which take turns."""
    n = request.param
    monkeypatch.setattr("parax.runtime.session.choose_cores", lambda _: tuple(CORES[i % len(CORES)] for i in range(n)))
    plan = add_plan(arrangement=wide(n), errors={"7": "too negative"})
    with plan.session(adapt=False) as made:
        assert made.instances == n
        yield made


def teams_of(session: Session) -> Teams:
    assert router_of(session).teams is not None
    return router_of(session).teams


def test_requests_side_by_side_get_equal_shares(session: Session) -> None:
    n, teams = session.instances, teams_of(session)
    for count in range(2, n + 1):
        with ExitStack() as stack:
            shares = [stack.enter_context(teams.share()) for _ in range(count)]
            held = [instance for share in shares for instance in share]
            assert len({id(instance) for instance in held}) == len(held) <= n
            first = max(width for width in (*teams.widths, 1) if 2 * width <= n)
            assert [len(share) for share in shares[:2]] == [first, min(first, n - first)]
            for share in shares:
                places = [executor_of(session).instances.index(instance) for instance in share]
                assert places == list(range(places[0], places[0] + len(share))) and places[0] % len(share) == 0
            if len(held) == n:
                break
        assert executor_of(session).is_idle() and not has_others_beside(session)


def test_many_in_flight_get_one_each(session: Session) -> None:
    executor, teams = executor_of(session), teams_of(session)
    held = [executor.free.pop() for _ in range(session.instances // 2)]
    with teams.share() as share:
        assert len(share) == 1
    give(session, held)


def test_instances_in_the_way_are_gone_round(session: Session) -> None:
    executor, teams = executor_of(session), teams_of(session)
    middle = executor.instances[-2]  # what is popped first is instance 0, whose group is free but for nobody
    executor.free.remove(middle)
    with teams.share() as share:
        assert len(share) == max(teams.widths) and middle not in share
    executor.free.insert(0, middle)
    blocked = executor.instances[1]
    executor.free.remove(blocked)
    with teams.share() as share:
        assert len(share) > 1 and blocked not in share and executor.instances[0] not in share
        assert executor.instances[0] in executor.free, "given back"
    give(session, [blocked])
    assert executor.is_idle()


def test_who_waits_gets_a_share_in_turn(session: Session) -> None:
    executor, teams = executor_of(session), teams_of(session)
    held: list[Any] = []
    assert executor.take_all(held)
    sizes: list[int] = []

    def wait() -> None:
        with teams.share() as share:
            sizes.append(len(share))

    thread = threading.Thread(target=wait)
    thread.start()
    while not executor.waiting:
        pass
    give(session, held)
    thread.join(10)
    assert sizes == [max(teams.widths)]
    assert executor.is_idle() and not has_others_beside(session)


@pytest.mark.parametrize("callers", [1, 2, 3, 7])
def test_results_are_the_same_for_any_number_of_callers(session: Session, callers: int) -> None:
    wrong: list[object] = []

    def client(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(60):
                x = rng.standard_normal((1, 4)).astype(np.float32)
                if not np.array_equal(session.run({"x": x})["y"], x + np.float32(1)):
                    wrong.append(x)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert executor_of(session).is_idle() and not has_others_beside(session)


def test_a_request_beside_another_runs_on_its_share(session: Session) -> None:
    n, width = session.instances, max(teams_of(session).widths)
    x = np.ones((1, 4), np.float32)
    session.run({"x": x})
    executor_of(session).take_one(held := [])
    assert np.array_equal(session.run({"x": x})["y"], x + 1)
    made = executors_made(session)[(n // width, width)]
    assert sum(instance.arena_nbytes > 0 for instance in made.instances) == 1
    with pytest.raises(Exception, match="too negative"):
        session.run({"x": np.full((1, 4), -99, np.float32)})
    give(session, held)
    assert executor_of(session).is_idle() and np.array_equal(session.run({"x": x})["y"], x + 1)


def test_a_closed_session_shares_nothing(session: Session) -> None:
    teams = teams_of(session)
    session.close()
    with pytest.raises(UsageError, match="closed"), teams.share():
        pass


def test_two_cores_have_nothing_to_share(add_plan: Build) -> None:
    with add_plan(arrangement=wide(2)).session(cores=CORES[:2], adapt=False) as session:
        assert router_of(session).teams is None
