"""Derivatives where differences say nothing: at kinks, far from 0, at ties; and that they are written briefly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from backend.harness import run_graph
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.text import parse_graph, print_graph
from parax.compiler.ir.types import DType, TensorType
from parax.compiler.passes.autodiff.reverse import gradients
from parax.compiler.passes.dataflow.dead_code import DeadCode
from parax.compiler.passes.rewrite import Rewriter
from parax.errors import UnsupportedOp


def slope_at(op: str, x: float, **attributes: float) -> float:
    """The derivative of an operator of one operand, in f32."""
    graph = Graph("slope")
    v = graph.add_input("x", TensorType(DType.from_name("f32"), (1,)))
    node = graph.add_node(lookup("", op).from_attributes(attributes), [v])
    graph.set_outputs(gradients(graph, node.output, [v]))
    (found,) = run_graph(graph, {"x": np.array([x], np.float32)})
    return float(found[0])


@pytest.mark.parametrize(
    ("op", "x", "expected"),
    [
        ("Relu", 0.0, 0.0), ("HardSwish", -3.0, 0.0), ("HardSigmoid", 2.5, 0.0), ("Abs", 0.0, 0.0),
        ("Softplus", 0.0, 0.5), ("Celu", 0.0, 1.0), ("Elu", 0.0, 1.0), ("Mish", 0.0, 0.6),
        ("Elu", 200.0, 1.0), ("Selu", 200.0, 1.0507009873554805), ("Celu", 200.0, 1.0), ("Softplus", 200.0, 1.0),
        ("Mish", 200.0, 1.0), ("Gelu", 200.0, 1.0), ("Swish", 200.0, 1.0), ("Sigmoid", 200.0, 0.0),
        ("Elu", -20.0, math.exp(-20)), ("Celu", -20.0, math.exp(-20)), ("Softplus", -200.0, 0.0), ("Swish", -200.0, 0.0),
        ("Gelu", -200.0, 0.0), ("Tanh", 200.0, 0.0), ("Erf", 200.0, 0.0), ("Floor", 1.5, 0.0), ("Sign", 1.5, 0.0),
    ],
)  # fmt: skip
def test_slopes_at_kinks_and_far_away(op: str, x: float, expected: float) -> None:
    assert slope_at(op, x) == pytest.approx(expected, rel=1e-5, abs=1e-12)


def derived(text: str, y: str, xs: list[str]) -> str:
    """The text of what is left of a graph once its outputs are its gradients."""
    graph = parse_graph(text)
    graph.set_outputs(gradients(graph, graph.value(y), [graph.value(x) for x in xs]))
    DeadCode().run(graph, Rewriter(graph))
    return print_graph(graph)


def test_ties_between_operands_are_shared() -> None:
    graph = parse_graph("graph @g(%a: f32[3], %b: f32[3]) {\n%y = Max(%a, %b) : f32[3]\nreturn %y\n}")
    graph.set_outputs(gradients(graph, graph.value("y"), [graph.value("a"), graph.value("b")]))
    da, db = run_graph(graph, {"a": np.array([1, 2, 3], np.float32), "b": np.array([3, 2, 1], np.float32)})
    assert da.tolist() == [0, 0.5, 1] and db.tolist() == [1, 0.5, 0]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_bounds_that_requests_give_are_no_other_kinks(shape: tuple[int, ...]) -> None:
    size = "[" + ",".join(map(str, shape)) + "]"
    graph = parse_graph(f"graph @g(%x: f32[3], %low: f32{size}) {{\n%y = Clip(%x, %low) : f32[3]\nreturn %y\n}}")
    graph.set_outputs(gradients(graph, graph.value("y"), [graph.value("x"), graph.value("low")]))
    dx, dlow = run_graph(graph, {"x": np.array([1, 2, 3], np.float32), "low": np.full(shape, 2, np.float32)})
    assert dx.tolist() == [0, 0, 1] and dlow.sum() == 2 and dlow.shape == shape


def test_what_the_forward_pass_has_is_used_again() -> None:
    text = derived("graph @g(%x: f32[3]) {\n%y = Exp(%x) : f32[3]\nreturn %y\n}", "y", ["x"])
    assert text.count("Exp(") == 1
    text = derived("graph @g(%x: f32[3]) {\n%y = Sigmoid(%x) : f32[3]\nreturn %y\n}", "y", ["x"])
    assert text.count("Sigmoid(") == 1


def test_a_tensor_read_twice_gets_both_gradients() -> None:
    graph = parse_graph("graph @g(%x: f32[2]) {\n%y = Mul(%x, %x) : f32[2]\nreturn %y\n}")
    graph.set_outputs(gradients(graph, graph.value("y"), [graph.value("x")]))
    assert run_graph(graph, {"x": np.array([3, -5], np.float32)})[0].tolist() == [6, -10]


def test_what_does_not_depend_on_a_variable_has_gradient_0() -> None:
    graph = parse_graph("graph @g(%x: f32[2], %z: f32[3]) {\n%y = Exp(%x) : f32[2]\nreturn %y\n}")
    graph.set_outputs(gradients(graph, graph.value("y"), [graph.value("z")]))
    assert run_graph(graph, {"x": np.zeros(2, np.float32), "z": np.ones(3, np.float32)})[0].tolist() == [0, 0, 0]


def test_every_operator_in_the_way_is_named() -> None:
    graph = parse_graph("""graph @g(%x: f32[4,4]) {
        %k = const i64[1] [2]
        %a = Hardmax(%x) : f32[4,4]
        %b, %i = TopK(%a, %k) : f32[4,2], i64[4,2]
        return %b
    }""")
    with pytest.raises(UnsupportedOp, match="no gradient of Hardmax, TopK"):
        gradients(graph, graph.value("b"), [graph.value("x")])


def test_a_part_that_nobody_reads_adds_no_nan() -> None:
    graph = parse_graph("""graph @g(%x: f32[4]) {
        %a, %b = Split(%x) {axis=0, num_outputs=2} : f32[2], f32[2]
        return %a
    }""")
    graph.set_outputs(gradients(graph, graph.value("a"), [graph.value("x")]))
    assert run_graph(graph, {"x": np.array([1, 2, np.inf, np.nan], np.float32)})[0].tolist() == [1, 1, 0, 0]


def test_only_floats_have_gradients() -> None:
    graph = parse_graph("graph @g(%x: i64[4]) {\n%y = Neg(%x) : i64[4]\nreturn %y\n}")
    with pytest.raises(UnsupportedOp, match="only floats"):
        gradients(graph, graph.value("y"), [graph.value("x")])


@pytest.mark.parametrize(("op", "kept"), [
    ("Relu(%x)", 1), ("Clip(%x, %low, %high)", 1), ("Clip(%x, %low)", 1), ("Clip(%x, %high, %low)", 2),
])  # fmt: skip
def test_what_is_kept_of_a_clip_is_its_result(op: str, kept: int) -> None:
    """Whether x beat the bound is read off the result, unless the bounds cross."""
    text = derived(f"""graph @g(%x: f32[3]) {{
        %low = const f32[] 0.0\n%high = const f32[] 6.0\n%y = {op} : f32[3]\nreturn %y\n}}""", "y", ["x"])
    backward = text.split("%y = ")[1].split("\n", 1)[1]
    assert ("%x" in backward) == (kept == 2), backward


@pytest.mark.parametrize("bounds", [(0.0, 6.0), (6.0, 0.0), (2.0, 2.0)])
def test_a_clip_is_flat_outside_of_its_bounds(bounds: tuple[float, float]) -> None:
    """A kink belongs to the flat side, NaN has slope 0, crossed and equal bounds have it everywhere."""
    low, high = bounds
    graph = parse_graph(f"""graph @g(%x: f32[7]) {{
        %low = const f32[] {low}\n%high = const f32[] {high}\n%y = Clip(%x, %low, %high) : f32[7]\nreturn %y\n}}""")
    (dx,) = gradients(graph, graph.value("y"), [graph.value("x")])
    graph.set_outputs([dx])
    x = np.array([-1, 0, 1, 2, 6, 7, np.nan], np.float32)
    (found,) = run_graph(graph, {"x": x})
    np.testing.assert_array_equal(found, ((x > low) & (x < high)).astype(np.float32))
