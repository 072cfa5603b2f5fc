"""Schedules: their text, and what check_schedule refuses."""

from __future__ import annotations

import pytest

from parax.compiler.ir.schedule import (
    Branch,
    Layer,
    Schedule,
    Stage,
    check_schedule,
    node_of,
    print_schedule,
    sequential_schedule,
)
from parax.compiler.ir.text import parse_graph
from parax.errors import InternalError

GRAPH = """graph @g(%x: f32[4]) {
  %a = Relu(%x) : f32[4]
  %b = Neg(%x) : f32[4]
  %c = Exp(%b) : f32[4]
  %r, %s = parax::Result(%a, %c) {layer=0} : f32[4], f32[4]
  %d = Add(%r, %s) : f32[4]
  return %d
}"""


def branch(first_core: int, n_cores: int, names: str) -> Branch:
    return Branch(first_core, n_cores, tuple(names.split()))


def layered(one: Branch, two: Branch, last: Branch) -> Schedule:
    return Schedule("layered", 2, (Stage((Layer((one, two)), Layer((last,))), 0, 2),))


def test_the_text_of_a_schedule() -> None:
    graph = parse_graph(GRAPH)
    schedule = layered(branch(0, 1, "a"), branch(1, 1, "b c"), branch(0, 2, "d"))
    check_schedule(graph, schedule)
    assert print_schedule(schedule, graph) == """\
schedule layered on 2 cores {
  stage 0 on cores 0-1 {
    layer 0 {
      core 0: %a
      core 1: %b %c
      result: %r %s
    }
    layer 1 {
      cores 0-1: %d
    }
  }
}
"""


def test_branches_that_share_all_cores() -> None:
    graph = parse_graph(GRAPH)
    schedule = layered(branch(0, 2, "a"), branch(0, 2, "b c"), branch(0, 2, "d"))
    check_schedule(graph, schedule)
    assert [layer.shared for layer in schedule.layers] == [True, False]
    assert "cores 0-1: %a\n      cores 0-1: %b %c" in print_schedule(schedule, graph)


def test_a_sequential_schedule_is_one_branch() -> None:
    graph = parse_graph(GRAPH.replace("  %r, %s = parax::Result(%a, %c) {layer=0} : f32[4], f32[4]\n", "")
                        .replace("%r, %s", "%a, %c"))  # fmt: skip
    schedule = sequential_schedule(graph, 3)
    check_schedule(graph, schedule)
    (layer,) = schedule.layers
    assert [node_of(graph, name) for name in layer.nodes] == list(graph)
    assert layer.branches[0].cores == range(3)


@pytest.mark.parametrize(
    ("one", "two", "last", "message"),
    [
        ((0, 1, "a b"), (1, 1, "c"), (0, 2, "d"), "does not reach its user"),
        ((0, 1, "a"), (1, 1, "b"), (0, 2, "c d"), "does not reach its user"),
        ((0, 1, "a"), (1, 1, "b c"), (0, 2, ""), "every node once"),
        ((0, 1, "a b"), (1, 1, "b c"), (0, 2, "d"), "every node once"),
        ((0, 2, "a"), (1, 1, "b c"), (0, 2, "d"), "share cores"),
        ((0, 1, "a"), (0, 1, "b c"), (0, 2, "d"), "share cores"),
        ((0, 2, "a b"), (0, 2, "c"), (0, 2, "d"), "does not reach its user"),
        ((0, 1, "a"), (1, 2, "b c"), (0, 2, "d"), "leave their stage"),
        ((0, 1, "a"), (1, 1, "b c"), (0, 2, "z"), "a schedule of another graph; found node %z"),
        ((0, 1, "a"), (1, 1, "b c"), (0, 2, "s"), "a schedule of another graph; found node %s"),
    ],
)
def test_what_a_schedule_must_not_be(one: tuple, two: tuple, last: tuple, message: str) -> None:
    graph = parse_graph(GRAPH)
    schedule = layered(branch(*one), branch(*two), branch(*last))
    with pytest.raises(InternalError, match=message):
        check_schedule(graph, schedule)


def test_stages_of_a_pipeline_have_cores_of_their_own() -> None:
    graph = parse_graph(GRAPH)
    first = Stage((Layer((branch(0, 1, "a b c"),)),), 0, 1)
    last = Stage((Layer((branch(1, 1, "d"),)),), 1, 1)
    check_schedule(graph, Schedule("pipelined", 2, (first, last), 4))
    assert "on 2 cores, 4 micro-batches" in print_schedule(Schedule("pipelined", 2, (first, last), 4), graph)
    with pytest.raises(InternalError, match="stages share cores"):
        check_schedule(graph, Schedule("pipelined", 2, (first, Stage(first.layers, 0, 1)), 4))
    with pytest.raises(InternalError, match="lacks"):
        check_schedule(graph, Schedule("pipelined", 1, (first, last), 4))
