"""Trainers whose instances exchange gradients, and what they come to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

import parax
from parax.compiler.trainer import Trainer
from train.small_models import CLASSES, WIDTH, classifier

ROWS, STEPS = 24, 6


def batch(seed: int, rows: int = ROWS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((rows, WIDTH)).astype(np.float32), "labels": rng.integers(0, CLASSES, rows)}


def trainer(name: str = "fixed", instances: int = 1, model: Any = None, settings: Any = None, **given: Any) -> Trainer:
    """Instances may be more than cores, so that every test runs on any machine."""
    exchange = parax.Exchange(name, oversubscribe=True, **(settings or {}))
    given = {"optimizer": parax.Adam(lr=0.05), "batch": ROWS, "shards": 4, **given}
    return Trainer(model or classifier(), exchange=exchange, instances=instances, **given)


def trained(trainer: Trainer, steps: int = STEPS) -> dict[str, np.ndarray]:
    for seed in range(steps):
        trainer.step(batch(seed))
    return trainer.parameters


def compact(trainer: Trainer) -> set[str]:
    """The parameters whose gradient is kept as something smaller."""
    return {name for group in trainer.program.compact for name in trainer.program.groups[group]}


def assert_same_bits(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name].view(np.int32), array.view(np.int32), err_msg=name)


def assert_close(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=2e-5, err_msg=name)


def restarted(trainer: Trainer, start: Mapping[str, np.ndarray]) -> None:
    trainer.state.restore(start, 0)


def start_of(trainer: Trainer) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in trainer.state.tensors().items()}


def usable() -> list[int]:
    return sorted(os.sched_getaffinity(0))
