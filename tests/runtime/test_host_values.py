"""Values that are no tensors: their types' texts, what callers may give for them, and what they get."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parax.errors import CorruptPlan, InvalidInput
from parax.runtime.host_values import (
    ElementTensor,
    Map,
    Optional,
    Sequence,
    arrays_in,
    host_type,
    nbytes_of_maps,
    objects_in,
    owned,
    taken,
)


def test_types_are_read_from_their_texts() -> None:
    assert host_type("seq(map(str,f32))") == Sequence(Map("str", "f32"))
    assert host_type("opt(seq(f32[2,N+1]))") == Optional(Sequence(ElementTensor("f32", ("2", "N+1"))))
    assert host_type("seq(i64[])") == Sequence(ElementTensor("i64", ()))
    assert host_type("seq(i64[*])") == Sequence(ElementTensor("i64", None))


@pytest.mark.parametrize("text", [
    "seq(", "seq()", "seq(f32)", "seq(f33[2])", "map(i64)", "map(i64,f32", "map(i64,f32,f32)", "map(q,f32)", "()", "",
    "seq(" * 40 + "f32[]" + ")" * 40, "f32[", "opt[f32]",
])  # fmt: skip
def test_other_texts_are_a_damaged_plan(text: str) -> None:
    with pytest.raises(CorruptPlan):
        host_type(text)


@pytest.mark.parametrize("text, given, found", [
    ("map(i64,f32)", {np.int64(3): 1, 4: np.float64(0.1)}, {3: 1.0, 4: float(np.float32(0.1))}),
    ("map(str,i64)", {"a": 5, np.str_("b"): np.int8(6)}, {"a": 5, "b": 6}),
    ("map(str,str)", {}, {}),
    ("opt(map(i64,str))", None, None),
    ("opt(map(i64,str))", {1: "x"}, {1: "x"}),
    ("seq(map(i64,bool))", ({1: True},), [{1: True}]),
])  # fmt: skip
def test_maps_become_plain_numbers_and_texts(text: str, given: Any, found: Any) -> None:
    assert taken(given, host_type(text), "input 'x'") == found


def test_tensors_in_a_sequence_become_fit_for_native_code() -> None:
    columns = np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::2]
    (one, two) = taken([columns, columns.astype(">f4")], host_type("seq(f32[2,2])"), "x")
    assert one.flags.c_contiguous and two.dtype == np.dtype("=f4") and np.array_equal(one, two)
    (words,) = taken([np.array(["a", "bc"])], host_type("seq(str[*])"), "x")
    assert words.dtype == object and words.tolist() == ["a", "bc"]


@pytest.mark.parametrize("text, given, match", [
    ("seq(f32[*])", np.zeros(3, np.float32), "a list"),
    ("seq(f32[*])", [np.zeros(3)], r"x\[0\].*float64"),
    ("seq(f32[2,N])", [np.zeros((3, 2), np.float32)], "wrong shape"),
    ("seq(f32[2])", [np.zeros((2, 2), np.float32)], "wrong shape"),
    ("seq(f32[*])", [[[1], [1, 2]]], "x"),
    ("map(i64,f32)", [], "a dict of i64 to f32"),
    ("map(i64,f32)", {"1": 1.0}, "a key"),
    ("map(i64,f32)", {1.5: 1.0}, "a key"),
    ("map(i64,f32)", {1: "1"}, "a value"),
    ("map(i64,f32)", {1: [1.0]}, "a value"),
    ("map(str,i64)", {"a": 1.5}, "a value"),
    ("map(str,i64)", {b"a": 1}, "a key"),
    ("map(str,u8)", {"a": 256}, "out of range"),
])  # fmt: skip
def test_values_of_another_type_are_told(text: str, given: Any, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        taken(given, host_type(text), "x")


def test_what_callers_get_is_shared_with_nothing() -> None:
    array, entries = np.arange(3), {1: 2.0}
    held = set(objects_in([array, entries]))
    given = [array, entries, array[1:], {3: 4.0}]
    found = owned(given, held)
    assert found is not given and found[1] == entries and found[1] is not entries and found[3] is given[3]
    assert not any(np.shares_memory(array, each) for each in arrays_in(found))
    assert np.array_equal(found[0], array) and np.array_equal(found[2], array[1:])
    again = owned(found, held)
    assert again[3] is not found[3] and not np.shares_memory(again[0], found[0])


def test_maps_count_as_memory() -> None:
    assert nbytes_of_maps([{1: 2.0}] * 3) == 3 * nbytes_of_maps({1: 2.0}) > 0
    assert nbytes_of_maps([np.zeros(3)]) == 0
