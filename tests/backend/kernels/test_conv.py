"""Convolutions against NumPy: sizes, strides, pads, dilations, groups, layouts, element types, targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_node
from backend.kernels import naive
from backend.kernels.naive import check, normal
from parax.compiler.backend.kernels.conv.depthwise import walk_length
from parax.compiler.backend.kernels.conv.spatial import SpatialAxis
from parax.compiler.backend.kernels.conv.winograd import lower as winograd
from parax.compiler.ir.types import symbol
from parax.compiler.targets.target import Target
from sampling import thorough


@pytest.fixture(scope="module", autouse=True)
def _plain_sums() -> Iterator[None]:
    """Winograd has tests, and bounds, of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "applies", lambda s, target: False)
        yield


def last(rank: int) -> tuple[int, ...]:
    """Channels-last order of a tensor with `rank` axes."""
    return (0, *range(2, rank), 1)


def run_conv(
    x: tuple[int, ...],
    w: tuple[int, ...],
    *,
    bias: bool = True,
    constant: bool = True,
    plain_input: bool = False,
    plain_output: bool = False,
    symbols: dict[str, int] | None = None,
    target: Target | None = None,
    **attributes: Any,
) -> None:
    """Compare one convolution with the NumPy twin."""
    rank = len(x) - 2
    operands = [normal(*x), normal(*w, seed=1), *([normal(w[0], seed=2)] if bias else [])]
    (y,) = run_node(
        op("Conv", **attributes),
        operands,
        constants=range(1, len(operands)) if constant else [],
        layouts=[None if plain_input else last(len(x))],
        out_layouts=[None if plain_output else last(len(x))],
        symbols=symbols,
        target=target,
    )
    full = {"strides": [1] * rank, "pads": [0] * 2 * rank, "dilations": [1] * rank, "group": 1, **attributes}
    check(y, naive.conv(operands[0], operands[1], operands[2] if bias else None, **full), int(np.prod(w[1:])))


SYMBOLS = st.sampled_from([{}, {"N": 0}, {"N": 0, "H": 2, "W": 3}])


@thorough(40)
@given(
    data=st.data(),
    n=st.integers(1, 2),
    group=st.integers(1, 3),
    cin=st.sampled_from([1, 3, 8, 17]),
    cout=st.sampled_from([1, 5, 16, 70]),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    bias=st.booleans(),
    constant=st.booleans(),
    plain_input=st.booleans(),
    plain_output=st.booleans(),
    symbols=SYMBOLS,
)
def test_any_convolution(
    data: st.DataObject,
    n: int,
    group: int,
    cin: int,
    cout: int,
    kernel: tuple[int, int],
    bias: bool,
    constant: bool,
    plain_input: bool,
    plain_output: bool,
    symbols: dict[str, int],
) -> None:
    strides, dilations = (data.draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)) for _ in range(2))
    pads = data.draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
    h, w = data.draw(st.integers(8, 12)), data.draw(st.integers(6, 20))
    run_conv(
        (n, group * cin, h, w),
        (group * cout, cin, *kernel),
        bias=bias,
        constant=constant,
        plain_input=plain_input,
        plain_output=plain_output,
        symbols=symbols,
        strides=strides,
        dilations=dilations,
        pads=pads,
        group=group,
    )


@thorough(25)
@given(
    data=st.data(),
    channels=st.sampled_from([3, 16, 40]),
    multiplier=st.sampled_from([1, 1, 2]),
    kernel=st.tuples(st.sampled_from([1, 3, 5]), st.sampled_from([2, 3, 5])),
    symbols=SYMBOLS,
    bias=st.booleans(),
)
def test_depthwise(
    data: st.DataObject, channels: int, multiplier: int, kernel: tuple[int, int], symbols: dict[str, int], bias: bool
) -> None:
    strides, dilations = (data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=2)) for _ in range(2))
    pads = data.draw(st.lists(st.integers(0, 3), min_size=4, max_size=4))
    h, w = data.draw(st.integers(13, 15)), data.draw(st.integers(13, 31))
    run_conv(
        (2, channels, h, w),
        (channels * multiplier, 1, *kernel),
        bias=bias,
        symbols=symbols,
        strides=strides,
        dilations=dilations,
        pads=pads,
        group=channels,
    )


@thorough(30)
@given(
    data=st.data(),
    n=st.integers(1, 3),
    channels=st.sampled_from([3, 16, 40]),
    multiplier=st.sampled_from([1, 1, 1, 2]),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    bias=st.booleans(),
    target=st.sampled_from(host_targets()),
)
def test_depthwise_in_strips(
    data: st.DataObject,
    n: int,
    channels: int,
    multiplier: int,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, ...],
    bias: bool,
    target: Target,
) -> None:
    """Images of few rows, so that a core's share begins and ends anywhere, is part of a filter's height, or empty."""
    low = [max(1, kernel[i] - pads[i] - pads[i + 2]) for i in range(2)]
    h, w = data.draw(st.integers(low[0], low[0] + 9)), data.draw(st.integers(low[1], low[1] + 20))
    run_conv(
        (n, channels, h, w),
        (channels * multiplier, 1, *kernel),
        bias=bias,
        symbols=data.draw(st.sampled_from([{}, {"N": 0}, {"H": 2}, {"W": 3}, {"N": 0, "H": 2, "W": 3}])),
        target=target,
        strides=list(strides),
        pads=list(pads),
        group=channels,
    )


def test_strips_need_rows_of_accumulators_and_all_taps_in_registers() -> None:
    line, large = SpatialAxis(3, 1, 1, 1, 14, 14), SpatialAxis(5, 1, 1, 2, 14, 14)
    assert walk_length(line, line, 32) == 7  # 3 rows of 7 accumulators, 9 taps and a pixel
    assert walk_length(replace(line, stride=2), replace(line, stride=2), 32) == 8
    assert walk_length(line, line, 16) == walk_length(large, large, 32) == 0
    assert walk_length(replace(line, input=symbol("H"), output=symbol("H")), line, 32) == 7
    for other in (replace(line, dilation=2), replace(line, kernel=1)):
        assert walk_length(other, line, 32) == 0
    assert walk_length(replace(line, dilation=1), replace(line, dilation=2), 32) == 7


@thorough(25)
@given(
    data=st.data(),
    inputs=st.sampled_from([2, 4, 8, 16]),
    outputs=st.sampled_from([2, 4, 8, 16]),
    group=st.sampled_from([2, 3, 6, 8]),
    kernel=st.tuples(st.sampled_from([1, 3]), st.sampled_from([2, 3, 5])),
    symbols=st.sampled_from([{}, {"N": 0}, {"N": 0, "H": 2}, {"W": 3}]),
    bias=st.booleans(),
    target=st.sampled_from(host_targets()),
)
def test_few_channels_per_group(
    data: st.DataObject,
    inputs: int,
    outputs: int,
    group: int,
    kernel: tuple[int, int],
    symbols: dict[str, int],
    bias: bool,
    target: Target,
) -> None:
    strides, dilations = (data.draw(st.lists(st.integers(1, 2), min_size=2, max_size=2)) for _ in range(2))
    pads = data.draw(st.lists(st.integers(0, 3), min_size=4, max_size=4))
    h, w = data.draw(st.integers(11, 13)), data.draw(st.integers(11, 40))
    run_conv(
        (2, group * inputs, h, w),
        (group * outputs, inputs, *kernel),
        bias=bias,
        symbols=symbols,
        target=target,
        strides=strides,
        dilations=dilations,
        pads=pads,
        group=group,
    )


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "pointwise": ((2, 16, 9, 8), (70, 16, 1, 1), {}),
    "blocks within an image": ((3, 40, 7, 7), (200, 40, 1, 1), {"symbols": {"N": 0}}),
    "blocks within an image, taps": ((2, 16, 9, 15), (70, 16, 2, 3), {"symbols": {"N": 0}, "pads": [0, 1, 1, 1]}),
    "pointwise strided": ((2, 16, 9, 8), (70, 16, 1, 1), {"strides": [2, 2]}),
    "blocks of taps": ((1, 512, 14, 14), (64, 512, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "blocks of channels": ((1, 3000, 3, 3), (40, 3000, 1, 1), {}),
    "first layer": ((2, 3, 30, 31), (32, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
    "grouped": ((2, 32, 9, 8), (48, 16, 3, 3), {"pads": [1, 1, 1, 1], "group": 2}),
    "small groups": ((2, 24, 9, 8), (24, 4, 3, 3), {"pads": [1, 1, 1, 1], "group": 6}),
    "groups side by side": ((2, 64, 9, 8), (64, 4, 3, 3), {"pads": [1, 1, 1, 1], "group": 16}),
    "groups of 8": ((2, 64, 9, 15), (64, 8, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2], "group": 8}),
    "grouped signal": ((2, 24, 37), (24, 4, 5), {"pads": [2, 2], "group": 6}),
    "pointwise groups": ((2, 64, 9, 8), (64, 16, 1, 1), {"group": 4}),
    "odd small groups": ((2, 15, 9, 8), (10, 3, 3, 3), {"pads": [1, 1, 1, 1], "group": 5}),
    "depthwise": ((2, 40, 14, 15), (40, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 40}),
    "volume": ((2, 16, 6, 5, 7), (32, 16, 3, 2, 3), {"pads": [1, 1, 1, 1, 0, 1], "strides": [2, 1, 2]}),
    "volume first layer": ((2, 3, 6, 5, 7), (32, 3, 3, 2, 3), {"pads": [1, 1, 1, 1, 0, 1], "strides": [2, 1, 2]}),
    "signal": ((2, 16, 300), (32, 16, 3), {"pads": [1, 1]}),
    "signal first layer": ((2, 1, 300), (32, 1, 10), {"strides": [5]}),
    "depthwise signal": ((1, 20, 30), (20, 1, 3), {"pads": [2, 1], "group": 20}),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("case", CASES)
def test_cases_on_targets(case: str, target: Target) -> None:
    x, w, attributes = CASES[case]
    run_conv(x, w, target=target, **attributes)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_auto_pad_with_symbolic_size_equals_static(auto_pad: str) -> None:
    x, w = normal(1, 16, 9, 12), normal(8, 16, 3, 2)
    how: dict[str, Any] = {"constants": [1], "layouts": [last(4)], "out_layouts": [last(4)]}
    operator = op("Conv", auto_pad=auto_pad, strides=[2, 2])
    (fixed,) = run_node(operator, [x, w], **how)
    (symbolic,) = run_node(operator, [x, w], symbols={"H": 2, "W": 3}, **how)
    np.testing.assert_allclose(fixed, symbolic, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("channels, group", [(3, 1), (16, 1), (16, 4), (16, 16)])
def test_half_precision(channels: int, group: int) -> None:
    x, w = normal(1, channels, 9, 9).astype(np.float16), normal(16, channels // group, 3, 3).astype(np.float16)
    (y,) = run_node(op("Conv", group=group), [x, w], constants=[1], layouts=[last(4)], out_layouts=[last(4)])
    expected = naive.conv(x, w, None, [1, 1], [0] * 4, [1, 1], group)
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-2)


def test_double_precision_is_plain() -> None:
    x, w = normal(1, 6, 9, 9).astype(np.float64), normal(8, 3, 3, 3).astype(np.float64)
    (y,) = run_node(op("Conv", group=2), [x, w], layouts=[last(4)], out_layouts=[last(4)])
    np.testing.assert_allclose(y, naive.conv(x, w, None, [1, 1], [0] * 4, [1, 1], 2), rtol=1e-12)


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("plain_input", [True, False], ids=["plain", "channels last"])
@pytest.mark.parametrize("x, w, attributes", [
    ((2, 1, 19, 33), (64, 1, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 1, 19, 33), (16, 1, 5, 7), {"pads": [2, 3, 1, 0], "strides": [2, 2]}),
    ((2, 1, 40), (32, 1, 3), {"pads": [1, 1]}),
    ((1, 1, 9, 30), (48, 1, 3, 3), {"dilations": [2, 3]}),
], ids=["3x3", "stride 2", "signal", "dilated"])  # fmt: skip
def test_one_input_channel(
    target: Target, plain_input: bool, x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    run_conv(x, w, plain_input=plain_input, symbols={"N": 0}, target=target, **attributes)
