"""Requests cut along the batch: ranges of rows, and tensors whose batch axis lies inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_plans import add_manifest, fake_plan, object_code, tensor
from inside import executor_of, router_of
from parax.runtime import Plan
from parax.runtime.cut import row_ranges, with_short_end

# y[t, n] = x[t, n] + b[t], T = 3; rows n lie inside.
INNER = """
define i32 @parax_run_0(ptr %io, ptr %weights, ptr %arena, ptr %dims, i64 %tid, i64 %nt, ptr %sync) {
entry:
  %x = load ptr, ptr %io
  %b.p = getelementptr ptr, ptr %io, i64 1
  %b = load ptr, ptr %b.p
  %y.p = getelementptr ptr, ptr %io, i64 2
  %y = load ptr, ptr %y.p
  %rows = load i64, ptr %dims
  %n = mul i64 %rows, 3
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %t = sdiv i64 %i, %rows
  %bp = getelementptr float, ptr %b, i64 %t
  %bv = load float, ptr %bp
  %xp = getelementptr float, ptr %x, i64 %i
  %xv = load float, ptr %xp
  %sum = fadd float %xv, %bv
  %yp = getelementptr float, ptr %y, i64 %i
  store float %sum, ptr %yp
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}
"""


@given(st.integers(1, 200), st.integers(1, 9), st.none() | st.integers(1, 40))
def test_ranges_cover_every_row_once(rows: int, n_instances: int, micro_batch: int | None) -> None:
    ranges = row_ranges(rows, n_instances, micro_batch)
    assert [row for first, n in ranges for row in range(first, first + n)] == list(range(rows))
    sizes = [n for _, n in ranges]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    if micro_batch:
        assert max(sizes) <= micro_batch


@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 40), st.integers(1, 9), st.integers(1, 5))
def test_a_short_end_halves_the_last_pieces(rows: int, n: int, micro_batch: int, n_last: int, least: int) -> None:
    ranges = row_ranges(rows, n, micro_batch)
    shorter = with_short_end(ranges, n_last, least)
    assert [row for first, count in shorter for row in range(first, first + count)] == list(range(rows))
    sizes, before = [count for _, count in shorter], [count for _, count in ranges]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] >= min(least, before[-1])
    assert len(sizes) - len(before) == sum(count >= 2 * least for count in before[-n_last:])


@pytest.mark.parametrize("mode", [{"instances": 1}, {"instances": 1, "micro_batch": 2}, {}, {"micro_batch": 1}])
def test_a_batch_axis_inside_and_an_input_that_all_rows_share(mode: dict[str, Any]) -> None:
    manifest = {
        **add_manifest(),
        "inputs": [tensor("x", 3, "N"), tensor("b", 3)],
        "outputs": [tensor("y", 3, "N")],
        "symbols": [{"name": "N", "input": 0, "axis": 1}],
        "batch": {"symbol": "N", "axis": {"x": 1, "y": 1}},
        "steps": [{"kind": "native", "segment": 0, "inputs": ["x", "b"], "outputs": ["y"], "arena": 0}],
    }
    plan = fake_plan(manifest, {"base": object_code(INNER)}, b"")
    b = np.array([1, 2, 3], np.float32)
    with plan.session(**mode) as session:
        for n in (1, 2, 5, 5):
            x = np.arange(3 * n, dtype=np.float32).reshape(3, n)
            assert np.array_equal(session.run({"x": x, "b": b})["y"], x + b[:, None])
            mine = np.zeros_like(x)
            session.run({"x": x, "b": b}, out={"y": mine})
            assert np.array_equal(mine, x + b[:, None])


def test_a_huge_batch_is_cut_so_that_the_arena_stays_small(
    add_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parax.runtime.cuts._MAX_ARENA_NBYTES", 1 << 12)
    x = np.zeros((5000, 4), np.float32)
    with add_plan().session(instances=1) as session:
        assert np.array_equal(session.run({"x": x})["y"], x + 1)
        assert executor_of(session).instances[0].arena_nbytes <= 1 << 12
    with add_plan().session(instances=1, micro_batch=1000) as session:
        assert np.array_equal(session.run({"x": x})["y"], x + 1)
        assert executor_of(session).instances[0].arena_nbytes == 16 * 1000


def test_few_rows_use_few_instances(add_plan: Callable[..., Plan]) -> None:
    batch = {"symbol": "N", "axis": {"x": 0, "y": 0}, "min_rows": 8}
    with add_plan(batch=batch).session() as session:
        for n, several in ((15, False), (16, session.instances > 1)):
            session.run({"x": np.zeros((n, 4), np.float32)})
            assert bool(router_of(session).known[((n, 4),)].cuts) is several
