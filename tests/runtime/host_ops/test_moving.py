"""Movement of strings, through whole models, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import parax

WORDS = np.array([["a", "bb", "ccc"], ["d", "", "f"]], object)
CASES: list[tuple[str, Any]] = [
    ("Gather <axis = 1> (x, i)", WORDS[:, [2, 0]]),
    ("GatherElements <axis = 1> (x, e)", np.array([["ccc"], ["d"]], object)),
    ("Concat <axis = 0> (x, x)", np.concatenate([WORDS, WORDS])),
    ("Transpose (x)", WORDS.T),
    ("Flatten <axis = 0> (x)", WORDS.reshape(1, -1)),
    ("Tile (x, t)", np.tile(WORDS, (1, 2))),
    ("Reshape (x, r)", WORDS.reshape(3, 2)),
    ("Slice (x, s, r)", WORDS[1:3, 1:2]),
    ("ReverseSequence <batch_axis = 0, time_axis = 1> (x, l)", np.array([["bb", "a", "ccc"], ["f", "", "d"]], object)),
]


@pytest.mark.parametrize("call, wanted", CASES, ids=lambda p: p.split()[0] if isinstance(p, str) else "")
def test_strings_move(call: str, wanted: np.ndarray) -> None:
    shape = ",".join(map(str, wanted.shape))
    constants = ("int64[2] i = {2, -3}, int64[2,1] e = {2, 0}, int64[2] t = {1, 2}, "
                 "int64[2] r = {3, 2}, int64[2] s = {1, 1}, int64[2] l = {2, 3}")
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]>\n'
                                    f"g (string[2,3] x) => (string[{shape}] y) <{constants}> {{ y = {call} }}")
    with parax.compile(model).session(instances=1, cores_per_instance=1) as session:
        found = session.run({"x": WORDS})["y"]
    assert found.tolist() == wanted.tolist()


def test_split_strings() -> None:
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]>\ng (string[2,3] x) => (string[2,2] y, '
                                    "string[2,1] z) { y, z = Split <axis = 1, num_outputs = 2> (x) }")
    with parax.compile(model).session(instances=1, cores_per_instance=1) as session:
        found = session.run({"x": WORDS})
    assert [found["y"].tolist(), found["z"].tolist()] == [WORDS[:, :2].tolist(), WORDS[:, 2:].tolist()]
