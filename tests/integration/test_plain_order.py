"""Steps of the runtime and bodies read operands in ONNX's order, however the operators before them laid these out."""

from __future__ import annotations

import numpy as np
import onnx.reference
import pytest
from onnx import numpy_helper

import parax

f32 = np.float32
I, X = np.array([[0, 1, 2], [1, 2, 0]]), np.random.default_rng(0).normal(size=(3, 4)).astype(f32)
IMAGE = np.random.default_rng(1).normal(size=(1, 3, 6, 6)).astype(f32)
WORDS = np.array(["a", "b", "c", "d"], object)
CASES = {
    "words by place": ("int64[2,3] i", "string[3,2] y", {"i": I}, {"s": WORDS}, """
        j = Abs(i)  t = Transpose<perm = [1, 0]>(j)  y = Gather(s, t)"""),
    "words behind a convolution": ("float[1,3,6,6] x", "string[1,8,4,4] y", {"x": IMAGE}, {
        "w": np.random.default_rng(2).normal(size=(8, 3, 3, 3)).astype(f32), "s": WORDS[:1], "o": WORDS[1:2],
        "z": np.zeros((), f32)}, """
        c = Conv(x, w)  g = Greater(c, z)  y = Where(g, s, o)"""),
    "branches of two ranks": ("float[3,4] x, bool b", "float[?,?] y", {"x": X, "b": np.array(True)}, {}, """
        r = Relu(x)  t = Transpose<perm = [1, 0]>(r)
        y = If(b) <then_branch = g () => (float[4,3] p) { p = Neg(t) },
                   else_branch = h () => (float[4] q) { a = Constant<value_ints = [1]>()
                                                       q = ReduceSum<keepdims = 0>(t, a) }>"""),
    "sizes beside a transpose": ("float[A,B,C,D] x, int64[2,2] i", "int64[2,2] y", {
        "x": np.zeros((3, 5, 2, 7), f32), "i": np.array([[1, 2], [3, 4]])}, {"two": np.array([2, 2])}, """
        s = Shape(x)  k = Reshape(s, two)  r = Abs(i)  t = Transpose<perm = [1, 0]>(r)  a = Add(t, k)
        y = Transpose<perm = [1, 0]>(a)"""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_orders_in_memory_do_not_show(name: str) -> None:
    inputs, outputs, feeds, constants, body = CASES[name]
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {{{body}}}')
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in constants.items())
    want = onnx.reference.ReferenceEvaluator(model).run(None, feeds)[0]
    with parax.compile(model).session() as session:
        np.testing.assert_array_equal(session.run(feeds)["y"], want)
