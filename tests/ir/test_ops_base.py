"""Declaring operators: signatures, attributes, keys, checks of operands, known contents, composites, fresh symbols."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any as PyAny

import numpy as np
import pytest

from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.ir.inference import infer_types
from parax.compiler.ir.ops import CATALOGUE, lookup
from parax.compiler.ir.ops.base import (
    Any,
    Attr,
    Body,
    Composite,
    Elementwise,
    Float,
    Floats,
    Host,
    In,
    InferContext,
    Int64,
    Ints,
    Numeric,
    Numeric2,
    Opt,
    OptOut,
    Out,
    Variadic,
    op,
)
from parax.compiler.ir.ops.contraction import Conv
from parax.compiler.ir.ops.elementwise import Add, Cast, HardSigmoid, Relu
from parax.compiler.ir.text import parse_graph, print_graph
from parax.compiler.ir.types import F32, I64, DType, TensorType, Type, parse_type, symbol
from parax.compiler.ir.verify import verify
from parax.errors import InternalError, InvalidModel, UnsupportedOp


@op(domain="test")
class Everything(Host):
    """Declares one of each."""

    x: In[Float]
    b: Opt[Float]
    n: Opt[Int64]
    rest: Variadic[Any]
    y: Out
    indices: OptOut
    body: Body
    must: Attr[int]
    alpha: Attr[float] = 0.1
    mode: Attr[str] = "linear"
    pads: Attr[Ints | None] = None
    scales: Attr[Floats] = (1.0, 0.1)
    to: Attr[DType | None] = None
    value: Attr[np.ndarray | None] = None


@op(domain="test")
class Distance(Composite):
    """sqrt((a - b)^2)."""

    a: In[Float]
    b: In[Float]

    def expand(self, g: GraphBuilder, a: Value, b: Value) -> Value:
        difference = g.Sub(a, b)
        return g.Sqrt(g.Mul(difference, difference))


@op(domain="test")
class Twice(Composite):
    """2 x, of known content."""

    x: In[Numeric]

    def expand(self, g: GraphBuilder, x: Value) -> Value:
        return g.Mul(x, 2)


@op(domain="test")
class Found(Host):
    """An output whose size the data decide."""

    x: In[Any]

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        return [TensorType(I64, (ctx.rank(0), ctx.fresh("found")))]


@op(domain="test")
class Pair(Elementwise):
    """Two type variables over the same group."""

    a: In[Numeric]
    b: In[Numeric2]


# Out of the catalogue again: other tests walk all of it.
OWN = {key: CATALOGUE.pop(key) for key in list(CATALOGUE) if key[0] == "test"}


@pytest.fixture
def g() -> Iterator[GraphBuilder]:
    graph = Graph("g")
    graph.add_input("x", parse_type("f32[N,4]"))
    yield GraphBuilder(graph)
    verify(graph)


def test_the_signature_is_read_from_the_annotations() -> None:
    signature = Everything.signature
    assert [(i.name, i.kind, i.group) for i in signature.inputs] == [
        ("x", "in", Float), ("b", "opt", Float), ("n", "opt", Int64), ("rest", "variadic", Any),
    ]  # fmt: skip
    assert [(o.name, o.kind) for o in signature.outputs] == [("y", "out"), ("indices", "opt")]
    assert {a.name: a.kind for a in signature.attributes.values()} == {
        "must": "int", "alpha": "float", "mode": "str", "pads": "ints", "scales": "floats", "to": "dtype",
        "value": "tensor",
    }  # fmt: skip
    assert signature.bodies == ("body",)
    assert (signature.min_inputs, signature.max_inputs) == (4, None)
    assert (signature.min_outputs, signature.max_outputs) == (1, 2)
    assert [(o.name, o.kind) for o in Relu.signature.outputs] == [("y", "out")]


def test_attributes_are_canonical_and_immutable() -> None:
    o = Everything(must=3, alpha=1, pads=[1, 2], scales=np.array([0.1]), to=7, value=[1, 2])
    assert (o.must, o.alpha, o.mode, o.pads, o.to) == (3, 1.0, "linear", (1, 2), I64)
    assert o.scales == (float(np.float32(0.1)),)
    assert not o.value.flags.writeable
    with pytest.raises(AttributeError, match="immutable"):
        o.must = 4
    assert set(o.attributes()) == {"must", "alpha", "mode", "pads", "scales", "to", "value"}
    assert set(Everything(must=3, alpha=0.1).explicit_attributes()) == {"must"}


def test_equality_and_keys_go_by_class_and_values() -> None:
    a, b = Everything(must=1, value=np.array([1.0])), Everything(must=1, value=np.array([1.0]))
    assert a == b and hash(a) == hash(b) and a.key() == b.key()
    assert a != Everything(must=1, value=np.array([1.0], np.float32))
    assert HardSigmoid(alpha=0.0) != HardSigmoid(alpha=-0.0)
    assert HardSigmoid(alpha=float("nan")) == HardSigmoid(alpha=float("nan"))
    assert HardSigmoid() == HardSigmoid(alpha=np.float32(0.2)) == HardSigmoid(beta=0.5)
    assert Relu() == Relu() != Add()
    assert a.replace(must=2) == Everything(must=2, value=np.array([1.0]))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "required attribute must is missing"),
        ({"must": 1, "nope": 1}, "unknown attribute nope"),
        ({"must": 1.5}, "attribute must has the wrong type"),
        ({"must": None}, "attribute must has the wrong type"),
        ({"must": 1, "pads": 3}, "attribute pads has the wrong type"),
        ({"must": 1, "pads": [1.5]}, "attribute pads has the wrong type"),
        ({"must": 1, "mode": 3}, "attribute mode has the wrong type"),
        ({"must": 1, "alpha": "x"}, "attribute alpha has the wrong type"),
        ({"must": 1, "scales": ["x"]}, "attribute scales has the wrong type"),
    ],
)
def test_wrong_attributes_name_the_node(attributes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidModel, match=f'Everything "node7": {message}'):
        Everything.from_attributes(attributes, "node7")


def test_unknown_element_type_in_an_attribute() -> None:
    with pytest.raises(UnsupportedOp, match="unknown element type"):
        Cast(to=99)


def test_the_catalogue() -> None:
    assert lookup("", "Conv") is lookup("ai.onnx", "Conv") is Conv is CATALOGUE["", "Conv"]
    with pytest.raises(UnsupportedOp, match="operator my::Conv is not supported"):
        lookup("my", "Conv")
    assert all(cls.since >= 1 and cls.name == name for (_, name), cls in CATALOGUE.items())
    assert all(cls.__doc__ for cls in CATALOGUE.values())


def test_an_operator_cannot_be_defined_twice() -> None:
    with pytest.raises(InternalError, match="defined twice"):
        op()(type("Relu", (Elementwise,), {"__module__": "elsewhere"}))
    assert CATALOGUE["", "Relu"] is Relu


@pytest.mark.parametrize(
    ("inputs", "n_outputs", "message"),
    [
        (["f32[2]", "i64[2]"], 1, "inputs a and b must have the same element type; expected f32; found i64"),
        (["f32[2]", "f32[3]"], 1, "shapes do not broadcast"),
        (["bool[2]", "bool[2]"], 1, "input a has the wrong type"),
        (["f32[2]"], 1, "wrong number of inputs; expected 2; found 1"),
        (["f32[2]"] * 3, 1, "wrong number of inputs; expected 2; found 3"),
        (["f32[2]"] * 2, 2, "wrong number of outputs; expected 1; found 2"),
        ([None, "f32[2]"], 1, "required input a is missing"),
        (["f32[*]", "f32[2]"], 1, "rank of input 0 is unknown"),
        (["seq(f32[2])", "f32[2]"], 1, "input a has the wrong type"),
    ],
)
def test_operands_are_checked(inputs: list[str | None], n_outputs: int, message: str) -> None:
    graph = Graph("g")
    values = [None if t is None else graph.add_input(f"x{i}", parse_type(t)) for i, t in enumerate(inputs)]
    with pytest.raises((InvalidModel, UnsupportedOp), match=f'Add "sum": {message}'):
        graph.add_node(Add(), values, name="sum", n_outputs=n_outputs)
    assert len(graph) == 0 and not any(v.uses for v in values if v is not None)


def test_bodies_are_checked() -> None:
    graph = Graph("g")
    x = graph.add_input("x", parse_type("f32[2]"))
    with pytest.raises(InvalidModel, match="wrong bodies"):
        graph.add_node(Relu(), [x], bodies={"body": Graph()})


def test_type_variables_of_the_same_group_may_be_independent(g: GraphBuilder) -> None:
    x = g.graph.inputs[0]
    assert str(g.add(Pair(), [x, g.const([1, 2, 3, 4])]).type) == "f32[N,4]"


@pytest.mark.parametrize(
    ("a", "b", "out", "constraints"),
    [
        ("[N,4]", "[4]", "[N,4]", []),
        ("[1,4]", "[N,1]", "[N,4]", []),
        ("[N]", "[M]", "[N]", [("N", "M")]),
        ("[N]", "[5]", "[5]", [("N", "5")]),
        ("[5]", "[N]", "[5]", [("5", "N")]),
        ("[2*N]", "[N+N]", "[2*N]", []),
        ("[]", "[N,S+1]", "[N,S+1]", []),
        ("[0]", "[1]", "[0]", []),
    ],
)
def test_broadcasting_of_symbols(a: str, b: str, out: str, constraints: list[tuple[str, str]]) -> None:
    graph = Graph("g")
    x, y = graph.add_input("a", parse_type("f32" + a)), graph.add_input("b", parse_type("f32" + b))
    assert str(graph.add_node(Add(), [x, y]).output.type) == "f32" + out
    assert [(str(p), str(q)) for p, q in graph.constraints] == constraints


def test_dims_that_can_never_agree_fail_at_once() -> None:
    graph = Graph("g")
    x, y = graph.add_input("a", parse_type("f32[N+3]")), graph.add_input("b", parse_type("f32[2]"))
    with pytest.raises(InvalidModel, match="do not broadcast"):
        graph.add_node(Add(), [x, y])


def test_composites_take_types_from_their_expansion(g: GraphBuilder) -> None:
    graph, x = g.graph, g.graph.inputs[0]
    other = graph.add_input("other", parse_type("f32[M,4]"))
    y = g.add(Distance(), [x, other], name="d")
    assert str(y.type) == "f32[N,4]"
    assert len(graph) == 1 and len(graph.constraints) == 1
    with pytest.raises(InvalidModel, match="input b has the wrong type"):
        g.add(Distance(), [x, g.const([1])])
    doubled = g.add(Twice(), [g.Shape(x)])
    assert doubled.known.tolist() == [2 * symbol("N"), 8]


def test_sizes_that_the_data_decide_are_fresh_and_stable(g: GraphBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, ("test", "Found"), OWN["test", "Found"])
    x = g.graph.inputs[0]
    a, b = g.add(Found(), [x]), g.add(Found(), [x])
    assert a.type != b.type
    assert infer_types(a.producer) == [a.type]
    g.graph.rename(a, "renamed")
    verify(g.graph)
    assert print_graph(parse_graph(print_graph(g.graph))) == print_graph(g.graph)


def test_elementwise_keeps_the_layout_of_its_operands() -> None:
    graph = Graph("g")
    x = graph.add_input("x", parse_type("f32[N,3,4,5]{0,2,3,1}"))
    bias = graph.add_input("b", parse_type("f32[3,1,1]"))
    assert str(graph.add_node(Add(), [x, bias]).output.type) == "f32[N,3,4,5]{0,2,3,1}"


def test_relayout(g: GraphBuilder) -> None:
    y = g.Relayout(g.graph.inputs[0], layout=[1, 0])
    assert str(y.type) == "f32[N,4]{1,0}"
    assert str(g.Relayout(y).type) == "f32[N,4]"


def known(build: PyAny) -> list[str] | None:
    graph = Graph("g")
    x = graph.add_input("x", parse_type("f32[N,3,S]"))
    value = build(GraphBuilder(graph), x)
    return None if value.known is None else [str(d) for d in value.known.ravel()]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda g, x: g.Shape(x), ["N", "3", "S"]),
        (lambda g, x: g.Shape(x, start=-2, end=5), ["3", "S"]),
        (lambda g, x: g.Add(g.Shape(x), 1), ["N+1", "4", "S+1"]),
        (lambda g, x: g.Div(g.Shape(x), 2), ["floor(N/2)", "1", "floor(S/2)"]),
        (lambda g, x: g.Div(g.Sub(g.Shape(x), 5), 2), None),
        (lambda g, x: g.Div(g.const([-7, 7, 0]), g.const([2, -2, 5])), ["-3", "-3", "0"]),
        (lambda g, x: g.Div(g.const([1]), g.const([0])), None),
        (lambda g, x: g.Mul(g.Shape(x), g.Shape(x)), ["N*N", "9", "S*S"]),
        (lambda g, x: g.Cast(g.Shape(x), to="i32"), ["N", "3", "S"]),
        (lambda g, x: g.Cast(g.Shape(x), to="f16"), None),
        (lambda g, x: g.Cast(g.Add(g.Cast(g.Shape(x), to="i32"), np.int32(2**31 - 1)), to="i64"), None),
        (lambda g, x: g.Cast(g.Sub(g.Shape(x), 2), to="u32"), None),
        (lambda g, x: g.Div(g.Mul(g.Shape(x), 2**62), 2), None),
        (lambda g, x: g.Add(g.Cast(g.Shape(x), to="f32"), np.float32(2**24)), None),
        (lambda g, x: g.Mul(g.Cast(g.Shape(x), to="f32"), np.float32(0)), None),
        (lambda g, x: g.Min(g.Cast(g.Shape(x), to="f32"), np.float32(-0.0)), None),
        (
            lambda g, x: g.Cast(g.Min(g.Mul(g.Cast(g.Shape(x), to="f32"), 2.0), 6.0), to="i64"),
            ["min(2*N,6)", "6", "min(2*S,6)"],
        ),
        (lambda g, x: g.Mul(g.Cast(g.Shape(x), to="f32"), 0.5), None),
        (lambda g, x: g.Div(g.Cast(g.Shape(x), to="f32"), 2.0), None),
        (lambda g, x: g.Cast(g.Cast(g.Shape(x, start=1, end=2), to="f32"), to="i64"), ["3"]),
        (lambda g, x: g.Mul(g.Cast(g.Shape(x, start=1, end=2), to="f32"), 0.1), [str(float(np.float32(0.3)))]),
        (lambda g, x: g.Concat(g.Shape(x), g.const([7]), axis=0), ["N", "3", "S", "7"]),
        (lambda g, x: g.Unsqueeze(g.Squeeze(g.Shape(x, end=1)), g.const([0])), ["N"]),
        (lambda g, x: g.Where(g.const(np.array([True, False, True])), g.Shape(x), g.const([9])), ["N", "9", "S"]),
        (lambda g, x: g.Transpose(g.Reshape(g.Shape(x), g.const([3, 1]))), ["N", "3", "S"]),
        (lambda g, x: g.Mul(g.const(np.array([200], np.uint8)), g.const(np.array([2], np.uint8))), None),
    ],
)
def test_known_contents(build: PyAny, expected: list[str] | None) -> None:
    assert known(build) == expected


def rows_as_float(g: GraphBuilder, x: PyAny) -> PyAny:
    return g.Cast(g.Shape(x, end=1), to="f32")


LIMITED = [
    ("a multiple in i64", lambda g, x: g.Mul(g.Shape(x), 3), set()),
    ("a product in i64", lambda g, x: g.Size(x), {f"min(3*N*S,{2**62})"}),
    ("sizes in i32", lambda g, x: g.Cast(g.Shape(x), to="i32"), {"min(2147483647,N)", "min(2147483647,S)"}),
    ("a float alone", lambda g, x: g.Mul(rows_as_float(g, x), np.float32(3)), set()),
    ("a float that becomes a size", lambda g, x: g.Cast(g.Mul(rows_as_float(g, x), np.float32(3)), to="i64"),
     {"min(16777216,N)", "min(16777216,3*N)"}),
    ("a float that symbols leave", lambda g, x: g.Sub(rows_as_float(g, x), rows_as_float(g, x)),
     {"min(16777216,N)"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "build", "limits"), LIMITED, ids=[name for name, *_ in LIMITED])
def test_symbols_are_limited_to_what_element_types_hold(name: str, build: PyAny, limits: set[str]) -> None:
    graph = Graph("g")
    assert build(GraphBuilder(graph), graph.add_input("x", parse_type("f32[N,3,S]"))).known is not None
    assert {str(a) for a, _ in graph.constraints} == limits


def test_floats_of_unseen_origin_are_no_sizes() -> None:
    graph = Graph("g")
    x = graph.add_input("x", parse_type("f32[1]"))
    x.known = np.array([symbol("N")], object)
    assert GraphBuilder(graph).Cast(x, to="i64").known is None


def test_fused_needs_operands_of_its_bodys_types() -> None:
    text = "graph @g(%x: f32[2]) {\n%1 = fused<a>(%x)\nbody(%x: f32[3]) {\n%1 = Relu(%x)\nreturn %1\n}\nreturn %1\n}"
    with pytest.raises(InvalidModel, match="do not match the node's operands"):
        parse_graph(text)


def test_element_types_of_results() -> None:
    graph = Graph("g")
    x = graph.add_input("x", TensorType(F32, (2,)))
    assert str(graph.add_node(Cast(to=I64), [x]).output.type) == "i64[2]"
