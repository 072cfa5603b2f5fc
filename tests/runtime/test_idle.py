"""Threads without work sleep: they take no time from others on their cores, whatever ran before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import pytest

from parax.errors import InvalidInput
from parax.runtime import Plan, instance
from parax.runtime.session import Session
from parax.runtime.topology import machine

pytestmark = pytest.mark.alone

Build = Callable[..., Plan]
CORES = machine().default_cores()[:2]
IDLE_SECONDS = 0.5
SETTLED_SECONDS = 0.05  # far longer than threads may spin
MOST_CPU = 0.01
"""Of an idle second: what a session's threads may use together. A spinning one would use all of it."""
ARRANGED = {"cores": 2, "instances": 2, "cores_each": 1, "for_rows": [
    {"least": 1, "most": 1, "instances": 1, "cores_each": 2},
]}  # fmt: skip
ROWS = np.ones((2, 4), np.float32)
WRONG = np.full((2, 4), -99, np.float32)  # the plan's code fails on it


def our_threads() -> list[threading.Thread]:
    """Those that sessions of this process have now."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("parax-")]


def cpu_seconds(threads: list[threading.Thread]) -> float:
    """The processor time that they have used since they began."""
    clocks = [time.pthread_getcpuclockid(thread.ident) for thread in threads if thread.ident is not None]
    return sum(map(time.clock_gettime, clocks))


def idle_share() -> float:
    """The cores' worth of time that our threads use while nobody asks them for anything."""
    time.sleep(SETTLED_SECONDS)
    threads = our_threads()
    assert threads, "the session has threads of its own"
    before = cpu_seconds(threads)
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds(threads) - before) / IDLE_SECONDS


def ask(session: Session, x: np.ndarray = ROWS, count: int = 50) -> None:
    for _ in range(count):
        assert np.array_equal(session.run({"x": x})["y"], x + np.float32(1))


def lone(session: Session) -> None:
    ask(session)
    ask(session, ROWS[:1])


def eight_callers(session: Session) -> None:
    threads = [threading.Thread(target=lone, args=(session,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def submitted(session: Session) -> None:
    for future in [session.submit({"x": ROWS}) for _ in range(50)]:
        future.result()


def failed(session: Session) -> None:
    lone(session)
    for x in (WRONG, WRONG[:1]):
        with pytest.raises(InvalidInput):
            session.run({"x": x})


BEFORE = [lone, eight_callers, submitted, failed]


@pytest.fixture(params=[{"arrangement": ARRANGED}, {"errors": {"7": "wrong"}, "hint": "latency"}],
                ids=["an instance a core", "one instance"])  # fmt: skip
def plan(add_plan: Build, request: pytest.FixtureRequest) -> Plan:
    if len(CORES) < 2:
        pytest.skip("needs two usable cores: an instance of one core has no threads of its own")
    return add_plan(**request.param)


@pytest.mark.parametrize("before", BEFORE)
def test_an_idle_session_uses_no_processor_time(plan: Plan, before: Callable[[Session], None]) -> None:
    with plan.session(cores=CORES) as session:
        before(session)
        assert idle_share() < MOST_CPU


def test_two_idle_sessions_on_the_same_cores_use_none(plan: Plan) -> None:
    with plan.session(cores=CORES) as one, plan.session(cores=CORES) as two:
        for _ in range(5):
            lone(one)
            eight_callers(two)
        assert idle_share() < MOST_CPU


def test_an_idle_session_in_the_process_of_another_runtime_uses_none(plan: Plan) -> None:
    """Before the other's requests, after them, and while they run."""
    runtime = pytest.importorskip("onnxruntime")
    model = pytest.importorskip("examples.models").build("ncf", small=True).SerializeToString()
    feed = pytest.importorskip("examples.models").feeds("ncf", small=True)
    other = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    with plan.session(cores=CORES) as session:
        lone(session)
        other.run(None, feed)
        assert idle_share() < MOST_CPU
        threads, before, end = our_threads(), cpu_seconds(our_threads()), time.perf_counter() + IDLE_SECONDS
        while time.perf_counter() < end:
            other.run(None, feed)
        assert (cpu_seconds(threads) - before) / IDLE_SECONDS < MOST_CPU
        lone(session)


def test_threads_stop_spinning_by_the_clock(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """However quick or slow a pause is: here they may try so often that it would take seconds."""
    monkeypatch.setattr(instance, "_N_SPINS", 100_000_000)
    with plan.session(cores=CORES) as session:
        lone(session)
        count, threads = 100, our_threads()
        before = cpu_seconds(threads)
        for _ in range(count):
            session.run({"x": ROWS})
            time.sleep(5e-3)
        each = (cpu_seconds(threads) - before) / count / len(threads)
        assert each < 2e-3, "it is some 70 µs, of which waking up and going to sleep take 30"


def test_a_lone_request_is_not_delayed_by_another_sessions_threads(plan: Plan) -> None:
    """Whose last request ended just before."""
    with plan.session(cores=CORES) as one, plan.session(cores=CORES) as two:
        lone(one)
        alone = median(seconds_of(one) for _ in range(200))
        lone(two)
        beside = []
        for _ in range(200):
            two.run({"x": ROWS})
            beside.append(seconds_of(one))
        assert median(beside) < 3 * alone + 1e-3


def seconds_of(session: Session) -> float:
    began = time.perf_counter()
    session.run({"x": ROWS})
    return time.perf_counter() - began
