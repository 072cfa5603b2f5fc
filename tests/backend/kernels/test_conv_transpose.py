"""ConvTranspose against NumPy: the gather by phases and the plain kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_node
from backend.kernels import naive
from backend.kernels.naive import check, normal
from parax.compiler.targets.target import Target
from sampling import thorough


def run_transposed(
    x: tuple[int, ...],
    w: tuple[int, ...],
    *,
    bias: bool = True,
    constant: bool = True,
    plain: bool = False,
    symbols: dict[str, int] | None = None,
    target: Target | None = None,
    **attributes: Any,
) -> None:
    """Compare one transposed convolution with the NumPy twin."""
    rank = len(x) - 2
    layout = None if plain else (0, *range(2, len(x)), 1)
    filters = None if plain or w[1] != 1 else (*range(2, len(x)), 0, 1)  # as assign-layouts has those of a channel each
    channels = w[1] * attributes.get("group", 1)
    operands = [normal(*x), normal(*w, seed=1), *([normal(channels, seed=2)] if bias else [])]
    (y,) = run_node(
        op("ConvTranspose", **attributes),
        operands,
        constants=range(1, len(operands)) if constant else [],
        layouts=[layout, None if constant else filters],
        out_layouts=[layout],
        symbols=symbols,
        target=target,
    )
    full = {
        "strides": [1] * rank,
        "pads": [0] * 2 * rank,
        "dilations": [1] * rank,
        "group": 1,
        "output_padding": [0] * rank,
        **attributes,
    }
    expected = naive.conv_transpose(operands[0], operands[1], operands[2] if bias else None, **full)
    check(y, expected, w[0] * int(np.prod(w[2:])))


SYMBOLS: tuple[dict[str, int], ...] = ({}, {"N": 0}, {"N": 0, "H": 2, "W": 3})


@st.composite
def transposed(
    draw: st.DrawFn, cin: Sequence[int], cout: Sequence[int], widest: int, symbols: Sequence[dict[str, int]] = SYMBOLS
) -> dict[str, Any]:
    """Arguments of `run_transposed`: images of two to a call and up to `widest` pixels a line.

    Args:
        cin, cout: channels of a group, to choose from. symbols: symbolic sizes, to choose from.
    """
    group, inputs, outputs = draw(st.integers(1, 2)), draw(st.sampled_from(cin)), draw(st.sampled_from(cout))
    strides, dilations = (draw(st.tuples(st.integers(1, 3), st.integers(1, 3))) for _ in range(2))
    return {
        "x": (2, group * inputs, 5, draw(st.integers(5, widest))),
        "w": (group * inputs, outputs, draw(st.integers(1, 4)), draw(st.integers(1, 5))),
        "bias": draw(st.booleans()),
        "symbols": draw(st.sampled_from(symbols)),
        "strides": strides,
        "dilations": dilations,
        "pads": draw(st.tuples(*[st.integers(0, 1)] * 4)),
        "group": group,
        "output_padding": [draw(st.integers(0, stride - 1)) for stride in strides],
    }


@thorough(30)
@given(case=transposed([1, 4, 16], [1, 20, 70], widest=6), constant=st.booleans(), plain=st.booleans())
def test_any_transposed_convolution(case: dict[str, Any], constant: bool, plain: bool) -> None:
    run_transposed(**case, constant=constant, plain=plain)


@thorough(40)
@given(case=transposed([1], [1], widest=19), channels=st.sampled_from([2, 5, 8, 24, 37]), constant=st.booleans())
def test_one_filter_a_channel(case: dict[str, Any], channels: int, constant: bool) -> None:
    x, w = (2, channels, *case["x"][2:]), (channels, 1, *case["w"][2:])
    run_transposed(**{**case, "x": x, "w": w, "group": channels}, constant=constant)


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("x, w, attributes", [
    ((2, 40, 7, 9), (40, 1, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1], "group": 40}),
    ((1, 21, 3, 4), (21, 1, 64, 64), {"strides": [32, 32], "pads": [16, 16, 16, 16], "group": 21}),
    ((2, 9, 31), (9, 1, 5), {"strides": [3], "dilations": [2], "group": 9}),
    ((2, 16, 7, 9), (16, 24, 2, 2), {"strides": [2, 2]}),
    ((2, 16, 300), (16, 20, 4), {"strides": [2]}),
    ((1, 8, 4, 3, 5), (8, 6, 3, 3, 2), {"strides": [2, 1, 2]}),
    ((1, 4, 3, 3), (4, 4, 16, 16), {"strides": [8, 8], "pads": [4, 4, 4, 4]}),
], ids=["depthwise", "bilinear", "signals", "2x2", "signal", "volume", "stride 8"])  # fmt: skip
def test_targets(target: Target, x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> None:
    run_transposed(x, w, target=target, **attributes)


@pytest.mark.parametrize("attributes, expected", [
    ({"output_shape": [2]}, [3, 4]), ({"output_shape": [2], "auto_pad": "SAME_UPPER"}, [2, 3]),
    ({"output_shape": [2], "auto_pad": "SAME_LOWER"}, [3, 4]), ({"strides": [2], "auto_pad": "SAME_UPPER"}, [2, 3]),
    ({"strides": [3], "auto_pad": "SAME_LOWER", "output_padding": [1]}, [3, 4, 5]),
    ({"strides": [3], "output_padding": [1]}, [1, 2, 3, 4, 5, 0]), ({"output_shape": [2], "pads": [3, 0]}, [3, 4]),
], ids=str)  # fmt: skip
def test_output_size_as_onnxruntime_reads_it(attributes: dict[str, Any], expected: list[float]) -> None:
    x, w = np.ones((1, 1, 1), np.float32), np.arange(1, 6, dtype=np.float32).reshape(1, 1, 5)
    (y,) = run_node(op("ConvTranspose", **attributes), [x, w], constants=[1])
    assert y.reshape(-1).tolist() == expected


def test_one_filter_a_channel_does_not_multiply_what_it_does_not_meet() -> None:
    x, w = np.ones((1, 8, 3, 3), np.float32), np.ones((8, 1, 3, 3), np.float32)
    x[0, 2, 1, 1], w[5, 0, 0, 0] = np.nan, np.inf
    layout = (0, 2, 3, 1)
    (y,) = run_node(op("ConvTranspose", strides=[2, 2], group=8), [x, w], constants=[1], layouts=[layout],
                    out_layouts=[layout])  # fmt: skip
    met = ~np.isfinite(y)
    expected = np.zeros_like(met)
    expected[0, 2, 2:5, 2:5] = expected[0, 5, 0:5:2, 0:5:2] = True
    np.testing.assert_array_equal(met, expected)


@pytest.mark.parametrize("constant", [True, False])
def test_an_infinite_weight_reaches_only_the_pixels_that_it_makes(constant: bool) -> None:
    x, w = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 8, 3, 3), np.float32)
    w[0, 3, 1, 1] = np.inf
    layout = (0, 2, 3, 1)
    (y,) = run_node(op("ConvTranspose"), [x, w], constants=[1] if constant else [], layouts=[layout],
                    out_layouts=[layout])  # fmt: skip
    assert np.isposinf(y[0, 3, 1:5, 1:5]).all()
    y[0, 3, 1:5, 1:5] = 0
    assert np.isfinite(y).all()
