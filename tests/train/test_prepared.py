"""Requests of steps: what lies where it did is not checked again, and what does not, is."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.driver import compile_graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.options import CompileOptions
from parax.errors import InvalidInput
from parax.runtime.train.prepared import Requests

GRAPH = """graph @g(%x: f32[N,4], %w: f32[4,3]) {
  %y = MatMul(%x, %w) : f32[N,3]
  return %y
}"""


def test_other_places_and_shapes() -> None:
    rng = np.random.default_rng(0)
    with compile_graph(parse_graph(GRAPH), CompileOptions()).session(1, adapt=False) as session:
        requests = Requests(session)
        weights = [rng.standard_normal((4, 3)).astype(np.float32) for _ in range(2)]
        places = {rows: np.zeros((rows, 3), np.float32) for rows in (2, 5)}
        for step in range(8):
            rows, w = (2, 5)[step % 2], weights[step // 4]
            w += 1
            x = rng.standard_normal((rows, 4)).astype(np.float32)
            requests.run({"w": w}, {"x": x}, {"y": places[rows]})
            np.testing.assert_allclose(places[rows], x @ w, rtol=1e-5, atol=1e-5)
        with pytest.raises(InvalidInput, match="wrong element type"):
            requests.run({"w": w}, {"x": x.astype(np.float64)}, {"y": places[rows]})


def test_shapes_of_one_place() -> None:
    """Without memory for outputs, what is given may change its length from step to step."""
    with compile_graph(parse_graph(GRAPH), CompileOptions()).session(1, adapt=False) as session:
        requests, w = Requests(session), np.ones((4, 3), np.float32)
        for rows in (1, 4, 1, 7, 4):
            (y,) = requests.run({"w": w}, {"x": np.full((rows, 4), rows, np.float32)}, {}).values()
            np.testing.assert_array_equal(y, np.full((rows, 3), 4 * rows, np.float32))
