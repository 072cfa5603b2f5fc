"""Measured limits of the machine."""

from __future__ import annotations

import os

import pytest

from parax.compiler.backend import machine


def test_measured_limits_are_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "REPEATS", 2)
    monkeypatch.setattr(machine, "COPY_NBYTES", 1 << 20)
    facts = machine.measure_facts(sorted(os.sched_getaffinity(0))[:2])
    assert facts.flops_core > 1e9
    assert facts.copy_core > 1e8


def test_slowness_is_told_against_the_quickest_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([2e-3, 1e-3, 3e-3, 1e-3])
    monkeypatch.setattr(machine, "seconds_side_by_side", lambda calls, cores, repeats: next(seconds))
    slow = machine.slowness([0, 1], 1.0)
    assert [slow() for _ in range(4)] == pytest.approx([1.0, 1.0, 3.0, 1.0])


def test_cores_that_are_busy_from_the_beginning_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "seconds_side_by_side", lambda calls, cores, repeats: 2e-3)
    monkeypatch.setattr(machine, "_multiply_adds", lambda target, steps: (lambda: None, 1e6))
    assert machine.slowness([0, 1], 1e9)() == pytest.approx(2 / machine.SLOWED)


def test_slowness_here() -> None:
    slow = machine.slowness(sorted(os.sched_getaffinity(0))[:2], 1e9)
    assert 1.0 <= min(slow() for _ in range(3)) < 100
