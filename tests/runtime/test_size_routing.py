"""Requests of some sizes on other instances of a session's cores."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gates import give
from inside import executor_of, executors_made
from parax.errors import InternalError, UsageError
from parax.runtime import Plan
from parax.runtime.topology import machine

Build = Callable[..., Plan]
pytestmark = pytest.mark.skipif(len(machine().default_cores()) < 2, reason="needs two usable cores")
WIDE = {"least": 1, "most": 1, "instances": 1, "cores_each": 2}
SPLIT = {"least": 8, "most": None, "instances": 2, "cores_each": 1}
NARROW = {"cores": 2, "instances": 2, "cores_each": 1, "for_rows": [WIDE]}
BROAD = {"cores": 2, "instances": 1, "cores_each": 2, "for_rows": [SPLIT]}
CORES = machine().default_cores()[:2]


def rows(n: int) -> np.ndarray:
    return np.arange(n * 4, dtype=np.float32).reshape(n, 4)


def ran_elsewhere(session: Any) -> dict[tuple[int, int], list[int]]:
    """Arena bytes of the other instances that were made."""
    return {key: [i.arena_nbytes for i in made.instances] for key, made in executors_made(session).items()}


@pytest.mark.parametrize("arrangement", [NARROW, BROAD])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 64])
def test_results_are_the_same_on_every_instance(add_plan: Build, arrangement: dict[str, Any], n: int) -> None:
    with add_plan(arrangement=arrangement).session(cores=CORES, adapt=False) as session:
        for _ in range(3):
            assert np.array_equal(session.run({"x": rows(n)})["y"], rows(n) + 1)


def test_only_sizes_of_the_table_go_elsewhere(add_plan: Build) -> None:
    with add_plan(arrangement=NARROW).session(cores=CORES, adapt=False) as session:
        session.run({"x": rows(2)})
        assert ran_elsewhere(session) == {}
        session.run({"x": rows(1)})
        assert ran_elsewhere(session) == {(1, 2): [64]}
        assert session.instances == 2 and len(executor_of(session).free) == 2
    with add_plan(arrangement=BROAD).session(cores=CORES, adapt=False) as session:
        session.run({"x": rows(7)})
        assert ran_elsewhere(session) == {}
        session.run({"x": rows(9)})
        assert ran_elsewhere(session) == {(2, 1): [128, 128]}


@pytest.mark.parametrize(
    "given", [{"instances": 2}, {"cores_per_instance": 1}, {"mode": "sequential"}, {"micro_batch": 4}]
)
def test_what_the_caller_gives_wins(add_plan: Build, given: dict[str, Any]) -> None:
    with add_plan(arrangement=NARROW).session(cores=CORES, adapt=False, **given) as session:
        session.run({"x": rows(1)})
        assert ran_elsewhere(session) == {}


def test_another_number_of_cores_knows_no_others(add_plan: Build) -> None:
    with add_plan(arrangement=NARROW).session(cores=CORES[:1], adapt=False) as session:
        session.run({"x": rows(1)})
        assert ran_elsewhere(session) == {}


def test_a_request_waits_for_none_but_takes_its_own_instance_while_another_runs(add_plan: Build) -> None:
    with add_plan(arrangement=NARROW).session(cores=CORES, adapt=False) as session:
        executor_of(session).take_one(held := [])
        assert np.array_equal(session.run({"x": rows(1)})["y"], rows(1) + 1)
        assert ran_elsewhere(session) == {(1, 2): [0]}  # made, not used
        assert len(executor_of(session).free) == 1
        give(session, held)
        session.run({"x": rows(1)})
        assert ran_elsewhere(session) == {(1, 2): [64]}


@pytest.mark.parametrize("arrangement", [NARROW, BROAD])
def test_many_callers_of_all_sizes(add_plan: Build, arrangement: dict[str, Any]) -> None:
    wrong: list[object] = []

    def client(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(200):
                x = rng.standard_normal((int(rng.choice([1, 1, 2, 8, 33])), 4)).astype(np.float32)
                if not np.array_equal(session.run({"x": x})["y"], x + np.float32(1)):
                    wrong.append(x)
        except Exception as error:
            wrong.append(error)

    with add_plan(arrangement=arrangement).session(cores=CORES, adapt=False) as session:
        threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong
        assert len(executor_of(session).free) == session.instances


def test_an_error_elsewhere_frees_the_cores(add_plan: Build) -> None:
    with add_plan(arrangement=NARROW, errors={"7": "too negative"}).session(cores=CORES, adapt=False) as session:
        with pytest.raises(Exception, match="too negative"):
            session.run({"x": np.full((1, 4), -99, np.float32)})
        assert np.array_equal(session.run({"x": rows(1)})["y"], rows(1) + 1)


def test_a_closed_session_refuses(add_plan: Build) -> None:
    session = add_plan(arrangement=NARROW).session(cores=CORES, adapt=False)
    session.run({"x": rows(1)})
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.run({"x": rows(1)})


@pytest.mark.parametrize(
    "rule", [{**WIDE, "instances": 2}, {**WIDE, "most": 0}, {**WIDE, "least": 0}, {**WIDE, "cores_each": 3}, 5]
)
def test_a_table_that_cannot_be_is_refused(add_plan: Build, rule: object) -> None:
    with pytest.raises(InternalError, match="for_rows"):
        add_plan(arrangement={**NARROW, "for_rows": [rule]})
