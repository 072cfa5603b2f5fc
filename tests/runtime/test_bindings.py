"""Shapes to dimensions: expressions, symbols, constraints, sizes."""

from __future__ import annotations

from typing import Any

import pytest

from fake_plans import tensor
from parax.compiler.ir.dim import MAX_SYMBOL
from parax.errors import CorruptPlan, InvalidInput, ResourceLimit
from parax.runtime import Plan
from parax.runtime.bindings import Signature
from parax.runtime.dims import checked_dim, dim_text, evaluate, symbols_of


@pytest.mark.parametrize(
    ("raw", "text", "value"),
    [
        (7, "7", 7),
        ("N", "N", 5),
        (["+", ["*", 2, "S"], 1], "2*S+1", 7),
        (["+", "N", -1], "N-1", 4),
        (["//", ["+", "S", 1], 2], "(S+1)//2", 2),
        (["%", "N", 3], "N%3", 2),
        (["max", "N", ["*", "S", 2], 1], "max(N, S*2, 1)", 6),
        (["min", "N", "S"], "min(N, S)", 3),
        (["*", "N", "S", 2], "N*S*2", 30),
    ],
)
def test_dimension_expressions(raw: Any, text: str, value: int) -> None:
    dim = checked_dim(raw, {"N", "S"}, "here")
    assert dim_text(dim) == text
    assert evaluate(dim, {"N": 5, "S": 3}) == value
    assert symbols_of(dim) <= {"N", "S"}
    assert hash(dim) is not None


MALFORMED: list[Any] = [None, 1.5, True, "X", [], ["+", 1], ["-", 1, 2], ["//", 1, 2, 3], [["+"], 1, 2], 1 << 70]


@pytest.mark.parametrize("raw", MALFORMED)
def test_malformed_dimensions(raw: Any) -> None:
    with pytest.raises(CorruptPlan, match="here"):
        checked_dim(raw, {"N"}, "here")


def signature(**changes: Any) -> Signature:
    """x: f32[N,S], m: f32[N,2*S] → y: f32[N,S-1]."""
    manifest = {
        "inputs": [tensor("x", "N", "S"), tensor("m", "N", ["*", 2, "S"])],
        "outputs": [tensor("y", "N", ["+", "S", -1])],
        "symbols": [
            {"name": "N", "input": 0, "axis": 0, "min": 1, "max": 8},
            {"name": "S", "input": 0, "axis": 1, "min": 0},
        ],
        "targets": [{"name": "base", "features": []}],
        "steps": [
            {
                "kind": "native",
                "segment": 0,
                "inputs": ["x", "m"],
                "outputs": ["y"],
                "arena": ["*", "N", "S", 4],
                "scratch": "S",
            }
        ],
        **changes,
    }
    return Signature(Plan.build(manifest, {"base": b""}, b"").manifest)


def test_binding() -> None:
    binding = signature().bind([(2, 3), (2, 6)])
    assert binding.values == {"N": 2, "S": 3}
    assert list(binding.dims) == [2, 3]
    assert binding.outputs is not None
    assert binding.outputs[0][0] == (2, 2)
    assert (binding.arena_nbytes, binding.scratch_nbytes) == (64, 64)
    assert signature().bind([(8, 20), (8, 40)]).arena_nbytes == 640


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2, 3), (2, 5)], r"input 'm': wrong shape; expected \[N,2\*S\] with N=2, S=3; found \[2, 5\]"),
        ([(2, 3), (3, 6)], r"input 'm': wrong shape; expected \[N,2\*S\] with N=2, S=3; found \[3, 6\]"),
        ([(2, 3, 1), (2, 6)], r"input 'x': wrong shape; expected \[N,S\]; found \[2, 3, 1\]"),
        ([(9, 3), (9, 6)], "dimension N, axis 0 of input 'x': out of bounds; expected 1 to 8; found 9"),
        ([(0, 3), (0, 6)], "out of bounds"),
        ([(1, 0), (1, 0)], "too small for this model"),
    ],
)
def test_shapes_that_do_not_fit(shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        signature().bind(shapes)


def test_constraints() -> None:
    constraint = {"op": "==", "left": ["%", "S", 4], "right": 0, "text": "S divides into heads of 4"}
    with pytest.raises(InvalidInput, match="do not fit together; expected S divides into heads"):
        signature(constraints=[constraint]).bind([(1, 6), (1, 12)])
    signature(constraints=[constraint]).bind([(1, 8), (1, 16)])
    with pytest.raises(InvalidInput, match="expected S < N; found"):
        signature(constraints=[{"op": "<", "left": "S", "right": "N"}]).bind([(1, 8), (1, 16)])


def test_the_largest_size_is_what_the_compiler_counts_on() -> None:
    symbols = [{"name": name, "input": 0, "axis": axis, "min": 0, "max": None} for axis, name in enumerate("NS")]
    with pytest.raises(InvalidInput, match="out of bounds"):
        signature(symbols=symbols).bind([(MAX_SYMBOL + 1, 0), (MAX_SYMBOL + 1, 0)])


def test_a_division_by_zero() -> None:
    with pytest.raises(InvalidInput, match="divides by zero"):
        signature(outputs=[tensor("y", ["//", "N", "S"])]).bind([(1, 0), (1, 0)])


@pytest.mark.parametrize("shapes", [[(1, 0, 1 << 40)], [(1 << 20, 0, 1 << 13)]])
def test_tensors_of_nothing_have_a_size_too(shapes: list[tuple[int, ...]]) -> None:
    """Native code goes through rows without elements, and no limit of time ends that."""
    symbols = [{"name": name, "input": 0, "axis": axis, "min": 0} for axis, name in enumerate("NSM")]
    step = {"kind": "native", "segment": 0, "inputs": ["x"], "outputs": ["y"], "arena": 0}
    made = signature(inputs=[tensor("x", "N", "S", "M")], outputs=[tensor("y", "N")], symbols=symbols, steps=[step])
    assert made.bind([(0, 1 << 20, 4096)]).rows == 0
    with pytest.raises(ResourceLimit, match="without elements"):
        made.bind(shapes)


def test_sizes_beyond_any_machine() -> None:
    with pytest.raises(ResourceLimit):
        signature(outputs=[tensor("y", ["*", "S", "S", "S", "S"])]).bind([(1, 1 << 20), (1, 1 << 21)])
    step = {"kind": "native", "segment": 0, "inputs": ["x", "m"], "outputs": ["y"], "arena": ["*", "S", "S", "S"]}
    with pytest.raises(ResourceLimit, match="scratch memory"):
        signature(steps=[step]).bind([(1, 1 << 20), (1, 1 << 21)])
