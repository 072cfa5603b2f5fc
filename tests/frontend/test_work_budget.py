"""Constants are folded within a budget of work and bytes; loops without an end are refused."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import ModelProto, numpy_helper

import parax
from parax.compiler.frontend.evaluate import BASE_WORK, EvaluationError, Evaluator
from parax.compiler.frontend.importer import import_model
from parax.compiler.frontend.reference_work import reference_work
from parax.compiler.ir.parser import parse_graph


def model(text: str, **weights: np.ndarray) -> ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return made


POOL = """g (float[1] x) => (float[1,4,2,8] y) {
    p = AveragePool<kernel_shape=[511,793], pads=[255,255,255,255], count_include_pad=1>(w)
    y = Add(x, p) }"""


def test_a_pool_that_the_reference_takes_minutes_for_is_left_to_the_kernels() -> None:
    made = model(POOL, w=np.ones((1, 4, 2, 290), np.float32))
    assert [node.op.name for node in import_model(made)] == ["AveragePool", "Add"]
    with parax.compile(made).session(instances=1) as session:
        y = session.run({"x": np.ones(1, np.float32)})["y"]
    covered = [sum(0 <= o + t - 255 < 290 for t in range(793)) for o in range(8)]
    expected = 1 + 2 * np.array(covered, np.float32) / (511 * 793)
    np.testing.assert_allclose(y[0, 0], np.stack([expected, expected]), rtol=1e-5)


def test_small_constants_are_folded_as_before() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Exp(w)  b = Transpose(a)  y = Mul(x, b) }"
    assert [node.op.name for node in import_model(model(text, w=np.ones(2, np.float32)))] == ["Mul"]


def node_of(text: str) -> parax.compiler.ir.graph.Node:
    graph = parse_graph(f"graph @g(%x: f32[300,300], %w: f32[300,300]) {{\n%1 = {text}\nreturn %1\n}}")
    assert graph.first is not None
    return graph.first


def test_work_adds_up_over_a_model() -> None:
    node = node_of("MatMul(%x, %w) : f32[300,300]")
    arrays = [np.ones((300, 300), np.float32)] * 2
    evaluate, times = Evaluator(), 0
    evaluate.work = BASE_WORK - 2.5 * reference_work(node)
    with pytest.raises(EvaluationError, match="too much work"):
        for times in range(5):  # noqa: B007
            evaluate(node, arrays)
    assert times == 2
    evaluate.given_nbytes = 1 << 30  # a larger model may do more
    evaluate(node, arrays)


def test_bytes_add_up_within_max_memory() -> None:
    node = node_of("Add(%x, %w) : f32[300,300]")
    arrays = [np.ones((300, 300), np.float32)] * 2
    evaluate = Evaluator(500_000)
    evaluate(node, arrays)
    with pytest.raises(EvaluationError, match="too many bytes"):
        evaluate(node, arrays)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "i j , j k -> i k", "...j,jk->...k", "ij,jk"])
def test_einsum_counts_every_label(equation: str) -> None:
    node = node_of(f'Einsum(%x, %w) {{equation="{equation}"}} : f32[300,300]')
    assert reference_work(node) > 300**3


LOOP = """g ({inputs}) => (float[1] y) {{
    y = Loop({trips}, {condition}, x) <body = b (int64 i, bool go, float[1] a) => (bool again, float[1] o) {{
        {again}  o = Identity(a) }}> }}"""
SAME, TRUE, FALSE, TESTED = (
    "again = Identity(go)",
    "again = Constant<value = bool {1}>()",
    "again = Constant<value = bool {0}>()",
    "z = Constant<value_float = 9.0>()  c = Less(a, z)  again = Squeeze(c)",
)


def loop(trips: str, condition: str, again: str) -> ModelProto:
    inputs = "float[1] x" + (", int64 n" if trips == "n" else "") + (", bool c" if condition == "c" else "")
    given = {"most": np.array(2**63 - 1), "three": np.array(3), "yes": np.array(True), "no": np.array(False)}
    weights = {name: array for name, array in given.items() if name in (trips, condition)}
    return model(LOOP.format(inputs=inputs, trips=trips, condition=condition, again=again), **weights)


@pytest.mark.parametrize("trips", ["", "most"])
@pytest.mark.parametrize("condition", ["", "yes"])
@pytest.mark.parametrize("again", [SAME, TRUE])
def test_a_loop_without_an_end_is_refused(trips: str, condition: str, again: str) -> None:
    with pytest.raises(parax.InvalidModel, match="never ends"):
        import_model(loop(trips, condition, again))


@pytest.mark.parametrize(
    ("trips", "condition", "again"),
    [("n", "", TRUE), ("three", "yes", TRUE), ("", "", TESTED), ("", "c", SAME), ("", "no", SAME), ("", "", FALSE)],
)
def test_loops_that_may_end_are_not(trips: str, condition: str, again: str) -> None:
    assert [node.op.name for node in import_model(loop(trips, condition, again))] == ["Loop"]
