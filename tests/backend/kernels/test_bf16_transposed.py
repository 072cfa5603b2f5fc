"""Transposed convolutions of bf16, summed in f32: within the bound of `microkernels/bf16.py`, everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Program, op
from backend.interpreted import interpreted
from backend.kernels import naive
from backend.kernels.test_bf16_operators import EVERY_TARGET, EXTENDED, HALF, HOST, bound, computed, graph_of, half
from backend.ways import EVERY, USUAL
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.types import BF16, TensorType
from parax.compiler.kernel_ir.loops import all_functions
from parax.compiler.targets.target import Target
from sampling import thorough

Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]
CASES: list[Case] = [
    ((2, 16, 5, 7), (16, 24, 2, 2), {"strides": [2, 2]}),
    ((1, 64, 9, 9), (64, 70, 2, 2), {"strides": [2, 2]}),
    ((2, 10, 6, 5), (10, 13, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 8, 7, 6), (8, 20, 3, 3), {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]}),
    ((1, 24, 5, 6), (24, 9, 3, 2), {"strides": [3, 1], "dilations": [2, 3], "group": 3}),
    ((1, 8, 3, 4), (8, 8, 3, 3), {"strides": [4, 5]}),
    ((2, 12, 40), (12, 33, 5), {"strides": [2], "output_padding": [1]}),
    ((1, 8, 3, 2, 4), (8, 10, 2, 3, 2), {"strides": [2, 1, 2], "pads": [0, 1, 0, 1, 1, 1]}),
    ((1, 1026, 3, 3), (1026, 40, 2, 2), {"strides": [2, 2]}),
]  # fmt: skip
"""x, w and attributes; of the fourth to last some phases have no taps, of the last k takes several blocks."""


def last(rank: int) -> tuple[int, ...]:
    """The order of a channels-last tensor with so many axes of pixels."""
    return (0, *range(2, rank + 2), 1)


def full(case: Case) -> dict[str, Any]:
    """All attributes."""
    rank = len(case[0]) - 2
    return {"strides": [1] * rank, "pads": [0] * 2 * rank, "dilations": [1] * rank, "output_padding": [0] * rank,
            "group": 1, **case[2]}  # fmt: skip


def result(case: Case, operands: list[np.ndarray], images: str | None = None, **how: Any) -> np.ndarray:
    """What the kernel gives."""
    x, *constants = operands
    graph = graph_of("Bf16ConvTranspose", x, constants, images, last(x.ndim - 2), **full(case))
    return computed(graph, x, **how)


def check(case: Case, bias: bool = True, images: str | None = None, **how: Any) -> None:
    x, w = half(*case[0]), half(*case[1], seed=1)
    b = half(w.shape[1] * full(case)["group"], seed=2).astype(np.float32) if bias else None
    y = result(case, [x, w, *([] if b is None else [b])], images, **how)
    wide = [v if v is None else v.astype(np.float64) for v in (x, w, b)]
    exact = naive.conv_transpose(*wide, **full(case))  # type: ignore[arg-type]
    sizes = naive.conv_transpose(*(v if v is None else np.abs(v) for v in wide), **full(case))  # type: ignore[arg-type]
    terms = w[:, 0].size
    assert y.shape == exact.shape and (np.abs(y - exact) <= bound(sizes, 10.0 * terms, terms)).all()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions(case: Case, bias: bool) -> None:
    check(case, bias)
    check(case, bias, "N")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small ones of every attribute."""
    group, inputs, outputs = draw(st.integers(1, 3)), 2 * draw(st.integers(1, 17)), draw(st.integers(1, 70))
    strides, dilations = (draw(st.tuples(st.integers(1, 3), st.integers(1, 3))) for _ in range(2))
    x = (draw(st.integers(1, 2)), group * inputs, draw(st.integers(4, 6)), draw(st.integers(5, 9)))
    w = (group * inputs, outputs, draw(st.integers(1, 4)), draw(st.integers(1, 5)))
    return x, w, {"strides": strides, "dilations": dilations, "group": group,
                  "pads": draw(st.tuples(*[st.integers(0, 1)] * 4)),
                  "output_padding": [draw(st.integers(0, stride - 1)) for stride in strides]}  # fmt: skip


@thorough(40)
@given(case=cases(), bias=st.booleans(), symbolic=st.booleans())
def test_any_size(case: Case, bias: bool, symbolic: bool) -> None:
    check(case, bias, "N" if symbolic else None)


@pytest.mark.parametrize("target", EVERY_TARGET, ids=lambda t: t.name)
@pytest.mark.parametrize("case", [CASES[0], CASES[4]], ids=str)
def test_every_target(target: Target, case: Case) -> None:
    """Those with matrix registers multiply pairs in vectors, too."""
    check(case, target=target)


@pytest.mark.parametrize("images", [None, "N"])
@pytest.mark.parametrize("case", [
    ((2, 16, 5, 8), (16, 24, 2, 2), {"strides": [2, 2]}), ((1, 34, 12, 16), (34, 40, 2, 2), {"strides": [2, 2]}),
    ((2, 8, 6, 33), (8, 70, 2, 3), {"strides": [2, 3]}), ((2, 66, 8, 12), (66, 17, 4, 1), {"strides": [4, 1]}),
    ((1, 10, 3, 140), (10, 9, 1, 2), {"strides": [1, 2]}), ((3, 24, 4, 9), (24, 33, 1, 1), {}),
], ids=str)  # fmt: skip
def test_filters_that_do_not_overlap_by_matrix_registers(case: Case, images: str | None) -> None:
    """Of lines that fill a register or not, one or several a block."""
    target = resolve_target("x86-64-v4+amx-bf16+amx-tile")
    x, w = half(*case[0]), half(*case[1])
    graph = graph_of("Bf16ConvTranspose", x, [w], images, last(2), **full(case))
    program = Program(graph, target, (images,) if images else ())
    functions = all_functions([call.func for _, call in program.calls])
    assert any(o.opcode == "matrix_dot" for f in functions for o in f.walk())
    for bias in (False, True):
        check(case, bias, images, target=target, ways=EVERY)


@pytest.mark.parametrize("case", [((1, 7, 5, 6), (7, 9, 2, 2), {"strides": [2, 2]}),
                                  ((1, 12, 5, 6), (12, 9, 2, 2), {"group": 4}),
                                  ((1, 6, 5, 6), (6, 1, 2, 2), {"group": 6})], ids=str)  # fmt: skip
@pytest.mark.parametrize("target", EVERY_TARGET, ids=lambda t: t.name)
def test_odd_channels_are_multiplied_one_by_one(case: Case, target: Target) -> None:
    check(case, target=target, tiled=False)


def test_every_way_of_sharing_and_every_level_gives_the_same_bits() -> None:
    case: Case = ((3, 34, 20, 130), (34, 72, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]})
    operands = [half(*case[0]), half(*case[1], seed=1)]
    found = [result(case, operands, images, ways=EVERY, fp=fp) for fp in Fp for images in (None, "N")]
    assert len({y.tobytes() for y in found}) == 1


def test_a_symbolic_number_of_images_may_be_none() -> None:
    case: Case = ((0, 8, 4, 4), (8, 16, 2, 2), {"strides": [2, 2]})
    assert result(case, [half(*case[0]), half(*case[1])], "N").shape == (0, 16, 8, 8)


@pytest.mark.parametrize("target", [HOST, *EXTENDED], ids=lambda t: t.name)
@pytest.mark.parametrize("filters", [True, False])
def test_infinities_and_nan_are_where_they_belong(filters: bool, target: Target) -> None:
    """Beside pixels that are not there, too: filters of infinities are multiplied by those that there are alone."""
    case: Case = ((1, 8, 4, 5), (8, 18, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]})
    x, w = half(*case[0]), half(*case[1], seed=1)
    x[0, 7, 0, 0], x[0, 0, 2, 3], x[0, 3, 3, 4] = np.inf, np.nan, -np.inf
    if filters:
        w[7, 5, 0, 0], w[0, 17, 2, 1] = np.inf, np.nan
    with np.errstate(all="ignore"):
        wanted = naive.conv_transpose(x.astype(np.float64), w.astype(np.float64), None, **full(case))
    assert np.isinf(wanted).any() and np.isnan(wanted).any() and np.isfinite(wanted).any()
    y = result(case, [x, w], target=target, tiled=not filters)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(wanted))
    np.testing.assert_array_equal(np.where(np.isinf(y), y, 0), np.where(np.isinf(wanted), wanted, 0))
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(y[finite], wanted[finite], rtol=0, atol=1e-5 * np.abs(wanted[finite]).max())


@pytest.mark.parametrize("target", [*EXTENDED, resolve_target("x86-64-v3")], ids=lambda t: t.name)
def test_a_models_own_are_rounded_once_more(target: Target) -> None:
    """Sums are of f32, whatever the target has."""
    case = CASES[0]
    graph = Graph("own")
    x, w, b = half(*case[0]), half(*case[1], seed=1), half(case[1][1], seed=2)
    inputs = [graph.add_input("x", TensorType(BF16, x.shape, last(2))), graph.add_constant(w), graph.add_constant(b)]
    node = graph.add_node(op("ConvTranspose", **full(case)), inputs)
    node.output.type = node.output.tensor.with_layout(last(2))
    graph.set_outputs(node.outputs)
    program, runs = Program(graph, target), target.supported_by(host_features())
    (y,) = program.run_all([({"x": x}, {})], USUAL)[0] if runs else interpreted(program, {"x": x}, {})
    wide = [v.astype(np.float64) for v in (x, w, b)]
    exact, sizes = (naive.conv_transpose(*map(f, wide), **full(case)) for f in (lambda v: v, np.abs))
    assert y.dtype == HALF
    room = 2.0**-8 * np.abs(exact) + 1.01 * bound(sizes, 1000.0, w[:, 0].size)
    assert (np.abs(y.astype(np.float64) - exact) <= room).all()
