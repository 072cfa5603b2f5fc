"""Convolutions of few channels in bf16, by pairs of columns: within the bound of `microkernels/bf16.py`, everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Program, op
from backend.interpreted import interpreted
from backend.kernels import naive
from backend.kernels.test_bf16_operators import EXTENDED, HALF, HOST, bound, graph_of, half
from backend.ways import EVERY, USUAL, Way
from parax.compiler.backend.host import host_features
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.types import BF16, TensorType, symbol
from parax.compiler.kernel_ir.loops import all_functions
from parax.compiler.targets.target import Target
from sampling import thorough

PAIRS, MATRICES = EXTENDED
Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]
CASES: list[Case] = [
    ((1, 3, 30, 31), (64, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
    ((2, 3, 17, 16), (32, 3, 3, 3), {"strides": [2, 2], "pads": [0, 0, 1, 1]}),
    ((1, 3, 32, 32), (70, 3, 16, 16), {"strides": [16, 16]}),
    ((2, 1, 12, 70), (17, 1, 5, 5), {"pads": [2, 1, 0, 2]}),
    ((1, 7, 9, 11), (20, 7, 2, 3), {"dilations": [3, 1], "strides": [1, 3]}),
    ((1, 3, 4, 6, 9), (16, 3, 3, 2, 4), {"strides": [1, 2, 2], "pads": [1, 0, 1, 1, 0, 2]}),
]  # fmt: skip
OTHERS: list[Case] = [
    ((1, 3, 9, 9), (16, 3, 3, 3), {"dilations": [1, 2]}),
    ((1, 3, 9, 9), (16, 3, 3, 1), {}),
    ((1, 3, 40), (16, 3, 9), {"strides": [2]}),
    ((1, 6, 9, 9), (16, 3, 3, 3), {"group": 2}),
]  # fmt: skip
"""What it does not serve: columns apart, one column, one axis, groups."""


def full(case: Case) -> dict[str, Any]:
    """All attributes."""
    rank = len(case[0]) - 2
    return {"strides": [1] * rank, "pads": [0] * 2 * rank, "dilations": [1] * rank, "group": 1, **case[2]}


def last(rank: int) -> tuple[int, ...]:
    """The order of a channels-last tensor with so many axes of pixels."""
    return (0, *range(2, rank + 2), 1)


def computed(case: Case, operands: list[np.ndarray], open_axes: bool = False, target: Target = HOST,
             served: bool = True, layout: Any = None, ways: tuple[Way, ...] = USUAL,
             fp: Fp = Fp.DEFAULT) -> np.ndarray:  # fmt: skip
    """What a target computes of an image; `open_axes`: all but its channels are symbols."""
    x, *constants = operands
    graph = graph_of("Bf16Conv", x, constants, None, layout, **full(case))
    symbols = {}
    if open_axes:
        symbols = {f"D{i}": n for i, n in enumerate(x.shape) if i != 1}
        dims = tuple(symbol(f"D{i}") if i != 1 else n for i, n in enumerate(x.shape))
        graph = Graph("open")
        inputs = [graph.add_input("x", TensorType(BF16, dims, layout)), *map(graph.add_constant, constants)]
        graph.set_outputs(graph.add_node(op("Bf16Conv", domain="parax", **full(case)), inputs).outputs)
    (node,) = graph
    node.output.type = node.output.tensor.with_layout(last(x.ndim - 2))
    program = Program(graph, target, tuple(symbols), fp)
    functions = all_functions([call.func for _, call in program.calls])
    assert any(o.opcode == "dot_bf16" for f in functions for o in f.walk()) == served
    feeds = {"x": x}
    runs = target.supported_by(host_features())
    found = (program.run_all([(feeds, symbols)], ways)[0] if runs else interpreted(program, feeds, symbols))[0]
    assert found.dtype == np.float32
    return found


def check(case: Case, bias: bool = True, **how: Any) -> None:
    x, w = half(*case[0]), half(*case[1], seed=1)
    b = half(len(w), seed=2).astype(np.float32) if bias else None
    y = computed(case, [x, w, *([] if b is None else [b])], **how)
    wide = [v if v is None else v.astype(np.float64) for v in (x, w, b)]
    exact = naive.conv(*wide, **full(case))  # type: ignore[arg-type]
    sizes = naive.conv(*(v if v is None else np.abs(v) for v in wide), **full(case))  # type: ignore[arg-type]
    terms = 2 * w[0].size
    assert y.shape == exact.shape and (np.abs(y - exact) <= bound(sizes, 10.0 * terms, terms)).all()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions(case: Case) -> None:
    for target in {HOST.name: HOST, PAIRS.name: PAIRS}.values():
        served = "avx512bf16" in target.abilities
        check(case, False, target=target, served=served)
        check(case, target=target, served=served, open_axes=True)


@pytest.mark.parametrize("layout", [None, (0, 2, 3, 1), (2, 0, 1, 3)], ids=str)
def test_an_image_may_lie_in_any_order(layout: Any) -> None:
    check(CASES[0], layout=layout, target=PAIRS)


@pytest.mark.parametrize("case", OTHERS, ids=str)
@pytest.mark.parametrize("target", [PAIRS, MATRICES], ids=lambda t: t.name)
def test_other_convolutions_are_widened(case: Case, target: Target) -> None:
    check(case, target=target, served=False)


def test_matrix_registers_and_computed_filters_are_left_to_others() -> None:
    check(CASES[1], target=MATRICES, served=False)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small ones of every attribute."""
    inputs, outputs = draw(st.integers(1, 7)), draw(st.integers(1, 70))
    x = (draw(st.integers(1, 2)), inputs, draw(st.integers(5, 9)), draw(st.integers(7, 40)))
    w = (outputs, inputs, draw(st.integers(1, 4)), draw(st.integers(2, 7)))
    return x, w, {"strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 4))),
                  "dilations": (draw(st.integers(1, 1 if w[2] > 3 else 2)), 1),
                  "pads": draw(st.tuples(*[st.integers(0, 3)] * 4))}  # fmt: skip


@thorough(40)
@given(case=cases(), bias=st.booleans(), open_axes=st.booleans())
def test_any_size(case: Case, bias: bool, open_axes: bool) -> None:
    check(case, bias, open_axes=open_axes, target=PAIRS)


def test_every_way_of_sharing_and_every_level_gives_the_same_bits() -> None:
    case: Case = ((2, 3, 61, 130), (72, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]})
    operands = [half(*case[0]), half(*case[1], seed=1)]
    found = [computed(case, operands, opened, PAIRS, ways=EVERY, fp=fp) for fp in Fp for opened in (False, True)]
    assert len({y.tobytes() for y in found}) == 1


@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[2]], ids=str)
def test_infinities_and_nan_are_where_they_belong(case: Case) -> None:
    """The pixel beside an odd filter's last column meets no weight."""
    x, w = half(*case[0]), half(*case[1], seed=1)
    x[0, 0, 3, 9], x[0, 2, 12, 14], x[0, 1, 8, 3], x[-1, 0, -1, -1] = np.inf, np.nan, -np.inf, np.inf
    w[3, 0, 0, 0], w[5, 2, -1, -1] = 0, 0
    with np.errstate(all="ignore"):
        wanted = naive.conv(x.astype(np.float64), w.astype(np.float64), None, **full(case))
    assert np.isinf(wanted).any() and np.isnan(wanted).any()
    y = computed(case, [x, w], target=PAIRS)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(wanted))
    np.testing.assert_array_equal(np.where(np.isinf(y), y, 0), np.where(np.isinf(wanted), wanted, 0))
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(y[finite], wanted[finite], rtol=0, atol=1e-5 * np.abs(wanted[finite]).max(initial=1))


def test_a_models_own_is_rounded_once_more() -> None:
    case = CASES[0]
    graph = Graph("own")
    x, w = half(*case[0]), half(*case[1], seed=1)
    node = graph.add_node(op("Conv", **full(case)), [graph.add_input("x", TensorType(BF16, x.shape)),
                                                     graph.add_constant(w)])  # fmt: skip
    node.output.type = node.output.tensor.with_layout(last(2))
    graph.set_outputs(node.outputs)
    program, runs = Program(graph, PAIRS), PAIRS.supported_by(host_features())
    (y,) = program.run_all([({"x": x}, {})], USUAL)[0] if runs else interpreted(program, {"x": x}, {})
    exact, sizes = (naive.conv(f(x.astype(np.float64)), f(w.astype(np.float64)), None, **full(case))
                    for f in (lambda v: v, np.abs))  # fmt: skip
    assert y.dtype == HALF
    room = 2.0**-8 * np.abs(exact) + 1.01 * bound(sizes, 1000.0, w[0].size)
    assert (np.abs(y.astype(np.float64) - exact) <= room).all()
