"""Element-wise tails fused behind reductions, softmax, normalisations and pools equal the same operators one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backend.harness import op, run_graph
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.ir.ops.base import Fused, Operator
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import F16, F32, DType, TensorType, symbol

LAST = (0, 2, 3, 1)
POOL = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
ROOTS: list[tuple[Operator, list[Any]]] = [
    (op("MaxPool", **POOL), []),
    (op("AveragePool", **POOL, count_include_pad=1), []),
    (op("LpPool", **POOL), []),
    (op("GlobalAveragePool"), []),
    (op("ReduceSum", keepdims=1), [np.array([1])]),
    (op("ReduceMax", keepdims=0), [np.array([2, 3])]),
    (op("ReduceMean", keepdims=0), [np.array([0])]),
    (op("Softmax", axis=-1), []),
    (op("Softmax", axis=1), []),
    (op("LogSoftmax", axis=3), []),
    (op("LayerNormalization", axis=-1), [np.linspace(0.5, 1.5, 37, dtype=np.float32)]),
    (op("InstanceNormalization"), [np.linspace(0.5, 2, 20, dtype=np.float32), np.ones(20, np.float32)]),
    (op("CumSum"), [np.array(2)]),
    (op("ConvTranspose"), [np.linspace(-1, 1, 20 * 3 * 4, dtype=np.float32).reshape(20, 3, 2, 2)]),
]


def extra_shapes(result: TensorType) -> list[tuple[Any, ...]]:
    """As large as the result, one number a channel (axis 1), one along the last axis, and a single number."""
    channel = tuple(d if a == 1 else 1 for a, d in enumerate(result.dims))
    return [result.dims, channel, result.dims[-1:], (1,)]


def tail(g: GraphBuilder, y: Value, extras: list[Value]) -> Value:
    for i, extra in enumerate(extras):
        y = g.Add(y, extra) if i % 2 else g.Mul(y, extra)
    return g.Relu(y)


def plain(root: Operator, constants: list[Any], x: TensorType, layout: tuple[int, ...] | None) -> Graph:
    """x → root → tail as separate nodes."""
    graph = Graph("plain")
    value = graph.add_input("x", x.with_layout(layout))
    node = graph.add_node(root, [value, *(graph.add_constant(c) for c in constants)])
    y = node.outputs[0]
    y.type = y.tensor.with_layout(layout if layout and y.tensor.rank == 4 else None)
    extras = [graph.add_input(f"e{i}", TensorType(x.dtype, s)) for i, s in enumerate(extra_shapes(y.tensor))]
    if y.tensor.layout is not None:
        extras[0].type = extras[0].tensor.with_layout(layout)
    graph.set_outputs([tail(GraphBuilder(graph), y, extras)])
    return graph


def fused(separate: Graph) -> Graph:
    """The same as one fused node; constants become operands of the block."""
    graph, body = Graph("fused"), Graph("body")
    inner: dict[Value, Value] = {}
    operands = []
    for v in (*separate.inputs, *separate.constants):
        inner[v] = body.add_input(v.name, v.type)
        operands.append(graph.add_constant(v.data, v.name) if v.data is not None else graph.add_input(v.name, v.type))
    inner_known = [v for v in separate.constants if v.known is not None]
    for v in inner_known:
        inner[v].known = v.known
    for node in separate:
        copy = body.add_node(node.op, [inner[v] for v in node.inputs if v is not None],
                             types=[v.type for v in node.outputs])
        inner.update(zip(node.outputs, copy.outputs))
    body.set_outputs([inner[v] for v in separate.outputs])
    block = graph.add_node(Fused(kind="test"), operands, bodies={"body": body})
    graph.set_outputs(block.outputs)
    return graph


@pytest.mark.sample(3)
@pytest.mark.parametrize("layout", [None, LAST], ids=["channels first", "channels last"])
@pytest.mark.parametrize(("root", "constants"), ROOTS, ids=lambda p: p.name if isinstance(p, Operator) else "")
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_fused_tail_equals_separate_nodes(root: Operator, constants: list[Any], layout: Any, dtype: DType) -> None:
    x = TensorType(dtype, (symbol("N"), 20, 9, 37))
    constants = [c.astype(dtype.numpy) if c.dtype.kind == "f" else c for c in constants]
    separate = plain(root, constants, x, layout)
    rng = np.random.default_rng(0)
    feeds = {}
    for v in separate.inputs:
        shape = tuple(d if isinstance(d, int) else 2 for d in v.tensor.dims)
        feeds[v.name] = rng.uniform(-1, 1, shape).astype(dtype.numpy)
    (wanted,) = run_graph(separate, feeds, {"N": 2})
    (found,) = run_graph(fused(separate), feeds, {"N": 2})
    tolerance = 1e-5 if dtype == F32 else 0  # every operator rounds to 16 bits, fused or not
    np.testing.assert_allclose(found.astype(np.float32), wanted.astype(np.float32), tolerance, tolerance)


ORDERS = """graph @g(%x: f32[9,16], %y: f32[9,16], %e: f32[9,40], %n: f32[9,40]) {
  %w = const f32[16,40] "w"
  %a = fused<MatMul>(%x, %w, %e, %n) : f32[9,40]
    body(%x: f32[9,16], %w: f32[16,40], %e: f32[9,40], %n: f32[9,40]) {
      %0 = MatMul(%x, %w)
      %1 = Sub(FIRST)
      %2 = Div(%1, %n)
      return %2
    }
  %b = fused<MatMul>(%y, %w, %e, %n) : f32[9,40]
    body(%x: f32[9,16], %w: f32[16,40], %e: f32[9,40], %n: f32[9,40]) {
      %0 = MatMul(%x, %w)
      %1 = Sub(SECOND)
      %2 = Div(%1, %n)
      return %2
    }
  return %a, %b
}"""


@pytest.mark.parametrize(("first", "second"), [("%0, %e", "%e, %0"), ("%0, %e", "%0, %n"), ("%0, %0", "%0, %e")])
def test_tails_that_differ_in_the_order_of_operands_share_no_function(first: str, second: str) -> None:
    def run(one: str, other: str) -> list[np.ndarray]:
        return run_graph(parse_graph(ORDERS.replace("FIRST", one).replace("SECOND", other)), feeds)

    rng = np.random.default_rng(0)
    feeds = {name: rng.uniform(1, 2, (9, 16 if name in "xy" else 40)).astype(np.float32) for name in "xyen"}
    together = run(first, second)
    alone = run(first, first)[0], run(second, second)[1]
    for found, wanted in zip(together, alone, strict=True):
        np.testing.assert_array_equal(found, wanted)
