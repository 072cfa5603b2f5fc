"""Recurrent models give the same bits on any number of cores: theirs meet inside a kernel at every time step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import parax
from examples.models import build, feeds
from parax.runtime.topology import choose_cores


@pytest.mark.skipif(len(choose_cores(None)) < 2, reason="one core")
@pytest.mark.parametrize("name", ["word-lm", "gnmt"])
def test_any_number_of_cores_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(build(name, small=True).SerializeToString())
    plan = parax.compile(model)
    feed, cores = feeds(name, 3, small=True), choose_cores(None)
    with plan.session(instances=1, cores=cores[:1]) as session:
        expected = session.run(feed)
    for width in range(2, min(len(cores), 4) + 1):
        with plan.session(instances=1, cores=cores[:width], cores_per_instance=width) as session:
            for _ in range(20):
                found = session.run(feed)
                assert all(np.array_equal(found[key], expected[key]) for key in expected)
