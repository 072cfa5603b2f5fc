"""Calibration data: how it is divided, and every way in which it does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.precision.samples import count, read_samples
from parax.errors import InvalidData, ParaxError, UsageError

OPEN, FIXED = "graph @g(%x: f32[N,3]) {\n return %x\n}", "graph @g(%x: f32[2,3]) {\n return %x\n}"
TWO = "graph @g(%x: f32[N,3], %state: f32[2,N]) {\n return %x, %state\n}"


def rows(n: int) -> np.ndarray:
    return np.arange(3 * n, dtype=np.float32).reshape(n, 3)


def graph(text: str) -> Graph:
    return parse_graph(text)


def test_halves_have_no_sample_in_common_and_lose_none() -> None:
    samples = read_samples({"x": rows(64), "label": np.arange(64)}, graph(OPEN))
    parts = [[r.inputs["x"] for r in part] for part in (samples.observed, samples.held_back)]
    assert count(samples.observed) == count(samples.held_back) == 32 and samples.has_labels
    assert sorted(np.concatenate([*parts[0], *parts[1]])[:, 0]) == sorted(rows(64)[:, 0])
    for request in (*samples.observed, *samples.held_back):
        labels = request.labels
        assert labels is not None and list(rows(64)[labels][:, 0]) == list(request.inputs["x"][:, 0])


def test_a_fixed_batch_makes_requests_of_its_rows() -> None:
    samples = read_samples({"x": rows(11)}, graph(FIXED))
    assert {r.inputs["x"].shape for r in samples.observed + samples.held_back} == {(2, 3)}
    assert len(samples.observed) == 3 and len(samples.held_back) == 2 and not samples.has_labels


def test_whole_requests_are_stacked_where_inputs_have_no_batch_in_common() -> None:
    arrays = {"x": np.zeros((5, 4, 3), np.float32), "state": np.ones((5, 2, 4), np.float32)}
    samples = read_samples(arrays, graph(TWO))
    assert samples.held_back[0].inputs["x"].shape == (4, 3) and count(samples.observed) == 3
    with pytest.raises(UsageError, match=r"no batch in common.*stack"):
        read_samples({"x": rows(8), "state": np.ones((2, 8), np.float32)[:, :8].T.copy()}, graph(TWO))


def test_files_and_folders(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", rows(6))
    np.savez(tmp_path / "b.npz", x=rows(4))
    for path, n in ((tmp_path / "a.npy", 6), (tmp_path / "b.npz", 4), (tmp_path, 10)):
        samples = read_samples(path, graph(OPEN))
        assert count(samples.observed) + count(samples.held_back) == n


@pytest.mark.parametrize(("data", "says"), [
    ({"y": rows(8)}, "no such input"),
    ({"xx": rows(8)}, "did you mean x"),
    ({"label": np.zeros(8)}, "input without calibration data"),
    ({"x": rows(8).astype(np.float64)}, "element type.*f32.*float64"),
    ({"x": rows(8)[:, :2]}, r"another shape.*\[samples, 3\].*\[8, 2\]"),
    ({"x": rows(8)[:, 0]}, "no batch in common|another shape"),
    ({"x": rows(1)}, "too little"),
    ({"x": rows(0)}, "empty"),
    ({"x": np.where(rows(8) == 5, np.nan, rows(8)).astype(np.float32)}, "NaN or infinity"),
    ({"x": rows(8), "label": np.zeros(7)}, "different lengths"),
    ({}, "empty"),
])  # fmt: skip
def test_data_that_does_not_fit(data: dict[str, np.ndarray], says: str) -> None:
    with pytest.raises(ParaxError, match=says):
        read_samples(data, graph(OPEN))


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidData, match="no calibration data"):
        read_samples(tmp_path / "empty", graph(OPEN))
    with pytest.raises(UsageError, match="no such file"):
        read_samples(tmp_path / "absent.npz", graph(OPEN))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(InvalidData, match=r"no sound \.npz"):
        read_samples(tmp_path / "broken.npz", graph(OPEN))
    np.save(tmp_path / "one.npy", rows(4))
    with pytest.raises(UsageError, match="one array for several inputs"):
        read_samples(tmp_path / "one.npy", graph(TWO))


def test_a_script_gets_what_comes_with_the_inputs() -> None:
    samples = read_samples({"x": rows(8), "boxes": rows(8)}, graph(OPEN), takes_others=True)
    request = samples.observed[0]
    np.testing.assert_array_equal(request.others["boxes"], request.inputs["x"])
