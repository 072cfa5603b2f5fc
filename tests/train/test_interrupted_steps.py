"""Ctrl-C at any moment of a step: the step is done and counted, and then it is a KeyboardInterrupt."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from parax.errors import Diverged
from parax.runtime.train.exchange.settings import SCHEMES
from parax.runtime.train.interrupts import interrupts_held
from train.exchanging import assert_same_bits, batch, restarted, start_of, trained, trainer

BEFORE, TIMES = 2, 3


@pytest.fixture(autouse=True)
def pythons_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(scheme: Any, name: str) -> None:
    """Ctrl-C, more than once, as soon as that method of the scheme was called by the main thread."""
    whole = getattr(scheme, name)

    def then_interrupted(*args: Any) -> Any:
        found = whole(*args)
        if threading.current_thread() is threading.main_thread():
            for _ in range(TIMES):
                os.kill(os.getpid(), signal.SIGINT)
        return found

    setattr(scheme, name, then_interrupted)


@pytest.mark.parametrize("exchange", SCHEMES)
def test_a_step_is_done_before_it_is_interrupted(exchange: str) -> None:
    """One instance, so that every exchange gives the same bits; of several, their threads are no matter for Ctrl-C."""
    with trainer(exchange, 1) as own:
        start = start_of(own)
        trained(own, BEFORE + 1)
        expected = start_of(own)
        inside = ("behind", "give") if own._stepper.scheme.gives_at_end else ("place", "give", "update")
        for done, moment in enumerate(("begin", *inside, "advance", "moved"), 1):
            restarted(own, start)
            trained(own, BEFORE)
            interrupted(own._stepper.scheme, moment)
            with pytest.raises(KeyboardInterrupt):
                own.step(batch(BEFORE))
            delattr(own._stepper.scheme, moment)
            assert_same_bits(own.state.tensors(), expected)
            assert own.state.steps == BEFORE + 1 and own.counters().steps == (1 + done) * (BEFORE + 1)


@pytest.mark.parametrize("exchange", SCHEMES)
def test_no_instance_is_left_at_work(exchange: str) -> None:
    with trainer(exchange, 3) as own:
        interrupted(own._stepper.scheme, "give")
        with pytest.raises(KeyboardInterrupt):
            own.step(batch(0))
        assert own.state.steps > 0
        moved = start_of(own)
        own.evaluate([batch(1)])
        assert_same_bits(own.state.tensors(), moved)


def test_whoever_answers_is_told_at_the_end_and_answers_again() -> None:
    told: list[int] = []
    signal.signal(signal.SIGINT, handler := lambda number, frame: told.append(number))
    with interrupts_held():
        os.kill(os.getpid(), signal.SIGINT)
        assert not told
    assert told == [signal.SIGINT] and signal.getsignal(signal.SIGINT) is handler


def test_an_error_of_the_step_is_what_the_interrupt_came_in() -> None:
    with pytest.raises(KeyboardInterrupt) as found, interrupts_held():
        os.kill(os.getpid(), signal.SIGINT)
        raise Diverged("the loss is not finite")
    assert isinstance(found.value.__context__, Diverged)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("answer", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_system_that_answers_itself_is_left_alone(answer: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, answer)
    with interrupts_held():
        assert signal.getsignal(signal.SIGINT) is answer


def test_other_threads_leave_the_handler_alone() -> None:
    seen = []

    def other() -> None:
        with interrupts_held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
