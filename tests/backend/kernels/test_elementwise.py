"""Element-wise kernels where sharing and addressing could go wrong; operators are the catalogue test's."""

from __future__ import annotations

import numpy as np

from backend.harness import run_graph
from backend.kernels.naive import normal
from parax.compiler.ir.text import parse_graph


def test_a_square_and_a_product_of_equal_types_are_different_kernels() -> None:
    graph = parse_graph("""
graph @g(%x: f32[3,5], %y: f32[3,5]) {
  %1 = Mul(%x, %y) : f32[3,5]
  %2 = Mul(%x, %x) : f32[3,5]
  %3 = Sub(%1, %2) : f32[3,5]
  return %3
}
""")
    x, y = normal(3, 5), normal(3, 5, seed=1)
    np.testing.assert_allclose(run_graph(graph, {"x": x, "y": y})[0], x * y - x * x, rtol=1e-5, atol=1e-6)


def test_mixed_layouts_and_broadcasts_meet() -> None:
    graph = parse_graph("""
graph @g(%x: f32[N,6,4,5]{0,2,3,1}, %y: f32[N,6,4,5], %c: f32[6,1,1], %r: f32[5]) {
  %1 = Add(%x, %y) : f32[N,6,4,5]{0,2,3,1}
  %2 = Mul(%1, %c) : f32[N,6,4,5]{0,2,3,1}
  %3 = Sub(%2, %r) : f32[N,6,4,5]
  return %3
}
""")
    x, y, c, r = normal(2, 6, 4, 5), normal(2, 6, 4, 5, seed=1), normal(6, 1, 1, seed=2), normal(5, seed=3)
    (found,) = run_graph(graph, {"x": x, "y": y, "c": c, "r": r}, {"N": 2})
    np.testing.assert_allclose(found, (x + y) * c - r, rtol=1e-5, atol=1e-6)
