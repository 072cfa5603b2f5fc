"""WidenHalves: operators of f16 work in f32; what moves tables and caches, rounds on purpose or draws stays as it is."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper, parser

import parax
from parax.compiler.frontend.importer import import_model
from parax.compiler.ir.types import F16
from parax.compiler.ir.verify import verify
from parax.compiler.passes.dataflow.widen_halves import WidenHalves
from parax.compiler.passes.rewrite import Rewriter
from passes.check import check_pass

TABLE = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float16)


def test_a_chain_is_rounded_at_its_ends_alone() -> None:
    check_pass(
        WidenHalves(),
        before="graph @g(%x: f16[N,4], %w: f16[4,4]) {\n%a = Relu(%x)\n%b = MatMul(%a, %w)\n%y = Exp(%b)\nreturn %y\n}",
        after="""graph @g(%x: f16[N,4], %w: f16[4,4]) {
                   %c = Cast(%x) {to=f32}
                   %a = Relu(%c)
                   %v = Cast(%w) {to=f32}
                   %b = MatMul(%a, %v)
                   %e = Exp(%b)
                   %y = Cast(%e) {to=f16}
                   return %y
                 }""",
    )


def test_results_that_are_asked_for_are_rounded_once_each() -> None:
    check_pass(
        WidenHalves(),
        before="graph @g(%x: f16[4]) {\n%a = Neg(%x)\n%y = Abs(%a)\nreturn %a, %y\n}",
        after="""graph @g(%x: f16[4]) {
                   %c = Cast(%x) {to=f32}
                   %n = Neg(%c)
                   %a = Cast(%n) {to=f16}
                   %m = Abs(%n)
                   %y = Cast(%m) {to=f16}
                   return %a, %y
                 }""",
    )


def test_a_table_stays_f16_and_its_rows_are_widened() -> None:
    check_pass(
        WidenHalves(),
        before="""graph @g(%i: i64[N]) {
                    %t = const f16[5,4] "table"
                    %r = Gather(%t, %i)
                    %y = Exp(%r)
                    return %y
                  }""",
        after=f"""graph @g(%i: i64[N]) {{
                    %t = const f16[5,4] [{", ".join(str(float(x)) for x in TABLE.reshape(-1))}]
                    %r = Gather(%t, %i)
                    %c = Cast(%r) {{to=f32}}
                    %e = Exp(%c)
                    %y = Cast(%e) {{to=f16}}
                    return %y
                  }}""",
        data={"table": TABLE},
        high=2.0,
        low=0.0,
    )


def test_computed_values_are_moved_in_f32() -> None:
    check_pass(
        WidenHalves(),
        before="graph @g(%x: f16[N,4]) {\n%a = Exp(%x)\n%t = Transpose(%a) {perm=[1,0]}\n%y = Log(%t)\nreturn %y\n}",
        after="""graph @g(%x: f16[N,4]) {
                   %c = Cast(%x) {to=f32}
                   %a = Exp(%c)
                   %t = Transpose(%a) {perm=[1,0]}
                   %l = Log(%t)
                   %y = Cast(%l) {to=f16}
                   return %y
                 }""",
    )


def test_a_cache_stays_f16_and_so_do_products_that_read_it() -> None:
    check_pass(
        WidenHalves(),
        before="""graph @g(%past: f16[P,4], %x: f16[1,4]) {
                    %k = Exp(%x)
                    %keys = Concat(%past, %k) {axis=0}
                    %t = Transpose(%keys) {perm=[1,0]}
                    %s = MatMul(%k, %t)
                    %y = Neg(%s)
                    return %keys, %y
                  }""",
        after="""graph @g(%past: f16[P,4], %x: f16[1,4]) {
                   %c = Cast(%x) {to=f32}
                   %e = Exp(%c)
                   %k = Cast(%e) {to=f16}
                   %keys = Concat(%past, %k) {axis=0}
                   %t = Transpose(%keys) {perm=[1,0]}
                   %s = MatMul(%k, %t)
                   %d = Cast(%s) {to=f32}
                   %n = Neg(%d)
                   %y = Cast(%n) {to=f16}
                   return %keys, %y
                 }""",
    )


@pytest.mark.parametrize(
    ("body", "refuses"),
    [
        ("%y = Transpose(%x) {perm=[1,0]}", None),
        ("%y = Cast(%x) {to=f32}", None),
        ("%y = IsNaN(%x)", None),
        ("%y = Cast(%x) {to=f16}", "another type"),
        ("%y = Bernoulli(%x) {seed=1.0}", "not computed in f32"),
    ],
)
def test_what_computes_nothing_in_f16_is_left_alone(body: str, refuses: str | None) -> None:
    text = f"graph @g(%x: f16[N,4]) {{\n{body}\nreturn %y\n}}"
    check_pass(WidenHalves(), text, None, refuses=refuses, evaluate=False)


def test_nothing_changes_where_every_result_is_rounded() -> None:
    text = "graph @g(%x: f16[N,4]) {\n%a = Relu(%x)\n%y = Exp(%a)\nreturn %y\n}"
    check_pass(WidenHalves(rounds_halves=True), text, None)


def test_a_models_own_rounding_stays() -> None:
    """1 + 2⁻¹³ is 1 in f16, which the model asks for by name."""
    text = "graph @g(%x: f32[1]) {\n%h = Cast(%x) {to=f16}\n%s = Sub(%h, %h)\n%e = Exp(%h)\nreturn %s, %h, %e\n}"
    graph = check_pass(
        WidenHalves(), text,
        """graph @g(%x: f32[1]) {
             %h = Cast(%x) {to=f16}
             %c = Cast(%h) {to=f32}
             %d = Sub(%c, %c)
             %s = Cast(%d) {to=f16}
             %f = Exp(%c)
             %e = Cast(%f) {to=f16}
             return %s, %h, %e
           }""",
    )  # fmt: skip
    assert graph.outputs[1].tensor.dtype == F16


def test_bodies_compute_in_f32_too() -> None:
    model = """<ir_version: 8, opset_import: ["": 17]>
    g (float16[N,4] x, bool c) => (float16[N,4] y) {
        y = If (c) <then_branch = then () => (float16[N,4] a) { a = Exp(x) },
                    else_branch = other () => (float16[N,4] b) { b = Identity(x) }>
    }"""
    graph = import_model(parser.parse_model(model).SerializeToString())
    (node,) = [n for n in graph if n.bodies]
    then = node.bodies["then_branch"]
    assert WidenHalves().run(then, Rewriter(then))
    verify(graph)
    assert [n.op.name for n in then] == ["Cast", "Exp", "Cast"]


def convolutions(n: int, dtype: type) -> bytes:
    """A chain of convolutions with batch norms, of ONNX's own operators, whose numbers are those of f16."""
    rng, nodes, weights, x = np.random.default_rng(1), [], {}, "x"
    for i in range(n):
        weights[f"w{i}"] = (rng.standard_normal((8, 8, 3, 3)) / 8).astype(np.float16)
        statistics = [f"{k}{i}" for k in ("scale", "shift", "mean", "var")]
        weights |= {k: rng.uniform(0.5, 1.5, 8).astype(np.float16) for k in statistics}
        nodes.append(helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("BatchNormalization", [f"c{i}", *statistics], [f"b{i}"]))
        nodes.append(helper.make_node("Relu", [f"b{i}"], [f"r{i}"]))
        x = f"r{i}"
    initializers = [numpy_helper.from_array(v.astype(dtype), k) for k, v in weights.items()]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    own = [helper.make_tensor_value_info(v, element, ["N", 8, 12, 12]) for v in ("x", x)]
    graph = helper.make_graph(nodes, "g", own[:1], own[1:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return model.SerializeToString()


def result(model: bytes, x: np.ndarray, **options: bool) -> np.ndarray:
    plan = parax.compile(model, options=parax.CompileOptions(**options))
    (y,) = plan.session().run({"x": x}).values()
    return np.asarray(y)


def test_a_model_of_f16_is_that_of_f32_rounded_at_its_end() -> None:
    """Its batch norms fold and its convolutions transform; --fp strict rounds behind every operator."""
    x = np.random.default_rng(2).standard_normal((2, 8, 12, 12)).astype(np.float16)
    wide = result(convolutions(3, np.float32), x.astype(np.float32))
    half = result(convolutions(3, np.float16), x)
    strict = result(convolutions(3, np.float16), x, strict_fp=True)
    np.testing.assert_array_equal(half, wide.astype(np.float16))
    assert (strict != half).any()
    np.testing.assert_allclose(strict.astype(np.float32), wide, atol=2.0**-8 * np.abs(wide).max())
