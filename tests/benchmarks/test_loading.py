"""`benchmarks.loading`: JPEGs are drawn, read by every number and kind of workers, and trained on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import loading

pytest.importorskip("PIL", reason="Pillow is an extra: pip install 'parax[images]'")


def test_workers_are_compared(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    assert loading.main(["--images", "24", "--side", "20", "--size", "16", "--batch", "8", "--workers", "0", "1",
                         "--passes", "1", "--json", str(out)]) == 0  # fmt: skip
    rows = json.loads(out.read_text())["rows"]
    assert [(row["workers"], row["kind"]) for row in rows] == [(0, "here"), (1, "threads"), (1, "processes")]
    for row in rows:
        assert min(row["loading"], row["training"], row["there_already"]) > 0 and 0 <= row["stalled"] < 1


def test_pictures_are_of_their_class(tmp_path: Path) -> None:
    loading.draw(tmp_path, 17, 12)
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*.jpg"))
    assert len(found) == 17 and "class0/16.jpg" in found and (tmp_path / "class3" / "11.jpg").exists()
