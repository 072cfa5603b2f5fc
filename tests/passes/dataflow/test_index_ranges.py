"""Which inputs are indices, in which range, and what sizes keep computed indices inside."""

from __future__ import annotations

import pytest

from parax.compiler.ir.text import parse_graph
from parax.compiler.passes.dataflow.index_ranges import index_ranges

Ranges = dict[str, tuple[str, str]]


def found(text: str) -> tuple[Ranges, list[str]]:
    """Ranges and conditions of a graph, as text."""
    indexing = index_ranges(parse_graph(text))
    ranges = {name: (str(low), str(high)) for name, (low, high) in indexing.ranges.items()}
    return ranges, [f"{a} <= {b}" for a, b in indexing.conditions]


def graph(*lines: str, inputs: str = "%i: i64[N]", table: str = "%t: f32[10,2]") -> str:
    return "\n".join([f"graph @g({inputs}, {table}) {{", *lines, "  return %y", "}"])


LOOKED_UP = "%y = Gather(%t, %r) : f32[N,2]"


@pytest.mark.parametrize(
    ("lines", "low", "high"),
    [
        (["%r = Cast(%i) {to=i32} : i32[N]"], 0, 9),
        (["%c = const i64[] 3", "%r = Add(%i, %c) : i64[N]"], 0, 6),
        (["%c = const i64[] 3", "%r = Sub(%i, %c) : i64[N]"], 0, 12),
        (["%c = const i64[] 3", "%r = Sub(%c, %i) : i64[N]"], 0, 13),
        (["%c = const i64[] 10", "%r = Add(%i, %c) : i64[N]"], -20, -1),
        (["%c = const i64[] 2", "%r = Mul(%i, %c) : i64[N]"], 0, 4),
        (["%r = Add(%i, %i) : i64[N]"], 0, 4),
        (["%c = const i64[] 7", "%r = Min(%i, %c) : i64[N]"], 0, 9),
        (["%c = const i64[] 4", "%q = Less(%i, %c) : bool[N]", "%r = Where(%q, %c, %i) : i64[N]"], 0, 9),
        (["%c = const i64[1] [-1]", "%s = Reshape(%i, %c) : i64[N]", "%r = Identity(%s) : i64[N]"], 0, 9),
    ],
    ids=lambda v: str(v)[:60],
)
def test_an_index_is_followed_through_operators(lines: list[str], low: int, high: int) -> None:
    ranges, _ = found(graph(*lines, LOOKED_UP))
    assert ranges == {"i": (str(low), str(high))}


def test_the_narrowest_of_several_uses_counts() -> None:
    text = graph("%a = Gather(%t, %i) : f32[N,2]", "%b = Gather(%u, %i) : f32[N,2]", "%y = Add(%a, %b) : f32[N,2]",
                 table="%t: f32[10,2], %u: f32[6,2]")  # fmt: skip
    assert found(text)[0] == {"i": ("0", "5")}


def test_a_clipped_index_may_be_anything() -> None:
    text = graph("%a = const i64[] 0", "%b = const i64[] 9", "%r = Clip(%i, %a, %b) : i64[N]", LOOKED_UP)
    assert found(text) == ({}, [])


def test_numbers_that_are_counted_up_need_so_many_places() -> None:
    lines = [
        "%h = Shape(%p) : i64[1]", "%z = const i64[] 0", "%o = const i64[] 1", "%n = Gather(%h, %z) : i64[]",
        "%q = Range(%z, %n, %o) : i64[P]", "%y = Gather(%t, %q) : f32[P,2]",
    ]  # fmt: skip
    assert found(graph(*lines, inputs="%p: f32[P]")) == ({}, ["P <= 10"])
    assert found(graph(*lines, inputs="%p: f32[P]", table="%t: f32[T,2]")) == ({}, ["P <= T"])
    assert found(graph(*lines, inputs="%p: f32[P]", table="%t: f32[P,2]")) == ({}, []), "always so"


def test_what_may_be_chosen_just_to_stay_inside_needs_no_place() -> None:
    counted = ["%h = Shape(%p) : i64[1]", "%z = const i64[] 0", "%o = const i64[] 1", "%n = Gather(%h, %z) : i64[]",
               "%q = Range(%z, %n, %o) : i64[P]", "%c = const i64[] 9"]  # fmt: skip
    for line in ("%r = Min(%q, %c) : i64[P]", "%r = Clip(%q, %z, %c) : i64[P]", "%r = Where(%b, %q, %c) : i64[P]"):
        lines = [*counted, "%b = Less(%q, %c) : bool[P]", line, "%y = Gather(%t, %r) : f32[P,2]"]
        assert found(graph(*lines, inputs="%p: f32[P]")) == ({}, []), line


def test_an_index_behind_a_past_is_smaller() -> None:
    lines = [
        "%h = Shape(%p) : i64[1]", "%z = const i64[] 0", "%n = Gather(%h, %z) : i64[]", "%r = Add(%i, %n) : i64[N]",
        LOOKED_UP,
    ]  # fmt: skip
    ranges, conditions = found(graph(*lines, inputs="%i: i64[N], %p: f32[P]"))
    assert ranges == {"i": ("0", "-P+9")}
    assert conditions == ["P <= 9"]


def test_positions_counted_from_a_mask_take_as_many_places_as_it_is_long() -> None:
    lines = ["%a = const i64[] 0", "%r = CumSum(%i, %a) : i64[N]", LOOKED_UP]
    assert found(graph(*lines)) == ({}, ["N <= 9"])


def test_coordinates_are_told_apart_where_they_were_joined() -> None:
    lines = [
        "%a = const i64[1] [1]", "%u = Unsqueeze(%i, %a) : i64[N,1]", "%v = Unsqueeze(%j, %a) : i64[N,1]",
        "%r = Concat(%u, %v) {axis=-1} : i64[N,2]", "%y = GatherND(%t, %r) : f32[N]",
    ]  # fmt: skip
    assert found(graph(*lines, inputs="%i: i64[N], %j: i64[N]"))[0] == {"i": ("0", "9"), "j": ("0", "1")}


def test_lengths_of_sequences_are_at_least_one_step() -> None:
    lines = ["%y = ReverseSequence(%t, %i) {batch_axis=1, time_axis=0} : f32[10,2]"]
    assert found(graph(*lines, inputs="%i: i64[2]"))[0] == {"i": ("1", "10")}


def test_what_is_not_understood_has_no_range() -> None:
    lines = ["%f = Cast(%i) {to=f32} : f32[N]", "%r = Cast(%f) {to=i64} : i64[N]", LOOKED_UP]
    assert found(graph(*lines)) == ({}, [])
