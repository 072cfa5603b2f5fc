"""Fixtures for the tests of the runtime: plans of `fake_plans`, in memory and as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_plans import ADD, add_manifest, fake_plan, object_code
from parax.runtime import Plan


@pytest.fixture
def most_brief_nbytes() -> int:
    """Of the arena of requests that may be brief: none, as most tests are of what sessions do with longer ones. Those
    of brief ones have a fixture or a parameter of this name."""
    return -1


@pytest.fixture(autouse=True)
def _made_up_targets(any_target: None) -> None:
    """Those of made-up plans."""


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch, most_brief_nbytes: int) -> None:
    monkeypatch.setattr("parax.runtime.router.MOST_BRIEF_NBYTES", most_brief_nbytes)


@pytest.fixture(scope="session")
def add_code() -> bytes:
    """Object code of the segment 0 of `add_manifest`."""
    return object_code(ADD.format(segment=0))


@pytest.fixture
def add_plan(add_code: bytes) -> Callable[..., Plan]:
    """Builds the plan y = x + 1, with changes to its manifest."""

    def build(weight: float = 1.0, **changes: Any) -> Plan:
        weights = np.array([weight] * 16, np.float32)
        return fake_plan({**add_manifest(), **changes}, {"base": add_code}, weights, "graph @add {}")

    return build


@pytest.fixture
def saved_plan(add_plan: Callable[..., Plan], tmp_path: Path) -> Path:
    """The plan y = x + 1 as a file."""
    path = tmp_path / "plan.bin"
    add_plan().save(path)
    return path
