"""Spoilt models end in a ParaxError or run: a few here, many with `python -m benchmarks.mutated_models`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx")

from benchmarks.mutated_models import FAILURES, results, write_corpus

COUNT, SECONDS, LIMIT = 150, 60.0, 10.0


@pytest.mark.slow
def test_spoilt_models(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus.npz", operators=False)
    found = list(results(tmp_path / "corpus.npz", 0, COUNT, LIMIT, SECONDS))
    assert not [record for record in found if record["outcome"] in FAILURES]
    assert {record["outcome"] for record in found} >= {"ok", "error"}
