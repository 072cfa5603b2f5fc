"""Derivatives of a convolution's gradients: in f32 by the operators made for them, in f64 by plain convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.driver import compile_graph
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.types import DType, TensorType
from parax.compiler.options import CompileOptions
from parax.compiler.passes.autodiff.reverse import gradients


@pytest.mark.parametrize(
    "x, w, attributes",
    [
        ((2, 3, 7, 6), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 4, 8, 7), (6, 2, 3, 2), {"pads": [1, 0, 0, 1], "strides": [2, 3], "group": 2}),
        ((1, 5, 9), (5, 1, 3), {"dilations": [2], "group": 5}),
        ((1, 2, 5, 4, 5), (3, 2, 2, 1, 3), {"strides": [2, 1, 3]}),
        ((2, 20, 6, 6), (17, 20, 1, 1), {"strides": [2, 2]}),
    ],
)
def test_second_derivatives(x: tuple[int, ...], w: tuple[int, ...], attributes: dict) -> None:
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal(x), "w": rng.standard_normal(w) / 3}
    sides = {"x": rng.standard_normal(x), "w": rng.standard_normal(w)}
    found = {}
    for dtype in (np.float32, np.float64):
        graph = Graph("second")
        g = GraphBuilder(graph)
        values = {name: graph.add_input(name, TensorType(DType.from_numpy(np.dtype(dtype)), a.shape))
                  for name, a in feeds.items()}  # fmt: skip
        y = g.Tanh(g.Conv(values["x"], values["w"], **attributes))
        first = gradients(graph, g.ReduceSum(y, keepdims=0), list(values.values()))
        turned = [g.Mul(d, g.const(a.astype(dtype))) for d, a in zip(first, sides.values())]
        total = g.Add(*(g.ReduceSum(t, keepdims=0) for t in turned))
        graph.set_outputs(gradients(graph, total, list(values.values())), ["x2", "w2"])
        with compile_graph(graph, CompileOptions()).session() as session:
            found[dtype] = session.run({name: a.astype(dtype) for name, a in feeds.items()})
    for name, expected in found[np.float64].items():
        scale = np.abs(expected).max()
        assert scale > 0.1
        np.testing.assert_allclose(found[np.float32][name], expected, atol=2e-5 * scale)
