"""The verifier finds each way to break a graph."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import F32, TensorType, parse_type
from parax.compiler.ir.verify import verify
from parax.errors import InternalError, InvalidModel

TEXT = """
graph @g(%x: f32[N,4]) {
  %c = const f32[4] [1, 2, 3, 4]
  %1 = Add(%x, %c)
  %2 = Relu(%1)
  %3 = fused<relu>(%2)
    body(%x: f32[N,4]) {
      %1 = Relu(%x)
      return %1
    }
  return %3
}
"""


def node(graph: Graph, name: str):  # type: ignore[no-untyped-def]
    return graph.value(name).producer


def wrong_type(g: Graph) -> None:
    g.value("2").type = parse_type("f32[N,5]")


def wrong_order(g: Graph) -> None:
    g.move(node(g, "2"), before=node(g, "1"))


def lost_use(g: Graph) -> None:
    g.value("1").uses.clear()


def stale_use(g: Graph) -> None:
    g.value("x").uses[node(g, "2"), 0] = None


def wrong_name(g: Graph) -> None:
    g.value("1").name = "other"


def wrong_output_count(g: Graph) -> None:
    g.value("2").output_uses = 1


def same_output_names(g: Graph) -> None:
    g.set_outputs([g.value("3"), g.value("2")], ["a", "a"])


def wrong_constant(g: Graph) -> None:
    g.value("c").data = np.zeros(4, np.int64)


def wrong_producer(g: Graph) -> None:
    g.value("1").producer = node(g, "2")


def broken_list(g: Graph) -> None:
    node(g, "2").prev = None


def endless_list(g: Graph) -> None:
    node(g, "3").next = node(g, "1")


def wrong_body_outputs(g: Graph) -> None:
    body = node(g, "3").body
    body.set_outputs([body.value("1"), body.value("x")])


def broken_body(g: Graph) -> None:
    node(g, "3").body.value("1").type = TensorType(F32, (1,))


def wrong_operand(g: Graph) -> None:
    node(g, "1").set_input(1, g.add_constant(np.zeros(3, np.float32)))


def missing_operand(g: Graph) -> None:
    node(g, "2").set_inputs([None])


BREAKS: list[Callable[[Graph], None]] = [
    wrong_type, wrong_order, lost_use, stale_use, wrong_name, wrong_output_count, same_output_names, wrong_constant,
    wrong_producer, broken_list, endless_list, wrong_body_outputs, broken_body, wrong_operand, missing_operand,
]  # fmt: skip


def test_a_sound_graph_passes() -> None:
    verify(parse_graph(TEXT))


@pytest.mark.parametrize("damage", BREAKS, ids=lambda f: f.__name__)
def test_damage_is_found(damage: Callable[[Graph], None]) -> None:
    graph = parse_graph(TEXT)
    damage(graph)
    with pytest.raises((InternalError, InvalidModel)):
        verify(graph)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes on errors exist since Python 3.11")
def test_the_ir_is_attached_to_the_error() -> None:
    graph = parse_graph(TEXT)
    wrong_type(graph)
    with pytest.raises(InternalError) as caught:
        verify(graph)
    assert "%2 = Relu(%1) : f32[N,5]" in caught.value.__notes__[0]


def test_layouts_may_differ_from_inference() -> None:
    graph = parse_graph(TEXT)
    graph.value("2").type = graph.value("2").tensor.with_layout((1, 0))
    graph.value("3").producer.set_inputs([graph.value("1")])
    verify(graph)


def test_a_fused_block_may_read_a_window() -> None:
    """Where an operand lies is the node's to say: its body computes the same."""
    graph = parse_graph("""graph @g(%x: f32[N,8|16,4]) {
  %y = fused<Relu>(%x) : f32[N,8,4]
    body(%x: f32[N,8,4]) {
      %r = Relu(%x) : f32[N,8,4]
      return %r
    }
  return %y
}""")
    verify(graph)
