"""Instances and who holds them, whatever a signal's handler raises, and wherever that comes."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from gates import LIMIT
from inside import executor_of
from parax.errors import InvalidInput
from parax.runtime import Plan
from parax.runtime.executor import Executor
from parax.runtime.session import Session
from parax.runtime.topology import machine

Build = Callable[..., Plan]
N_CORES = len(machine().default_cores())
SECONDS = 1.0
X = np.ones((3, 4), np.float32)


class Interrupt(BaseException):
    """As KeyboardInterrupt."""


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], object]], int]]:
    """Calls something again and again, interrupts it each time at another place, and counts that.

    The timer comes again where a finalizer swallowed the exception; what reports that, which takes longer than the
    timer, is not to be interrupted.
    """
    is_armed, reports = False, sys.unraisablehook

    def report(swallowed: sys.UnraisableHookArgs) -> None:
        if not isinstance(swallowed.exc_value, Interrupt):
            reports(swallowed)

    monkeypatch.setattr(sys, "unraisablehook", report)

    def handler(*_: object) -> None:
        if is_armed:
            raise Interrupt

    def again(call: Callable[[], object], end: float) -> None:
        """Apart, as in Executor._wait."""
        while time.monotonic() < end:
            call()

    def interrupt(call: Callable[[], object]) -> int:
        nonlocal is_armed
        end = time.monotonic() + SECONDS
        for count in itertools.count():
            try:
                is_armed = True
                signal.setitimer(signal.ITIMER_REAL, 20e-6 + count % 97 * 1e-6, 0.01)
                again(call, end)
                is_armed = False
                return count
            except Interrupt:
                is_armed = False
        raise AssertionError

    before = signal.signal(signal.SIGALRM, handler)
    yield interrupt
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def closes(session: Session) -> bool:
    thread = threading.Thread(target=session.close, daemon=True)
    thread.start()
    thread.join(LIMIT)
    return not thread.is_alive()


@pytest.mark.parametrize("callers", [0, 2])
@pytest.mark.parametrize("settings", [{}, {"micro_batch": 1}])
def test_no_instance_is_lost(add_plan: Build, interrupts: Any, settings: dict[str, int], callers: int) -> None:
    """With others that run requests meanwhile, each waits for its turn; with none, none ever waits."""
    session, ended = add_plan().session(instances=1, **settings), threading.Event()

    def client() -> None:
        while not ended.is_set():
            session.run({"x": X})

    threads = [threading.Thread(target=client, daemon=True) for _ in range(callers)]
    for thread in threads:
        thread.start()
    assert interrupts(lambda: session.run({"x": X})) > 100
    ended.set()
    for thread in threads:
        thread.join(LIMIT)
    assert len(executor_of(session).free) == 1 and executor_of(session).is_idle()
    assert np.array_equal(session.run({"x": X})["y"], X + 1)
    assert closes(session)


def taking(executor: Executor) -> None:
    held: list[Any] = []
    try:
        executor.take_one(held, 3)
    finally:
        executor.free.extend(held[::-1])
        executor.hand_over()


@pytest.mark.skipif(N_CORES < 2, reason="needs two usable cores")
@pytest.mark.parametrize("use", [lambda executor: executor.lend(lambda: None), taking])
def test_no_instance_of_several_is_lost(add_plan: Build, interrupts: Any, use: Callable[[Executor], object]) -> None:
    session = add_plan().session(instances=2)
    assert interrupts(lambda: use(executor_of(session))) > 100
    assert sorted(map(id, executor_of(session).free)) == sorted(map(id, executor_of(session).instances))
    assert closes(session)


@pytest.mark.skipif(N_CORES < 2, reason="needs two usable cores")
@pytest.mark.parametrize("callers", [0, 3])
def test_no_instance_of_a_crew_is_lost(add_plan: Build, interrupts: Any, callers: int) -> None:
    """Requests of several pieces, which instances join and leave."""
    session, ended = add_plan().session(instances=2, micro_batch=1), threading.Event()
    x = np.ones((40, 4), np.float32)

    def client() -> None:
        while not ended.is_set():
            session.run({"x": x})

    threads = [threading.Thread(target=client, daemon=True) for _ in range(callers)]
    for thread in threads:
        thread.start()
    assert interrupts(lambda: session.run({"x": x})) > 100
    ended.set()
    for thread in threads:
        thread.join(LIMIT)
    assert np.array_equal(session.run({"x": x})["y"], x + 1)
    executor = executor_of(session)
    assert sorted(map(id, executor.free)) == sorted(map(id, executor.instances))
    assert executor.is_idle() and not executor.crews.active
    assert closes(session)


def interrupted(call: Callable[..., int], *arguments: Any) -> None:
    call(*arguments)
    raise Interrupt


@pytest.mark.parametrize("settings", [{}, {"micro_batch": 1}])
def test_an_error_whose_answer_a_signal_took_is_forgotten(
    add_plan: Build, monkeypatch: pytest.MonkeyPatch, settings: dict[str, int]
) -> None:
    with add_plan().session(instances=1, **settings) as session:
        code, bad = executor_of(session).instances[0].code, np.full_like(X, -99)
        with monkeypatch.context() as patched:
            for name in ("team", "team_settled", "team_held", "crew"):
                patched.setattr(code, name, partial(interrupted, getattr(code, name)))
            with pytest.raises(Interrupt):
                session.run({"x": bad})
        assert not executor_of(session).instances[0].sync.any()
        assert np.array_equal(session.run({"x": X})["y"], X + 1)
        with pytest.raises(InvalidInput):
            session.run({"x": bad})
