"""Gradients of every operator that has them, against differences of the operator itself, in f64.

For a random direction v and random weights c of the results:

    Σ_i <d(c · y) / dx_i, v_i>  =  (c · y(x + h v) - c · y(x - h v)) / 2h + O(h²)
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from backend.harness import run_graph
from catalogue.cases import Case, Constant, Operand, all_cases
from catalogue.running import build
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.ops.base import Composite, Elementwise, Movement, Reduce
from parax.compiler.ir.ops.interfaces import Interfaces
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import F64, NARROW, TensorType
from parax.compiler.passes.autodiff.reverse import gradients
from parax.errors import InvalidModel, UnsupportedOp
from sampling import sampled

STEP, MISS = 1e-5, 2e-5
OPEN = "open sizes|open widths|may be repeated"
"""What is refused where sizes are known only when the model runs."""
COMBINED = "that are combined|batch by batch|DeformedWindows"
"""What is refused always: scattered maxima and products, gathering with batch axes, samples at moved positions."""


def in_double(operand: Operand) -> Operand:
    """The operand with f64 for f32."""
    if isinstance(operand, str):
        return operand.replace("f32[", "f64[")
    if isinstance(operand, Constant):
        return Constant(in_double(operand.array))  # type: ignore[arg-type]
    return operand.astype(np.float64) if isinstance(operand, np.ndarray) and operand.dtype == np.float32 else operand


def is_smooth(case: Case) -> bool:
    """Whether differences say something: f64 operands, all of them finite, apart from kinks by their randomness."""
    given = [o for o in case.operands if o is not None]
    floats = [o for o in given if isinstance(o, str) and o.startswith("f32")]
    arrays = [o.array if isinstance(o, Constant) else o for o in given if not isinstance(o, str)]
    finite = all(np.isfinite(a).all() for a in arrays if a.dtype.kind == "f")
    narrow = any(isinstance(o, str) and o.startswith(("f16", "bf16", "f8")) for o in given)
    attributes = case.attrs.get("to") is None and all(np.isfinite(v) for v in case.attrs.values() if isinstance(v, float))
    return bool(floats) and finite and not narrow and attributes and max(abs(case.low), abs(case.high)) <= 1e3


def differentiable(case: Case) -> bool:
    op = lookup(case.domain, case.op)
    return issubclass(op, (Elementwise, Reduce, Movement, Composite)) or op.gradient is not Interfaces.gradient


def takes_double(case: Case) -> bool:
    """Whether the operator is defined for f64 (RotaryEmbedding is not; its parts are), and gives it (models do not)."""
    try:
        results = build(case)[0].outputs
    except (InvalidModel, UnsupportedOp):
        return False
    floats = [v.tensor.dtype for v in results if isinstance(v.type, TensorType) and v.tensor.dtype.is_float]
    return not floats or floats[0] == F64


DOUBLE = [replace(c, operands=tuple(map(in_double, c.operands))) for c in all_cases() if is_smooth(c) and differentiable(c)]
CASES = [case for case in DOUBLE if takes_double(case)]


def with_gradients(case: Case) -> tuple[Graph, dict[str, np.ndarray], dict[str, int], list[Value], list[Value]]:
    """The case, with a weighted sum of its float results differentiated by its float inputs."""
    graph, feeds, symbols, _ = build(case)
    xs = [v for v in graph.inputs if v.tensor.dtype.is_float]
    ys = [v for v in graph.outputs if isinstance(v.type, TensorType) and v.tensor.dtype.is_float]
    ys = [v for v in ys if v.tensor.dtype not in NARROW]
    if not ys:
        pytest.skip("no result is a float")
    seed = graph.add_input("seed", ys[0].type)
    grads = gradients(graph, ys[0], xs, seed)
    y = graph.outputs[graph.outputs.index(ys[0])] if ys[0] in graph.outputs else graph.outputs[0]
    graph.set_outputs([y, *grads], ["y", *[f"d{i}" for i in range(len(grads))]])
    return graph, feeds, symbols, xs, grads


@pytest.mark.parametrize("case", sampled(CASES, 8), ids=str)
def test_gradients_are_what_differences_say(case: Case) -> None:
    try:
        graph, feeds, symbols, xs, _ = with_gradients(case)
    except UnsupportedOp as error:
        is_open = "=" in " ".join(o for o in case.operands if isinstance(o, str))
        assert re.search(COMBINED, str(error)) or (is_open and re.search(OPEN, str(error))), error
        return
    rng = np.random.default_rng(zlib.crc32(str(case).encode()) + 1)
    y = run_graph(graph, {**feeds, "seed": _like(graph.inputs[-1], feeds, symbols)}, symbols)
    weights = rng.standard_normal(y[0].shape)
    direction = {v.name: rng.standard_normal(feeds[v.name].shape) for v in xs}
    found = run_graph(graph, {**feeds, "seed": weights}, symbols)[1:]
    for v, gradient in zip(xs, found, strict=True):
        assert gradient.shape == feeds[v.name].shape
    if not any(gradient.size for gradient in found):
        return
    ahead, behind = (_moved(graph, feeds, direction, sign * STEP, weights, symbols) for sign in (1, -1))
    slope = sum(float((g * direction[v.name]).sum()) for v, g in zip(xs, found, strict=True))
    size = sum(float(np.abs(g * direction[v.name]).sum()) for v, g in zip(xs, found, strict=True))
    assert abs((ahead - behind) / (2 * STEP) - slope) <= MISS * (1 + size)


def _like(v: Value, feeds: Mapping[str, np.ndarray], symbols: Mapping[str, int]) -> np.ndarray:
    shape = [d if isinstance(d, int) else d.evaluate(symbols) for d in v.tensor.dims]
    return np.ones(shape)


def _moved(graph: Graph, feeds: Mapping[str, np.ndarray], direction: Mapping[str, np.ndarray], by: float,
           weights: np.ndarray, symbols: Mapping[str, int]) -> float:  # fmt: skip
    moved = {n: a + by * direction[n] if n in direction else a for n, a in feeds.items()}
    return float((run_graph(graph, {**moved, "seed": weights}, symbols)[0] * weights).sum())


def test_rows_are_added_to_what_a_table_has_received_besides() -> None:
    """A table that is the weights of a layer, too, has one gradient: none of zeros is filled, and none is added."""
    graph = parse_graph("""graph @g(%t: f64[9,4], %i: i64[5], %x: f64[6,4]) {
        %a = Gather(%t, %i) : f64[5,4]
        %u = Transpose(%t) {perm=[1,0]} : f64[4,9]
        %b = MatMul(%x, %u) : f64[6,9]
        %c = ReduceSumSquare(%a) {keepdims=0} : f64[]
        %d = ReduceSumSquare(%b) {keepdims=0} : f64[]
        %y = Add(%c, %d) : f64[]
        return %y
    }""")
    graph.set_outputs(gradients(graph, graph.outputs[0], [graph.value("t")]), ["dt"])
    (scatter,) = [node for node in graph if node.op.name == "ScatterND"]
    assert scatter.output is graph.outputs[0] and scatter.operands[0].producer.op.name == "Transpose"
    rng = np.random.default_rng(0)
    t, x, i = rng.standard_normal((9, 4)), rng.standard_normal((6, 4)), np.array([3, 0, 3, -1, 8])
    expected = 2 * (x @ t.T).T @ x
    np.add.at(expected, i, 2 * t[i])
    np.testing.assert_allclose(run_graph(graph, {"t": t, "i": i, "x": x})[0], expected, rtol=1e-12, atol=1e-12)
