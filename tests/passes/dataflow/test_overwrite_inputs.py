"""Outputs in the place of inputs: the same numbers as beside them, whatever still reads the input."""

from __future__ import annotations

import numpy as np
import pytest

import parax
from parax.compiler.driver import compile_graph
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.dataflow.overwrite_inputs import OverwriteInputs, overwritten_early
from parax.compiler.passes.rewrite import Rewriter

STEP = """
graph @g(%x: f32[9,17], %m: f32[9,17]) {
  %v = Add(%m, %x) : f32[9,17]
  %y = Sub(%x, %v) : f32[9,17]
  return %y, %v
}
"""
READ_LATER = """
graph @g(%x: f32[9,17], %m: f32[9,17]) {
  %y = Neg(%x) : f32[9,17]
  %z = Softmax(%x) {axis=1} : f32[9,17]
  %v = Add(%z, %m) : f32[9,17]
  return %y, %v
}
"""
CROSSED = """
graph @g(%x: f32[9,17], %m: f32[9,17]) {
  %y = Neg(%m) : f32[9,17]
  %v = Exp(%x) : f32[9,17]
  return %y, %v
}
"""
SELF = """
graph @g(%x: f32[9,17], %m: f32[9,17]) {
  %y = Softmax(%x) {axis=1} : f32[9,17]
  %v = Identity(%x) : f32[9,17]
  return %y, %v
}
"""
GRAPHS = {"step": STEP, "read_later": READ_LATER, "crossed": CROSSED, "own": SELF}


def donated(text: str) -> Graph:
    graph = parse_graph(text)
    graph.set_outputs(list(graph.outputs), ["x.new", "m.new"])
    graph.donated = {"x.new": "x", "m.new": "m"}
    return graph


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("name", GRAPHS)
def test_in_place_is_as_beside(name: str, level: int) -> None:
    options = parax.CompileOptions(hint="latency", opt_level=level)
    session = compile_graph(donated(GRAPHS[name]), options).session()
    rng = np.random.default_rng(0)
    x, m = (rng.standard_normal((9, 17)).astype(np.float32) for _ in range(2))
    expected = session.run({"x": x, "m": m})
    assert not np.array_equal(expected["x.new"], x)
    own = {"x": x.copy(), "m": m.copy()}
    session.run(own, out={"x.new": own["x"], "m.new": own["m"]})
    np.testing.assert_array_equal(own["x"], expected["x.new"])
    np.testing.assert_array_equal(own["m"], expected["m.new"])


@pytest.mark.parametrize("name, count", [("step", 0), ("read_later", 1), ("crossed", 1)])
def test_only_what_is_written_too_early_is_copied(name: str, count: int) -> None:
    graph = donated(GRAPHS[name])
    assert len(list(overwritten_early(graph))) == count
    assert OverwriteInputs().run(graph, Rewriter(graph)) == (count > 0)
    assert not list(overwritten_early(graph))


def test_only_the_input_of_an_output_may_be_its_place() -> None:
    session = compile_graph(donated(STEP), parax.CompileOptions()).session()
    both = np.zeros((18, 17), np.float32)
    x, m = both[:9], both[9:]
    given = {"x": x, "m": m}
    for out in ({"x.new": m}, {"x.new": both[1:10]}, {"m.new": x}):
        with pytest.raises(parax.InvalidInput, match="overlaps an input"):
            session.run(given, out=out)
    with pytest.raises(parax.InvalidInput, match="overlaps an input"):
        session.run({"x": x, "m": x}, out={"x.new": x})
    with pytest.raises(parax.UsageError, match="share memory"):
        session.run({"x": x, "m": m + 1}, out={"x.new": m, "m.new": m})
