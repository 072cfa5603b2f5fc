"""MaxPool in training and its gradient against loops in NumPy: odd windows, layouts, ties, NaN and infinities."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.harness import op, run_node
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.types import F32, TensorType
from parax.compiler.passes.autodiff.reverse import gradients
from parax.compiler.targets.target import Target

Window = tuple[int, int, int, int, int]  # input, kernel, stride, pad, dilation


def n_outputs(n: int, k: int, s: int, p: int, d: int) -> int:
    return (n + 2 * p - (k - 1) * d - 1) // s + 1


def greatest(x: np.ndarray, windows: list[Window]) -> tuple[np.ndarray, np.ndarray]:
    """The greatest element of each window and the number of its tap; the first one, and a NaN before all others."""
    shape = (*x.shape[:2], *(n_outputs(*w) for w in windows))
    y, taps = np.zeros(shape, x.dtype), np.zeros(shape, np.uint8)
    kernel = list(itertools.product(*(range(k) for _, k, *_ in windows)))
    for at in np.ndindex(shape):
        elements = np.full(len(kernel), -np.inf)
        inside = np.zeros(len(kernel), bool)
        for number, tap in enumerate(kernel):
            place = place_of(at[2:], tap, windows)
            if place is not None:
                elements[number], inside[number] = x[(*at[:2], *place)], True
        candidates = np.flatnonzero(inside)
        taps[at] = candidates[elements[candidates].argmax()]
        y[at] = elements[taps[at]]
    return y, taps


def place_of(window: tuple[int, ...], tap: tuple[int, ...], windows: list[Window]) -> tuple[int, ...] | None:
    place = tuple(o * s - p + t * d for o, t, (_, _, s, p, d) in zip(window, tap, windows))
    return place if all(0 <= i < n for i, (n, *_) in zip(place, windows)) else None


def gathered(dy: np.ndarray, taps: np.ndarray, windows: list[Window]) -> np.ndarray:
    """Every window's gradient, added where its greatest element lies."""
    dx = np.zeros((*dy.shape[:2], *(w[0] for w in windows)), np.float64)
    kernel = list(itertools.product(*(range(k) for _, k, *_ in windows)))
    for at in np.ndindex(dy.shape):
        place = place_of(at[2:], kernel[taps[at]], windows)
        if place is not None:
            dx[(*at[:2], *place)] += dy[at]
    return dx


def columns(windows: list[Window]) -> dict[str, tuple[int, ...]]:
    sizes, kernel, strides, pads, dilations = zip(*windows)
    return {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations, "sizes": sizes}


def pooled(x: np.ndarray, windows: list[Window], layout: tuple[int, ...] | None,
           target: Target | None = None) -> list[np.ndarray]:  # fmt: skip
    given = columns(windows)
    del given["sizes"]
    given["pads"] *= 2
    return run_node(op("TrainingMaxPool", "parax", **given), [x], outputs=2, layouts=[layout], target=target)


def gradient(dy: np.ndarray, taps: np.ndarray, windows: list[Window], layout: tuple[int, ...] | None,
             target: Target | None = None) -> np.ndarray:  # fmt: skip
    (dx,) = run_node(op("MaxPoolGradient", "parax", **columns(windows)), [dy, taps], layouts=[layout, layout],
                     out_layouts=[layout], target=target)  # fmt: skip
    return dx


@st.composite
def one_axis(draw: st.DrawFn) -> Window:
    k, s, d = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2, 3]))
    pad = draw(st.integers(0, min(k // 2, 2)))
    return draw(st.integers(max((k - 1) * d + 1, pad + 1), 14)), k, s, pad, d


@given(st.lists(one_axis(), min_size=1, max_size=3), st.integers(1, 2), st.integers(1, 35), st.booleans(),
       st.sampled_from([np.float32, np.float64, np.float16]), st.integers(0, 9))  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_a_pool_and_its_gradient(windows: list[Window], batch: int, channels: int, last: bool, dtype: type,
                                 seed: int) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    channels = channels if len(windows) < 3 else min(channels, 5)
    x = rng.integers(-3, 4, (batch, channels, *(w[0] for w in windows))).astype(dtype)  # ties
    x[rng.random(x.shape) < 0.04] = np.nan
    x[rng.random(x.shape) < 0.04] = -np.inf
    layout = (0, *range(2, x.ndim), 1) if last else None
    expected, taps = greatest(x, windows)
    y, found = pooled(x, windows, layout)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(found, taps)
    dy = rng.integers(-9, 10, y.shape).astype(dtype)
    np.testing.assert_array_equal(gradient(dy, taps, windows, layout), gathered(dy, taps, windows))


@pytest.mark.parametrize("layout", [None, (0, 2, 3, 1), (2, 0, 3, 1), (1, 2, 3, 0)])
def test_on_every_target_in_every_order(layout: tuple[int, ...] | None, target: Target) -> None:
    windows = [(9, 3, 2, 1, 1), (11, 3, 2, 1, 1)]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 37, 9, 11)).astype(np.float32)
    _, taps = greatest(x, windows)
    y, found = pooled(x, windows, layout, target)
    np.testing.assert_array_equal(found, taps)
    dy = rng.integers(-9, 10, y.shape).astype(np.float32)
    dy[0, 0, 0, 0], dy[1, 3, 2, 2] = np.nan, np.inf
    np.testing.assert_array_equal(gradient(dy, taps, windows, layout, target), gathered(dy, taps, windows))


@pytest.mark.parametrize("attributes, kept", [({"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, True),
                                              ({"kernel_shape": [16, 16]}, True),
                                              ({"kernel_shape": [16, 17], "storage_order": 1}, False)])  # fmt: skip
def test_the_way_back_reads_taps_alone(attributes: dict[str, object], kept: bool) -> None:
    """As long as a byte tells them apart; then the pool's operand need not be kept."""
    graph = Graph("pool")
    x = graph.add_input("x", TensorType(F32, (2, 3, 20, 20)))
    g = GraphBuilder(graph)
    (dx,) = gradients(graph, g.ReduceSum(g.MaxPool(g.Exp(x), **attributes), keepdims=0), [x])
    names = [node.op.name for node in graph]
    assert ("MaxPoolGradient" in names) == kept and ("ScatterElements" in names) != kept
    assert dx.tensor.dims == (2, 3, 20, 20)
