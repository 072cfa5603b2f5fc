"""Sequences and optionals of known length: before → after as text, results as ONNX Runtime's, and what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import parax
from parax.compiler.frontend.evaluate import evaluate_graph
from parax.compiler.frontend.importer import import_model
from parax.compiler.frontend.limits import Limits
from parax.compiler.ir.text import graph_data, parse_graph, print_graph
from parax.compiler.ir.verify import verify
from parax.errors import InvalidModel, ResourceLimit

RNG = np.random.default_rng(7)
X = RNG.standard_normal((6, 2)).astype(np.float32)
Y = RNG.standard_normal((6, 2)).astype(np.float32)
G = "g (float[6,2] x, float[6,2] y, int64 i, bool c) => (float[M,K] z)"


def body_text(graph) -> str:
    """The nodes as text, without constants and what surrounds them."""
    verify(graph)
    return "\n".join(line.strip() for line in print_graph(graph).splitlines()[1:-1] if "const" not in line)


CASES = {
    "construct, at": (
        "s = SequenceConstruct(x, y)  k = Constant<value_int = -1>()  z = SequenceAt(s, k)",
        'return %y as "z"',
    ),
    "empty, insert, erase": (
        """e = SequenceEmpty()  k = Constant<value_int = 0>()  s = SequenceInsert(e, x)  t = SequenceInsert(s, y, k)
           u = SequenceErase(t)  v = SequenceAt(u, k)  z = Relu(v)""",
        "%z = Relu(%y) : f32[6,2]\nreturn %z",
    ),
    "split, at": (
        "k = Constant<value_int = 1>()  n = Constant<value_ints = [1, 2, 3]>()  s = SplitToSequence(x, n)"
        "  z = SequenceAt(s, k)",
        None,
    ),
    "split by one size": (
        "k = Constant<value_int = 1>()  n = Constant<value_int = 4>()  s = SplitToSequence(x, n)  z = SequenceAt(s, k)",
        None,
    ),
    "split by i32": (
        "m = Constant<value_int = 4>()  n = Cast<to = 6>(m)  s = SplitToSequence(x, n)  z = SequenceAt(s, n0)",
        None,
    ),
    "split into ones": ("s = SplitToSequence<axis = -1>(x)  z = SequenceAt(s, n0)", None),
    "unbind, stack": (
        "s = SplitToSequence<axis = 0, keepdims = 0>(x)  z = ConcatFromSequence<axis = -1, new_axis = 1>(s)",
        None,
    ),
    "unbind, concat": ("s = SplitToSequence<axis = 1>(x)  z = ConcatFromSequence<axis = -2>(s)", None),
    "length": ("s = SplitToSequence(x)  n = SequenceLength(s)  f = Cast<to = 1>(n)  z = Mul(x, f)", None),
    "position of the run": ("s = SequenceConstruct(x, y, x)  z = SequenceAt(s, i)", None),
    "identity": ("s = SequenceConstruct(x, y)  t = Identity(s)  z = ConcatFromSequence<axis = 1>(t)", None),
    "map": (
        """s = SequenceConstruct(x, y)
           t, u = SequenceMap<body = b (float[6,2] p, float[6,2] q) => (float[6,2] r, float[6,2] w) {
               r = Sub(p, q)  w = Mul(r, y) }>(s, x)
           v = ConcatFromSequence<axis = 0>(t)  w = ConcatFromSequence<axis = 0>(u)  z = Add(v, w)""",
        None,
    ),
    "map of two": (
        """s = SequenceConstruct(x, y)  t = SequenceConstruct(y, y)
           u = SequenceMap<body = b (float[6,2] p, float[6,2] q) => (float[6,2] r) { r = Add(p, q) }>(s, t)
           z = ConcatFromSequence<axis = 0>(u)""",
        None,
    ),
    "optional": (
        "o = Optional(x)  h = OptionalHasElement(o)  f = Cast<to = 1>(h)  e = OptionalGetElement(o)  z = Add(e, f)",
        None,
    ),
    "optional of a sequence": (
        "s = SequenceConstruct(x, y)  o = Optional(s)  e = OptionalGetElement(o)  z = SequenceAt(e, n0)",
        'return %x as "z"',
    ),
    "what a branch reads": (
        """s = SequenceConstruct(x, y)
           z = If (c) < then_branch = a () => (float[6,2] p) { p = SequenceAt(s, n0) },
                        else_branch = b () => (float[12,2] q) { q = ConcatFromSequence<axis = 0>(s) } >""",
        None,
    ),
    "what branches give": (
        """s = If (c) < then_branch = a () => (seq(float[6,2]) p) { p = SequenceConstruct(x, y) },
                        else_branch = b () => (seq(float[6,2]) q) { w = Neg(x)  q = SequenceConstruct(y, w) } >
           z = ConcatFromSequence<axis = 1>(s)""",
        None,
    ),
    "a list of one length in a loop": (
        """s = SequenceConstruct(x, y)
           t, u, sc = Loop (n3, yes, s, x) < body = b (int64 n, bool go, seq(float[6,2]) l, float[6,2] a) =>
                   (bool on, seq(float[6,2]) m, float[6,2] d, float[6,2] sc) {
               on = Identity(go)  f = SequenceAt(l, n0)  g = SequenceAt(l, n1)  d = Add(f, g)
               m = SequenceConstruct(g, d)  sc = Identity(d) } >
           z = ConcatFromSequence<axis = 0>(t)""",
        None,
    ),
    "a list that a loop fills": (
        """s = SequenceEmpty()
           t, sc = Loop (n3, , s) < body = b (int64 n, bool go, seq(float[6,2]) l) =>
                   (bool on, seq(float[6,2]) m, float[6,2] d) {
               on = Identity(go)  k = Cast<to = 1>(n)  d = Mul(x, k)  m = SequenceInsert(l, d) } >
           v = ConcatFromSequence<axis = 0>(t)  o = ReduceSum<keepdims = 0>(sc, a0)  w = ConcatFromSequence<axis = 1>(t)
           r = Concat<axis = 0>(v, o)  z = Identity(r)""",
        None,
    ),
    "a list that a loop empties until it says so": (
        """s = SplitToSequence(x)
           t = Loop (, yes, s) < body = b (int64 n, bool go, seq(float[1,2]) l) => (bool on, seq(float[1,2]) m) {
               m = SequenceErase(l)  k = SequenceLength(m)  on = Greater(k, n3) } >
           z = ConcatFromSequence<axis = 0>(t)""",
        None,
    ),
}  # fmt: skip
NUMBERS = {"n0": np.int64(0), "n1": np.int64(1), "n3": np.int64(3), "a0": np.array([0]), "yes": np.bool_(True)}


def source(model, nodes: str, head: str = G, **options) -> onnx.ModelProto:
    made = model(f"{head} {{ {nodes} }}", **options)
    for name, value in NUMBERS.items():
        if name in nodes:
            made.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    return made


def reference(made: onnx.ModelProto, feeds) -> np.ndarray:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    taken = {value.name for value in session.get_inputs()}
    return session.run(None, {name: array for name, array in feeds.items() if name in taken})[0]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("i, c", [(0, True), (-1, False)])
def test_results_are_onnx_runtimes(model, name, i, c):
    made = source(model, CASES[name][0])
    feeds = {"x": X, "y": Y, "i": np.array(i), "c": np.array(c)}
    wanted = reference(made, feeds)
    np.testing.assert_allclose(evaluate_graph(import_model(made), feeds)["z"], wanted, rtol=1e-6)
    with parax.compile(made).session() as session:
        np.testing.assert_allclose(session.run(feeds)["z"], wanted, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name, (_, after) in CASES.items() if after])
def test_nothing_is_left_of_them(model, name):
    nodes, after = CASES[name]
    assert body_text(import_model(source(model, nodes))) == after


def test_unbind_and_stack_as_torch_writes_them(model):
    nodes = "s = SplitToSequence<axis = 1, keepdims = 0>(x)  z = ConcatFromSequence<axis = 0, new_axis = 1>(s)"
    graph = import_model(source(model, nodes))
    assert [node.op.name for node in graph] == ["Split", "Squeeze", "Squeeze", "Unsqueeze", "Unsqueeze", "Concat"]
    manifest = parax.compile(source(model, nodes)).manifest
    assert len(manifest.steps) == len(manifest.native_steps()) == 1


def test_keepdims_counts_only_without_sizes(model):
    """So ONNX has it; ONNX Runtime drops the axis of pieces of one element each, too."""
    made = source(model, "s = SplitToSequence<axis = 1, keepdims = 0>(x, n1)  z = SequenceAt(s, n1)")
    np.testing.assert_array_equal(evaluate_graph(import_model(made), {"x": X})["z"], X[:, 1:])


@pytest.mark.parametrize(("size", "each", "sizes"), [
    (9, 4, [4, 4, 1]), (3000, 1, [1] * 3000), (10, 4, [4, 4, 2]), (3, 5, [3]),
])  # fmt: skip
def test_sizes_of_pieces(model, size, each, sizes):
    nodes = "s = SplitToSequence(x, k)  z = ConcatFromSequence<axis = 0>(s)"
    made = source(model, nodes, f"g (float[{size}] x) => (float[M] z)")
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(each), "k"))
    split, _ = import_model(made)
    assert [value.tensor.dims for value in split.outputs] == [(n,) for n in sizes]


def test_an_open_axis_is_split_by_sizes(model):
    nodes = "n = Constant<value_ints = [1, 2]>()  s = SplitToSequence(x, n)  z = SequenceAt(s, n1)"
    made = source(model, nodes, "g (float[N,2] x) => (float[M,K] z)")
    got = evaluate_graph(import_model(made), {"x": X[:3]})["z"]
    np.testing.assert_array_equal(got, X[1:3])


def test_sizes_of_the_run(model):
    nodes = "s = SplitToSequence(x, n)  z = SequenceAt(s, n1)"
    made = source(model, nodes, "g (float[6,2] x, int64[2] n) => (float[M,K] z)")
    got = evaluate_graph(import_model(made), {"x": X, "n": np.array([2, 4])})["z"]
    np.testing.assert_array_equal(got, X[2:])


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT8, TensorProto.UINT64,
                                   TensorProto.BOOL, TensorProto.DOUBLE])  # fmt: skip
def test_of_any_element_type(dtype):
    nodes = [helper.make_node("SequenceEmpty", [], ["e"], dtype=dtype),
             helper.make_node("SequenceInsert", ["e", "x"], ["s"]),
             helper.make_node("SequenceInsert", ["s", "x"], ["t"]),
             helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0)]  # fmt: skip
    made = helper.make_model(helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", dtype, [3])],
                                               [helper.make_tensor_value_info("y", dtype, [6])]),
                             opset_imports=[helper.make_opsetid("", 18)], ir_version=8)  # fmt: skip
    x = np.array([1, 0, 3]).astype(helper.tensor_dtype_to_np_dtype(dtype))
    with parax.compile(made).session() as session:
        np.testing.assert_array_equal(session.run({"x": x})["y"], np.concatenate([x, x]))


BAD = {
    "position": ("s = SequenceConstruct(x)  z = SequenceAt(s, n1)", "outside of the sequence"),
    "position of insert": ("s = SequenceConstruct(x)  t = SequenceInsert(s, y, n3)  z = SequenceAt(t, n0)", "outside"),
    "position of erase": ("s = SequenceEmpty()  t = SequenceErase(s)  z = SequenceAt(t, n0)", "outside"),
    "position's type": ("s = SequenceConstruct(x)  z = SequenceAt(s, x)", "one integer"),
    "element type": ("s = SequenceConstruct(x, i)  z = SequenceAt(s, n0)", "one element type"),
    "inserted type": (
        "s = SequenceEmpty<dtype = 7>()  t = SequenceInsert(s, x)  z = SequenceAt(t, n0)", "one element type"),
    "no sequence": ("z = SequenceAt(x, n0)", "must be a sequence"),
    "no tensor": ("s = SequenceConstruct(x)  z = Relu(s)", "a tensor is needed"),
    "a sequence in a sequence": ("s = SequenceConstruct(x)  t = SequenceConstruct(s)  z = SequenceAt(t, n0)", "tensor"),
    "axis": ("s = SplitToSequence<axis = 2>(x)  z = SequenceAt(s, n0)", "axis out of range"),
    "keepdims": ("s = SplitToSequence<keepdims = 2>(x)  z = SequenceAt(s, n0)", "0 or 1"),
    "sizes": ("n = Constant<value_ints = [1, 2]>()  s = SplitToSequence(x, n)  z = SequenceAt(s, n0)", "add up"),
    "size": ("s = SplitToSequence(x, n0)  z = SequenceAt(s, n0)", "positive"),
    "new_axis": ("s = SequenceConstruct(x)  z = ConcatFromSequence<axis = 0, new_axis = 3>(s)", "0 or 1"),
    "joined axis": ("s = SequenceConstruct(x)  z = ConcatFromSequence<axis = 2>(s)", "axis"),
    "nothing joined": ("s = SequenceEmpty()  z = ConcatFromSequence<axis = 0>(s)", "empty"),
    "lengths": (
        "s = SequenceConstruct(x)  t = SequenceConstruct(x, y)"
        "  u = SequenceMap<body = b (float[6,2] p, float[6,2] q) => (float[6,2] r) { r = Add(p, q) }>(s, t)"
        "  z = SequenceAt(u, n0)", "different lengths"),
    "inputs of a body": (
        "s = SequenceConstruct(x)  u = SequenceMap<body = b (float[6,2] p, float[6,2] q) => (float[6,2] r)"
        " { r = Add(p, q) }>(s)  z = SequenceAt(u, n0)", "number of inputs"),
    "no element": ("o = Optional<type: type_proto = float[6,2]>()  z = OptionalGetElement(o)", "no element"),
    "no type": ("o = Optional()  z = OptionalGetElement(o)", "attribute type"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_says_where_and_why(model, name):
    nodes, message = BAD[name]
    with pytest.raises(InvalidModel, match=message):
        import_model(source(model, nodes))


HOST = {
    "a sequence of the run": ("z = SequenceAt(s, n0)", "g (seq(float[6,2]) s) => (float[M,K] z)", "SequenceAt"),
    "pieces of the run": (
        "s = SplitToSequence(x)  z = SequenceAt(s, n0)", "g (float[N,2] x) => (float[M,K] z)", "SplitToSequence"),
    "branches": (
        "s = If (c) < then_branch = a () => (seq(float[6,2]) p) { p = SequenceConstruct(x, y) },"
        " else_branch = b () => (seq(float[6,2]) q) { q = SequenceConstruct(y) } >  z = SequenceAt(s, n0)",
        G, "SequenceConstruct"),
    "trips of the run": (
        "s = SequenceEmpty()  t = Loop (i, , s) < body = b (int64 n, bool go, seq(float[6,2]) l) =>"
        " (bool on, seq(float[6,2]) m) { on = Identity(go)  m = SequenceInsert(l, x) } >"
        "  z = ConcatFromSequence<axis = 0>(t)", G, "SequenceInsert"),
    "an end of the run": (
        "s = SequenceEmpty()  t = Loop (n3, , s) < body = b (int64 n, bool go, seq(float[6,2]) l) =>"
        " (bool on, seq(float[6,2]) m) { on = Less(n, i)  m = SequenceInsert(l, x) } >"
        "  z = ConcatFromSequence<axis = 0>(t)", G, "SequenceInsert"),
    "an output": ("z = SequenceConstruct(x)", "g (float[6,2] x) => (seq(float[6,2]) z)", "SequenceConstruct"),
    "different shapes": (
        "k = Constant<value_int = 4>()  s = SplitToSequence(x, k)  z = SequenceAt(s, i)", G, "SequenceAt"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOST)
def test_what_only_a_run_knows_is_left_to_the_host(model, name):
    nodes, head, operator = HOST[name]
    graph = import_model(source(model, nodes, head))
    text = body_text(graph)
    assert f"{operator}(" in text
    assert print_graph(parse_graph(print_graph(graph), graph_data(graph))) == print_graph(graph)


def test_what_is_in_them_is_bounded(model):
    nodes = "s = SplitToSequence(x)  t = SequenceInsert(s, x)  u = SequenceInsert(t, x)  z = SequenceAt(u, n0)"
    with pytest.raises(ResourceLimit, match="too long"):
        import_model(source(model, nodes), limits=Limits(sequence_elements=20))
    endless = """s = SequenceEmpty()
        t = Loop (, , s) < body = b (int64 n, bool go, seq(float[6,2]) l) => (bool on, seq(float[6,2]) m) {
            on = Identity(go)  m = SequenceInsert(l, x) } >
        z = ConcatFromSequence<axis = 0>(t)"""
    with pytest.raises(ResourceLimit, match="expand to too much"):
        import_model(source(model, endless), limits=Limits(calls=30))
