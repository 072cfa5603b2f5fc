"""StackGrown: states that only grow are stacked; what the body reads, or what grows otherwise, stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import parax
from parax.compiler.frontend.importer import import_model
from parax.compiler.ir.graph import nested_graphs
from parax.compiler.ir.verify import verify
from parax.compiler.passes.dataflow.stack_grown import StackGrown
from parax.compiler.passes.rewrite import Rewriter
from parax.runtime.manifest import HostStep

ort = pytest.importorskip("onnxruntime")

LOOP = """
g (float[3] x, float[P,3] begun, float[2,M] beside, int64 trips, float most) => (
    float[Q,3] y, float[2,R] z, float[3] last, float[K,3] rows, int64 size)
{
    go = Constant<value = bool {1}>()
    y, z, last, rows = Loop (trips, go, begun, beside, x) <body = body (int64 i, bool c, float[A,3] s, float[2,B] t, float[3] u)
            => (bool k, float[D,3] s2, float[2,E] t2, float[3] u2, float[3] row) {
        zero = Constant<value = int64[1] {0}>()
        u2 = Add(u, x)
        sum = ReduceSum<keepdims = 0>(u2)
        k = Less(sum, most)
        piece = Unsqueeze(u2, zero)
        s2 = Concat<axis = 0>(s, piece)
        shape = Constant<value = int64[2] {2, 1}>()  pair = Constant<value = int64[1] {2}>()
        two = Slice(u2, zero, pair)  column = Reshape(two, shape)  other = Neg(column)
        t2 = Concat<axis = -1>(t, column, other)
        row = Mul(u2, u2) }>
    shapes = Shape(y)  size = ReduceSum<keepdims = 0>(shapes)
}
"""
READ = """
g (float[1,3] x, int64 trips) => (float[Q,3] y) {
    go = Constant<value = bool {1}>()
    y = Loop (trips, go, x) <body = body (int64 i, bool c, float[A,3] s) => (bool k, float[B,3] t) {
        k = Identity(c)
        piece = ReduceMean<axes = [0]>(s)
        t = Concat<axis = 0>(s, piece) }>
}
"""
DOUBLED = """
g (float[1,3] x, int64 trips) => (float[Q,3] y) {
    go = Constant<value = bool {1}>()
    y = Loop (trips, go, x) <body = body (int64 i, bool c, float[A,3] s) => (bool k, float[B,3] t) {
        k = Identity(c)
        f = Cast<to = 1>(i)  piece = Add(x, f)
        t = Concat<axis = 0>(piece, s) }>
}
"""
INNER = """
g (float[1,3] x, int64 trips) => (float[Q,3] y, float[K] sums) {
    go = Constant<value = bool {1}>()
    y, sums = Loop (trips, go, x) <body = outer (int64 i, bool c, float[A,3] s) => (bool k, float[B,3] t, float sum) {
        k = Identity(c)
        part = Loop (i, c, x) <body = inner (int64 j, bool d, float[E,3] u) => (bool l, float[F,3] v) {
            l = Identity(d)
            f = Cast<to = 1>(j)  piece = Add(x, f)
            v = Concat<axis = 0>(u, piece) }>
        sum = ReduceSum<keepdims = 0>(part)
        row = Add(x, sum)
        t = Concat<axis = 0>(s, row) }>
}
"""


def model_of(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>{text}')


def changed(text: str) -> Rewriter:
    graph = import_model(model_of(text).SerializeToString())
    rewriter = Rewriter(graph)
    before = [node.op.name for nested in nested_graphs(graph) for node in nested].count("Concat")
    was_changed = StackGrown().run(graph, rewriter)
    verify(graph)
    assert not StackGrown().run(graph, Rewriter(graph))
    assert was_changed or [node.op.name for nested in nested_graphs(graph) for node in nested].count("Concat") == before
    rewriter.misses.append("changed" if was_changed else "left alone")
    return rewriter


def check(text: str, is_native: bool, **feeds: Any) -> None:
    """As ONNX Runtime, three times: the third request runs the function that is written for the plan."""
    model, feeds = model_of(text), {name: np.asarray(value) for name, value in feeds.items()}
    theirs = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    plan = parax.compile(model)
    assert is_native == all(not isinstance(s, HostStep) or s.native is not None for s in plan.manifest.steps)
    with plan.session() as session:
        for _ in range(4):
            found = session.run(feeds)
            for output, wanted in zip(model.graph.output, theirs, strict=True):
                assert found[output.name].shape == wanted.shape
                np.testing.assert_allclose(found[output.name], wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("trips", [0, 1, 7, 300])
@pytest.mark.parametrize(("begun", "beside"), [(0, 3), (2, 0)])
@pytest.mark.parametrize("most", [40.0, 1e9])
def test_states_that_grow_are_stacked(trips: int, begun: int, beside: int, most: float) -> None:
    rng = np.random.default_rng(trips)
    check(LOOP, True, x=np.array([1, 0.5, 2], np.float32), begun=rng.random((begun, 3), np.float32),
          beside=rng.random((2, beside), np.float32), trips=trips, most=np.float32(most))  # fmt: skip


def test_all_states_of_a_loop() -> None:
    assert "changed" in changed(LOOP).misses


@pytest.mark.parametrize("text", [READ, DOUBLED])
def test_what_is_read_or_put_in_front_stays(text: str) -> None:
    rewriter = changed(text)
    assert "left alone" in rewriter.misses
    assert text is DOUBLED or any("is read in the body" in miss for miss in rewriter.misses)
    check(text, False, x=np.ones((1, 3), np.float32), trips=3)


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_a_loop_in_a_loop(trips: int) -> None:
    assert "changed" in changed(INNER).misses
    check(INNER, False, x=np.ones((1, 3), np.float32), trips=trips)
