"""One session under loads that change all the time: every request is answered, with the same bits however it ran."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import parax
from examples.models import build, feeds
from inside import executor_of
from parax.errors import InvalidInput
from parax.runtime.session import Session

Feed = dict[str, np.ndarray]
Answer = dict[str, np.ndarray]
Ask = Callable[[Session, Feed], Answer]
SIZES = (1, 2, 3, 8, 16)
SECONDS = 2.0
PATIENCE_SECONDS = 60.0  # beyond which a caller without an answer counts as stuck


def in_memory_of_its_own(session: Session, feed: Feed) -> Answer:
    out = {name: np.empty(y.shape, y.dtype) for name, y in session.run(feed).items()}
    return session.run(feed, out=out)


WAYS: list[Ask] = [
    lambda session, feed: session.run(feed),
    lambda session, feed: session.submit(feed).result(),
    lambda session, feed: session.submit(feed).result(PATIENCE_SECONDS),
    lambda session, feed: asyncio.run(session.arun(feed)),
    in_memory_of_its_own,
]


class Load:
    """Callers of one session, and what went wrong."""

    def __init__(self, session: Session, given: dict[int, Feed]) -> None:
        self.session, self.given = session, given
        self.first = {n: bits(session.run(feed)) for n, feed in given.items()}
        self.answered, self.wrong = [0] * 8, list[str]()

    def call(self, number: int, count: int) -> None:
        """So many requests of sizes and ways in an order of their own; one in sixteen is refused."""
        rng = np.random.default_rng([number, self.answered[number]])
        try:
            for _ in range(count):
                rows, ask = int(rng.choice(SIZES)), WAYS[int(rng.integers(len(WAYS)))]
                if not rng.integers(16):
                    self.refused(rows)
                if bits(ask(self.session, self.given[rows])) != self.first[rows]:
                    self.wrong.append(f"other bits at {rows} rows")
                self.answered[number] += 1
        except Exception as error:
            self.wrong.append(repr(error))

    def refused(self, rows: int) -> None:
        """A request with an input of one axis too many."""
        try:
            self.session.run({name: x[None] for name, x in self.given[rows].items()})
        except InvalidInput:
            return
        self.wrong.append(f"a wrong input of {rows} rows was taken")

    def together(self, callers: int, count: int) -> None:
        """The first callers at once; all of them must come back."""
        threads = [threading.Thread(target=self.call, args=(k, count), daemon=True) for k in range(callers)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + PATIENCE_SECONDS
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        assert not any(thread.is_alive() for thread in threads), "a caller waits for ever"


def bits(answer: Answer) -> dict[str, bytes]:
    return {name: y.tobytes() for name, y in answer.items()}


@pytest.fixture(scope="module", params=["throughput", "latency"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    with parax.compile(build("bert-base", small=True), hint=request.param).session() as made:
        yield made


def test_from_one_caller_to_eight_and_back(session: Session) -> None:
    load = Load(session, {n: feeds("bert-base", n, small=True) for n in SIZES})
    end, switches, expected = time.monotonic() + SECONDS, 0, 0
    while not load.wrong and (time.monotonic() < end or switches < 3):
        for callers, count in ((1, 3), (8, 2), (2, 2)):
            load.together(callers, count)
            expected += callers * count
        switches += 1
    assert not load.wrong
    assert sum(load.answered) == expected
    assert executor_of(session).is_idle()
