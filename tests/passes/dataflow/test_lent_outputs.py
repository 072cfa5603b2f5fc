"""Tensors in the memory of outputs that are written later: nobody's bytes are overwritten, and the arena is smaller."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import parax
from parax.compiler.driver import compile_graph
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import F32, TensorType
from parax.compiler.passes.dataflow.lent_outputs import Room, lodge
from parax.compiler.passes.dataflow.memory_planning import plan_memory
from parax.compiler.passes.dataflow.placement import Span, peak

SPANS = st.lists(st.builds(lambda first, length, size: Span(first, first + length, size, first),
                           st.integers(0, 20), st.integers(0, 9), st.integers(1, 9)), max_size=12)  # fmt: skip
ROOMS = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 24)), max_size=4)


@given(SPANS, ROOMS)
def test_guests_leave_before_the_owner_comes(spans: list[Span], given_rooms: list[tuple[int, int]]) -> None:
    graph = Graph()
    rooms = [Room(graph.add_input(f"o{i}", TensorType(F32, (1,))), *room) for i, room in enumerate(given_rooms)]
    found = lodge(dict(enumerate(spans)), rooms)
    of = {room.owner: room for room in rooms}
    for i, home in found.items():
        assert spans[i].last < of[home.value].until
        assert isinstance(home.offset, int) and 0 <= home.offset <= of[home.value].size - spans[i].size
        for j, other in found.items():
            if i < j and home.value is other.value and spans[i].first <= spans[j].last and spans[j].first <= spans[i].last:
                assert isinstance(other.offset, int)
                assert home.offset + spans[i].size <= other.offset or other.offset + spans[j].size <= home.offset
    assert peak([s for i, s in enumerate(spans) if i not in found]) <= peak(spans)


def test_as_much_as_there_is_room_for() -> None:
    graph = Graph()
    rooms = [Room(graph.add_input(f"o{i}", TensorType(F32, (1,))), 4, until) for i, until in enumerate((7, 8, 9))]
    spans = {i: Span(i, 8 - i, 4, i) for i in range(4)}  # the first lives longest, and only one room is free as long
    assert sorted(lodge(spans, rooms)) == [0, 1, 2]


BACK = """
graph @g(%x: f32[32,64], %w: f32[64,64]) {
  %a = MatMul(%x, %w) : f32[32,64]
  %b = Softmax(%a) {axis=1} : f32[32,64]
  %c = Softmax(%b) {axis=0} : f32[32,64]
  %n = ReduceSum(%c) {keepdims=0} : f32[]
  %p = Transpose(%c) {perm=[1,0]} : f32[64,32]
  %q = MatMul(%p, %b) : f32[64,64]
  %s = Transpose(%b) {perm=[1,0]} : f32[64,32]
  %t = MatMul(%s, %a) : f32[64,64]
  %u = Transpose(%a) {perm=[1,0]} : f32[64,32]
  %v = MatMul(%u, %x) : f32[64,64]
  return %n, %q, %t, %v
}
"""


def lent(names: tuple[str, ...]) -> Graph:
    graph = parse_graph(BACK)
    graph.set_outputs(list(graph.outputs), ["n", "q", "t", "v"])
    graph.lent = frozenset(names)
    return graph


def test_the_arena_is_smaller() -> None:
    kept, less = (plan_memory(lent(names)) for names in ((), ("t", "v")))
    assert isinstance(kept.total, int) and isinstance(less.total, int)
    assert less.total <= kept.total - 3 * 32 * 64 * 4  # a, b and c; the place of q is written while a and b are needed
    assert {v.name for v in less.lodged} >= {"a", "b", "c"}


@pytest.mark.parametrize("cores", [(0,), (0, 1)])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_numbers_are_the_same(level: int, cores: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((32, 64), np.float32), "w": rng.standard_normal((64, 64), np.float32)}
    found = []
    for names in ((), ("q", "t", "v"), ("v",)):
        options = parax.CompileOptions(hint="latency", opt_level=level, cores=cores, mode="sequential")
        session = compile_graph(lent(names), options).session(1, cores, len(cores))
        out = {spec.name: np.full(spec.dims, np.nan, np.float32) for spec in session.outputs if spec.dims is not None}
        for _ in range(2):  # the second time over what the first has left there
            session.run(feeds, out=out)
        found.append(out)
    for other in found[1:]:
        for name, array in found[0].items():
            np.testing.assert_array_equal(other[name], array, err_msg=name)
