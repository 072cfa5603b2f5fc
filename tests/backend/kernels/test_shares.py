"""Kernels do the work items [begin, end) and nothing else, however few elements there are."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from backend.harness import Program, run_graph
from backend.kernels.naive import normal
from backend.ways import Way, equal_pieces
from parax.compiler.ir.text import parse_graph

SCALARS = """
graph @g(%x: f32[N,8]) {
  %m = ReduceMax(%x) {keepdims=KEEP} : f32MAX
  %d = Neg(%m) : f32MAX
  %y = Div(%x, %d) : f32[N,8]
  return %y
}
"""


@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_kernel_of_one_element_leaves_it_to_the_core_that_has_it(keepdims: int) -> None:
    text = SCALARS.replace("KEEP", str(keepdims)).replace("MAX", "[1,1]" if keepdims else "[]")
    x = normal(9, 8)
    (found,) = run_graph(parse_graph(text), {"x": x}, {"N": 9})
    np.testing.assert_allclose(found, x / -x.max(), rtol=1e-4)


@pytest.mark.parametrize("n", [1, 17, 4096, 4097, 12289])
def test_shares_of_a_row_meet_but_do_not_overlap(n: int) -> None:
    graph = parse_graph("graph @g(%x: f32[N]) {\n  %y = Neg(%x)\n  return %y\n}")
    x = normal(n)
    ways = [Way(f"over x in {p} pieces", partial(equal_pieces, n=p), overwrite=0) for p in (1, 2, 3, 5)]
    (found,) = Program(graph, symbols=("N",)).run({"x": x}, {"N": n}, ways=ways)  # what is done twice shows
    np.testing.assert_array_equal(found, -x)
