"""What is too long for every run: a part of it runs always, the rest with `-m slow`, as in CI.

A test of many parameters is marked `sample(every)`, a list of cases is `sampled`, examples are `thorough`. Of cases of
operators, `first_of_each` runs one of every operator always.

What is too long for CI, too, runs with `--all-cases` alone. The rule: a case is left out of one test only where CI
runs it in another one that judges its results (`tests/catalogue` has them all, on this machine's CPU), and each test
keeps of every operator the first case and every n-th after it (`thinned`). So every case meets the test that knows what
is right, and every test and target meets every operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

SHARE = 3


class Whole:
    """Whether slow tests are asked for in this process: `conftest` sets it before tests are imported."""

    asked = False


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """The cases for `parametrize`: one of so many runs always, the others are slow."""
    return [case if i % every == 0 else pytest.param(*_values(case), marks=pytest.mark.slow)
            for i, case in enumerate(cases)]  # fmt: skip


def first_of_each(cases: Iterable[Any], key: Callable[[Any], object]) -> list[Any]:
    """The cases for `parametrize`: the first of each key runs always, the others are slow."""
    return [case if rank == 0 else pytest.param(*_values(case), marks=pytest.mark.slow)
            for case, rank in _ranked(cases, key)]  # fmt: skip


def thinned(cases: Iterable[Any], key: Callable[[Any], object], every: int) -> tuple[list[Any], list[Any]]:
    """The first case of each key and one of so many after it; and the others, which only `--all-cases` runs."""
    kept, left = [], []
    for case, rank in _ranked(cases, key):
        (left if rank % every else kept).append(case)
    return kept, left


def exhaustive(cases: Iterable[Any]) -> list[Any]:
    """The cases for `parametrize`, run with `--all-cases` alone."""
    return [pytest.param(*_values(case), marks=pytest.mark.exhaustive) for case in cases]


def _ranked(cases: Iterable[Any], key: Callable[[Any], object]) -> list[tuple[Any, int]]:
    """Each case with how many of its key come before it."""
    seen: Counter[object] = Counter()
    found = []
    for case in cases:
        found.append((case, seen[key(case)]))
        seen[key(case)] += 1
    return found


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) and not hasattr(case, "_fields") else (case,)


def thorough(max_examples: int, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """hypothesis.settings of a test that runs a third of its examples always, and all of them with `-m slow`, too."""
    import hypothesis

    settings = hypothesis.settings(max_examples=max_examples if Whole.asked else -(-max_examples // SHARE), **options)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        decorated: Callable[..., None] = pytest.mark.thorough(settings(test))
        return decorated

    return decorate
