"""Sessions with a batch_window: what runs together, who waits, and that nobody notices but by the clock."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from gates import LIMIT, counts, held_up, rows
from inside import in_flight, is_closing, pretend_in_flight, router_of, waiting_and_running
from parax.errors import InvalidInput, UsageError
from parax.runtime import Plan
from parax.runtime.joining import MOST_ROWS

Build = Callable[..., Plan]
ERRORS = {"7": "too negative"}


def test_those_that_wait_run_as_one(add_plan: Build) -> None:
    with add_plan().session(instances=1, batch_window=0.0) as session:
        with held_up(session) as (gate, run):
            futures = [run({"x": rows(n, n)}) for n in (1, 3, 2)]
        results = [future.result(LIMIT)["y"] for future in futures]
        assert gate.rows == [1, 6] and counts(session) == (1, 3)
    for n, result in zip((1, 3, 2), results, strict=True):
        assert np.array_equal(result, rows(n, n) + 1)
        assert result.base is None and result.flags.owndata  # nobody else's memory


def test_a_batch_has_as_many_rows_as_the_plan_gives_an_instance(add_plan: Build) -> None:
    for given, most in (({"micro_batch": 4}, 4), ({}, MOST_ROWS)):
        with add_plan().session(instances=1, batch_window=0.0, **given) as session:
            with held_up(session) as (gate, run):
                futures = [run({"x": rows(most // 2)}) for _ in range(5)]
            assert [f.result(LIMIT)["y"].shape[0] for f in futures] == [most // 2] * 5
            assert gate.rows == [1, most, most, most // 2]
            assert session.statistics()[-1]["most_rows"] == most


def test_the_plans_bounds_hold(add_plan: Build) -> None:
    symbols = [{"name": "N", "input": 0, "axis": 0, "max": 5}]
    with add_plan(symbols=symbols).session(instances=1, batch_window=0.0) as session:
        with held_up(session) as (gate, run):
            futures = [run({"x": rows(2)}) for _ in range(4)]
        assert all(np.array_equal(f.result(LIMIT)["y"], rows(2) + 1) for f in futures)
        assert gate.rows == [1, 4, 4]


def test_large_requests_run_alone(add_plan: Build) -> None:
    with add_plan().session(instances=1, batch_window=5.0) as session:
        with held_up(session) as (gate, run):
            futures = [run({"x": rows(MOST_ROWS)}), run({"x": rows(500)})]
        assert [f.result(LIMIT)["y"].shape[0] for f in futures] == [MOST_ROWS, 500]
        assert gate.rows == [1, MOST_ROWS, 500] and counts(session) == (0, 0)


def test_out_receives_a_callers_own_rows(add_plan: Build) -> None:
    with add_plan().session(instances=1, batch_window=0.0) as session:
        mine = np.full((2, 4), np.nan, np.float32)
        with held_up(session) as (gate, run):
            futures = [run({"x": rows(1)}), run({"x": rows(2, 5)}, out={"y": mine}), run(["y"], {"x": rows(3)})]
        found = [future.result(LIMIT) for future in futures]
        assert gate.rows == [1, 6]
        assert found[1]["y"] is mine and np.array_equal(mine, rows(2, 5) + 1)
        assert np.array_equal(found[2]["y"], rows(3) + 1)


def test_a_wrong_request_fails_alone(add_plan: Build) -> None:
    wrong: list[dict[str, Any]] = [
        {"inputs": {"x": np.zeros((2, 5), np.float32)}}, {"inputs": {"x": np.zeros((2, 4))}}, {"inputs": {}},
        {"inputs": {"x": rows(2)}, "out": {"y": np.zeros((1, 4), np.float32)}}, {"inputs": {"x": rows(0)}},
    ]  # fmt: skip
    with add_plan().session(instances=1, batch_window=0.0) as session:
        with held_up(session) as (gate, run):
            good = [run({"x": rows(2)}) for _ in range(2)]
            for request in wrong:
                with pytest.raises(InvalidInput):
                    session.run(**request)
                with pytest.raises(InvalidInput):
                    session.submit(**request).result(LIMIT)
                with pytest.raises(InvalidInput):
                    asyncio.run(session.arun(**request))
            good.append(run({"x": rows(1)}))
        assert [len(f.result(LIMIT)["y"]) for f in good] == [2, 2, 1]
        assert gate.rows == [1, 5]


def test_an_error_inside_goes_to_the_one_it_belongs_to(add_plan: Build) -> None:
    bad = np.full((1, 4), -99, np.float32)  # the kernel looks at the first row of what it is given
    with add_plan(errors=ERRORS).session(instances=1, batch_window=0.0) as session:
        for inputs in ([bad, rows(1), rows(2)], [bad, bad, rows(1)]):
            with held_up(session) as (_, run):
                futures = [run({"x": x}) for x in inputs]
                futures += [session.submit({"x": x}) for x in inputs]
            for x, future in zip(inputs * 2, futures, strict=True):
                if x is bad:
                    with pytest.raises(InvalidInput, match="too negative"):
                        future.result(LIMIT)
                else:
                    assert np.array_equal(future.result(LIMIT)["y"], x + 1)
        assert counts(session) == (0, 0)
        assert np.array_equal(session.run({"x": rows(4)})["y"], rows(4) + 1)


def test_a_batch_that_is_too_large_runs_request_by_request(add_plan: Build) -> None:
    with add_plan().session(instances=1, batch_window=0.0, max_memory=600) as session:
        with held_up(session) as (gate, run):
            futures = [run({"x": rows(8)}) for _ in range(3)]
        assert all(np.array_equal(f.result(LIMIT)["y"], rows(8) + 1) for f in futures)
        assert gate.rows == [1, 8, 8, 8] and counts(session) == (0, 0)


def test_a_lone_request_waits_for_nobody(add_plan: Build) -> None:
    with add_plan().session(instances=1, batch_window=5.0) as session:
        began = time.monotonic()
        for n in (1, 2, 1):
            assert np.array_equal(session.run({"x": rows(n)})["y"], rows(n) + 1)
            assert np.array_equal(session.submit({"x": rows(n)}).result()["y"], rows(n) + 1)
            assert np.array_equal(session.submit({"x": rows(n)}).result(LIMIT)["y"], rows(n) + 1)
            assert np.array_equal(asyncio.run(session.arun({"x": rows(n)}))["y"], rows(n) + 1)
        assert time.monotonic() - began < 1.0


def test_all_that_are_in_flight_wait_for_nobody_else(add_plan: Build) -> None:
    with add_plan().session(instances=1, batch_window=LIMIT) as session:
        began = time.monotonic()
        with held_up(session) as (gate, run):
            futures = [run({"x": rows(1)}) for _ in range(3)]
        assert all(f.result(LIMIT) for f in futures)
        assert gate.rows == [1, 3] and time.monotonic() - began < LIMIT / 2


def test_company_is_waited_for_as_long_as_the_window(add_plan: Build) -> None:
    with add_plan().session(instances=1, batch_window=0.05) as session:
        pretend_in_flight(session, 5)  # results that their callers have not got yet
        assert np.array_equal(session.run({"x": rows(1)})["y"], rows(1) + 1)
        began = time.monotonic()
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda n: session.run({"x": rows(n)})["y"], (1, 2, 3)))
        assert time.monotonic() - began > 0.04
        assert [len(y) for y in found] == [1, 2, 3]
        assert waiting_and_running(session) == (0, 0)


@pytest.mark.parametrize("close", ["close", "wait"])
def test_closing_while_some_wait(add_plan: Build, close: str) -> None:
    session = add_plan().session(instances=1, batch_window=LIMIT)
    with held_up(session) as (gate, run):
        submitted = [session.submit({"x": rows(n)}) for n in (1, 2)]
        called = [run({"x": rows(1, 9)}) for _ in range(3)] if close == "wait" else []
        closing = threading.Thread(target=session.close)
        closing.start()
        while not is_closing(session):
            time.sleep(0.001)
        with pytest.raises(UsageError, match="closed"):
            session.submit({"x": rows(1)}).result(LIMIT)
        gate.opened.set()
        closing.join(LIMIT)
        assert not closing.is_alive()
    for n, future in zip((1, 2), submitted, strict=True):
        assert np.array_equal(future.result(LIMIT)["y"], rows(n) + 1)
    for future in called:  # in time, or refused
        error = future.exception(LIMIT)
        assert isinstance(error, UsageError) if error else np.array_equal(future.result()["y"], rows(1, 9) + 1)
    with pytest.raises(UsageError, match="closed"):
        session.run({"x": rows(1)})


def test_futures_can_be_cancelled(add_plan: Build) -> None:
    with add_plan().session(instances=1, batch_window=0.0) as session:
        with held_up(session) as (gate, _):
            futures = [session.submit({"x": rows(n)}) for n in (1, 2, 3)]
            assert futures[0].cancel() and futures[2].cancel()
        assert np.array_equal(futures[1].result(LIMIT)["y"], rows(2) + 1)
        assert gate.rows == [1, 2]
        assert in_flight(session) == 0


def test_a_callback_may_run_requests_itself(add_plan: Build) -> None:
    with add_plan().session(instances=1, batch_window=0.0) as session:
        found: list[np.ndarray] = []
        with held_up(session):
            futures = [session.submit({"x": rows(n)}) for n in (1, 2)]
            for future in futures:
                future.add_done_callback(lambda f: found.append(session.run({"x": f.result()["y"]})["y"]))
        for future in futures:
            future.result(LIMIT)
        end = time.monotonic() + LIMIT
        while len(found) < 2 and time.monotonic() < end:
            time.sleep(0.001)
        assert [len(y) for y in found] == [1, 2] and np.array_equal(found[1], rows(2) + 2)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """As in a terminal: a shell has its background jobs ignore the signal, and so their children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_takes_nobody_along(add_plan: Build) -> None:
    """The main thread leads the others' group when the signal comes."""
    with add_plan().session(instances=1, batch_window=0.0) as session:
        with held_up(session) as (gate, run):
            def later() -> None:
                gate.wait_for(2)
                followers.extend((run({"x": rows(2)}), run({"x": rows(3)}), session.submit({"x": rows(1)})))
                gate.wait_for(5)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # wakes this thread

            followers: list[Future[Any]] = []
            thread = threading.Thread(target=later)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                session.run({"x": rows(4)})
            thread.join(LIMIT)
        assert [len(f.result(LIMIT)["y"]) for f in followers] == [2, 3, 1]
        assert gate.rows == [1, 6]


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_reaches_one_that_sleeps(add_plan: Build) -> None:
    with add_plan().session(instances=1, batch_window=0.0) as session:
        with held_up(session) as (gate, run):

            def later() -> None:
                gate.wait_for(3)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # wakes this thread

            leader = run({"x": rows(2)})
            thread = threading.Thread(target=later)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                session.run({"x": rows(4)})
            thread.join(LIMIT)
        assert np.array_equal(leader.result(LIMIT)["y"], rows(2) + 1)
        assert gate.rows == [1, 2]


def test_ctrl_c_in_a_batch_lets_the_others_run_again(add_plan: Build) -> None:
    with add_plan().session(instances=1, batch_window=0.0) as session:
        with held_up(session) as (gate, run):
            serve, opened = gate.serve, list[Any]()

            def broken(binding: Any, *arrays: Any) -> None:
                if binding.rows == 10:
                    raise KeyboardInterrupt
                serve(binding, *arrays)

            router_of(session).serve = broken  # type: ignore[method-assign]

            def later() -> None:
                gate.wait_for(2)
                opened.extend((run({"x": rows(2)}), session.submit({"x": rows(1)}), run({"x": rows(3)})))
                gate.wait_for(5)
                gate.opened.set()

            thread = threading.Thread(target=later)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                session.run({"x": rows(4)})
            thread.join(LIMIT)
            assert [len(f.result(LIMIT)["y"]) for f in opened] == [2, 1, 3]
        assert gate.rows == [1, 6]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_refused(add_plan: Build) -> None:
    with add_plan().session(instances=1, batch_window=0.0) as session:
        session.run({"x": rows(1)})
        child = os.fork()
        if not child:
            try:
                session.run({"x": rows(1)})
            except UsageError as error:
                os._exit(0 if "fork" in str(error) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert np.array_equal(session.run({"x": rows(1)})["y"], rows(1) + 1)


@pytest.mark.parametrize(
    "window", [-1, -1e-9, float("nan"), float("inf"), 1e10, pytest.param(10**5000, id="long"), "1", True, [1]]
)
def test_a_window_that_is_no_duration_is_refused(add_plan: Build, window: Any) -> None:
    with pytest.raises(UsageError, match="batch_window"):
        add_plan().session(batch_window=window)


def test_plans_whose_rows_depend_on_each_other_are_refused(add_plan: Build) -> None:
    with pytest.raises(UsageError, match=r"batch_window.*no open batch"):
        add_plan(batch=None).session(batch_window=0.001)
    blamed = {"not_split": ["N: node 'norm' (Softmax): mixes rows"]}
    with pytest.raises(UsageError, match="norm"):
        add_plan(batch=None, provenance=blamed).session(batch_window=0.001)
    add_plan(batch=None).session(batch_window=None).close()
