"""Sums over recorded spans: what each core did while requests were in flight, which adds up."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from parax.runtime.profiling.accounting import Account, account, merged, self_seconds
from parax.runtime.profiling.recorder import SPAN, Log
from parax.runtime.profiling.watch import NO_CORE, HostSpan, Request

Row = tuple[int, int, int, float, float]
"""Instance, thread (its core is ten times as much, plus the instance), call, start, end."""


def spans(rows: Sequence[Row]) -> np.ndarray:
    return np.array([(i, t, 10 * t + i, call, start, end) for i, t, call, start, end in rows], SPAN)


def log(kernels: Sequence[Row], wholes: Sequence[Row], full_at: float | None = None) -> Log:
    return Log(spans(kernels), spans(wholes), full_at, 2)


def request(start: float, end: float) -> Request:
    return Request(start, end, ((1,),))


def check_sums(found: Account) -> None:
    for core in found.cores:
        assert core.kernels + core.waiting + core.host + core.outside == pytest.approx(found.in_flight)
    assert sum(found.busy.values()) == pytest.approx(sum(core.kernels for core in found.cores))
    assert sum(found.waiting.values()) <= sum(core.waiting for core in found.cores) + 1e-12


def test_two_cores_of_one_request() -> None:
    kernels = [(0, 0, 0, 1.0, 3.0), (0, 0, 1, 4.0, 5.0), (0, 1, 0, 1.5, 4.0), (0, 1, 1, 4.0, 4.5)]
    found = account(log(kernels, [(0, 0, 0, 0.5, 5.0), (0, 1, 0, 1.0, 5.0)]), [request(0.0, 6.0)], [])
    check_sums(found)
    assert found.in_flight == 6.0 and found.n_native == 1
    assert [(c.core, c.kernels, c.waiting, c.outside) for c in found.cores] == [(0, 3.0, 1.5, 1.5), (10, 3.0, 1.0, 2.0)]
    assert found.busy == {0: 4.5, 1: 1.5}
    assert found.waiting == {0: 1.0, 1: 0.5}  # the first waits a second for the other; at the end, the other half one


def test_what_lies_outside_of_every_request_does_not_count() -> None:
    kernels = [(0, 0, 0, 1.0, 2.0), (0, 0, 0, 11.0, 12.0)]
    found = account(log(kernels, [(0, 0, 0, 1.0, 2.0), (0, 0, 0, 11.0, 12.0)]), [request(10.0, 13.0)], [])
    check_sums(found)
    assert found.busy == {0: 1.0} and found.in_flight == 3.0


def test_requests_at_the_same_time_count_once() -> None:
    assert merged([request(0, 4), request(1, 2), request(3, 6), request(8, 9)]) == [(0, 6), (8, 9)]
    kernels = [(0, 0, 0, 0.0, 4.0), (1, 0, 0, 3.0, 6.0)]
    found = account(log(kernels, [(0, 0, 0, 0.0, 4.0), (1, 0, 0, 3.0, 6.0)]), [request(0, 4), request(3, 6)], [])
    check_sums(found)
    assert found.in_flight == 6.0 and [core.outside for core in found.cores] == [2.0, 3.0]


def test_after_a_log_was_full_requests_are_left_out() -> None:
    kernels = [(0, 0, 0, 0.0, 1.0), (0, 0, 0, 2.0, 3.0)]
    wholes = [(0, 0, 0, 0.0, 1.0), (0, 0, 0, 2.0, 3.0)]
    found = account(log(kernels, wholes, full_at=2.5), [request(0, 1), request(2, 3)], [])
    assert found.is_cut and found.requests == [request(0, 1)] and found.busy == {0: 1.0}
    assert not account(log(kernels, wholes), [request(0, 1), request(2, 3)], []).is_cut


def test_a_stage_that_waits_for_another_blames_no_kernel() -> None:
    kernels = [(0, 0, 0, 0.0, 1.0), (0, 0, 1, 1.5, 2.0), (0, 0, 0, 4.0, 5.0), (0, 0, 1, 5.0, 6.0)]
    found = account(log(kernels, [(0, 0, 0, 0.0, 9.0)]), [request(0, 9)], [])
    check_sums(found)
    assert found.waiting == {0: 0.5, 1: 0.0}
    assert found.cores[0].waiting == 5.5


def test_a_control_step_counts_without_its_body() -> None:
    steps = ("loop", 0.0, 10.0), ("inner", 1.0, 3.0), ("late", 12.0, 13.0)
    loop, inner, late = (HostSpan(0, 7, *step) for step in steps)
    wholes = [(0, 0, 0, 1.5, 2.0), (0, 0, 0, 4.0, 8.0)]
    assert self_seconds([loop, inner, late], spans(wholes)) == pytest.approx([4.0, 1.5, 1.0])
    found = account(log([(0, 0, 0, 4.0, 7.0)], wholes), [request(0, 14)], [loop, inner, late])
    check_sums(found)
    assert found.host == pytest.approx({"loop": 4.0, "inner": 1.5, "late": 1.0})
    assert found.cores[0].host == pytest.approx(6.5) and found.cores[0].outside == pytest.approx(3.0)


def test_callers_of_a_plan_without_native_code_do_not_nest() -> None:
    steps = [HostSpan(NO_CORE, 1, "a", 0.0, 4.0), HostSpan(NO_CORE, 2, "a", 1.0, 3.0)]
    assert self_seconds(steps, spans([])) == [4.0, 2.0]
    found = account(Log.empty(), [request(0, 5)], steps)
    assert [(c.core, c.host, c.outside) for c in found.cores] == [(NO_CORE, 6.0, 0.0)]


def test_nothing_at_all() -> None:
    found = account(Log.empty(), [], [])
    assert found.in_flight == 0.0 and found.cores == [] and math.isclose(sum(found.busy.values()), 0.0)
