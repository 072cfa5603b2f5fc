"""Sums of many products: blocks of k bound their error, also of equal terms, whose roundings all go the same way."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backend.harness import Program, host_targets, op, run_node
from parax.compiler.backend.kernels.matmul.blocking import MOST_STEPS
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.targets.target import Target
from sampling import sampled, thorough

UNIT_ROUNDOFF = 2.0**-24
LAST = (0, 2, 3, 1)
SHORTEST_BLOCK, EXTRA_ROUNDINGS = 120, 8
targets = pytest.mark.parametrize("target", sampled(host_targets(), 3), ids=lambda t: t.name)


def bound(depth: int) -> float:
    """Of an element's error, by the sum of its products' magnitudes: what docs/commands.md says."""
    return (min(depth, MOST_STEPS) + ceil(depth / SHORTEST_BLOCK) + EXTRA_ROUNDINGS) * UNIT_ROUNDOFF


def equal(*shape: int, value: float) -> np.ndarray:
    return np.full(shape, value, np.float32)


def assert_bound(y: np.ndarray, a: float, b: float, depth: int) -> None:
    exact = depth * float(np.float32(a)) * float(np.float32(b))
    assert np.abs(y - exact).max() <= bound(depth) * abs(exact)


@targets
@thorough(24)
@given(rows=st.sampled_from([1, 2, 5, 13, 48]), depth=st.integers(1, 70_000), columns=st.sampled_from([1, 3, 16, 40]),
       a=st.floats(0.125, 8), b=st.floats(0.125, 8), constant=st.booleans())  # fmt: skip
@example(rows=1, depth=65_536, columns=3, a=0.9863144, b=1.0, constant=True)  # one after the other: 9.6e-4 off
@example(rows=13, depth=65_536, columns=16, a=0.9863144, b=1.0, constant=False)
def test_of_equal_terms(target: Target, rows: int, depth: int, columns: int, a: float, b: float,
                        constant: bool) -> None:  # fmt: skip
    operands = [equal(rows, depth, value=a), equal(depth, columns, value=b)]
    (y,) = run_node(op("MatMul"), operands, constants=[1] if constant else [], target=target)
    assert_bound(y, a, b, depth)


@targets
@pytest.mark.parametrize("layout", [None, LAST])
@pytest.mark.parametrize("channels, kernel", [(30_000, 1), (4_000, 3), (9, 60)])
def test_of_a_convolution(target: Target, channels: int, kernel: int, layout: tuple[int, ...] | None) -> None:
    """By tiles (channels last) and by plain loops; one block has several taps, or one tap several blocks."""
    x, w = equal(1, channels, kernel, kernel, value=0.7), equal(5, channels, kernel, kernel, value=0.3314544)
    (y,) = run_node(op("Conv"), [x, w], constants=[1], layouts=[layout], out_layouts=[layout], target=target)
    assert_bound(y, 0.7, 0.3314544, channels * kernel**2)


@targets
@pytest.mark.parametrize("columns", [1, 9, 70])
def test_no_bit_of_a_row_depends_on_how_many_there_are(target: Target, columns: int) -> None:
    """Nor on how they are shared, which `Program.run` tries by itself."""
    depth = 5_000
    random = np.random.default_rng(columns)
    x, w = (random.normal(size=shape).astype(np.float32) for shape in ((131, depth), (depth, columns)))
    text = f"""graph @g(%x: f32[N,{depth}]) {{
      %w = const f32[{depth},{columns}] "w"
      %y = MatMul(%x, %w)
      return %y
    }}"""
    graph = parse_graph(text, {"w": w})
    assert isinstance(graph, Graph)
    program = Program(graph, target, ("N",))
    (whole,) = program.run({"x": x}, {"N": len(x)})
    for n in (1, 2, 3, 7, 97):
        (some,) = program.run({"x": np.ascontiguousarray(x[-n:])}, {"N": n})
        np.testing.assert_array_equal(some, whole[-n:])
