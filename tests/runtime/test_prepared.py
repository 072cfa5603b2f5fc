"""Requests that are made again with most tensors where they were: what they compute, see and refuse."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.driver import compile_graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.options import CompileOptions
from parax.errors import InvalidInput, UsageError
from parax.runtime.session import Session

GRAPH = """graph @g(%x: f32[N,4], %w: f32[4,3]) {
  %y = MatMul(%x, %w) : f32[N,3]
  %z = ReduceSum(%y) {keepdims=0} : f32[]
  return %y, %z
}"""
IN_STEPS = """graph @g(%x: f32[N,4], %w: f32[4,3]) {
  %y = MatMul(%x, %w) : f32[N,3]
  %i = NonZero(%y) : i64[2,K]
  return %y, %i
}"""


def session(profile: bool = False) -> Session:
    return compile_graph(parse_graph(GRAPH), CompileOptions(profile=profile)).session(1, adapt=False)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_what_stays_is_read_where_it_lies() -> None:
    x, w, y = numbers(5, 4), numbers(4, 3, seed=1), np.zeros((5, 3), np.float32)
    with session() as s:
        request = s.prepare({"x": x, "w": w}, out={"y": y})
        for seed in range(3):
            w[...] = numbers(4, 3, seed=seed)
            given = numbers(5, 4, seed=9 + seed)
            found = request.run({"x": given} if seed else None)
            np.testing.assert_allclose(y, (given if seed else x) @ w, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(found["z"], y.sum(), rtol=1e-4, atol=1e-5)
            assert found["y"] is y


def test_outputs_that_are_nobodys_are_new_each_time() -> None:
    with session() as s:
        request = s.prepare({"x": numbers(2, 4), "w": numbers(4, 3)})
        first, second = request.run()["y"], request.run({"x": numbers(2, 4, seed=5)})["y"]
        assert not np.array_equal(first, second)


def test_changes_are_checked() -> None:
    x, w, y = numbers(5, 4), numbers(4, 3), np.zeros((5, 3), np.float32)
    with session() as s:
        request = s.prepare({"x": x, "w": w}, out={"y": y})
        for changes, message in (
            ({"x": numbers(6, 4)}, "another shape"), ({"x": numbers(5, 4).astype(np.float64)}, "wrong element type"),
            ({"v": x}, "no input is named 'v'"), ({"w": y.reshape(-1)[:12].reshape(4, 3)}, "overlaps an input"),
        ):  # fmt: skip
            with pytest.raises(InvalidInput, match=message):
                request.run(changes)
        np.testing.assert_allclose(request.run({"x": x.T.copy().T})["y"], x @ w, rtol=1e-5, atol=1e-6)
        with pytest.raises(InvalidInput, match="missing input"):
            s.prepare({"x": x})
    with pytest.raises(UsageError):
        request.run()


def test_beside_outputs_is_no_overlap() -> None:
    room = np.zeros(64, np.float32)
    y = room[16:31].reshape(5, 3)
    with session() as s:
        request = s.prepare({"x": numbers(5, 4), "w": numbers(4, 3)}, out={"y": y})
        for begin in (4, 31):
            room[begin : begin + 12] = numbers(12)
            request.run({"w": room[begin : begin + 12].reshape(4, 3)})
        for begin in (5, 30):
            with pytest.raises(InvalidInput, match="overlaps"):
                request.run({"w": room[begin : begin + 12].reshape(4, 3)})


def test_a_profile_sees_them() -> None:
    with session(profile=True) as s:
        request = s.prepare({"x": numbers(5, 4), "w": numbers(4, 3)})
        with s.profile() as profile:
            for _ in range(3):
                request.run({"x": numbers(5, 4, seed=2)})
        assert profile.document["requests"] == 3


def test_a_plan_in_steps() -> None:
    x, w = numbers(5, 4), numbers(4, 3)
    with compile_graph(parse_graph(IN_STEPS), CompileOptions()).session(1, adapt=False) as s:
        request = s.prepare({"x": x, "w": w})
        x2 = np.zeros_like(x)
        x2[3] = 1
        assert set(request.run({"x": x2})["i"][0]) == {3}
