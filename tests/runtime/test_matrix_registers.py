"""Matrix registers need the kernel's leave: a plan that wants them is not taken where it is refused."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from parax.runtime import matrix_registers, native
from parax.runtime.cpu import cpu_flags, host_arch
from parax.runtime.manifest import Target

AMX = ("amx-bf16", "amx-tile")


@pytest.fixture(autouse=True)
def _asks_anew() -> Iterator[None]:
    matrix_registers.are_allowed.cache_clear()
    yield
    matrix_registers.are_allowed.cache_clear()


def kernel_that_says(answer: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Answers system calls in the kernel's place; the list is of those that are made."""
    calls: list[tuple[int, ...]] = []

    def syscall(*numbers: Any) -> int:
        calls.append(tuple(getattr(n, "value", n) for n in numbers))
        return answer

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syscall=syscall))
    return calls


def target(*features: str) -> Target:
    return Target("made", host_arch(), features, "made.o", "")


@pytest.mark.skipif(host_arch() != "x86_64", reason="matrix registers are x86-64's")
@pytest.mark.parametrize(("answer", "missing"), [(0, []), (-1, list(AMX))])
def test_the_kernel_is_asked_once_and_its_answer_counts(
    answer: int, missing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "host_features", lambda: frozenset({"avx512f", *AMX}))
    calls = kernel_that_says(answer, monkeypatch)
    for _ in range(2):
        assert native.missing_features(target("avx512f", *AMX)) == missing
    assert calls == [(158, 0x1023, 18)]


def test_who_needs_none_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = kernel_that_says(0, monkeypatch)
    native.missing_features(target("sse4.2"))
    assert calls == []


def test_the_kernel_grants_what_the_cpu_has() -> None:
    assert matrix_registers.are_allowed() == ("amx_tile" in cpu_flags())
