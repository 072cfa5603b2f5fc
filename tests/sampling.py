"""What is too long for every run: a part of it runs always, the rest with `-m slow`, as in CI.

A test of many parameters is marked `sample(every)`, a list of cases is `sampled`, examples are `thorough`.
"""

from __future__ import annotations

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
