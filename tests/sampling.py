"""Sweeps that are too long for every run: a part of their cases runs always, the rest with `-m slow`, as in CI."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int) -> list[Any]:
    """The cases for `parametrize`: one of so many runs always, the others are slow."""
    return [case if i % every == 0 else pytest.param(*_values(case), marks=pytest.mark.slow)
            for i, case in enumerate(cases)]  # fmt: skip


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) and not hasattr(case, "_fields") else (case,)
