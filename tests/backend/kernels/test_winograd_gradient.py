"""Weight gradients by Winograd's algorithms against the direct sum in f64: odd maps, pads, blocks, layouts, targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from backend.harness import Program, host_targets, op, run_node
from backend.kernels.naive import normal
from backend.kernels.test_weight_gradient import twin
from backend.ways import EVERY
from parax.compiler.backend.kernels.conv import weight_gradient
from parax.compiler.backend.kernels.conv.weight_gradient import GradientLayer, TransformedGradient, transformable
from parax.compiler.backend.kernels.conv.weight_gradient_sizes import Sizes
from parax.compiler.backend.kernels.conv.winograd import counts, gradient
from parax.compiler.backend.kernels.conv.winograd.gradient_plan import GradientPlan, plans
from parax.compiler.backend.lowering import LowerContext
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops.geometry import WindowGeometry
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import F32, TensorType
from parax.compiler.targets.target import Target
from sampling import sampled, thorough

LAST = (0, 2, 3, 1)
SEEN = 1e-5  # of the greatest Σ |x · dy|; of random numbers: 6e-6 of a single tile of F(5, 4), else 1e-6
TILES = [((3, 3), 1, (4, 4)), ((3, 3), 2, (4, 4)), ((1, 1), 1, (1, 1)), ((3, 3), 1, (3, 4)), ((5, 5), 1, (4, 4)),
         ((1, 7), 1, (1, 2)), ((3, 1), 1, (4, 1)), ((2, 2), 1, (4, 4)), ((3, 3), 1, (2, 2)), ((5, 5), 2, (4, 3)),
         ((1, 3), 2, (1, 4)), ((1, 1), 2, (1, 1))]  # fmt: skip
made: list[GradientPlan] = []


def force(monkeypatch: pytest.MonkeyPatch, tile: tuple[int, int] | None, which: int = 0) -> None:
    """A kernel is tested on any size: the best plan of a tile, or one that blocks otherwise."""

    def variants(_: object, ctx: LowerContext, layer: GradientLayer) -> list[TransformedGradient]:
        offered = sorted(plans(layer.sizes, ctx.target, counts.USUAL, 1), key=lambda pair: pair[0])
        own = [p for _, p in offered if tile in (None, (p.axes[0].tile, p.axes[1].tile))]
        made[:] = [own[which % len(own)]]
        return [TransformedGradient("forced", 0, made[0])]

    monkeypatch.setattr(TransformedGradient, "variants", variants)


def run(
    x: np.ndarray, dy: np.ndarray, kernel: tuple[int, int], pads: tuple[int, int], stride: int = 1, **how: Any
) -> Any:  # fmt: skip
    how = {"layouts": [LAST, LAST], **how}
    attributes = {"kernel_shape": list(kernel), "strides": [stride] * 2, "dilations": [1, 1], "pads": list(pads)}
    (dw,) = run_node(op("ConvWeightGradient", domain="parax", **attributes), [x, dy], **how)
    return dw


def windows(
    x: np.ndarray, kernel: tuple[int, int], pads: tuple[int, int], stride: int = 1
) -> list[tuple[int, int, int, int, int]]:  # fmt: skip
    return [(n, k, stride, p, 1) for n, k, p in zip(x.shape[2:], kernel, pads, strict=True)]


def check(
    n: int, c: int, m: int, size: tuple[int, int], kernel: tuple[int, int], pads: tuple[int, int],
    stride: int = 1, **how: Any,
) -> None:  # fmt: skip
    x = normal(n, c, *size)
    dy = normal(n, m, *((s + 2 * p - k) // stride + 1 for s, p, k in zip(size, pads, kernel, strict=True)), seed=1)
    found, places = run(x, dy, kernel, pads, stride, **how), windows(x, kernel, pads, stride)
    expected, bound = twin(x, dy, places, 1), twin(np.abs(x), np.abs(dy), places, 1)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= SEEN * bound.max()


@pytest.mark.parametrize("kernel, stride, tile", sampled(TILES, 3))
@thorough(6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_agrees_with_the_direct_sum(
    monkeypatch: pytest.MonkeyPatch, kernel: tuple[int, int], stride: int, tile: tuple[int, int], data: st.DataObject
) -> None:
    many = [528] if kernel == (1, 1) else []  # outputs for which x is copied in the order of its tiles
    n, c, m = (data.draw(st.sampled_from(sizes)) for sizes in ([1, 2, 3], [16, 32, 48], [16, 64, 80, *many]))
    pads = tuple(data.draw(st.integers(0, k - 1)) for k in kernel)
    size = tuple(data.draw(st.integers(max(1, k - 2 * p), 13)) for k, p in zip(kernel, pads))
    force(monkeypatch, tile, data.draw(st.integers(0, 50)))
    layout = data.draw(st.sampled_from([None, (2, 3, 1, 0)]))
    check(n, c, m, size, kernel, pads, stride, out_layouts=[layout])  # type: ignore[arg-type]


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
def test_every_target(monkeypatch: pytest.MonkeyPatch, target: Target) -> None:
    for which, stride in ((0, 1), (7, 1), (0, 2)):
        force(monkeypatch, (4, 4), which)
        check(2, 64, 80, (9, 11), (3, 3), (1, 1), stride, target=target)


def shared(graph: object, target: Target, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """The result of a graph of x and dy, in every way in which cores may share its items."""
    assert isinstance(graph, Graph)
    ((dw,),) = Program(graph, target).run_all([({"x": x, "dy": dy}, {})], EVERY)
    return dw


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("which", [0, 9])
def test_however_cores_share_the_items(monkeypatch: pytest.MonkeyPatch, target: Target, which: int) -> None:
    force(monkeypatch, (4, 4), which)
    graph = parse_graph("""graph @g(%x: f32[2,64,9,11]{0,2,3,1}, %dy: f32[2,48,9,11]{0,2,3,1}) {
  %dw = parax::ConvWeightGradient(%x, %dy) {kernel_shape=[3,3], strides=[1,1], pads=[1,1], dilations=[1,1]} : \
f32[48,64,3,3]
  return %dw
}""")
    x, dy = normal(2, 64, 9, 11), normal(2, 48, 9, 11, seed=1)
    dw = shared(graph, target, x, dy)
    places = windows(x, (3, 3), (1, 1))
    assert np.abs(dw - twin(x, dy, places, 1)).max() <= SEEN * twin(np.abs(x), np.abs(dy), places, 1).max()


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("which", [0, 11, 29])
def test_one_tap_in_the_order_of_its_tiles(monkeypatch: pytest.MonkeyPatch, target: Target, which: int) -> None:
    force(monkeypatch, None, which)
    graph = parse_graph("""graph @g(%x: f32[3,80,7,9]{0,2,3,1}, %dy: f32[3,528,7,9]{0,2,3,1}) {
  %dw = parax::ConvWeightGradient(%x, %dy) {kernel_shape=[1,1], strides=[1,1], pads=[0,0], dilations=[1,1]} : \
f32[528,80,1,1]
  return %dw
}""")
    x, dy = normal(3, 80, 7, 9), normal(3, 528, 7, 9, seed=1)
    x[1, 33, 3, 3], dy[2, 500, 6, 8] = np.nan, np.inf
    dw = shared(graph, target, x, dy)
    assert made[0].interleaved
    places = windows(x, (1, 1), (0, 0))
    expected, bound = twin(x, dy, places, 1), twin(np.abs(x), np.abs(dy), places, 1)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isfinite(dw), finite)
    assert (np.abs(dw - expected)[finite] <= gradient.error_bound(made[0]) * bound[finite]).all()


def test_one_block_and_several(monkeypatch: pytest.MonkeyPatch) -> None:
    met = set()
    for which in range(0, 60, 4):
        force(monkeypatch, (4, 4), which)
        check(2, 32, 32, (14, 14), (3, 3), (1, 1))
        met.add((made[0].is_single, made[0].chunk))
    assert {single for single, _ in met} == {True, False}
    assert {chunk for _, chunk in met} >= {16, 32}


@pytest.mark.parametrize("kind", ["scales", "outlier", "zeros", "many"])
def test_keeps_the_bound_of_its_tiles(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    force(monkeypatch, (4, 4))
    n = 16 if kind == "many" else 2
    x, dy = normal(n, 16, 14, 14), normal(n, 16, 14, 14, seed=1)
    if kind == "scales":
        x = (x * 10.0 ** np.random.default_rng(2).uniform(-4, 4, (n, 1, 14, 14))).astype(np.float32)
    elif kind == "outlier":
        x[:, :, 4, 6] *= 1e8
        dy[:, :, 9, 1] *= 1e8
    elif kind == "zeros":
        dy[:, :, 2:9] = 0
    found, expected = run(x, dy, (3, 3), (1, 1)), twin(x, dy, windows(x, (3, 3), (1, 1)), 1)
    padded = np.pad(np.abs(x).astype(np.float64), [(0, 0), (0, 0), (1, 5), (1, 5)])
    cut = np.pad(np.abs(dy).astype(np.float64), [(0, 0), (0, 0), (0, 2), (0, 2)])
    share = np.zeros((16, 16))
    for i in range(0, 14, 4):
        for j in range(0, 14, 4):
            largest = padded[:, :, i : i + 6, j : j + 6].max((2, 3))
            share += np.einsum("nc,nm->mc", largest, cut[:, :, i : i + 4, j : j + 4].sum((2, 3)))
    error = np.abs(found - expected).max((2, 3))
    assert (error <= gradient.error_bound(made[0]) * share).all()
    assert (error <= 2e-6 * share).all()


def test_what_is_not_finite_stays_with_its_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, (4, 4))
    x, dy = normal(2, 16, 12, 12), normal(2, 32, 12, 12, seed=1)
    x[0, 3, 5, 5], dy[1, 7, 2, 2] = np.inf, np.nan
    found = run(x, dy, (3, 3), (1, 1))
    finite = np.isfinite(found).all((2, 3))
    assert not np.isfinite(found[:, 3]).any(1).any()
    assert not np.isfinite(found[7]).any()
    finite[7], finite[:, 3] = True, True
    assert finite.all()


def test_a_pixel_that_no_window_met_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, (4, 4))
    x, dy = normal(2, 16, 13, 13), normal(2, 32, 6, 6, seed=1)
    x = np.pad(x, [(0, 0), (0, 0), (0, 1), (0, 1)], constant_values=np.nan)  # of 14 × 14, windows end at 13
    assert np.isfinite(run(x, dy, (3, 3), (0, 0), 2)).all()


def sizes(dw: tuple[int, ...], **how: Any) -> Sizes:
    own = {"strides": (1, 1), "dilations": (1, 1), "pads": (1, 1), "groups": 1, "layout": LAST, "c": 32} | how
    x, dy = (TensorType(F32, (2, n, 14, 14), own["layout"]) for n in (own["c"], dw[0]))
    g = WindowGeometry((3, 3), own["strides"], own["dilations"], own["pads"], own["pads"], (14, 14), (14, 14))
    return Sizes(x, dy, TensorType(F32, dw), g, own["groups"], 16, 6, 2)


def test_what_it_serves() -> None:
    assert transformable(sizes((32, 32, 3, 3)))
    for how in ({"strides": (3, 1)}, {"dilations": (2, 1)}, {"layout": None}, {"groups": 2}):
        assert not transformable(sizes((32, 32, 3, 3), **how)), how
    assert not transformable(sizes((24, 32, 3, 3)))


def test_the_direct_sum_stays_where_it_is_faster() -> None:
    few = sizes((32, 32, 3, 3))
    best = min(cycles for cycles, _ in plans(few, host_targets()[0], counts.USUAL, 1))
    assert best < weight_gradient.direct_cycles(few, counts.USUAL, 1)
