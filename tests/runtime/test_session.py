"""Sessions on real code: results, errors, modes, threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gates import LIMIT
from inside import executor_of, router_of
from parax.errors import InvalidInput, UsageError
from parax.runtime import Plan
from parax.runtime.bindings import TIMED_CALLS
from parax.runtime.brief import BRIEF_CALLS
from parax.runtime.sizing import core_groups
from parax.runtime.topology import machine

N_CORES = len(machine().default_cores())
needs_two_cores = pytest.mark.skipif(N_CORES < 2, reason="needs two usable cores")

Build = Callable[..., Plan]
MODES = [
    {"instances": 1},
    {"instances": 1, "micro_batch": 3},
    pytest.param({"instances": 2}, marks=needs_two_cores),
    pytest.param({"instances": 2, "micro_batch": 2}, marks=needs_two_cores),
    pytest.param({"instances": 1, "cores_per_instance": 2}, marks=needs_two_cores),
    pytest.param({"instances": 1, "cores_per_instance": 2, "micro_batch": 2}, marks=needs_two_cores),
]


def rows(n: int) -> np.ndarray:
    return np.arange(n * 4, dtype=np.float32).reshape(n, 4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 64])
def test_every_mode_gives_the_same_results(add_plan: Build, mode: dict[str, Any], n: int) -> None:
    with add_plan().session(**mode) as session:
        for _ in range(3):
            x = rows(n)
            assert np.array_equal(session.run({"x": x})["y"], x + 1)


def test_nan_passes_through(add_plan: Build) -> None:
    with add_plan().session(instances=1) as session:
        x = np.array([[np.nan, np.inf, -np.inf, 1]], np.float32)
        for _ in range(2):
            np.testing.assert_array_equal(session.run({"x": x})["y"], x + 1)


def test_output_names_first_as_in_onnx_runtime(add_plan: Build) -> None:
    with add_plan().session(instances=1) as session:
        assert list(session.run(["y"], {"x": rows(2)})) == ["y"]
        assert list(session.run(None, {"x": rows(2)})) == ["y"]
        with pytest.raises(InvalidInput, match="no output is named 'z'"):
            session.run(["z"], {"x": rows(2)})


@pytest.mark.parametrize("mode", MODES)
def test_out_is_written_in_place(add_plan: Build, mode: dict[str, Any]) -> None:
    with add_plan().session(**mode) as session:
        x, y = rows(8), np.zeros((8, 4), np.float32)
        assert session.run({"x": x}, out={"y": y})["y"] is y
        assert np.array_equal(y, x + 1)


def test_wrong_out_is_refused(add_plan: Build) -> None:
    x = rows(8)
    read_only = np.zeros((8, 4), np.float32)
    read_only.flags.writeable = False
    wrong = [np.zeros((8, 3), np.float32), np.zeros((8, 4)), np.zeros((4, 8), np.float32).T, read_only, x, [1]]
    with add_plan().session(instances=1) as session:
        for out in wrong:
            with pytest.raises(InvalidInput):
                session.run({"x": x}, out={"y": out})
        with pytest.raises(InvalidInput, match="'z'"):
            session.run({"x": x}, out={"z": x})


class Unmeasured:
    """An object that is read like a mapping, and is none."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __getitem__(self, name: str) -> np.ndarray:
        return self.array


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "missing input 'x'"),
        ({"x": rows(1), "z": rows(1)}, "no input is named 'z'"),
        ({"x": np.zeros((2, 4))}, "float32.*found float64"),
        ({"x": np.zeros((2, 4), np.int32)}, "float32.*found int32"),
        ({"x": np.zeros((2, 5), np.float32)}, r"\[N,4\] with N=2; found \[2, 5\]"),
        ({"x": np.zeros(4, np.float32)}, "wrong shape"),
        ({"x": np.zeros((0, 4), np.float32)}, "dimension N.*input 'x'.*expected 1 or more; found 0"),
        ({"x": object()}, "float32"),
        ([rows(1)], "by name"),
        (rows(1), "by name"),
        (None, "by name"),
        (Unmeasured(rows(2)), "by name"),
    ],
)
def test_wrong_inputs_are_named(add_plan: Build, feeds: Any, message: str) -> None:
    with add_plan().session(instances=1) as session:
        session.run({"x": rows(2)})
        for _ in range(2):
            with pytest.raises(InvalidInput, match=message):
                session.run(feeds)


class Interface:
    """An object with nothing but `__array_interface__`."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


class DLPack:
    """An object with nothing but DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Subclass(np.ndarray):
    """A subclass of numpy's array."""


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x,
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: x[::-1][::-1],
        lambda x: x.astype(">f4"),
        lambda x: memoryview(x),
        lambda x: x.tolist(),
        lambda x: x.view(Subclass),
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape),
        Interface,
        DLPack,
    ],
)
def test_inputs_of_every_kind(add_plan: Build, convert: Callable[[np.ndarray], Any]) -> None:
    x = rows(5)
    with add_plan().session(instances=1) as session:
        for _ in range(2):
            y = session.run({"x": convert(x)})["y"]
            assert type(y) is np.ndarray
            assert np.array_equal(y, x + 1)


def test_read_only_input(add_plan: Build) -> None:
    x = rows(5)
    x.flags.writeable = False
    with add_plan().session(instances=1) as session:
        for _ in range(2):
            assert np.array_equal(session.run({"x": x})["y"], x + 1)


@pytest.mark.parametrize("mode", MODES)
def test_an_error_in_native_code_says_where_and_is_forgotten(add_plan: Build, mode: dict[str, Any]) -> None:
    x = rows(9)
    bad = x.copy()
    bad[0, 0] = -99
    with add_plan().session(**mode) as session:
        for _ in range(3):
            with pytest.raises(InvalidInput, match="Gather 'emb': index out of range"):
                session.run({"x": bad})
            assert np.array_equal(session.run({"x": x})["y"], x + 1)


def test_two_sessions_share_code_and_weights(add_plan: Build) -> None:
    plan = add_plan()
    with plan.session(instances=1) as a, plan.session(instances=1) as b:
        assert executor_of(a).code is executor_of(b).code
        assert np.array_equal(a.run({"x": rows(1)})["y"], b.run({"x": rows(1)})["y"])


@pytest.mark.parametrize("mode", MODES)
def test_many_threads(add_plan: Build, mode: dict[str, Any]) -> None:
    failures: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            x = rng.standard_normal((int(rng.integers(1, 9)), 4), dtype=np.float32)
            if not np.array_equal(session.run({"x": x})["y"], x + 1):
                failures.append(x)

    with add_plan().session(**mode) as session:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert len(executor_of(session).free) == session.instances


@pytest.mark.parametrize("mode", MODES)
def test_submit_and_arun(add_plan: Build, mode: dict[str, Any]) -> None:
    async def all_at_once() -> list[dict[str, np.ndarray]]:
        return list(await asyncio.gather(*(session.arun({"x": rows(n)}) for n in range(1, 9))))

    with add_plan().session(**mode) as session:
        futures = [session.submit({"x": rows(n)}) for n in range(1, 9)]
        for results in ([f.result() for f in futures], asyncio.run(all_at_once())):
            for n, result in enumerate(results, 1):
                assert np.array_equal(result["y"], rows(n) + 1)
        with pytest.raises(InvalidInput):
            session.submit({"x": np.zeros((1, 5), np.float32)}).result()


@pytest.mark.parametrize("mode", MODES)
def test_closed(add_plan: Build, mode: dict[str, Any]) -> None:
    session = add_plan().session(**mode)
    session.run({"x": rows(4)})
    pending = session.submit({"x": rows(4)})
    session.close()
    session.close()
    assert np.array_equal(pending.result()["y"], rows(4) + 1)
    for call in (session.run, session.submit):
        with pytest.raises(UsageError, match="closed"):
            call({"x": rows(4)})


@pytest.mark.parametrize("window", [None, 0.001])
def test_whoever_asks_again_and_again_ends_with_the_session(add_plan: Build, window: float | None) -> None:
    session = add_plan().session(batch_window=window)

    async def ask() -> None:
        while True:
            await session.arun({"x": rows(400_000)})

    async def ask_and_close() -> list[Any]:
        askers = [asyncio.create_task(ask()) for _ in range(4)]
        await asyncio.sleep(0.05)
        await asyncio.to_thread(session.close)
        done, _ = await asyncio.wait(askers, timeout=LIMIT)
        return [task.exception() for task in done]

    errors = asyncio.run(ask_and_close())
    assert [type(error) for error in errors] == [UsageError] * 4


@pytest.mark.parametrize("window", [None, 0.001])
@pytest.mark.parametrize("alone", [True, False])
def test_a_callback_may_close(add_plan: Build, window: float | None, alone: bool) -> None:
    """All that was submitted is run, whether or not another thread closes at the same time."""
    session = add_plan().session(instances=2, batch_window=window)
    futures = [session.submit({"x": rows(100_000)}) for _ in range(6)]
    for future in futures:
        future.add_done_callback(lambda _: session.close())
    if not alone:
        closing = threading.Thread(target=session.close, daemon=True)
        closing.start()
        closing.join(LIMIT)
        assert not closing.is_alive()
    for future in futures:
        assert np.array_equal(future.result(LIMIT)["y"], rows(100_000) + 1)
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.run({"x": rows(1)})


def test_a_session_that_is_dropped_ends_its_threads(add_plan: Build) -> None:
    before = threading.active_count()
    for _ in range(3):
        session = add_plan().session(instances=N_CORES)
        session.run({"x": rows(16)})
        del session
    assert threading.active_count() == before


def test_new_shapes_beyond_the_cache(add_plan: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parax.runtime.router._MAX_BINDINGS", 4)
    with add_plan().session(instances=1) as session:
        for n in (*range(1, 12), *range(1, 12)):
            assert np.array_equal(session.run({"x": rows(n)})["y"], rows(n) + 1)
        assert len(router_of(session).known) <= 4


def test_core_groups() -> None:
    cores = (0, 1, 2, 3)
    assert core_groups("throughput", cores, None, None) == ((0,), (1,), (2,), (3,))
    assert core_groups("latency", cores, None, None) == ((0, 1, 2, 3),)
    assert core_groups("latency", cores, 2, None) == ((0,), (1,))
    assert core_groups("throughput", cores, None, 2) == ((0, 1), (2, 3))
    assert core_groups("throughput", cores, 1, 3) == ((0, 1, 2),)
    for instances, each in ((0, None), (None, 0), (5, None), (None, 5), (2, 3)):
        with pytest.raises(UsageError):
            core_groups("throughput", cores, instances, each)


def test_wrong_session_arguments(add_plan: Build) -> None:
    for arguments in ({"instances": 999}, {"cores": [9999]}, {"micro_batch": 0}, {"cores": "x"}):
        with pytest.raises(UsageError):
            add_plan().session(**arguments)


@pytest.mark.parametrize("most_brief_nbytes", [1 << 30])
def test_brief_calls_keep_the_gil_and_long_ones_do_not(add_plan: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    with add_plan().session(instances=1) as session:
        for n, brief in ((1, True), (500_000, False)):
            for _ in range(TIMED_CALLS):
                assert not any(b.is_brief for b in router_of(session).known.values() if b.rows == n)
                session.run({"x": rows(n)})
            (binding,) = (b for b in router_of(session).known.values() if b.rows == n)
            assert binding.is_brief is brief and binding.n_untimed == 0
            assert np.array_equal(session.run({"x": rows(n)})["y"], rows(n) + 1)
        monkeypatch.setattr("parax.runtime.brief.LONG_SECONDS", 0.0)
        (binding,) = (b for b in router_of(session).known.values() if b.rows == 1)
        assert binding.n_brief == BRIEF_CALLS - 1  # one call since the last that was timed
        for left in (*reversed(range(BRIEF_CALLS - 1)), 0):
            assert binding.is_brief
            session.run({"x": rows(1)})
            assert binding.n_brief == left
        assert not binding.is_brief and binding.n_untimed == TIMED_CALLS  # timed anew
    with add_plan(errors={"7": "too negative"}).session(instances=1) as session:
        for _ in range(2 * TIMED_CALLS):
            with pytest.raises(InvalidInput, match="too negative"):
                session.run({"x": np.full((1, 4), -99, np.float32)})
