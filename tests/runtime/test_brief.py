"""Requests of microseconds stay whole on one core; a few find out which are, and longer ones lose next to nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parax.runtime import Plan
from parax.runtime.bindings import TIMED_CALLS
from parax.runtime.brief import MOST_NBYTES
from parax.runtime.executor import Executor
from parax.runtime.session import Session
from parax.runtime.topology import machine
from parax.runtime.ways import SAMPLES

Build = Callable[..., Plan]
CORES = machine().default_cores()[:2]
NARROW = {"cores": 2, "instances": 2, "cores_each": 1}
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two usable cores")


@pytest.fixture
def most_brief_nbytes() -> int:
    return MOST_NBYTES


@pytest.fixture
def went(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How requests went: "whole", in pieces ("cut"), or on other instances ("lent")."""
    found: list[str] = []

    def note(name: str, word: str) -> None:
        made = getattr(Executor, name)

        def noted(self: Executor, *args: Any) -> Any:
            found.append(word)
            return made(self, *args)

        monkeypatch.setattr(Executor, name, noted)

    for name, word in (("run_whole", "whole"), ("run_cut", "cut"), ("lend", "lent")):
        note(name, word)
    return found


def ask(session: Session, n: int, count: int) -> None:
    x = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
    for _ in range(count):
        assert np.array_equal(session.run({"x": x})["y"], x + 1)


def test_brief_requests_stay_whole_on_one_core(
    add_plan: Build, went: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parax.runtime.brief.BRIEF_SECONDS", float("inf"))
    monkeypatch.setattr("parax.runtime.brief.LONG_SECONDS", float("inf"))
    with add_plan(arrangement=NARROW).session(cores=CORES) as session:
        for n in (1, 9):
            ask(session, n, TIMED_CALLS + 4 * SAMPLES)
        assert {record["chosen"] for record in session.statistics()} == {"2 × 1 core"}
    assert set(went) == {"whole"} and len(went) == 2 * TIMED_CALLS, "all but those that are timed go straight"


def test_what_is_not_brief_is_cut_and_tried_elsewhere(
    add_plan: Build, went: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parax.runtime.brief.BRIEF_SECONDS", 0.0)
    with add_plan(arrangement=NARROW).session(cores=CORES) as session:
        ask(session, 9, TIMED_CALLS)
        assert went == ["whole"] * TIMED_CALLS and session.statistics()[0]["chosen"] is None
        ask(session, 9, 4 * SAMPLES)
        assert session.statistics()[0]["timed"]
    assert {"cut", "lent"} <= set(went[TIMED_CALLS:])


def test_long_ones_are_found_out_by_two(add_plan: Build, went: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parax.runtime.brief.LONG_SECONDS", 0.0)
    monkeypatch.setattr("parax.runtime.brief.BRIEF_SECONDS", 0.0)
    with add_plan(arrangement=NARROW).session(cores=CORES) as session:
        ask(session, 9, 3)
    assert went[:2] == ["whole"] * 2 and went[2] != "whole"


@pytest.mark.parametrize("most_brief_nbytes", [16])
def test_what_goes_through_much_memory_is_not_tried(add_plan: Build, went: list[str]) -> None:
    with add_plan(arrangement=NARROW).session(cores=CORES) as session:
        ask(session, 9, 1)
    assert went[0] != "whole"


@pytest.mark.parametrize("fixed", [{"instances": 2}, {"micro_batch": 4}, {"adapt": False}])
def test_what_is_fixed_stays(
    add_plan: Build, went: list[str], fixed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parax.runtime.brief.BRIEF_SECONDS", float("inf"))
    with add_plan(arrangement=NARROW).session(cores=CORES, **fixed) as session:
        ask(session, 9, 2 * TIMED_CALLS)
    assert went == ["cut"] * 2 * TIMED_CALLS
