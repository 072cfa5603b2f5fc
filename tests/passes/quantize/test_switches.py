"""A graph with switches gives, for every choice of layers, what the pass makes of that choice."""

from __future__ import annotations

from itertools import product

import numpy as np

from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.oracle import best_kind, oracle
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.verify import verify
from parax.compiler.passes.quantize.affine import ValueRange
from parax.compiler.passes.quantize.quantize import Quantize
from parax.compiler.passes.quantize.switches import add_switches, switches
from parax.compiler.passes.rewrite import Rewriter

TEXT = """graph @g(%x: f32[N,3,6,6]) {
  %w = const f32[3,3,3,3] "w"\n  %u = const f32[2,3,1,1] "u"\n  %b = const f32[3] [1, -2, 0.5]
  %y = Conv(%x, %w, %b) {pads=[1,1,1,1]} : f32[N,3,6,6]
  %s = Add(%y, %x) : f32[N,3,6,6]
  %v = Relu(%s) : f32[N,3,6,6]
  %z = Conv(%v, %w) {pads=[1,1,1,1]} : f32[N,3,6,6]
  %h = Conv(%z, %w) {pads=[1,1,1,1]} : f32[N,3,6,6]
  %t = Add(%h, %v) : f32[N,3,6,6]
  %e = Conv(%t, %u) : f32[N,2,6,6]
  return %e, %v\n}"""
RANGES = {name: ValueRange(low, high) for name, low, high in [
    ("x", -2, 2), ("y", -4, 4), ("s", -5, 5), ("v", 0, 5), ("z", -9, 9), ("h", -9, 9), ("t", -9, 12)]}  # fmt: skip
MEANS = {"x": np.array([0.1, -0.2, 0.3]), "v": np.array([1.0, 2.0, 0.5])}


def test_every_choice() -> None:
    rng = np.random.default_rng(0)
    data = {"w": rng.standard_normal((3, 3, 3, 3)).astype(np.float32) / 4, "u": rng.standard_normal((2, 3, 1, 1)).astype(np.float32)}
    graph = parse_graph(TEXT, data)
    switched = graph.clone()
    add_switches(switched, RANGES, MEANS)
    verify(switched)
    run, x = oracle(to_onnx(switched), best_kind()), rng.standard_normal((2, 3, 6, 6)).astype(np.float32)
    seen = set()
    for left in product([False, True], repeat=4):
        left_out = frozenset(name for name, out in zip("yzhe", left, strict=True) if out)
        choice = graph.clone()
        Quantize(RANGES, MEANS, left_out).run(choice, Rewriter(choice))
        want = oracle(to_onnx(choice), best_kind())({"x": x})
        got = run({"x": x, **switches(graph, RANGES, left_out)})
        for name in want:
            np.testing.assert_allclose(got[name], want[name], rtol=1e-4, atol=1e-5, err_msg=str(left_out))
        seen.add(want["e"].tobytes())
    assert len(seen) == 16  # each choice is another graph
