"""Requests that instances work off together, and one behind them: what they compute, refuse and leave undone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

from parax.compiler.driver import compile_graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.options import CompileOptions
from parax.errors import InvalidInput, UsageError
from parax.runtime.joint import Joint, can_join
from parax.runtime.session import Session

ROWS, TABLE, WIDTH = 3, 7, 5
PIECE = f"""graph @piece(%table: f32[{TABLE},{WIDTH}], %i: i64[{ROWS}], %factor: f32[]) {{
  %r = Gather(%table, %i) {{axis=0}} : f32[{ROWS},{WIDTH}]
  %y = Mul(%r, %factor) : f32[{ROWS},{WIDTH}]
  %s = ReduceSum(%y) {{keepdims=0}} : f32[]
  return %y, %s
}}"""
LAST = f"""graph @last(%table: f32[{TABLE},{WIDTH}]) {{
  %new = Add(%table, %table) : f32[{TABLE},{WIDTH}]
  %norm = ReduceSumSquare(%table) {{keepdims=0}} : f32[]
  return %new, %norm
}}"""


class Together:
    """Pieces over some sessions, and the doubling of their table behind them."""

    def __init__(self, sessions: list[Session], last: Session, n_pieces: int) -> None:
        self.table = np.random.default_rng(0).standard_normal((TABLE, WIDTH)).astype(np.float32)
        self.places = [np.zeros((ROWS, WIDTH), np.float32) for _ in range(n_pieces)]
        self.sums, self.new = np.zeros(n_pieces, np.float32), np.zeros_like(self.table)
        given = {"table": self.table, "i": np.zeros(ROWS, np.int64), "factor": np.zeros((), np.float32)}
        requests = [sessions[0].prepare(given, {"y": y, "s": self.sums[i : i + 1].reshape(())})
                    for i, y in enumerate(self.places)]  # fmt: skip
        behind = last.prepare({"table": self.table}, {"new": self.new})
        self.sessions, self.joint = [*sessions, last], Joint(sessions, requests, self.sums, last, behind)

    def run(self, indices: Any, factors: Any) -> Any:
        return self.joint.run({"i": indices}, [{"factor": np.array(f, np.float32)} for f in factors])


@contextmanager
def together(n_sessions: int, n_pieces: int, n_last: int = 2) -> Iterator[Together]:
    """Instances may share cores: the last request's has those of all, so that its threads lead others where it can."""
    usable = sorted(os.sched_getaffinity(0))
    piece, last = (compile_graph(parse_graph(text), CompileOptions()) for text in (PIECE, LAST))
    n_last = min(n_last, len(usable))
    with ExitStack() as stack:
        sessions = [stack.enter_context(piece.session(1, [usable[i % len(usable)]], 1, adapt=False))
                    for i in range(n_sessions)]  # fmt: skip
        behind = stack.enter_context(last.session(1, usable[:n_last], n_last, adapt=False))
        yield Together(sessions, behind, n_pieces)


@pytest.mark.parametrize(("n_sessions", "n_pieces", "n_last"), [(1, 1, 1), (1, 3, 2), (2, 1, 2), (2, 5, 2), (3, 7, 1)])
def test_pieces_and_what_follows(n_sessions: int, n_pieces: int, n_last: int) -> None:
    rng = np.random.default_rng(1)
    with together(n_sessions, n_pieces, n_last) as t:
        for _ in range(50):
            indices, factors = rng.integers(0, TABLE, n_pieces * ROWS), rng.standard_normal(n_pieces)
            made, last = t.run(indices, factors)
            for i, (y, factor) in enumerate(zip(t.places, factors, strict=True)):
                rows = indices[i * ROWS : (i + 1) * ROWS]
                np.testing.assert_array_equal(y, t.table[rows] * np.float32(factor))
                assert made[i]["y"] is y and np.isclose(made[i]["s"], y.sum(dtype=np.float64), atol=1e-4)
            assert last["new"] is t.new
            np.testing.assert_array_equal(t.new, 2 * t.table)
            np.testing.assert_allclose(last["norm"], np.square(t.table, dtype=np.float64).sum(), rtol=1e-5)
            t.table += 1
            ended = t.joint.seconds()
            assert len(ended) == n_sessions and max(ended) > 0


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("piece", [0, 2])
def test_nothing_follows_a_number_that_is_not_finite(wrong: float, piece: int) -> None:
    with together(2, 3) as t:
        factors = np.ones(3)
        factors[piece] = wrong
        made, last = t.run(np.arange(9) % TABLE, factors)
        assert last is None and not t.new.any() and not np.isfinite(made[piece]["s"])
        _, last = t.run(np.arange(9) % TABLE, np.ones(3))
        assert last is not None
        np.testing.assert_array_equal(t.new, 2 * t.table)


def test_nothing_follows_a_piece_that_fails() -> None:
    with together(2, 4) as t:
        for row in (0, 11):
            indices = np.zeros(12, np.int64)
            indices[row] = TABLE
            with pytest.raises(InvalidInput, match="out of range"):
                t.run(indices, np.ones(4))
            assert not t.new.any()
        assert t.run(np.zeros(12, np.int64), np.ones(4))[1] is not None


def test_what_is_given_is_checked() -> None:
    with together(1, 2) as t:
        for indices, message in ((np.zeros(5, np.int64), "another shape"), (np.zeros(6), "wrong element type"),
                                 (t.places[1].reshape(-1)[:12].view(np.int64), "overlaps an input")):  # fmt: skip
            with pytest.raises(InvalidInput, match=message):
                t.run(indices, np.ones(2))
        strided = np.arange(12)[::2] % TABLE  # copied
        t.run(strided, np.ones(2))
        np.testing.assert_array_equal(t.places[1], t.table[strided[3:]])


def test_closed_sessions_are_refused() -> None:
    with together(2, 2) as t:
        t.sessions[0].close()
        with pytest.raises(UsageError, match="closed"):
            t.run(np.zeros(6, np.int64), np.ones(2))


def test_profiles_are_made_of_requests_that_run_alone() -> None:
    plan = compile_graph(parse_graph(LAST), CompileOptions(profile=True))
    with plan.session(1, adapt=False) as session:
        assert can_join([session])
        with session.profile():
            assert not can_join([session])
