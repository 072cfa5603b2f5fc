"""Statistics of a batch, and the sums of their gradient, against f64: layouts, parts, large means, infinities."""

from __future__ import annotations

import numpy as np
import pytest

from backend.harness import op, run_graph, run_node
from parax.compiler.ir.ops.batch_statistics import parts_of
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import F64, TensorType, symbol
from parax.compiler.passes.autodiff.reverse import gradients
from parax.errors import UnsupportedOp

LAST, OUTER = (0, 2, 3, 1), (1, 0, 2, 3)
SHAPES = [((6, 5), None), ((300, 33), None), ((4, 70, 9, 7), None), ((4, 70, 9, 7), LAST), ((32, 16, 8, 8), LAST),
          ((32, 3, 8, 8), OUTER), ((1, 3, 1, 1), None), ((2, 5, 3, 2, 4), (0, 2, 3, 4, 1))]  # fmt: skip


def joined(shift: np.ndarray, distance: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (less the first part's shift) and variance of parts of one size, in f64."""
    shift, distance, variance = (v.astype(np.float64) for v in (shift, distance, variance))
    means = shift - shift[0] + distance
    return means.mean(0), variance.mean(0) + means.var(0)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(("shape", "layout"), SHAPES)
def test_the_error_of_the_variance_does_not_grow_with_the_mean(shape, layout, is_open) -> None:
    for offset in (0.0, 1e3, -1e6):
        x = (np.random.default_rng(1).standard_normal(shape) + offset).astype(np.float32)
        found = run_node(op("BatchStatistics", "parax"), [x], outputs=3, layouts=[layout],
                         symbols={"N": 0} if is_open else {})  # fmt: skip
        exact, axes = x.astype(np.float64), (0, *range(2, x.ndim))
        mean, variance = joined(*found)
        np.testing.assert_allclose(variance, exact.var(axes), rtol=1e-5, atol=1e-12)
        distance = exact.mean(axes) - found[0][0]
        np.testing.assert_allclose(mean, distance, atol=1e-6 * (np.abs(distance).max() + exact.std()))


@pytest.mark.parametrize(("shape", "layout"), SHAPES)
def test_both_sums_of_the_gradient(shape, layout) -> None:
    rng = np.random.default_rng(2)
    x, dy = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    shift, distance, r = (rng.standard_normal(shape[1]).astype(np.float32) for _ in range(3))
    total, by_normal = run_node(op("BatchGradientSums", "parax"), [x, dy, shift, distance, r], outputs=2,
                                layouts=[layout, layout])  # fmt: skip
    axes, channels = (0, *range(2, x.ndim)), (1, -1, *[1] * (x.ndim - 2))
    deviation = x.astype(np.float64) - (shift.astype(np.float64) + distance).reshape(channels)
    np.testing.assert_allclose(total.sum(0), dy.astype(np.float64).sum(axes), atol=2e-4)
    np.testing.assert_allclose(by_normal.sum(0), (dy * deviation).sum(axes) * r, rtol=1e-4, atol=2e-3)


def test_a_channel_of_one_number_has_no_variance() -> None:
    x = np.full((64, 3, 7, 7), 12345.678, np.float32)
    _, distance, variance = run_node(op("BatchStatistics", "parax"), [x], outputs=3)
    assert not distance.any() and not variance.any()


@pytest.mark.parametrize("where", [(0, 1, 0, 0), (3, 1, 4, 4)])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_channel(where, number) -> None:
    x = np.random.default_rng(3).standard_normal((4, 3, 5, 5)).astype(np.float32)
    x[where] = number
    shift, distance, variance = run_node(op("BatchStatistics", "parax"), [x], outputs=3)
    mean = (shift + distance).mean(0)
    assert np.isfinite(mean[[0, 2]]).all() and np.isfinite(variance[:, [0, 2]]).all()
    assert np.isnan(variance[:, 1]).any()
    np.testing.assert_equal(mean[1], number)


@pytest.mark.parametrize(("shape", "parts"), [
    ((32, 8, 56, 56), (32, 1)), ((128, 8, 7, 7), (4, 32)), ((7, 8, 3), (1, 7)), ((4096, 8), (4, 1024)),
    ((100000, 8), (50, 2000)), ((symbol("N"), 8), (1, symbol("N"))), ((symbol("N"), 8, 7, 7), (symbol("N"), 1)),
])  # fmt: skip
def test_parts(shape, parts) -> None:
    assert parts_of(shape) == parts


TEXT = """graph @g(%x: {x}, %s: f64[3], %b: f64[3], %m: f64[3], %v: f64[3], %c: {x}) {{
  %y, %mean, %var = BatchNormalization(%x, %s, %b, %m, %v) {{training_mode=1, momentum=0.5}} : {x}, f64[3], f64[3]
  %p = Mul(%y, %c)
  %l = ReduceSum(%p) {{keepdims=0}}
  %k = ReduceSum(%mean) {{keepdims=0}}
  %j = ReduceSum(%var) {{keepdims=0}}
  %kj = Mul(%k, %j)
  %loss = Add(%l, %kj)
  return %loss
}}"""


@pytest.mark.parametrize("shape", [(4, 3), (5, 3, 4), (40, 3, 4, 8)])
def test_gradients_through_the_results_and_through_the_statistics(shape) -> None:
    rng = np.random.default_rng(4)
    text = TEXT.format(x=TensorType(F64, shape))
    feeds = {"x": rng.standard_normal(shape) + 3, "c": rng.standard_normal(shape),
             **{n: rng.standard_normal(3) for n in "sbmv"}}  # fmt: skip
    graph = parse_graph(text)
    xs = [graph.value(n) for n in "xsbmv"]
    graph.set_outputs([graph.outputs[0], *gradients(graph, graph.outputs[0], xs)])
    _, *found = run_graph(graph, feeds)
    for name, gradient in zip("xsbmv", found, strict=True):
        way = rng.standard_normal(feeds[name].shape)
        ahead, behind = (run_graph(parse_graph(text), {**feeds, name: feeds[name] + h * way})[0] for h in (1e-5, -1e-5))
        assert abs((ahead - behind) / 2e-5 - (gradient * way).sum()) < 1e-6 * (1 + np.abs(gradient * way).sum())


def test_the_second_derivative_is_refused_by_name() -> None:
    graph = parse_graph(TEXT.format(x="f64[4,3]"))
    x = graph.value("x")
    dx = gradients(graph, graph.outputs[0], [x])
    with pytest.raises(UnsupportedOp, match=r"statistics|BatchGradientSums"):
        gradients(graph, dx[0], [x])
