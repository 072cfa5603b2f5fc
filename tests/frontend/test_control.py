"""If, Loop and Scan: captures made explicit, known conditions inlined, carried shapes that change."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from parax.compiler.frontend.evaluate import evaluate_graph
from parax.compiler.frontend.exporter import to_onnx
from parax.compiler.frontend.importer import import_model
from parax.compiler.frontend.limits import Limits
from parax.compiler.ir.text import parse_graph, print_graph
from parax.compiler.ir.verify import verify
from parax.errors import InvalidModel, ResourceLimit

X = np.array([1.0, -2.0], np.float32)
IF = """g (bool c, float[2] x) => (float[2] y) {
    h = Tanh(x)
    y = If (c) <
        then_branch = a () => (float[2] p) { p = Add(h, x) },
        else_branch = b () => (float[2] q) { q = Sub(x, k) }
    >
}"""


def branch_model(model, text=IF, **options):
    source = model(text, **options)
    source.graph.initializer.append(helper.make_tensor("k", TensorProto.FLOAT, [2], [1, 1]))
    return source


def test_what_branches_use_becomes_operands(model):
    graph = import_model(branch_model(model))
    verify(graph)
    node = graph.last
    assert [v.name for v in node.inputs] == ["c", "h", "x"]
    assert node.op.captures == 2
    for body in node.bodies.values():
        assert [v.name for v in body.inputs] == ["h", "x"]
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)


@pytest.mark.parametrize("condition", [True, False])
def test_if_computes_the_same_after_the_way_back(condition, model):
    graph = import_model(branch_model(model))
    got = evaluate_graph(graph, {"c": np.array(condition), "x": X})["y"]
    np.testing.assert_allclose(got, np.tanh(X) + X if condition else X - 1)
    assert to_onnx(graph).graph.node[-1].op_type == "If"


def test_a_known_condition_takes_its_branch(model):
    text = IF.replace("bool c, ", "").replace("h = Tanh(x)", "h = Tanh(x)  n = Shape(x)  c = Cast<to=9>(n)")
    graph = import_model(branch_model(model, text))
    assert "If" not in [n.op.name for n in graph]
    np.testing.assert_allclose(evaluate_graph(graph, {"x": X})["y"], np.tanh(X) + X)


def test_branches_of_different_lengths(model):
    text = """g (bool c, float[4] x) => (float[N] y) {
        y = If (c) < then_branch = a () => (float[4] p) { p = Relu(x) },
                     else_branch = b () => (float[8] q) { q = Concat<axis=0>(x, x) } >
    }"""
    graph = import_model(model(text))
    assert graph.outputs[0].type.rank == 1
    assert not isinstance(graph.outputs[0].type.dims[0], int)


def loop_graph(body_nodes, *, carried_shape, outputs=("y", "s")):
    body = helper.make_graph(
        body_nodes,
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("go", 9, []),
         helper.make_tensor_value_info("v", 1, carried_shape)],
        [helper.make_tensor_value_info("go2", 9, []), helper.make_tensor_value_info("v2", 1, None),
         helper.make_tensor_value_info("each", 1, None)],
    )  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "yes", "x"], list(outputs), body=body)],
        "g",
        [helper.make_tensor_value_info("x", 1, [2]), helper.make_tensor_value_info("b", 1, [2])],
        [helper.make_tensor_value_info("y", 1, None), helper.make_tensor_value_info("s", 1, None)],
        [helper.make_tensor("n", TensorProto.INT64, [], [3]), helper.make_tensor("yes", TensorProto.BOOL, [], [True])],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])


def test_a_loop_with_state_scan_output_and_capture():
    nodes = [
        helper.make_node("Identity", ["go"], ["go2"]),
        helper.make_node("Add", ["v", "b"], ["v2"]),
        helper.make_node("Identity", ["v2"], ["each"]),
    ]
    graph = import_model(loop_graph(nodes, carried_shape=[2]))
    verify(graph)
    assert str(graph.outputs[0].type) == "f32[2]"
    got = evaluate_graph(graph, {"x": X, "b": np.ones(2, np.float32)})
    np.testing.assert_allclose(got["y"], X + 3)
    np.testing.assert_allclose(got["s"], [X + 1, X + 2, X + 3])


def test_a_carried_value_that_grows_gets_an_open_size():
    nodes = [
        helper.make_node("Identity", ["go"], ["go2"]),
        helper.make_node("Concat", ["v", "b"], ["v2"], axis=0),
        helper.make_node("Identity", ["b"], ["each"]),
    ]
    graph = import_model(loop_graph(nodes, carried_shape=None))
    assert not isinstance(graph.outputs[0].type.dims[0], int)
    got = evaluate_graph(graph, {"x": X, "b": X})
    assert got["y"].shape == (8,)


def test_a_carried_value_that_changes_its_type_is_refused():
    nodes = [
        helper.make_node("Identity", ["go"], ["go2"]),
        helper.make_node("Cast", ["v"], ["v2"], to=TensorProto.DOUBLE),
        helper.make_node("Identity", ["b"], ["each"]),
    ]
    with pytest.raises(InvalidModel, match="carried value"):
        import_model(loop_graph(nodes, carried_shape=[2]))


def scan_model(lengths=(3, 3), **attributes):
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "a"], ["t"]), helper.make_node("Mul", ["t", "b"], ["o"])],
        "body",
        [helper.make_tensor_value_info(n, 1, None) for n in ("s", "a", "b")],
        [helper.make_tensor_value_info(n, 1, None) for n in ("t", "o")],
    )
    graph = helper.make_graph(
        [helper.make_node("Scan", ["x", "as", "bs"], ["y", "z"], body=body, num_scan_inputs=2, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", 1, [2]), helper.make_tensor_value_info("as", 1, [lengths[0], 2]),
         helper.make_tensor_value_info("bs", 1, [lengths[1], 2])],
        [helper.make_tensor_value_info("y", 1, None), helper.make_tensor_value_info("z", 1, None)],
    )  # fmt: skip
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])


def test_scan():
    graph = import_model(scan_model())
    verify(graph)
    assert [str(v.type) for v in graph.outputs] == ["f32[2]", "f32[3,2]"]
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    got = evaluate_graph(graph, {"x": X, "as": rows, "bs": rows})
    np.testing.assert_allclose(got["y"], X + rows.sum(0))
    np.testing.assert_allclose(got["z"], (X + rows.cumsum(0)) * rows)


@pytest.mark.parametrize(
    "source",
    [scan_model(lengths=(3, 4)), scan_model(scan_input_axes=[0, 5]), scan_model(scan_input_axes=[0])],
    ids=["lengths", "axis", "axes"],
)
def test_broken_scans(source):
    with pytest.raises(InvalidModel):
        import_model(source)


def test_names_of_branches_end_with_them(model):
    text = IF.replace("q = Sub(x, k)", "q = Sub(p, k)")
    with pytest.raises(InvalidModel, match="not defined"):
        import_model(branch_model(model, text))


def test_a_branch_cannot_read_what_comes_later(model):
    text = IF.replace("Sub(x, k)", "Sub(z, k)").replace("float[2] y) {", "float[2] z) {")[:-1] + " z = Relu(x) }"
    with pytest.raises(InvalidModel, match="not defined"):
        import_model(branch_model(model, text))


def nested(depth: int):
    def value(name, kind):
        return helper.make_tensor_value_info(name, kind, [])

    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["o0"])], "g0", [], [value("o0", 1)])
    for i in range(1, depth + 1):
        node = helper.make_node("If", ["c"], [f"o{i}"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], f"g{i}", [], [value(f"o{i}", 1)])
    graph.input.extend([value("c", 9), value("x", 1)])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])


def test_depth_is_limited():
    assert len(import_model(nested(4))) == 1
    with pytest.raises(ResourceLimit, match="deeply"):
        import_model(nested(5), limits=Limits(graph_depth=4))
