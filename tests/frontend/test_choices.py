"""Branches of If that sizes choose between and whose results differ in rank, as exporters write `squeeze`."""

from __future__ import annotations

import numpy as np
import pytest

import parax
from parax.compiler.frontend.importer import import_model


def squeezed(x: str) -> str:
    """Nodes that take away the second axis of x where it is 1: results are y of x."""
    return f"""
        one_{x} = Constant<value = int64[1] {{1}}>()  s_{x} = Shape({x})
        n_{x} = Gather(s_{x}, one_{x})  is_{x} = Equal(n_{x}, one_{x})
        y_{x} = If (is_{x}) < then_branch = a_{x} () => (p_{x}) {{ p_{x} = Squeeze({x}, one_{x}) }},
                              else_branch = b_{x} () => (q_{x}) {{ q_{x} = Identity({x}) }} >"""


def of_rank(text: str) -> str:
    """The model whose further nodes are those of a text; x has three axes, the middle one open."""
    return f"g (float[A,N,3] x, float[3,2] w) => (float[] z) {{ {squeezed('x')} {text} }}"


MATRIX = "k = Shape(y_x)  two = Constant<value = int64[2] {3,2}>()  v = Reshape(w, two)  z = Gemm(y_x, v)"
VOLUME = "t = Transpose<perm = [1,0,2]>(y_x)  z = MatMul(t, w)"


def test_the_only_branch_that_fits_is_taken(model):
    graph = import_model(model(of_rank(MATRIX), opset=18))
    assert not any(node.bodies for node in graph)
    assert str(graph.outputs[0].type) == "f32[A,2]"
    graph = import_model(model(of_rank(VOLUME), opset=18))
    assert not any(node.bodies for node in graph)
    assert str(graph.outputs[0].type) == "f32[N,A,2]"


@pytest.mark.parametrize(("text", "good", "bad"), [(MATRIX, 1, 2), (VOLUME, 2, 1)])
def test_a_run_checks_that_sizes_choose_it(text, good, bad, model):
    plan = parax.compile(model(of_rank(text), opset=18))
    w = np.ones((3, 2), np.float32)
    with plan.session(instances=1, cores_per_instance=1) as session:
        for rows in (2, 4):
            x = np.random.default_rng(0).standard_normal((rows, good, 3)).astype(np.float32)
            wanted = x[:, 0] @ w if text == MATRIX else x.transpose(1, 0, 2) @ w
            np.testing.assert_allclose(session.run({"x": x, "w": w})["z"], wanted, rtol=1e-5)
        with pytest.raises(parax.InvalidInput, match="fits together only where its condition"):
            session.run({"x": np.zeros((2, bad, 3), np.float32), "w": w})


def test_where_both_fit_nothing_is_chosen(model):
    for text in ("z = Relu(y_x)", "z = Shape(y_x)"):
        with pytest.raises(parax.UnsupportedOp, match="rank of input 0 is unknown"):
            import_model(model(of_rank(text), opset=18))
    graph = import_model(model(of_rank("z = Relu(x)").replace("z =", "unused =").replace("[] z", "[] y_x"), opset=18))
    assert graph.outputs[0].type.shape is None


def test_where_none_fits_the_error_is_that_of_the_model_as_it_is(model):
    with pytest.raises(parax.UnsupportedOp, match="rank of input 0 is unknown"):
        import_model(model(of_rank("k = Shape(y_x)  z = Conv(y_x, w)"), opset=18))


def test_each_of_several_is_chosen(model):
    text = f"""g (float[A,N,3] x, float[B,M,3] x2, float[3,2] w) => (float[] z, float[] z2) {{
        {squeezed('x')} {squeezed('x2')} {MATRIX}  t = Transpose<perm = [1,0,2]>(y_x2)  z2 = MatMul(t, w) }}"""
    graph = import_model(model(text, opset=18))
    assert [str(value.type) for value in graph.outputs] == ["f32[A,2]", "f32[M,B,2]"]
    assert len(graph.constraints) == 2


def test_inside_of_branches_a_size_is_checked_where_the_branch_is_taken(model):
    inner = squeezed("x") + MATRIX.replace("z =", "z1 =")
    text = f"""g (bool c, float[A,N,3] x, float[3,2] w) => (float[] z) {{
        z = If (c) < then_branch = o () => (z1) {{ {inner} }},
                     else_branch = e () => (z2) {{ ax = Constant<value = int64[1] {{1}}>()
                                                   m = ReduceMean<keepdims = 0>(x, ax)  z2 = MatMul(m, w) }} > }}"""
    plan = parax.compile(model(text, opset=18))
    w, x = np.ones((3, 2), np.float32), np.ones((2, 5, 3), np.float32)
    with plan.session(instances=1, cores_per_instance=1) as session:
        found = session.run({"c": np.array(False), "x": x, "w": w})["z"]
        np.testing.assert_allclose(found, np.full((2, 2), 3.0))
        found = session.run({"c": np.array(True), "x": x[:, :1], "w": w})["z"]
        np.testing.assert_allclose(found, np.full((2, 2), 3.0))
        with pytest.raises(parax.InvalidInput, match="fits together only where its condition"):
            session.run({"c": np.array(True), "x": x, "w": w})
