"""ONNX to IR on small models: names, symbols, constants, order, and the errors for broken graphs."""

from __future__ import annotations

import textwrap

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from parax.compiler.frontend.importer import import_model
from parax.compiler.frontend.limits import Limits
from parax.compiler.ir.text import print_graph
from parax.compiler.ir.types import SymDim
from parax.compiler.ir.verify import verify
from parax.errors import InvalidModel, ResourceLimit, UnsupportedOp, UsageError


def text_of(model: onnx.ModelProto, **options) -> str:
    graph = import_model(model, **options)
    verify(graph)
    return print_graph(graph)


def expect(model: onnx.ModelProto, golden: str, **options) -> None:
    assert text_of(model, **options).strip() == textwrap.dedent(golden).strip()


def test_a_small_network(model):
    expect(
        model("""net (float[batch,4] x) => (float[batch,2] y)
                 <float[4,2] w = {1,2,3,4,5,6,7,8}, float[2] b = {0,1}>
                 { h = MatMul(x, w)  s = Add(h, b)  y = Relu(s) }"""),
        """
        graph @net(%x: f32[batch,4]) {
          %w = const f32[4,2] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
          %b = const f32[2] [0.0, 1.0]
          %h = MatMul(%x, %w) : f32[batch,2]
          %s = Add(%h, %b) : f32[batch,2]
          %y = Relu(%s) : f32[batch,2]
          return %y
        }
        """,
    )


def test_old_forms_become_new_ones(model):
    expect(
        model("g (float[N,1,3] x) => (float[N,3] y) { s = Squeeze<axes=[1]>(x)  y = Softmax(s) }", opset=11),
        """
        graph @g(%x: f32[N,1,3]) {
          %1 = const i64[1] [1]
          %s = Squeeze(%x, %1) : f32[N,3]
          %y = Softmax(%s) {axis=1} : f32[N,3]
          return %y
        }
        """,
    )


def test_symbols_are_named_after_dim_params_or_inputs():
    def value(name, shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        [helper.make_node("Identity", ["a b"], ["y"])],
        "g",
        [value("a b", ["batch size", None, "batch_size", "max"]), value("c", [-1, 2])],
        [value("y", None)],
    )
    imported = import_model(helper.make_model(graph))
    assert [str(v.type) for v in imported.inputs] == ["f32[batch_size,a_b_1,batch_size_1,max_]", "f32[c_0,2]"]


@pytest.mark.parametrize("key", ["batch size", "batch_size"])
def test_a_size_replaces_a_symbol(key):
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch size", 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [info],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])  # fmt: skip
    imported = import_model(helper.make_model(graph), dims={key: 8})
    assert str(imported.outputs[0].type) == "f32[8,3]"


def test_a_shape_replaces_the_declared_one(model):
    source = model("g (float[a,b] x) => (float[a,b] y) { y = Relu(x) }")
    imported = import_model(source, shapes={"x": (2, "n")})
    assert str(imported.outputs[0].type) == "f32[2,n]"
    for wrong in ({"z": (1,)}, {"x": (1, 2, 3)}):
        with pytest.raises(UsageError):
            import_model(source, shapes=wrong)
    with pytest.raises(UsageError):
        import_model(source, dims={"c": 1})


def test_initialisers_that_are_also_inputs_are_constants(model):
    source = model("g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1,2}> { y = Add(x, w) }", ir_version=8)
    if not any(t.name == "w" for t in source.graph.input):
        source.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    assert [v.name for v in import_model(source).inputs] == ["x"]


def test_outputs_may_be_inputs_constants_or_named_twice(model):
    source = model("g (float[2] x) => (float[2] x, float[2] w, float[2] y) <float[2] w = {1,2}> { y = Identity(x) }")
    imported = import_model(source)
    assert imported.output_names == ["x", "w", "y"]
    assert imported.outputs[0] is imported.inputs[0]
    assert imported.outputs[1].data is not None


CONSTANTS = {
    "value_float": (1.5, np.float32),
    "value_floats": ([1.5, 2.5], np.float32),
    "value_int": (7, np.int64),
    "value_ints": ([7, 8], np.int64),
    "value_string": ("a", object),
    "value_strings": (["a", "b"], object),
    "value": (numpy_helper.from_array(np.arange(3, dtype=np.int8)), np.int8),
}


@pytest.mark.parametrize("attribute", CONSTANTS)
def test_constant_nodes(attribute):
    given, dtype = CONSTANTS[attribute]
    graph = helper.make_graph([helper.make_node("Constant", [], ["y"], **{attribute: given})], "g", [],
                              [onnx.ValueInfoProto(name="y")])  # fmt: skip
    data = import_model(helper.make_model(graph)).outputs[0].data
    expected = np.arange(3, dtype=np.int8) if attribute == "value" else np.array(given, dtype)
    np.testing.assert_array_equal(data, expected)
    assert data.dtype == dtype


def test_sparse_initialisers_become_dense():
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("s", TensorProto.FLOAT, [2], [3.0, 4.0]),
        helper.make_tensor("i", TensorProto.INT64, [2, 2], [0, 1, 1, 0]),
        [2, 2],
    )
    graph = helper.make_graph([helper.make_node("Identity", ["s"], ["y"])], "g", [], [onnx.ValueInfoProto(name="y")],
                              sparse_initializer=[sparse])  # fmt: skip
    np.testing.assert_array_equal(import_model(helper.make_model(graph)).outputs[0].data, [[0, 3], [4, 0]])


def test_small_constant_results_are_computed(model):
    imported = import_model(
        model("""g (float[2,3] x) => (float[6] y) <float[1] f = {-1.0}>
                 { i = Cast<to=7>(f)  y = Reshape(x, i) }""")
    )
    assert len(imported) == 1
    assert str(imported.outputs[0].type) == "f32[6]"


def test_nodes_out_of_order_are_sorted(model):
    source = model("g (float[2] x) => (float[2] y) { a = Relu(x)  y = Tanh(a) }")
    nodes = list(source.graph.node)
    del source.graph.node[:]
    source.graph.node.extend(reversed(nodes))
    assert [n.op.name for n in import_model(source)] == ["Relu", "Tanh"]


BROKEN = {
    "cycle": ("{ a = Relu(y)  y = Relu(a) }", "cycle"),
    "undefined": ("{ y = Relu(z) }", "not defined"),
    "twice": ("{ y = Relu(x)  y = Tanh(x) }", "twice"),
    "shadows the input": ("{ x = Relu(x)  y = Relu(x) }", "cycle|twice"),
    "output missing": ("{ z = Relu(x) }", "not defined"),
    "unknown attribute": ("{ y = Relu<slope=1.0>(x) }", "unknown attribute"),
    "attribute type": ("{ y = Softmax<axis=1.5>(x) }", "wrong type"),
    "required attribute": ("{ y = Concat(x, x) }", "required attribute axis"),
    "too many outputs": ("{ y, z = Relu(x) }", "number of outputs"),
    "too many inputs": ("{ y = Relu(x, x) }", "number of inputs"),
    "newer operator": ("{ y = Gelu(x) }", "not in this operator set"),
    "output type": ("{ y = Cast<to=7>(x) }", "another type than declared"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_graphs(case, model):
    body, message = BROKEN[case]
    with pytest.raises(InvalidModel, match=message):
        import_model(model(f"g (float[2] x) => (float[2] y) {body}"))


def test_everything_unsupported_is_listed_at_once(model):
    body = "{ a = my.Foo(x)  b = my.Foo(a)  c = Relu(b)  d = my.Bar(c)  y = Add(a, d) }"
    with pytest.raises(UnsupportedOp) as caught:
        import_model(model(f"g (float[2] x) => (float[2] y) {body}", extra=', "my": 3'))
    assert "my::Foo-3 × 2" in str(caught.value)
    assert "my::Bar-3 × 1" in str(caught.value)


def test_a_domain_must_be_imported(model):
    with pytest.raises(UnsupportedOp, match="not imported"):
        import_model(model("g (float[2] x) => (float[2] y) { y = my.Foo(x) }"))


@pytest.mark.parametrize(("opset", "error"), [(0, InvalidModel), (-5, InvalidModel), (10_000, UnsupportedOp)])
def test_operator_set_versions(opset, error, model):
    source = model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    source.opset_import[0].version = opset
    with pytest.raises(error):
        import_model(source)


@pytest.mark.parametrize("version", [0, -1, 9999])
def test_ir_versions(version, model):
    source = model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    source.ir_version = version
    with pytest.raises(InvalidModel, match=r"ir_version|format"):
        import_model(source)


def test_limits(model):
    source = model("g (float[2] x) => (float[2] y) { a = Relu(x)  y = Relu(a) }")
    with pytest.raises(ResourceLimit, match="nodes"):
        import_model(source, limits=Limits(nodes=1))
    with pytest.raises(ResourceLimit, match="too large"):
        import_model(source, limits=Limits(tensor_nbytes=4))
    with pytest.raises(ResourceLimit, match="axes"):
        import_model(source, limits=Limits(rank=0))
    with pytest.raises(ResourceLimit, match="too large"):
        import_model(source.SerializeToString(), limits=Limits(file_nbytes=10))
    with pytest.raises(ResourceLimit, match="too large"):
        import_model(model("g (float[1048576,1048576] x) => (float[N] y) { y = Relu(x) }"))


@pytest.mark.parametrize("nodes", [
    "s = Constant<value_ints=[0, 4611686018427387904]>()  y = Expand(x, s)",
    "s = Constant<value_ints=[0, 4611686018427387904]>()  y = ConstantOfShape(s)",
    "s = Constant<value_ints=[0, 4611686018427387904]>()  e = Constant<value_ints=[0]>()  z = ConstantOfShape(e)"
    "y = Reshape<allowzero=1>(z, s)",
])  # fmt: skip
def test_tensors_without_elements_may_be_too_large(nodes, model):
    with pytest.raises(ResourceLimit, match="too large"):
        import_model(model(f"g (float[1,1] x) => (float[N,M] y) {{ {nodes} }}"))
    with pytest.raises(ResourceLimit, match="too large"):
        import_model(model("g (float[0,4611686018427387904] x) => (float[N,M] y) { y = Relu(x) }"))


def test_ranges_beyond_all_numbers_are_too_large(model):
    with pytest.raises(ResourceLimit, match="too large"):
        import_model(model("""g (double[1] x) => (double[N] y) <double a = {0}, double b = {1e300}, double c = {1e-300}>
                              { r = Range(a, b, c)  y = Add(r, x) }"""))


def test_files(tmp_path, model):
    path = tmp_path / "m.onnx"
    path.write_bytes(model("g (float[2] x) => (float[2] y) { y = Relu(x) }").SerializeToString())
    for source in (path, str(path), path.read_bytes()):
        assert len(import_model(source)) == 1
    for missing in (tmp_path / "none.onnx", tmp_path, "\0"):
        with pytest.raises(UsageError):
            import_model(missing)


def test_a_chain_of_20000_nodes_and_a_sum_of_5000_inputs():
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    chain = [helper.make_node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(20_000)]
    chain.append(helper.make_node("Concat", ["x"] * 10_000, ["z"], axis=0))
    chain.append(helper.make_node("Add", ["v20000", "x"], ["y"]))
    imported = import_model(helper.make_model(helper.make_graph(chain, "g", info[:1], info[1:])))
    assert len(imported) == 20_002
    assert all(not isinstance(d, SymDim) for v in imported.outputs for d in v.type.shape)
