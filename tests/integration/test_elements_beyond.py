"""Indices of GatherElements and ScatterElements that reach beyond data of a symbolic size are refused at the run."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import parax

GATHER = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,5] x, int64[8,1] i) => (float[8,1] y) { y = GatherElements <axis = 1> (x, i) }"""
SCATTER = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,5] x, int64[8,1] i) => (float[N,5] y) {
  u = Cast <to = 1> (i)
  y = ScatterElements <axis = 1> (x, i, u)
}"""


@pytest.mark.parametrize("text", [GATHER, SCATTER])
def test_indices_beyond_another_axis_of_data_are_refused(text: str) -> None:
    model = onnx.parser.parse_model(text).SerializeToString()
    with parax.compile(model, options=parax.CompileOptions(cache=False)).session(cores_per_instance=1) as session:
        index = np.zeros((8, 1), np.int64)
        for n in (8, 9):
            session.run({"x": np.zeros((n, 5), np.float32), "i": index})
        for n in (0, 3):
            with pytest.raises(parax.InvalidInput, match="reach beyond dimension 0"):
                session.run({"x": np.zeros((n, 5), np.float32), "i": index})
