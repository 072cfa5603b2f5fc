"""The search for layers on graphs as wide and as deep as those of the model list: seconds, and bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks.partition_search import optimised, search_cost
from examples.models import build
from parax.compiler.targets.machine import load_machine

MOST_SECONDS, MOST_NBYTES = 5.0, 64 << 20
N_CORES = 28  # of a socket


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [("inception-v3", {}), ("nasnet", {}), ("resnet101", {"size": 64}),
     ("bert-base", {"hidden": 96, "vocabulary": 300, "norm": "decomposed"})],
)  # fmt: skip
def test_layers_are_found_in_seconds(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Every operator of the full model; weights are smaller where that leaves the graph as it is."""
    onnx.save(build(name, options=options), tmp_path / "m.onnx")
    seconds, peak, n_layers = search_cost(optimised(tmp_path / "m.onnx"), load_machine("xeon-8280-2s"), N_CORES)
    assert seconds <= MOST_SECONDS
    assert peak <= MOST_NBYTES
    assert n_layers >= 1
