"""The error of Winograd's convolutions, tile by tile: inputs of any scale, infinities, NaNs and what they may reach."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from backend.harness import Program, host_targets
from backend.kernels import naive
from backend.kernels.naive import normal
from parax.compiler.backend.kernels.conv.layer import ConvLayer
from parax.compiler.backend.kernels.conv.winograd import counts
from parax.compiler.backend.kernels.conv.winograd import lower as winograd
from parax.compiler.backend.kernels.conv.winograd.axes import Axis, axis_algorithm, emit_product
from parax.compiler.backend.lowering import LowerContext
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.targets.target import Target
from sampling import sampled

LAST = (0, 2, 3, 1)
UNDERFLOW = 1e-38  # of sums of a few hundred products, each of which may lose 2⁻¹⁴⁹ times the algorithm's constants
ALGORITHMS = [((3, 3), 1, (4, 4)), ((3, 3), 1, (2, 2)), ((3, 3), 1, (3, 2)), ((3, 3), 2, (4, 4)), ((3, 3), 2, (2, 3)),
              ((1, 7), 1, (1, 3)), ((7, 1), 1, (2, 1)), ((5, 5), 1, (4, 4)), ((5, 5), 2, (2, 2)), ((3, 1), 1, (4, 1)),
              ((7, 7), 1, (2, 2)), ((6, 6), 1, (3, 3)), ((2, 2), 1, (4, 4)), ((1, 8), 1, (1, 2))]  # fmt: skip
ALL = [(t, ALGORITHMS[0]) for t in host_targets()] + [(host_targets()[0], a) for a in ALGORITHMS[1:]]


@dataclass
class Layer:
    """A convolution that takes one pair of axis algorithms, compiled for one target.

    `size` gives tiles that are cut off at the right and at the bottom.
    """

    kernel: tuple[int, int]
    stride: int
    outputs: tuple[int, int]
    target: Target
    size: tuple[int, int] = (11, 14)
    inputs: int = 32
    w: np.ndarray = field(init=False)
    b: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.w = normal(48, self.inputs, *self.kernel, seed=1)
        self.b = normal(48, seed=2)
        self.pads = [size // 2 for size in (*self.kernel, *self.kernel)]
        self.how = {"strides": [self.stride] * 2, "pads": self.pads}
        pads, sizes = ",".join(map(str, self.pads)), ",".join(map(str, self.size))
        graph = parse_graph(f"""graph @g(%x: f32[N,{self.inputs},{sizes}]{{0,2,3,1}}) {{
  %w = const f32[48,{self.inputs},{self.kernel[0]},{self.kernel[1]}] "w"
  %b = const f32[48] "b"
  %y = Conv(%x, %w, %b) {{pads=[{pads}], strides=[{self.stride},{self.stride}]}}
  return %y
}}""", {"w": self.w, "b": self.b})
        assert isinstance(graph, Graph)
        (y,) = graph.outputs
        y.type = y.tensor.with_layout(LAST)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(winograd.WinogradAlgorithm, "variants", lambda _, ctx, layer: self.variants(ctx, layer))
            self.program = Program(graph, self.target, ("N",))

    @property
    def axes(self) -> tuple[Axis, Axis]:
        height, width = (axis_algorithm(m, k, self.stride) for m, k in zip(self.outputs, self.kernel, strict=True))
        return height, width

    def image(self, seed: int = 0) -> np.ndarray:
        return normal(3, self.inputs, *self.size, seed=seed)

    def variants(self, ctx: LowerContext, layer: ConvLayer) -> list[winograd.WinogradTiles]:
        """For the algorithm's: the layer's own tiles, whatever they would take."""
        own = [a for a in winograd.algorithms(layer.shape) if (a[0].outputs, a[1].outputs) == self.outputs]
        return [winograd.WinogradTiles("forced", own[0], share=0)]

    def run(self, x: np.ndarray) -> np.ndarray:
        (y,) = self.program.run({"x": x}, {"N": len(x)}, 3)
        return y

    def expected(self, x: np.ndarray) -> np.ndarray:
        return naive.conv(x, self.w, self.b, dilations=[1, 1], group=1, **self.how)

    def over_windows(self, values: np.ndarray, combine: Callable[..., np.ndarray]) -> np.ndarray:
        """[N, C, H, W] of the input → [N, C, h, w] of the output: combined over the window of each output's tile."""
        (top, left, bottom, right), (high, wide) = self.pads, self.axes
        room = high.inputs * 2, wide.inputs * 2
        padded = np.pad(values, ((0, 0), (0, 0), (top, bottom + room[0]), (left, right + room[1])))
        h, w = ((n + a + b - k) // self.stride + 1 for n, a, b, k in
                zip(self.size, (top, left), (bottom, right), self.kernel, strict=True))  # fmt: skip
        found = np.zeros((*values.shape[:2], h, w), values.dtype)
        for i, j in itertools.product(range(0, h, high.outputs), range(0, w, wide.outputs)):
            rows = slice(i * self.stride, i * self.stride + high.inputs)
            columns = slice(j * self.stride, j * self.stride + wide.inputs)
            own = combine(padded[:, :, rows, columns], axis=(2, 3))[:, :, None, None]
            found[:, :, i : i + high.outputs, j : j + wide.outputs] = own
        return found


def scaled(kind: str, layer: Layer) -> np.ndarray:
    """An input whose pixels differ widely."""
    x, rng = layer.image(), np.random.default_rng(5)
    if kind == "scales":
        x *= 10.0 ** rng.uniform(-4, 4, (3, 1, *layer.size))
    elif kind == "channels":
        x *= 10.0 ** rng.uniform(-4, 4, (3, layer.inputs, 1, 1))
    elif kind == "outlier":
        x[:, :, 4, 6] *= 1e8
    elif kind == "denormals":
        x *= 1e-41
    elif kind == "few denormals":
        x[:, :, ::2] *= 1e-41
    elif kind == "zeros":
        x[:, :, 2:9] = 0
    return x.astype(np.float32)


@cache
def layer_of(target: Target, algorithm: tuple[Any, Any, Any]) -> Layer:
    return Layer(*algorithm, target)


algorithms = pytest.mark.parametrize(
    "target, algorithm", sampled(ALL, 3), ids=lambda v: v.name if isinstance(v, Target) else str(v)
)


@pytest.mark.parametrize("kind", ["scales", "channels", "outlier", "denormals", "few denormals", "zeros"])
@algorithms
def test_every_tile_keeps_the_bound_of_its_own_window(
    target: Target, algorithm: tuple[Any, Any, Any], kind: str
) -> None:
    layer = layer_of(target, algorithm)
    x = scaled(kind, layer)
    found, expected = layer.run(x), layer.expected(x)
    largest = layer.over_windows(np.abs(x).astype(np.float64), np.max)
    taps = np.abs(layer.w).astype(np.float64).sum(axis=(2, 3))
    share = np.einsum("nchw,oc->nohw", largest, taps)
    error = np.abs(found - expected)
    rounded = 2 * winograd.UNIT_ROUNDOFF * (np.abs(expected) + np.abs(layer.b)[:, None, None]) + UNDERFLOW
    assert (error <= winograd.error_bound(layer.axes, layer.inputs) * share + rounded).all()
    small = max(layer.outputs) == 2 and min(layer.kernel) <= 5 and max(layer.kernel) <= 7
    seen = winograd.SMALL_TILE_ERROR if small else winograd.TILE_ERROR
    norm = np.sqrt((layer.w.astype(np.float64) ** 2).sum(axis=(1, 2, 3)))[:, None, None]
    assert (error <= seen * largest.max(axis=1, keepdims=True) * norm + rounded).all()


@pytest.mark.parametrize("poison", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("pixel", [(0, 0), (4, 6), (10, 13), (0, 7)], ids=str)
@algorithms
def test_what_is_not_finite_stays_in_the_tiles_that_read_it(
    target: Target, algorithm: tuple[Any, Any, Any], pixel: tuple[int, int], poison: float
) -> None:
    layer, at = layer_of(target, algorithm), (1, 5, *pixel)
    x = layer.image()
    clean = layer.run(x)
    x[at] = poison
    found = layer.run(x)
    marked = np.zeros(x.shape, bool)
    marked[at] = True
    reached = np.broadcast_to(layer.over_windows(marked, np.any).any(axis=1, keepdims=True), found.shape)
    np.testing.assert_array_equal(found[~reached], clean[~reached])
    if not np.isfinite(poison):
        with np.errstate(invalid="ignore"):
            assert not np.isfinite(found[~np.isfinite(layer.expected(x))]).any(), "it is not lost either"


def test_a_fused_tail_adds_what_is_not_finite_where_it_is() -> None:
    graph = parse_graph("""
graph @g(%x: f32[N,16,9,7]{0,2,3,1}, %r: f32[N,16,9,7]{0,2,3,1}) {
  %w = const f32[16,16,3,3] "w"
  %y = fused<Conv>(%x, %w, %r) : f32[N,16,9,7]{0,2,3,1}
    body(%x: f32[N,16,9,7]{0,2,3,1}, %w: f32[16,16,3,3], %r: f32[N,16,9,7]{0,2,3,1}) {
      %1 = Conv(%x, %w) {pads=[1,1,1,1]} : f32[N,16,9,7]{0,2,3,1}
      %2 = Add(%1, %r) : f32[N,16,9,7]{0,2,3,1}
      %y = Tanh(%2) : f32[N,16,9,7]{0,2,3,1}
      return %y
    }
  return %y
}
""", {"w": normal(16, 16, 3, 3, seed=3)})
    assert isinstance(graph, Graph)
    with pytest.MonkeyPatch.context() as patch:
        own = layer_of(*ALL[0])
        patch.setattr(winograd.WinogradAlgorithm, "variants", lambda _, ctx, layer: own.variants(ctx, layer))
        program = Program(graph, None, ("N",))
    feeds = {"x": normal(2, 16, 9, 7), "r": normal(2, 16, 9, 7, seed=1)}
    (clean,) = program.run(feeds, {"N": 2}, 3)
    feeds["r"][0, 3, 8, 6] = np.nan
    feeds["x"][1, 2, 0, 0] = np.nan  # only the tile in the corner reads it
    (found,) = program.run(feeds, {"N": 2}, 3)
    reached = np.zeros(found.shape, bool)
    reached[0, 3, 8, 6] = True
    reached[1, :, :4, :4] = True
    np.testing.assert_array_equal(found[~reached], clean[~reached])
    assert np.isnan(found[0, 3, 8, 6]) and np.isnan(found[1, :, :2, :2]).all()


def offered() -> list[tuple[Axis, Axis]]:
    """Every pair of axis algorithms that any layer may take."""
    layers = [counts.Layer(1, 16, 16, (h, w), (s, s), (12, 12))
              for h, w, s in itertools.product(range(1, 10), range(1, 10), (1, 2))]  # fmt: skip
    made = {(*(axis_algorithm(*sizes) for sizes in zip(a.tile, layer.taps, layer.strides, strict=True)),)
            for layer in layers for a in counts.algorithms(layer)}  # fmt: skip
    return [(height, width) for height, width in made]


def test_whatever_is_offered_has_the_documented_constant() -> None:
    amplified = [a.amplification * b.amplification for a, b in offered()]
    assert min(amplified) > 1 and max(amplified) <= winograd.MOST_AMPLIFICATION
    alone = [a.amplification * b.amplification for a, b in offered() if 1 in (a.taps, b.taps)]
    assert max(alone) <= 208
    assert all(sum(axis.roundings for axis in axes) <= 40 for axes in offered())


@dataclass(frozen=True)
class Ways:
    """Stands for a register: of each input value its factor, and the roundings that it has met."""

    factors: dict[int, Fraction]
    roundings: dict[int, int]

    def times(self, c: float, rounded: int) -> Ways:
        factors = {j: f * Fraction(c) for j, f in self.factors.items()}
        return Ways(factors, {j: n + rounded for j, n in self.roundings.items()})

    def __mul__(self, c: float) -> Ways:
        return self.times(c, 1)

    def __neg__(self) -> Ways:
        return self.times(-1.0, 0)

    def __add__(self, other: Ways) -> Ways:
        assert not self.factors.keys() & other.factors.keys(), "two ways of one value, whose errors would not cancel"
        return Ways(self.factors | other.factors, {j: n + 1 for j, n in (self.roundings | other.roundings).items()})

    def __sub__(self, other: Ways) -> Ways:
        return self + -other


class Counting:
    """Stands for a `Builder`."""

    def fma(self, v: Ways, c: float, total: Ways) -> Ways:
        return v.times(c, 0) + total


def test_transforms_are_exact_but_for_the_roundings_that_the_bound_counts() -> None:
    for phase in {phase for axes in offered() for axis in axes for phase in axis.phases}:
        met = []
        for matrix in (phase.bt, phase.at):
            values: Any = [Ways({j: Fraction(1)}, {j: 0}) for j in range(len(matrix[0]))]
            found: Any = emit_product(Counting(), matrix, values)  # type: ignore[arg-type]
            for row, result in zip(matrix, found, strict=True):
                assert result.factors == {j: c for j, c in enumerate(row) if c}
                assert all(float(np.float32(c)) == c for c in row), "no f32 number"
            met.append(max(n for result in found for n in result.roundings.values()))
        assert sum(met) <= phase.roundings
