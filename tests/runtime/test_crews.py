"""Instances that join a request that runs already, and leave it for another one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from fake_plans import ADD, add_manifest, fake_plan, object_code
from gates import LIMIT, give, rows
from inside import executor_of
from parax.errors import InvalidInput, ResourceLimit
from parax.runtime import crews
from parax.runtime.crews import FIRST_LOOK, MOST_LEFT
from parax.runtime.handoff import LEAVE
from parax.runtime.instance import Instance
from parax.runtime.session import Session
from parax.runtime.topology import machine

CORES = machine().default_cores()[:2]
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two usable cores")
HELD, BAD = -5.0, -99.0
"""In a row's first element: its piece waits until something else is there; its piece fails."""
WAIT = ADD.replace(
    "  %first = load float, ptr %x\n",
    "  br label %held\nheld:\n  %first = load volatile float, ptr %x\n"
    f"  %holds = fcmp oeq float %first, {HELD}\n  br i1 %holds, label %held, label %look\nlook:\n",
)


@pytest.fixture(scope="module")
def code() -> bytes:
    assert WAIT != ADD
    return object_code(WAIT.format(segment=0))


@pytest.fixture
def settings() -> dict[str, Any]:
    """Of the session, beside what all tests have."""
    return {}


@pytest.fixture
def session(code: bytes, settings: dict[str, Any]) -> Iterator[Session]:
    """Two instances, pieces of one row."""
    plan = fake_plan(add_manifest(), {"base": code}, np.ones(16, np.float32))
    with plan.session(cores=CORES, instances=2, micro_batch=1, **settings) as session:
        yield session
        for running in Running.begun:  # also of a test that failed
            running.let_go(*range(len(running.x)))
        Running.begun.clear()
        assert executor_of(session).is_idle() and not executor_of(session).crews.active


class Running:
    """A request whose rows are held, and let go one by one."""

    begun: ClassVar[list[Running]] = []

    def __init__(self, session: Session, n: int) -> None:
        self.x, self.y = rows(n), np.zeros((n, 4), np.float32)
        self.expected, self.error = self.x + 1, None
        self.x[:, 0] = HELD
        self._session = session
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.begun.append(self)

    def _run(self) -> None:
        try:
            self._session.run({"x": self.x}, out={"y": self.y})
        except Exception as error:
            self.error = error

    def let_go(self, *which: int, value: float | None = None) -> None:
        for row in which:
            self.x[row, 0] = row * 4 if value is None else value

    def has_done(self, row: int) -> bool:
        return bool(np.array_equal(self.y[row], self.expected[row]))

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> None:
        self.let_go(*range(len(self.x)))
        self._thread.join(LIMIT)
        assert self.is_over and self.error is None and np.array_equal(self.y, self.expected)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end
        time.sleep(1e-3)


def taken(session: Session) -> list[int]:
    """Of each crew, the pieces that were begun."""
    return [int(crew.words[0]) for crew in executor_of(session).crews.active]


def begun_alone(session: Session, n: int) -> tuple[Running, list[Instance]]:
    """A request that one instance works on, and the other one, which a test holds."""
    held = [executor_of(session).free.pop()]
    running = Running(session, n)
    until(lambda: taken(session) == [1])
    time.sleep(2e-9 * FIRST_LOOK)
    return running, held


def test_an_instance_that_comes_free_joins(session: Session) -> None:
    running, held = begun_alone(session, 5)
    give(session, held)
    running.let_go(0)
    until(lambda: taken(session) == [3])  # one more each
    running.let_go(2, 3)
    until(lambda: running.has_done(2) and running.has_done(3))
    assert not running.has_done(1)
    running.end()


@pytest.mark.alone
def test_an_instance_that_comes_free_joins_while_the_leader_is_late_to_look(session: Session) -> None:
    running, held = begun_alone(session, 5)
    give(session, held)
    until(lambda: taken(session) == [2])
    assert not running.has_done(0)
    running.let_go(1)
    until(lambda: taken(session) == [3])
    running.end()


def test_whoever_asks_at_once_gets_the_instance_back_before_it_begins(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crews, "GRACE", int(2e9 * LIMIT))
    running, held = begun_alone(session, 5 + MOST_LEFT)
    give(session, held)
    assert len(executor_of(session).crews.active[0].helpers) == 1
    other = Running(session, 1)
    other.let_go(0)
    until(lambda: other.is_over)
    assert taken(session) == [1]
    other.end()
    monkeypatch.undo()
    running.end()


@pytest.mark.parametrize("settings", [{}, {"batch_window": 0.0}])
def test_helpers_leave_for_who_waits(session: Session) -> None:
    running = Running(session, 5 + MOST_LEFT)
    until(lambda: taken(session) == [2])
    other = Running(session, 1)
    helper = executor_of(session).crews.active[0].helpers[0]
    until(lambda: helper.told == LEAVE)
    other.let_go(0)
    running.let_go(0, 1)
    until(lambda: other.is_over and taken(session) == [3])  # by the leader
    other.end()
    running.end()


def test_what_is_about_to_end_is_helped_first(session: Session) -> None:
    running, held = begun_alone(session, 3)
    other = Running(session, 1)
    until(lambda: bool(executor_of(session).waiting))
    other.let_go(0)
    give(session, held)
    until(lambda: taken(session) == [2])
    assert not other.is_over
    running.let_go(1)
    until(lambda: taken(session)[0] >= 3)  # the helper has taken the last one
    running.let_go(0)  # and the leader finds none
    assert not other.is_over
    running.let_go(2)
    until(lambda: other.is_over and running.is_over)
    other.end()
    running.end()


@pytest.mark.alone
def test_a_long_one_is_not_helped_first(session: Session) -> None:
    running, held = begun_alone(session, 3 + MOST_LEFT)
    other = Running(session, 1)
    until(lambda: bool(executor_of(session).waiting))
    other.let_go(0)
    give(session, held)
    until(lambda: other.is_over)  # which it could not be, did the instance hold a piece of the long one
    other.end()
    running.end()


@pytest.mark.parametrize("first", [0, 1])
def test_whichever_is_done_first_serves_the_next(session: Session, first: int) -> None:
    """The leader too, while its helper works on."""
    running = Running(session, 2)
    until(lambda: taken(session) == [2])
    other = Running(session, 1)
    until(lambda: bool(executor_of(session).waiting))
    other.let_go(0)
    running.let_go(first)
    until(lambda: other.is_over)
    assert not running.is_over
    other.end()
    running.end()


@pytest.mark.parametrize("bad", [0, 1])
def test_whoever_fails_leaves_nothing_to_the_next(session: Session, bad: int) -> None:
    """Also the leader that is free while its helper works on."""
    running = Running(session, 2)
    until(lambda: taken(session) == [2])
    other = Running(session, 1)
    until(lambda: bool(executor_of(session).waiting))
    other.let_go(0)
    running.let_go(bad, value=BAD)
    until(lambda: other.is_over)
    other.end()
    running.let_go(0, 1)
    until(lambda: running.is_over)
    assert isinstance(running.error, InvalidInput)
    for instance in executor_of(session).instances:
        assert not instance.sync.any()


def test_a_helper_that_fails_leaves_nothing_behind(session: Session) -> None:
    running, held = begun_alone(session, 4)
    give(session, held)
    running.let_go(0)
    until(lambda: taken(session) == [3])
    running.let_go(1, 2, value=BAD)
    until(lambda: running.is_over)
    assert isinstance(running.error, InvalidInput) and taken(session) == []
    for instance in executor_of(session).instances:
        assert not instance.sync.any()
    for n in (1, 2, 5):
        assert np.array_equal(session.run({"x": rows(n)})["y"], rows(n) + 1)


def test_a_request_goes_on_where_a_helper_gets_no_memory(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ResourceLimit("no memory")

    monkeypatch.setattr(Instance, "ready_for", refuse)
    assert np.array_equal(session.run({"x": rows(6)})["y"], rows(6) + 1)
    assert len(executor_of(session).free) == 2


def test_helpers_of_what_is_broken_off_end_before_it_does(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the leader looks for others."""
    running, held = begun_alone(session, 6)

    def interrupt(*_: Any) -> None:
        monkeypatch.undo()
        give(session, held)
        raise ZeroDivisionError

    monkeypatch.setattr(executor_of(session), "_look_for_others", interrupt)
    running.let_go(0)
    until(lambda: running.is_over)
    assert running.error is not None and not running.has_done(1)
    assert taken(session) == []


@pytest.mark.parametrize("callers", [1, 3, 8])
def test_many_at_once(session: Session, callers: int) -> None:
    """Of all sizes, each with its own result."""
    wrong: list[int] = []

    def client(number: int) -> None:
        random = np.random.default_rng(number)
        for _ in range(200):
            n = int(random.integers(1, 30))
            x = random.random((n, 4)).astype(np.float32)
            if not np.array_equal(session.run({"x": x})["y"], x + 1):
                wrong.append(n)

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert not wrong
