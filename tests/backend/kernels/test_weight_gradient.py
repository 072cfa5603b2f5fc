"""The kernel of a convolution's weight gradient against its sums in NumPy, f64: odd sizes, windows, groups, cores."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parax.compiler.driver import compile_graph
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.types import F32, TensorType
from parax.compiler.options import CompileOptions

Window = tuple[int, int, int, int, int]  # input, kernel, stride, pad, dilation


def n_outputs(n: int, k: int, s: int, p: int, d: int) -> int:
    return (n + 2 * p - (k - 1) * d - 1) // s + 1


def twin(x: np.ndarray, dy: np.ndarray, windows: list[Window], group: int) -> np.ndarray:
    """Tap after tap, in f64."""
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    pads = [(p, p + k * d + s) for _, k, s, p, d in windows]
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    n, m, *out = dy.shape
    xs = x.reshape(n, group, -1, *x.shape[2:])
    ys = dy.reshape(n, group, m // group, -1)
    dw = np.zeros((m, xs.shape[2], *(k for _, k, *_ in windows)))
    for tap in itertools.product(*(range(k) for _, k, *_ in windows)):
        slices = tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, o, (_, _, s, _, d) in zip(tap, out, windows))
        met = xs[(slice(None), slice(None), slice(None), *slices)].reshape(n, group, xs.shape[2], -1)
        dw[(slice(None), slice(None), *tap)] = np.einsum("ngcp,ngmp->gmc", met, ys).reshape(m, -1)
    return dw


def gradient(
    x: np.ndarray, dy: np.ndarray, windows: list[Window], group: int, cores: int = 1, level: int = 2
) -> np.ndarray:
    graph = Graph("gradient")
    g = GraphBuilder(graph)
    values = [graph.add_input(name, TensorType(F32, array.shape)) for name, array in (("x", x), ("dy", dy))]
    _, kernel, strides, pads, dilations = (list(column) for column in zip(*windows))
    graph.set_outputs([g.ConvWeightGradient(*values, kernel_shape=kernel, strides=strides, pads=pads,
                                            dilations=dilations, group=group)], ["dw"])  # fmt: skip
    options = CompileOptions(hint="latency", cores=tuple(range(cores)), opt_level=level)
    with compile_graph(graph, options).session(1, range(cores), cores) as session:
        return session.run({"x": x, "dy": dy})["dw"]


def operands(n: int, c: int, m: int, windows: list[Window], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, c, *(w[0] for w in windows))).astype(np.float32)
    return x, rng.standard_normal((n, m, *(n_outputs(*w) for w in windows))).astype(np.float32)


def check(n: int, c: int, m: int, windows: list[Window], group: int = 1, **how: int) -> None:
    x, dy = operands(n, c, m, windows)
    found, expected = gradient(x, dy, windows, group, **how), twin(x, dy, windows, group)
    bound = twin(np.abs(x), np.abs(dy), windows, group)
    assert found.shape == expected.shape
    assert (np.abs(found - expected) <= 1e-5 * bound + 1e-30).all()


@st.composite
def window(draw: st.DrawFn) -> Window:
    k, d, s, p = (draw(st.integers(a, b)) for a, b in ((1, 4), (1, 2), (1, 3), (0, 3)))
    return draw(st.integers(max(1, (k - 1) * d + 1 - 2 * p), 12)), k, s, p, d


@settings(max_examples=25)
@given(
    st.integers(1, 3), st.integers(1, 9), st.integers(1, 40), st.lists(window(), min_size=1, max_size=3),
    st.integers(1, 3), st.sampled_from([1, 1, 2, 3]),
)  # fmt: skip
@example(1, 7, 65, [(5, 3, 1, 1, 1), (600, 3, 1, 1, 1)], 1, 1)  # a line of several pieces
@example(9, 97, 130, [(9, 3, 2, 1, 1), (9, 3, 2, 1, 1)], 1, 1)  # chunks, panels, blocks of rows
@example(2, 211, 50, [(7, 1, 2, 0, 1), (8, 1, 3, 1, 1)], 2, 1)  # one tap; a last chunk of another size
@example(1, 115, 33, [(4, 2, 1, 1, 2), (5, 3, 1, 1, 1), (6, 3, 2, 2, 1)], 2, 2)  # the same in groups, in three axes
@example(2, 1, 1, [(8, 3, 1, 1, 1), (8, 3, 1, 1, 1)], 1, 5)  # one filter a channel
def test_against_the_sums(n: int, c: int, m: int, windows: list[Window], cores: int, group: int) -> None:
    check(n, c * group, m * group, windows, group, cores=min(cores, 2))


@settings(max_examples=15)
@given(st.integers(1, 3), st.integers(2, 70), st.lists(window(), min_size=1, max_size=3), st.sampled_from([1, 1, 2]))
@example(3, 40, [(12, 3, 1, 1, 1), (12, 3, 1, 1, 1)], 2)
@example(1, 33, [(9, 5, 2, 2, 1), (9, 5, 2, 2, 1)], 1)
@example(2, 70, [(17, 11, 1, 5, 1), (17, 11, 1, 5, 1)], 2)  # rows of the filter in turn; long ends of lines
@example(1, 9, [(35, 31, 1, 15, 1), (35, 31, 1, 15, 1)], 1)  # as large as any
@example(1, 20, [(5, 1, 1, 0, 1), (90, 23, 1, 22, 2)], 1)  # more ends of a line than are written out
@example(2, 64, [(5, 3, 2, 1, 1), (9, 13, 1, 6, 1)], 1)  # taps in pieces
@example(2, 300, [(30, 3, 1, 1, 1), (6, 3, 1, 1, 1)], 2)  # panels, blocks of rows
@example(3, 130, [(40, 3, 1, 1, 1)], 1)
def test_one_filter_a_channel(n: int, channels: int, windows: list[Window], cores: int) -> None:
    check(n, channels, channels, windows, channels, cores=cores)


@pytest.mark.parametrize("level", [0, 1])
def test_operands_as_they_lie(level: int) -> None:
    check(2, 6, 20, [(7, 3, 2, 1, 1), (6, 2, 1, 0, 2)], 2, level=level)


@pytest.mark.parametrize("c, m, group", [(40, 70, 1), (201, 70, 1), (70, 70, 70)])
def test_cores_change_no_bit(c: int, m: int, group: int) -> None:
    windows = [(14, 3, 1, 1, 1), (14, 3, 1, 1, 1)]
    x, dy = operands(2, c, m, windows)
    one, two = (gradient(x, dy, windows, group, cores=n) for n in (1, 2))
    np.testing.assert_array_equal(one.view(np.int32), two.view(np.int32))


@pytest.mark.parametrize("m, group", [(18, 1), (5, 5)])
def test_nan_and_inf_come_where_they_are_met(m: int, group: int) -> None:
    windows = [(6, 3, 1, 1, 1), (6, 3, 1, 1, 1)]
    x, dy = operands(1, 5, m, windows)
    x[0, 2, 0, 0], x[0, 3, 2, 2] = np.nan, np.inf
    found, expected = gradient(x, dy, windows, group), twin(x, dy, windows, group)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
    finite = np.isfinite(expected)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-4, atol=1e-5)
