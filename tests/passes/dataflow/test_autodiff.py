"""`autodiff`: Gradient nodes as text before and after, models with them as a whole."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import parax
from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.dataflow.autodiff import Autodiff
from parax.compiler.passes.rewrite import Rewriter
from parax.errors import InvalidModel, UnsupportedOp
from passes.check import check_pass

DOMAIN = "ai.onnx.preview.training"


def test_a_product() -> None:
    check_pass(
        Autodiff(),
        before="""graph @g(%x: f32[3], %w: f32[3]) {
            %y = Mul(%x, %w) : f32[3]
            %d = ai.onnx.preview.training::Gradient(%x) {xs=["x"], y="y"} : f32[3]
            return %y, %d
        }""",
        after="""graph @g(%x: f32[3], %w: f32[3]) {
            %one = const f32[] 1.0
            %shape = const i64[1] [3]
            %y = Mul(%x, %w) : f32[3]
            %dy = Expand(%one, %shape) : f32[3]
            %d = Mul(%dy, %w) : f32[3]
            return %y, %d
        }""",
        evaluate=False,
    )


def test_a_graph_without_gradients_stays() -> None:
    check_pass(Autodiff(), before="graph @g(%x: f32[3]) {\n%y = Exp(%x) : f32[3]\nreturn %y\n}", after=None)


def refused(text: str) -> pytest.ExceptionInfo[Exception]:
    graph = parse_graph(text)
    with pytest.raises((InvalidModel, UnsupportedOp)) as error:
        Autodiff().run(graph, Rewriter(graph))
    return error


def test_names_that_the_graph_has_not() -> None:
    error = refused("""graph @g(%x: f32[3]) {
        %y = Exp(%x) : f32[3]
        %d = ai.onnx.preview.training::Gradient(%x) {xs=["x"], y="z"} : f32[3]
        return %d
        }""")
    assert "no tensor has that name" in str(error.value) and "z" in str(error.value)


def model(nodes: list[onnx.NodeProto], outputs: dict[str, list[int | str]], opset: int = 18) -> onnx.ModelProto:
    shapes: dict[str, list[int | str]] = {"x": ["N", 4], "w": [4, 3], "u": ["N", 4]}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)],
                             ir_version=9)  # fmt: skip


FORWARD = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["r"]),
           helper.make_node("ReduceMean", ["r"], ["y"], keepdims=0)]  # fmt: skip


@pytest.mark.parametrize("level", range(4))
def test_onnx_gradient(level: int) -> None:
    node = helper.make_node("Gradient", ["x", "w"], ["dx", "dw"], domain=DOMAIN, xs=["x", "w"], y="y")
    asked = model([*FORWARD, node], {"y": [], "dx": ["N", 4], "dw": [4, 3]})
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 4)).astype(np.float32), rng.standard_normal((4, 3)).astype(np.float32)
    found = parax.compile(asked, options=parax.CompileOptions(opt_level=level)).session().run({"x": x, "w": w, "u": x})
    dm = (x @ w > 0) / np.float32(15)
    np.testing.assert_allclose(found["dx"], dm @ w.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["dw"], x.T @ dm, rtol=1e-5, atol=1e-6)


def test_other_tensors_in_the_place_of_those_named() -> None:
    node = helper.make_node("Gradient", ["u", "w"], ["du"], domain=DOMAIN, xs=["x"], zs=["w"], y="y")
    asked = model([*FORWARD, node], {"y": [], "du": ["N", 4]})
    rng = np.random.default_rng(1)
    x, u, w = (rng.standard_normal(s).astype(np.float32) for s in ((5, 4), (5, 4), (4, 3)))
    found = parax.compile(asked).session().run({"x": x, "w": w, "u": u})
    np.testing.assert_allclose(found["du"], (u @ w > 0) / np.float32(15) @ w.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["y"], np.maximum(x @ w, 0).mean(), rtol=1e-5)


def test_what_is_held_is_a_constant_even_where_it_depends_on_the_variable() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["z"]), helper.make_node("Mul", ["x", "z"], ["p"]),
             helper.make_node("Gradient", ["x", "z"], ["d"], domain=DOMAIN, xs=["x"], zs=["z"], y="p")]  # fmt: skip
    x = np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32)
    feed = {"x": x, "w": np.zeros((4, 3), np.float32), "u": x}
    found = parax.compile(model(nodes, {"d": ["N", 4]})).session().run(feed)
    np.testing.assert_allclose(found["d"], np.exp(x), rtol=1e-5)


def test_second_derivatives() -> None:
    nodes = [helper.make_node("Mul", ["x", "x"], ["s"]), helper.make_node("Mul", ["s", "x"], ["c"]),
             helper.make_node("Gradient", ["x"], ["d"], domain=DOMAIN, xs=["x"], y="c"),
             helper.make_node("Gradient", ["x"], ["dd"], domain=DOMAIN, xs=["x"], y="d")]  # fmt: skip
    asked = model(nodes, {"d": ["N", 4], "dd": ["N", 4]})
    x = np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32)
    found = parax.compile(asked).session().run({"x": x, "w": np.zeros((4, 3), np.float32), "u": x})
    np.testing.assert_allclose(found["d"], 3 * x * x, rtol=1e-5)
    np.testing.assert_allclose(found["dd"], 6 * x, rtol=1e-5)
