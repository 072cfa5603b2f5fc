"""Plans in steps, by the function that is written for them and from step to step: the same bits, errors and owners.

A session with a limit of memory goes from step to step; others by the function, from the third request on.
"""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

import parax
from control_models import GROWING, IF, NESTED, NON_ZERO, RAGGED, SCAN, SWAPPING, TWICE
from inside import has_function
from parax.compiler import lowered
from parax.errors import InvalidInput, ParaxError, ResourceLimit
from parax.runtime.dims import dim_code, evaluate
from parax.runtime.steps import PLAIN_REQUESTS

TRIPS = st.integers(-1, 5)


def plan_of(text: str) -> parax.Plan:
    """Of steps, also where operators with bodies could be native functions."""
    with mock.patch.object(lowered, "choose_native", lambda *_: None):
        return compiled(text)


def compiled(text: str) -> parax.Plan:
    return parax.compile(parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>{text}'))


class Both:
    """A plan's session that is limited, and one whose function is written."""

    def __init__(self, text: str, feed: dict[str, Any]) -> None:
        self.plan = plan_of(text)
        self.plain = self.plan.session(instances=1, max_memory=1 << 40)
        self.written = self.plan.session(instances=1)
        for _ in range(PLAIN_REQUESTS + 1):
            self.written.run(feed)
        assert has_function(self.written)

    def outcome(self, session: Any, feed: dict[str, Any]) -> Any:
        try:
            return [(name, value.dtype, value.shape, value.tobytes()) for name, value in session.run(feed).items()]
        except ParaxError as error:
            return type(error), str(error)

    def agree(self, feed: dict[str, Any]) -> None:
        assert self.outcome(self.written, feed) == self.outcome(self.plain, feed)


def ramp(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 3


BOTH: dict[str, Both] = {}


def both(text: str, feed: dict[str, Any]) -> Both:
    return BOTH.setdefault(text, Both(text, feed)) if text not in BOTH else BOTH[text]


@given(n=st.integers(0, 5), taken=st.booleans())
def test_branches(n: int, taken: bool) -> None:
    both(IF, {"x": ramp(2, 4), "c": np.array(True)}).agree({"x": ramp(n, 4), "c": np.array(taken)})


@given(n=st.integers(0, 5), trips=TRIPS, go=st.booleans())
def test_a_state_that_grows(n: int, trips: int, go: bool) -> None:
    made = both(GROWING, {"x": ramp(2), "trips": np.array(2), "go": np.array(True)})
    made.agree({"x": ramp(n), "trips": np.array(trips), "go": np.array(go)})


@given(n=st.integers(0, 5))
def test_slices(n: int) -> None:
    both(SCAN, {"xs": ramp(2, 3), "start": ramp(3)}).agree({"xs": ramp(n, 3), "start": ramp(3)})


@given(n=st.integers(1, 5), trips=TRIPS)
def test_a_branch_in_a_loop(n: int, trips: int) -> None:
    both(NESTED, {"x": ramp(2), "trips": np.array(2)}).agree({"x": ramp(n), "trips": np.array(trips)})


@given(n=st.integers(1, 5), trips=TRIPS)
def test_states_that_change_places(n: int, trips: int) -> None:
    made = both(SWAPPING, {"x": ramp(2), "y": ramp(2), "trips": np.array(2)})
    made.agree({"x": ramp(n), "y": -ramp(n), "trips": np.array(trips)})


@given(n=st.integers(1, 5), trips=TRIPS, inner=TRIPS, go=st.booleans(), more=st.integers(0, 3))
def test_loops_in_loops(n: int, trips: int, inner: int, go: bool, more: int) -> None:
    """`more`: of a sum that is negative the condition ends the outer loop."""
    made = both(TWICE, {"x": ramp(2), "trips": np.array(2), "inner": np.array(1), "go": np.array(True)})
    made.agree({"x": ramp(n) + more, "trips": np.array(trips), "inner": np.array(inner), "go": np.array(go)})


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), min_size=1, max_size=4))
def test_sizes_that_the_data_decide(rows: list[list[float]]) -> None:
    both(NON_ZERO, {"x": ramp(2, 4)}).agree({"x": np.array(rows, np.float32)})


@pytest.mark.parametrize("trips", [0, 1, 2])
def test_scan_outputs_of_several_shapes(trips: int) -> None:
    made = both(RAGGED, {"x": ramp(2), "trips": np.array(1)})
    made.agree({"x": ramp(2), "trips": np.array(trips)})


@pytest.mark.parametrize(
    "feed",
    [
        {"x": ramp(2), "trips": np.zeros(2, np.int64), "go": np.array(True)},
        {"x": ramp(2), "trips": np.array(1), "go": np.zeros(0, bool)},
        {"x": ramp(2, 2), "trips": np.array(1), "go": np.array(True)},
        {"x": ramp(2), "trips": np.array(1)},
        {"x": ramp(2).astype(np.float64), "trips": np.array(1), "go": np.array(True)},
    ],
)
def test_what_does_not_fit(feed: dict[str, Any]) -> None:
    both(GROWING, {"x": ramp(2), "trips": np.array(2), "go": np.array(True)}).agree(feed)


def test_what_a_native_step_refuses() -> None:
    text = """
    gathering (float[N] x, int64[K] at, bool c) => (float[K] y) {
        y = If (c) <then_branch = yes () => (float[K] a) { a = Gather(x, at) },
                    else_branch = no () => (float[K] b) { d = Gather(x, at)  b = Neg(d) }>
    }
    """
    made = Both(text, {"x": ramp(4), "at": np.array([1, 2]), "c": np.array(True)})
    for at in ([0, 3], [9, 0], [1, 1]):  # one that is refused leaves nothing for the next
        made.agree({"x": ramp(4), "at": np.array(at), "c": np.array(False)})
    with pytest.raises(InvalidInput):
        made.written.run({"x": ramp(4), "at": np.array([9]), "c": np.array(True)})


def test_results_are_the_callers() -> None:
    text = """
    passing (float[N] x, bool c) => (float[N] y, float[N] z, float[2] w) <float[2] k = {1, 2}> {
        y, z, w = If (c) <then_branch = yes () => (float[N] a, float[N] b, float[2] d) {
                              a = Identity(x)  b = Identity(x)  d = Identity(k) },
                          else_branch = no () => (float[N] e, float[N] f, float[2] g) {
                              e = Neg(x)  f = Identity(e)  g = Add(k, k) }>
    }
    """
    made = Both(text, {"x": ramp(2), "c": np.array(True)})
    for taken in (True, False):
        x = ramp(2)
        found = made.written.run({"x": x, "c": np.array(taken)})
        arrays = [x, *found.values()]
        assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
        for array in found.values():
            array[...] = 7
        made.agree({"x": x, "c": np.array(taken)})


def test_threads() -> None:
    """Requests side by side on two instances, and on one that they wait for."""
    plan, feeds = plan_of(TWICE), []
    for n in range(1, 9):
        numbers = {"trips": np.array(n % 4), "inner": np.array(n % 3), "go": np.array(True)}
        feeds.append({"x": ramp(n) + 3, **numbers})
    with plan.session(instances=1, max_memory=1 << 40) as plain:
        wanted = [plain.run(feed) for feed in feeds]
    for instances in (1, 2):
        barrier = threading.Barrier(4)
        with plan.session(instances=instances) as session, ThreadPoolExecutor(4) as pool:

            def requests(first: int, session: Any = session, barrier: Any = barrier) -> None:
                barrier.wait()
                for i in range(40):
                    at = (first + i) % len(feeds)
                    for name, array in session.run(feeds[at]).items():
                        np.testing.assert_array_equal(array, wanted[at][name])

            for future in [pool.submit(requests, first) for first in range(4)]:
                future.result()


def test_a_loop_has_an_end_by_time() -> None:
    text = """
    endless (float[2] x, bool go) => (float[2] y) {
        y = Loop ("", go, x) <body = body (int64 i, bool c, float[2] s) => (bool k, float[2] t) {
            k = Identity(c)
            t = Neg(s)
        }>
    }
    """
    with plan_of(text).session(instances=1, max_seconds=0.05) as session:
        for _ in range(PLAIN_REQUESTS + 1):
            session.run({"x": ramp(2), "go": np.array(False)})
        assert has_function(session)
        with pytest.raises(ResourceLimit, match="the time is over"):
            session.run({"x": ramp(2), "go": np.array(True)})


def test_loops_deeper_than_python_can_write() -> None:
    depth = 22
    body = "t = Neg(s)"
    for level in range(depth):
        body = (f"t = Loop (trips, go, s) <body = body{level} (int64 i, bool c, float[2] s) => (bool k, float[2] t) "
                f"{{ k = Identity(c) {body} }}>")  # fmt: skip
    text = f"deep (float[2] s, int64 trips, bool go) => (float[2] t) {{ {body} }}"
    feed = {"s": ramp(2), "trips": np.array(1), "go": np.array(True)}
    with plan_of(text).session(instances=1) as session:
        for _ in range(PLAIN_REQUESTS + 2):
            np.testing.assert_array_equal(session.run(feed)["t"], -ramp(2) if depth else ramp(2))
        assert not has_function(session)


def test_arrays_that_were_pickled() -> None:
    made = both(IF, {"x": ramp(2, 4), "c": np.array(True)})
    feed = pickle.loads(pickle.dumps({"x": ramp(3, 4), "c": np.array(True)}))
    made.agree(feed)
    assert made.written._run_fast(feed) is not None  # not by the checked path


DIMS = st.recursive(
    st.integers(-4, 9) | st.sampled_from(["N", "M"]),
    lambda inner: st.tuples(st.sampled_from(["+", "*", "max", "min"]), inner, inner, inner)
    | st.tuples(st.sampled_from(["//", "%"]), inner, inner),
    max_leaves=8,
)


@given(DIMS, st.integers(0, 9), st.integers(0, 9))
def test_sizes_as_text(dim: Any, n: int, m: int) -> None:
    text = dim_code(dim, {"N": "a", "M": "b"})
    if text is not None:
        assert eval(text, {"a": n, "b": m}) == evaluate(dim, {"N": n, "M": m})
