"""The path written for a signature: whatever names, numbers and types tensors have, and what it must not take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fake_plans import ARCH, fake_plan, object_code, tensor
from gates import give
from inside import executor_of
from parax.errors import InvalidInput
from parax.runtime import Plan
from parax.runtime.batching import Batches
from parax.runtime.bindings import TIMED_CALLS
from parax.runtime.brief import BRIEF_CALLS, MOST_NBYTES
from parax.runtime.executor import Executor
from parax.runtime.session import Session

Build = Callable[..., Plan]
NAMES = ["a", "it's", 'say "x"', "back\\slash", "new\nline", "{braces}", "x0", "binding", "é\u2028\0"]

# y0[i] = x1[i] - x0[i] and y1[i] = x0[i] * 2, but the segment takes x1, x0 and gives y1, y0.
TWO = """
define i32 @parax_run_0(ptr %io, ptr %weights, ptr %arena, ptr %dims, i64 %tid, i64 %nt, ptr %sync) {
  %p1 = load ptr, ptr %io
  %io1 = getelementptr ptr, ptr %io, i64 1
  %p0 = load ptr, ptr %io1
  %io2 = getelementptr ptr, ptr %io, i64 2
  %q1 = load ptr, ptr %io2
  %io3 = getelementptr ptr, ptr %io, i64 3
  %q0 = load ptr, ptr %io3
  %x1 = load i64, ptr %p1
  %x0 = load i64, ptr %p0
  %sub = sub i64 %x1, %x0
  %dbl = mul i64 %x0, 2
  store i64 %dbl, ptr %q1
  store i64 %sub, ptr %q0
  ret i32 0
}
"""


def two_plan(names: list[str]) -> Plan:
    """Two inputs and outputs of one element each, which native code wants in another order than callers."""
    x0, x1, y0, y1 = names
    manifest = {
        "name": "two",
        "inputs": [tensor(x0, dtype="i64"), tensor(x1, 1, dtype="i64")],
        "outputs": [tensor(y0, 1, dtype="i64"), tensor(y1, dtype="i64")],
        "symbols": [],
        "targets": [{"name": "base", "arch": ARCH, "features": []}],
        "steps": [{"kind": "native", "segment": 0, "inputs": [x1, x0], "outputs": [y1, y0], "arena": 0}],
    }
    return fake_plan(manifest, {"base": object_code(TWO)}, b"")


@pytest.fixture
def most_brief_nbytes() -> int:
    return MOST_NBYTES


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the requests that went the longer way; all requests are brief."""
    found: list[int] = []
    run_whole = Executor.run_whole

    def counted(self: Executor, binding: Any, *tensors: Any) -> None:
        found.append(binding.rows)
        run_whole(self, binding, *tensors)

    monkeypatch.setattr(Executor, "run_whole", counted)
    monkeypatch.setattr("parax.runtime.brief.BRIEF_SECONDS", float("inf"))  # however busy the machine is
    monkeypatch.setattr("parax.runtime.brief.LONG_SECONDS", float("inf"))
    return found


def settled(session: Session, feeds: dict[str, np.ndarray], runs: list[int]) -> None:
    """Have requests of a shape be known as brief."""
    for _ in range(TIMED_CALLS + 1):
        session.run(feeds)
    runs.clear()


@pytest.mark.parametrize("first", range(len(NAMES)))
def test_names_and_orders(first: int, runs: list[int]) -> None:
    names = (NAMES[first:] + NAMES[:first])[:4]
    with two_plan(names).session(instances=1) as session:
        for k in range(TIMED_CALLS + 2 * BRIEF_CALLS):
            feeds = {names[1]: np.array([7 * k]), names[0]: np.array(k)}
            found = session.run(feeds)
            assert list(found) == names[2:]
            assert found[names[2]].tolist() == [6 * k] and found[names[3]].tolist() == 2 * k
    assert len(runs) == TIMED_CALLS + 1, "those that are timed: the first, and one after BRIEF_CALLS others"


def test_what_does_not_fit_takes_the_checked_path(add_plan: Build, runs: list[int]) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    with add_plan().session(instances=1) as session:
        settled(session, {"x": x}, runs)
        assert np.array_equal(session.run({"x": x})["y"], x + 1) and not runs
        strided = np.zeros((2, 8), np.float32)[:, ::2]
        shifted = np.frombuffer(b"\0" * 33, np.float32, 8, 1).reshape(2, 4)
        swapped = x.astype(">f4")
        for other in (strided, shifted, swapped, x.T.copy().T, x.tolist(), memoryview(x), x.view(np.recarray)):
            want = np.asarray(other, np.float32) + 1
            assert np.array_equal(session.run({"x": other})["y"], want)
            assert runs.pop() == 2
        for wrong in ({"x": x.astype(np.float64)}, {"x": x, "z": x}, {"z": x}, {}, None, [x], {"x": None}):
            with pytest.raises(InvalidInput):
                session.run(wrong)
        assert np.array_equal(session.run({"x": x}, out={"y": np.empty_like(x)})["y"], x + 1)
        assert runs.pop() == 2
        assert executor_of(session).is_idle()


def test_a_failure_leaves_the_instance_free(add_plan: Build, runs: list[int]) -> None:
    good, bad = np.ones((1, 4), np.float32), np.full((1, 4), -99, np.float32)
    with add_plan().session(instances=1) as session:
        settled(session, {"x": good}, runs)
        for _ in range(3):
            with pytest.raises(InvalidInput, match="Gather 'emb': index out of range"):
                session.run({"x": bad})
            assert np.array_equal(session.run({"x": good})["y"], good + 1)
        assert not runs and executor_of(session).is_idle()


def test_where_none_is_free_a_brief_request_waits(add_plan: Build, runs: list[int]) -> None:
    x = np.ones((1, 4), np.float32)
    with add_plan().session(instances=1) as session:
        settled(session, {"x": x}, runs)
        held: list[Any] = []
        executor_of(session).take_one(held)
        future = session.submit({"x": x})
        while not executor_of(session).waiting:
            assert not future.done()
        give(session, held)
        assert np.array_equal(future.result(10)["y"], x + 1)
        assert runs == [1]
    with pytest.raises(Exception, match="closed"):
        session.run({"x": x})


def test_with_a_window_requests_go_through_the_batches(add_plan: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((1, 4), np.float32)
    sizes: list[int] = []
    run = Batches.run

    def counted(self: Batches, binding: Any, *tensors: Any) -> None:
        sizes.append(binding.rows)
        run(self, binding, *tensors)

    monkeypatch.setattr(Batches, "run", counted)
    with add_plan().session(instances=1, batch_window=0.001) as session:
        for _ in range(3 * TIMED_CALLS):
            assert np.array_equal(session.run({"x": x})["y"], x + 1)
    assert sizes == [1] * 3 * TIMED_CALLS
