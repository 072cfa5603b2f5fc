"""Graphs: building, uses, order, erasing, replacing, cloning, inlining, size."""

from __future__ import annotations

import time

import numpy as np
import pytest

from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.ir.ops.elementwise import Add, Relu
from parax.compiler.ir.text import parse_graph, print_graph
from parax.compiler.ir.types import parse_type
from parax.compiler.ir.verify import verify
from parax.errors import InternalError, InvalidModel


def small() -> tuple[Graph, GraphBuilder, Value]:
    graph = Graph("g")
    return graph, GraphBuilder(graph), graph.add_input("x", parse_type("f32[N,4]"))


def ops(graph: Graph) -> list[str]:
    return [node.op.name for node in graph]


def test_uses_follow_operands() -> None:
    graph, g, x = small()
    y = g.Add(x, x)
    node = y.producer
    assert list(x.uses) == [(node, 0), (node, 1)]
    assert x.users == [node]
    z = g.Relu(x)
    node.set_input(1, z)
    assert (node, 1) in z.uses and (node, 1) not in x.uses
    graph.set_outputs([y])
    assert y.is_used and y.output_uses == 1


def test_replace_all_uses_with_includes_outputs_and_keeps_their_names() -> None:
    graph, g, x = small()
    y = g.Relu(x)
    z = g.Relu(y)
    graph.set_outputs([y, z, y], ["a", "b", "c"])
    graph.replace_all_uses_with(y, x)
    assert graph.outputs == (x, z, x)
    assert graph.output_names == ["a", "b", "c"]
    assert z.producer.inputs == (x,)
    assert not y.is_used
    graph.erase(y.producer)
    verify(graph)


def test_erase_refuses_used_values() -> None:
    graph, g, x = small()
    y = g.Relu(x)
    graph.set_outputs([y])
    with pytest.raises(InternalError, match="is used"):
        graph.erase(y.producer)
    c = g.const([1.0])
    g.Add(x, c)
    with pytest.raises(InternalError):
        graph.erase_constant(c)
    with pytest.raises(InternalError):
        graph.erase_input(x)


def test_insert_move_and_iterate() -> None:
    graph, g, x = small()
    a = g.Relu(x).producer
    c = g.Tanh(x).producer
    GraphBuilder(graph, before=c).Exp(x)
    after = GraphBuilder(graph, after=a)
    after.Sqrt(x)
    after.Sigmoid(x)
    assert ops(graph) == ["Relu", "Sqrt", "Sigmoid", "Exp", "Tanh"]
    graph.move(c, before=a)
    graph.move(a, after=graph.last)
    assert ops(graph) == ["Tanh", "Sqrt", "Sigmoid", "Exp", "Relu"]
    assert [n.op.name for n in reversed(graph)] == ops(graph)[::-1]
    verify(graph)


def test_nodes_may_be_erased_while_iterating() -> None:
    graph, g, x = small()
    for _ in range(5):
        g.Relu(x)
    for node in graph:
        if node.next is not None:
            graph.erase(node.next)
        graph.erase(node)
    assert len(graph) == 0 and graph.first is None and graph.last is None


def test_names_are_unique_and_stable() -> None:
    graph, _, x = small()
    first = graph.add_node(Relu(), [x], ["y"]).output
    second = graph.add_node(Relu(), [x], ["y"]).output
    third = graph.add_node(Relu(), [x]).output
    assert [first.name, second.name, third.name] == ["y", "y_1", "1"]
    graph.rename(third, "z")
    assert graph.value("z") is third
    with pytest.raises(InternalError, match="taken"):
        graph.rename(third, "y")
    with pytest.raises(InvalidModel, match="two values"):
        graph.add_input("x", x.type)


def test_constants_are_read_only_and_known() -> None:
    graph, g, _ = small()
    array = np.array([1, 2])
    value = graph.add_constant(array, "c")
    assert value.data is not None and not value.data.flags.writeable and array.flags.writeable
    assert value.known.tolist() == [1, 2]
    assert graph.constants == (value,)
    assert g.const(np.zeros(5000, np.int64)).known is None


def test_operands_of_another_graph_are_refused() -> None:
    graph, _, x = small()
    other, _, _ = small()
    with pytest.raises(InternalError, match="another graph"):
        other.add_node(Relu(), [x])
    assert not x.uses and len(other) == 0
    with pytest.raises(InternalError):
        other.set_outputs([x])
    assert len(graph) == 0


def test_clone_is_equal_and_independent() -> None:
    graph, g, x = small()
    graph.set_outputs([g.Add(g.Relu(x), g.const(np.ones(4, np.float32)))], ["out"])
    mapping: dict[Value, Value | None] = {}
    copy = graph.clone(mapping)
    assert print_graph(copy) == print_graph(graph)
    assert mapping[x] is copy.inputs[0]
    copy.set_outputs([copy.inputs[0]])
    for node in reversed(copy):
        copy.erase(node)
    verify(copy)
    verify(graph)
    assert len(graph) == 2


def test_inline_copies_a_graph_into_another() -> None:
    body, b, y = small()
    body.set_outputs([b.Relu(b.Add(y, b.const(np.ones(4, np.float32))))])
    graph, g, x = small()
    tail = g.Tanh(x)
    (result,) = graph.inline(body, [x], before=tail.producer)
    assert ops(graph) == ["Add", "Relu", "Tanh"]
    graph.inline(body, [x], after=graph.first)
    assert ops(graph) == ["Add", "Add", "Relu", "Relu", "Tanh"]
    graph.set_outputs([result, tail])
    verify(graph)


def test_a_cycle_is_found() -> None:
    graph, g, x = small()
    y = g.Relu(x)
    z = g.Add(y, x)
    graph.set_outputs([z])
    verify(graph)
    y.producer.set_input(0, z)
    with pytest.raises(InternalError, match="before"):
        verify(graph)


def test_constraints_of_symbolic_broadcasts_are_recorded_once() -> None:
    graph, _, x = small()
    other = graph.add_input("other", parse_type("f32[M,4]"))
    node = graph.add_node(Add(), [x, other], name="sum")
    graph.add_node(Add(), [other, x])
    assert str(node.output.type) == "f32[N,4]"
    ((pair, where),) = graph.constraints.items()
    assert [str(d) for d in pair] == ["N", "M"]
    assert where.startswith('Add "sum"')


def test_a_chain_of_20000_nodes_takes_seconds() -> None:
    start = time.perf_counter()
    graph, g, x = small()
    y = x
    for _ in range(20_000):
        y = g.Relu(y)
    graph.set_outputs([y])
    verify(graph)
    text = print_graph(graph)
    assert print_graph(parse_graph(text)) == text
    assert print_graph(graph.clone()) == text
    for node in reversed(graph):
        graph.replace_all_uses_with(node.output, node.operands[0])
        graph.erase(node)
    assert graph.outputs == (x,)
    assert time.perf_counter() - start < 30


def test_an_erased_node_has_no_context() -> None:
    graph, g, x = small()
    node = g.Relu(x).producer
    graph.erase(node)
    with pytest.raises(InternalError, match="erased"):
        node.context()


def test_builder_makes_constants_of_numbers_and_arrays() -> None:
    graph, g, x = small()
    y = g.Add(x, 2)
    assert str(y.producer.inputs[1].type) == "f32[]"
    assert str(g.Reshape(x, np.array([-1])).type) == "f32[4*N]"
    assert str(g.const([]).type) == "i64[0]"
    assert str(g.const([1, 2]).type) == "i64[2]"
    assert str(g.const(0.5).type) == "f32[]"
    with pytest.raises(InternalError, match="no element type"):
        g.Add(1, 2)
    assert len(graph) == 2
