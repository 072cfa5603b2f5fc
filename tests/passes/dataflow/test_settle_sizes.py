"""SettleSizes: slices of a fixed length from where only a run knows, where the model needs that length."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import parax
from parax.compiler.frontend.importer import import_model
from parax.compiler.ir.graph import Graph, nested_graphs
from parax.compiler.ir.verify import verify
from parax.compiler.passes.dataflow.settle_sizes import SettleSizes
from parax.compiler.passes.rewrite import Rewriter
from parax.errors import InvalidInput
from parax.runtime.manifest import HostStep

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
SQUEEZED = """
squeezed (float[N,4] x, int64[1] at) => (float[4] y) {
    one = Constant<value = int64[1] {1}>()  zero = Constant<value = int64[1] {0}>()
    end = Add(at, one)
    row = Slice(x, at, end, zero)
    y = Squeeze(row, zero)
}
"""
THREE = """
three (float[4,N] x, int32 at) => (float[12] y) {
    three = Constant<value = int32 {3}>()  zero = Constant<value = int64[1] {0}>()  last = Constant<value = int32[1] {1}>()
    more = Add(three, at)
    start = Unsqueeze(at, zero)  end = Unsqueeze(more, zero)
    rows = Slice(x, start, end, last)
    shape = Constant<value = int64[1] {12}>()
    y = Reshape(rows, shape)
}
"""
COUNTED = """
counted (float[2,T,3] x) => (float[2,3] y, float[K,2,1,3] rows) {
    shape = Shape(x)  one = Constant<value = int64 {1}>()
    trips = Gather(shape, one)
    go = Constant<value = bool {1}>()  start = Constant<value = float[2,3] {0, 0, 0, 0, 0, 0}>()
    y, rows = Loop (trips, go, start) <body = body (int64 i, bool c, float[2,3] s) => (bool k, float[2,3] t, float[2,1,3] row) {
        k = Identity(c)
        zero = Constant<value = int64[1] {0}>()  axis = Constant<value = int64[1] {1}>()
        next = Add(i, one)
        from = Unsqueeze(i, zero)  to = Unsqueeze(next, zero)
        row = Slice(x, from, to, axis, axis)
        last = Squeeze(row, axis)
        t = Add(s, last) }>
}
"""
FREE = """
free (float[N,4] x, int64[1] at) => (float[M,4] y) {
    one = Constant<value = int64[1] {1}>()  zero = Constant<value = int64[1] {0}>()
    end = Add(at, one)
    row = Slice(x, at, end, zero)
    y = Relu(row)
}
"""
IN_A_BRANCH = """
branch (float[N,4] x, int64[1] at, bool c) => (float[M,4] y, float[4] z) {
    one = Constant<value = int64[1] {1}>()  zero = Constant<value = int64[1] {0}>()
    end = Add(at, one)
    row = Slice(x, at, end, zero)
    y = Relu(row)
    z = If (c) <then_branch = then () => (float[4] a) { a = Squeeze(row, zero) },
                else_branch = other () => (float[4] b) { b = Constant<value = float[4] {1, 2, 3, 4}>() }>
}
"""
APART = SQUEEZED.replace("end = Add(at, one)", "end = Mul(at, one)")


def settled(text: str) -> tuple[Graph, Rewriter, bool]:
    graph = import_model(parser.parse_model(HEAD + text).SerializeToString())
    rewriter = Rewriter(graph)
    changed = SettleSizes().run(graph, rewriter)
    verify(graph)
    assert not SettleSizes().run(graph, Rewriter(graph))
    return graph, rewriter, changed


@pytest.mark.parametrize("text", [SQUEEZED, THREE, COUNTED])
def test_what_can_only_be_of_one_length_becomes_a_lookup(text: str) -> None:
    graph, _, changed = settled(text)
    assert changed
    operators = [node.op.name for nested in nested_graphs(graph) for node in nested]
    assert "AtRuntime" not in operators and "Gather" in operators
    assert not any(nested.constraints for nested in nested_graphs(graph))


@pytest.mark.parametrize(("text", "reason"), [
    (FREE, "nothing says that it is of length 1"), (IN_A_BRANCH, "nothing says that it is of length 1"),
    (APART, "no slice of one axis"),
])  # fmt: skip
def test_what_may_be_of_another_length_stays(text: str, reason: str) -> None:
    _, rewriter, changed = settled(text)
    assert not changed
    assert any(reason in miss for miss in rewriter.misses)


@pytest.mark.parametrize("text", [SQUEEZED, THREE])
def test_every_start_is_what_onnx_says_or_an_error(text: str) -> None:
    """Counted from either end; -1 begins at the last one and ends before the first, so that nothing is taken."""
    model = parser.parse_model(HEAD + text)
    x = np.arange(20, dtype=np.float32).reshape((5, 4) if text is SQUEEZED else (4, 5))
    plan, reference = parax.compile(model), ReferenceEvaluator(model)
    assert not any(isinstance(step, HostStep) for step in plan.manifest.steps)
    n_right = 0
    with plan.session() as session:
        for at in range(-8, 8):
            feeds = {"x": x, "at": np.array([at], np.int64) if text is SQUEEZED else np.array(at, np.int32)}
            try:
                (wanted,) = reference.run(None, feeds)
            except ValueError:
                with pytest.raises(InvalidInput):
                    session.run(feeds)
                continue
            np.testing.assert_array_equal(session.run(feeds)["y"], wanted)
            n_right += 1
    assert n_right >= 5


@pytest.mark.parametrize("length", [0, 1, 5])
def test_a_loop_over_an_axis_is_native(length: int) -> None:
    model = parser.parse_model(HEAD + COUNTED)
    x = np.arange(6 * length, dtype=np.float32).reshape(2, length, 3)
    plan = parax.compile(model)
    assert all(not isinstance(step, HostStep) or step.native is not None for step in plan.manifest.steps)
    with plan.session() as session:
        found = session.run({"x": x})
    np.testing.assert_array_equal(found["y"], x.sum(1))
    np.testing.assert_array_equal(found["rows"].reshape(length, 2, 3), x.transpose(1, 0, 2))
