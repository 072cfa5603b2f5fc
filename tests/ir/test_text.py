"""The text form: what it looks like, that it reads back to the same graph, and that malformed text is refused."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.literals import attribute_text, parse_attribute
from parax.compiler.ir.ops.attributes import MISSING, AttrSpec, attribute_key, canonical
from parax.compiler.ir.ops.base import Fused, lookup
from parax.compiler.ir.text import graph_data, parse_graph, print_graph
from parax.compiler.ir.types import DType, TensorType, parse_type
from parax.compiler.ir.verify import verify
from parax.errors import InvalidModel, ParaxError, ResourceLimit, UnsupportedOp

BLOCK = """\
graph @block(%x: f32[N,64,56,56], %"a b": f32[M,64,56,56]) {
  assume N == M  # Add "sum": shapes do not broadcast
  %w = const f32[64,64,3,3] "w"
  %axes = const i64[2] [2, 3]
  %scale = const f32[] 0.1
  %1 = Conv(%x, %w) {pads=[1,1,1,1]} : f32[N,64,56,56]  # layer1.0.conv1
  %2 = fused<conv>(%1, %"a b") : f32[N,64,56,56]  # a # b "c"
    body(%x: f32[N,64,56,56], %y: f32[M,64,56,56]) {
      assume N == M
      %1 = Add(%x, %y) : f32[N,64,56,56]
      return %1
    }
  %3 = parax::Relayout(%2) {layout=[0,2,3,1]} : f32[N,64,56,56]{0,2,3,1}
  %4 = HardSigmoid(%3) {alpha=0.3} : f32[N,64,56,56]{0,2,3,1}
  %5 = Clip(%2, _, %scale) : f32[N,64,56,56]
  return %4, %5 as "the output"
}
"""


def round_trip(graph: Graph) -> Graph:
    text = print_graph(graph)
    back = parse_graph(text, graph_data(graph))
    assert print_graph(back) == text
    verify(back)
    return back


def test_the_text_reads_back_to_the_same_text() -> None:
    graph = parse_graph(BLOCK)
    assert print_graph(graph) == BLOCK
    verify(graph)
    back = round_trip(graph)
    assert back.output_names == ["4", "the output"]
    assert back.nodes_in_order()[0].name == "layer1.0.conv1"
    assert back.nodes_in_order()[1].name == 'a # b "c"'
    assert len(back.constraints) == 1


def test_types_may_be_left_out() -> None:
    short = "graph @g(%x: f32[N,3]) {\n# remark\n\n%1 = Relu(%x)  # name\n%2 = Add(%1, %x)\nreturn %2\n}"
    assert "%2 = Add(%1, %x) : f32[N,3]\n" in print_graph(parse_graph(short))


def test_constants_given_by_key_come_from_the_data_or_a_seed() -> None:
    text = 'graph @g() {\n  %w = const f32[5,5] "key"\n  return %w\n}\n'
    array = np.arange(25, dtype=np.float32).reshape(5, 5)
    assert (parse_graph(text, {"key": array}).value("w").data == array).all()
    seeded = parse_graph(text).value("w").data
    assert (parse_graph(text).value("w").data == seeded).all()
    with pytest.raises(InvalidModel, match="no data"):
        parse_graph(text, {})
    with pytest.raises(InvalidModel, match="another shape"):
        parse_graph(text, {"key": np.zeros(3, np.float32)})


def test_large_constants_in_bodies_have_keys_of_their_own() -> None:
    body = Graph("body")
    y = body.add_input("x", parse_type("f32[20]"))
    b = GraphBuilder(body)
    body.set_outputs([b.Add(y, b.const(np.arange(20, dtype=np.float32), name="w"))])
    graph = Graph("g")
    x = graph.add_input("x", parse_type("f32[20]"))
    g = GraphBuilder(graph)
    w = g.const(np.ones(20, np.float32), name="w")
    fused = g.add(Fused(kind="add chain"), [g.Add(x, w)], bodies={"body": body}, n_outputs=1)
    graph.set_outputs([fused])
    assert sorted(graph_data(graph)) == ["2.body.w", "w"]
    back = round_trip(graph)
    assert (back.last.body.value("w").data == np.arange(20)).all()


ALL = ["f32", "f64", "f16", "bf16", "i8", "i64", "u8", "u64", "bool", "c64", "i4", "f8e5m2", "str"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 2)])
def test_small_constants_keep_every_bit(name: str, shape: tuple[int, ...]) -> None:
    dtype = DType.from_name(name)
    if dtype.numpy is None:
        pytest.skip("ml_dtypes is not installed")
    rng = np.random.default_rng(1)
    if name == "str":
        array = np.full(shape, 'a "q", # \n é', object)
    elif dtype.is_float or dtype.kind == "c":
        array = rng.standard_normal(shape).astype(dtype.numpy)
    else:
        array = rng.integers(0, 2, shape).astype(dtype.numpy)
    graph = Graph("g")
    graph.set_outputs([graph.add_constant(array, "c")])
    data = round_trip(graph).value("c").data
    assert data is not None and data.dtype == array.dtype and data.shape == shape
    assert data.tolist() == array.tolist()


def test_special_floats() -> None:
    graph = Graph("g")
    array = np.array([np.inf, -np.inf, np.nan, -0.0, 1e-45, 3.4e38], np.float32)
    graph.set_outputs([graph.add_constant(array, "c")])
    assert round_trip(graph).value("c").data.tobytes() == array.tobytes()


f32s = st.floats(width=32)
ATTRIBUTES = st.one_of(
    st.tuples(st.just("int"), st.integers(-(2**63), 2**63)),
    st.tuples(st.just("float"), f32s),
    st.tuples(st.just("str"), st.text()),
    st.tuples(st.just("ints"), st.lists(st.integers())),
    st.tuples(st.just("floats"), st.lists(f32s)),
    st.tuples(st.just("strs"), st.lists(st.text())),
    st.tuples(st.just("dtype"), st.sampled_from([DType.from_code(c) for c in range(1, 29)])),
    st.tuples(st.just("tensor"), st.lists(st.integers(-9, 9), max_size=40).map(lambda v: np.array(v, np.int64))),
    st.tuples(st.just("tensor"), st.lists(st.text(), max_size=20).map(lambda v: np.array(v, object))),
)


@settings(max_examples=300, deadline=None)
@given(ATTRIBUTES)
def test_attributes_round_trip(attribute: tuple[str, object]) -> None:
    kind, raw = attribute
    value = canonical(AttrSpec("a", kind, MISSING), raw)
    back = canonical(AttrSpec("a", kind, MISSING), parse_attribute(kind, attribute_text(kind, value)))
    assert attribute_key(kind, back) == attribute_key(kind, value)


UNARY = ["Relu", "Sigmoid", "Tanh", "Exp", "Identity", "LeakyRelu"]
BINARY = ["Add", "Sub", "Mul", "Div"]
names = st.one_of(st.none(), st.text(min_size=1, max_size=5))
steps = st.lists(
    st.tuples(st.sampled_from(UNARY + BINARY), st.integers(0, 99), st.integers(0, 99), names, st.text(max_size=5)),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_random_graphs_round_trip(plan: list[tuple[str, int, int, str | None, str]]) -> None:
    graph = Graph("random")
    graph.add_input("x", parse_type("f32[N,3]"))
    g = GraphBuilder(graph)
    g.const(np.array([0.5, 1.5, 2.5], np.float32))
    for op_name, i, j, name, node_name in plan:
        values = graph.values()
        operands = [values[i % len(values)], values[j % len(values)]][: 2 if op_name in BINARY else 1]
        GraphBuilder(graph, name=node_name).add(lookup("", op_name)(), operands, names=[name])
    graph.set_outputs([graph.values()[-1]])
    round_trip(graph)
    assert print_graph(graph.clone()) == print_graph(graph)


HEAD = "graph @g(%x: f32[2]) {\n"
MALFORMED = [
    "",
    "graph",
    "graph @g(",
    "graph @g() {",
    "graph @g() {\n}\nmore",
    "graph @g(%x) {\n}",
    "graph @g(%x: f32[2], %x: f32[2]) {\n}",
    HEAD + "%1 = Relu(%y)\n}",
    HEAD + "%1 = Relu(%x\n}",
    HEAD + "%1 = Relu(%x) : f32[3], f32[3]\n}",
    HEAD + "%1 = Relu(%x) f32[2]\n}",
    HEAD + "%x = Relu(%x)\n}",
    HEAD + "%1, %1 = Relu(%x)\n}",
    HEAD + "%1 = Relu(%x, %x)\n}",
    HEAD + "%1 = LeakyRelu(%x) {alpha=x}\n}",
    HEAD + "%1 = LeakyRelu(%x) {beta=1}\n}",
    HEAD + "%1 = LeakyRelu(%x) {alpha=1\n}",
    HEAD + "%1 = const f32[2] [1]\n}",
    HEAD + "%1 = const f32[2] [1, x]\n}",
    HEAD + "%1 = const i8[1] [1000]\n}",
    HEAD + "%1 = const u4[1] [16]\n}",
    HEAD + "%1 = const i4[2] [-8, -9]\n}",
    HEAD + "%1 = const f32[N] [1]\n}",
    HEAD + '%1 = const f32[2] "\n}',
    HEAD + "%1 = const\n}",
    HEAD + "return %1\n}",
    HEAD + "nonsense\n}",
    HEAD + "assume N\n}",
    HEAD + "%1 = fused<a>(%x) : f32[2]\n}",
    HEAD + "%1 = Relu(%x)\n  body() {\n  }\n}",
    HEAD + "%1 = fused<a>(%x)\n" + "body(%x: f32[2]) {\n%1 = fused<a>(%x)\n" * 100,
]


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidModel):
        parse_graph(text)


def test_errors_name_the_line() -> None:
    with pytest.raises(InvalidModel, match="line 2: %y is not defined"):
        parse_graph(HEAD + "%1 = Relu(%y)\n}")
    with pytest.raises(UnsupportedOp, match=r"line 2: operator a\.b::Nope is not supported"):
        parse_graph(HEAD + "%1 = a.b::Nope(%x)\n}")


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(BLOCK) - 1), st.sampled_from(list('%"()[]{}<>:,=#@ x1_\n\\')))
def test_damaged_text_never_ends_in_another_error(position: int, replacement: str) -> None:
    text = BLOCK[:position] + replacement + BLOCK[position + 1 :]
    with contextlib.suppress(ParaxError):
        parse_graph(text)


def test_huge_constants_do_not_allocate() -> None:
    with pytest.raises(InvalidModel):
        parse_graph("graph @g() {\n%1 = const f32[1099511627776] [1]\n}")
    assert TensorType(DType.from_name("f32"), (1 << 40,)).numel == 1 << 40
    with pytest.raises(ResourceLimit):
        parse_graph('graph @g() {\n%1 = const f32[1099511627776] "w"\n}')
