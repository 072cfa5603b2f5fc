"""Winograd's convolutions of bf16: every tile within the bound of its own window, on every target."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Program, op
from backend.interpreted import interpreted
from backend.kernels import naive
from backend.ways import EVERY, USUAL, Way
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.backend.kernels.conv.winograd import by_size, counts
from parax.compiler.backend.kernels.conv.winograd import lower as winograd
from parax.compiler.backend.kernels.conv.winograd.axes import axis_algorithm
from parax.compiler.backend.kernels.conv.winograd.plan import Plan
from parax.compiler.backend.kernels.conv.winograd.weights import transform_weights
from parax.compiler.backend.microkernels.bf16 import PAIRS
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import BF16, TensorType, symbol
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

HALF, LAST = ml_dtypes.bfloat16, (0, 2, 3, 1)
HOST, INSTRUCTION = resolve_target("native"), resolve_target("x86-64-v4+avx512bf16")
MATRICES = resolve_target("x86-64-v4+amx-bf16+amx-tile")
EVERY_TARGET = [*TARGETS.values(), INSTRUCTION]
AXES = axis_algorithm(2, 3), axis_algorithm(2, 3)
U, V, LEAST = 2.0**-8, 2.0**-24, 2.0**-126


def half(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(HALF)


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it would take."""
    monkeypatch.setattr(winograd.WinogradTiles, "max_share", np.inf)
    monkeypatch.setattr(winograd.WinogradTiles, "measured_share", np.inf)


def layer(x: tuple[Any, ...], w: np.ndarray, b: np.ndarray | None, pads: list[int], **how: list[int]) -> Graph:
    """One convolution; names in x's shape are symbols."""
    graph = Graph("layer")
    shape = tuple(symbol(n) if isinstance(n, str) else n for n in x)
    given_ = [graph.add_input("x", TensorType(BF16, shape, LAST)), graph.add_constant(w)]
    given_ += [] if b is None else [graph.add_constant(b)]
    node = graph.add_node(op("Bf16Conv", domain="parax", kernel_shape=list(w.shape[2:]), pads=pads, **how), given_)
    node.output.type = node.output.tensor.with_layout(LAST)
    graph.set_outputs(node.outputs)
    return graph


def is_transformed(program: Program) -> bool:
    return any("winograd_product" in name for _, call in program.calls for name in _callees(call.func))


def _callees(func: Any) -> Iterator[str]:
    for name, callee in func.callees.items():
        yield name
        yield from _callees(callee)


def computed(graph: Graph, x: np.ndarray, target: Target, symbols: dict[str, int] | None = None,
             ways: tuple[Way, ...] = USUAL) -> np.ndarray:  # fmt: skip
    """What a target computes: this machine runs its own code, others' kernels are interpreted."""
    program = Program(graph, target, tuple(symbols or {}))
    assert is_transformed(program)
    runs = target.supported_by(host_features())
    feeds = {"x": x}
    found = program.run_all([(feeds, symbols or {})], ways)[0] if runs else interpreted(program, feeds, symbols or {})
    return found[0]


def over_windows(values: np.ndarray, pads: list[int], combine: Callable[..., np.ndarray]) -> np.ndarray:
    """[N, C, H, W] of the input → [N, C, h, w] of the output: combined over the window of each output's tile."""
    top, left, bottom, right = pads
    h, w = values.shape[2] + top + bottom - 2, values.shape[3] + left + right - 2
    padded = np.pad(values, ((0, 0), (0, 0), (top, bottom + 4), (left, right + 4)))
    found = np.zeros((*values.shape[:2], h, w), values.dtype)
    for i, j in itertools.product(range(0, h, 2), range(0, w, 2)):
        found[:, :, i : i + 2, j : j + 2] = combine(padded[:, :, i : i + 4, j : j + 4], axis=(2, 3))[:, :, None, None]
    return found


def check(x: np.ndarray, w: np.ndarray, b: np.ndarray | None, pads: list[int], target: Target,
          graph: Graph | None = None, **how: Any) -> np.ndarray:  # fmt: skip
    """Against the sum in f64, by the bound of `winograd/lower.py`, and the error that is seen in practice."""
    y = computed(graph or layer(x.shape, w, b, pads), x, target, **how)
    wide, filters = x.astype(np.float64), w.astype(np.float64)
    exact = naive.conv(wide, filters, None if b is None else b.astype(np.float64), (1, 1), pads, (1, 1), 1)
    largest, taps = over_windows(np.abs(wide), pads, np.max), np.abs(filters).sum(axis=(2, 3))
    error = np.abs(y - exact)
    bias = 0.0 if b is None else np.abs(b.astype(np.float64))[:, None, None]
    channels = x.shape[1]
    z = 9 * LEAST * (taps.sum(axis=1)[:, None, None] + 4 * largest.sum(axis=1, keepdims=True) + 2 * channels)
    room = winograd.error_bound(AXES, channels, dtype=BF16) * np.einsum("nchw,oc->nohw", largest, taps)
    rounded = 2 * V * (np.abs(exact) + bias) + z
    assert y.dtype == np.float32 and y.shape == exact.shape
    assert (error <= room + rounded).all()
    norm = np.sqrt((filters**2).sum(axis=(1, 2, 3)))[:, None, None]
    assert (error <= winograd.BF16_TILE_ERROR * largest.max(axis=1, keepdims=True) * norm + rounded).all()
    return y


sizes, edges = st.integers(1, 11), st.lists(st.integers(0, 3), min_size=4, max_size=4)
SCALES = ["plain", "scales", "channels", "outlier", "denormals", "few denormals", "zeros"]


def scaled(kind: str, x: np.ndarray) -> np.ndarray:
    """Pixels that differ widely."""
    wide, rng = x.astype(np.float32), np.random.default_rng(5)
    if kind == "scales":
        wide *= 10.0 ** rng.uniform(-4, 4, (len(x), 1, *x.shape[2:]))
    elif kind == "channels":
        wide *= 10.0 ** rng.uniform(-4, 4, (len(x), x.shape[1], 1, 1))
    elif kind == "outlier":
        wide[:, :, -1, 0] *= 1e8
    elif kind == "denormals":
        wide *= 1e-40
    elif kind == "few denormals":
        wide[:, :, ::2] *= 1e-40
    elif kind == "zeros":
        wide[:, :, 1:] = 0
    return wide.astype(HALF)


@thorough(30)
@given(size=st.tuples(st.integers(1, 2), sizes, sizes), channels=st.sampled_from([16, 32, 48, 80]),
       outputs=st.sampled_from([16, 48, 96]), pads=edges, kind=st.sampled_from(SCALES), bias=st.booleans())  # fmt: skip
def test_any_size(size: tuple[int, int, int], channels: int, outputs: int, pads: list[int], kind: str,
                  bias: bool) -> None:  # fmt: skip
    n, h, w = size
    pads = [p + (-(-max(0, 3 - s) // 2)) for p, s in zip(pads, (h, w, h, w))]
    x, filters = scaled(kind, half(n, channels, h, w)), half(outputs, channels, 3, 3, seed=1)
    b = half(outputs, seed=2).astype(np.float32) if bias else None
    check(x, filters, b, pads, INSTRUCTION if INSTRUCTION.supported_by(host_features()) else HOST)


@pytest.mark.parametrize("target", EVERY_TARGET, ids=lambda t: t.name)
@pytest.mark.parametrize("kind", ["plain", "outlier", "few denormals"])
def test_every_target(target: Target, kind: str) -> None:
    lanes = target.f32_lanes
    x, w = scaled(kind, half(1, 2 * lanes, 5, 4)), half(3 * lanes, 2 * lanes, 3, 3, seed=1)
    check(x, w, half(3 * lanes, seed=2).astype(np.float32), [1, 1, 1, 1], target)


@pytest.mark.parametrize("shape", [(1, 64, 56, 56), (8, 16, 28, 28), (3, 256, 7, 7), (2, 32, 30, 31)], ids=str)
@pytest.mark.parametrize("outputs", [32, 64, 160])
def test_layers_of_models(shape: tuple[int, ...], outputs: int) -> None:
    check(half(*shape), half(outputs, shape[1], 3, 3, seed=1), None, [1, 1, 1, 1], HOST)


@pytest.mark.parametrize("target", [HOST, INSTRUCTION], ids=lambda t: t.name)
def test_every_way_of_sharing_and_every_batch_gives_the_same_bits(target: Target) -> None:
    x, w = half(3, 32, 13, 10), half(96, 32, 3, 3, seed=1)
    graph = layer(("N", *x.shape[1:]), w, None, [1, 1, 1, 1])
    together = check(x, w, None, [1, 1, 1, 1], target, graph, symbols={"N": 3}, ways=EVERY)
    for i in range(3):
        alone = computed(graph, x[i : i + 1], target, {"N": 1})
        assert alone.tobytes() == together[i : i + 1].tobytes()


def test_the_interpreter_and_the_machine_give_the_same_bits() -> None:
    if not INSTRUCTION.supported_by(host_features()):
        pytest.skip("no AVX512-BF16 here")
    x, w = scaled("scales", half(1, 32, 7, 6)), half(32, 32, 3, 3, seed=1)
    graph = layer(x.shape, w, None, [1, 0, 1, 1])
    (interpreted_y,) = interpreted(Program(graph, INSTRUCTION), {"x": x}, {})
    assert interpreted_y.tobytes() == computed(graph, x, INSTRUCTION).tobytes()


@pytest.mark.parametrize("target", [HOST, INSTRUCTION], ids=lambda t: t.name)
@pytest.mark.parametrize("poison", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("pixel", [(0, 0), (4, 5), (8, 9), (0, 7)], ids=str)
def test_what_is_not_finite_stays_in_the_tiles_that_read_it(
    target: Target, pixel: tuple[int, int], poison: float
) -> None:
    x, w, pads = half(2, 32, 9, 10), half(48, 32, 3, 3, seed=1), [1, 1, 1, 1]
    graph = layer(x.shape, w, None, pads)
    clean = computed(graph, x, target)
    marked = np.zeros(x.shape, bool)
    at = (1, 5, *pixel)
    marked[at], x[at] = True, poison
    found = computed(graph, x, target)
    reached = np.broadcast_to(over_windows(marked, pads, np.any).any(axis=1, keepdims=True), found.shape)
    np.testing.assert_array_equal(found[~reached], clean[~reached])
    if not np.isfinite(poison):
        with np.errstate(invalid="ignore"):
            exact = naive.conv(x.astype(np.float64), w.astype(np.float64), None, (1, 1), pads, (1, 1), 1)
        assert not np.isfinite(found[~np.isfinite(exact)]).any(), "it is not lost either"


EPILOGUE = """graph @g(%x: bf16[N,32,H,W]{0,2,3,1}, %r: bf16[N,48,H,W]{0,2,3,1}) {
  %w = const bf16[48,32,3,3] "w"
  %b = const f32[48] "b"
  %y = fused<Bf16Conv>(%x, %w, %b, %r) : bf16[N,48,H,W]{0,2,3,1}
    body(%x: bf16[N,32,H,W]{0,2,3,1}, %w: bf16[48,32,3,3], %b: f32[48], %r: bf16[N,48,H,W]{0,2,3,1}) {
      %p = parax::Bf16Conv(%x, %w, %b) {pads=[1,1,1,1]} : f32[N,48,H,W]{0,2,3,1}
      %c = Cast(%r) {to=f32} : f32[N,48,H,W]{0,2,3,1}
      %s = Add(%p, %c) : f32[N,48,H,W]{0,2,3,1}
      %t = Relu(%s) : f32[N,48,H,W]{0,2,3,1}
      %y = parax::RoundToBf16(%t) : bf16[N,48,H,W]{0,2,3,1}
      return %y
    }
  return %y
}"""


def test_images_of_any_size_and_the_tail_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small images directly, large ones by tiles; the bias, a residual and Relu are of f32 and rounded once."""
    tiles = by_size.Choice(counts.SMALLEST, None, 36, 0.5, (12, 0))
    monkeypatch.setattr(by_size, "choice_of", lambda ctx, s: tiles)
    monkeypatch.setattr(by_size.WinogradBySize, "max_share", np.inf)
    w, b = half(48, 32, 3, 3, seed=1), half(48, seed=2).astype(np.float32)
    program = Program(parse_graph(EPILOGUE, {"w": w, "b": b}), HOST, ("N", "H", "W"))
    assert is_transformed(program)
    for n, h, width in ((1, 5, 7), (3, 9, 4), (2, 14, 13), (0, 6, 6)):
        x, r = half(n, 32, h, width), half(n, 48, h, width, seed=3)
        (y,) = program.run_all([({"x": x, "r": r}, {"N": n, "H": h, "W": width})], USUAL)[0]
        if not n:
            continue
        parts = x.astype(np.float64), w.astype(np.float64), b.astype(np.float64)
        exact = np.maximum(naive.conv(*parts, (1, 1), (1, 1, 1, 1), (1, 1), 1) + r.astype(np.float64), 0)
        assert y.dtype == HALF
        norm = np.sqrt((parts[1] ** 2).sum(axis=(1, 2, 3)))[:, None, None]
        room = winograd.BF16_TILE_ERROR * 4.5 * norm + 4 * V * (np.abs(exact) + 10)
        assert (np.abs(y.astype(np.float64) - exact) <= U * exact + 1.01 * room).all()


def test_where_it_does_not_apply() -> None:
    """Strict arithmetic, other filters, strides and dilations, half vectors of channels, matrix registers."""


    def taken(x: tuple[int, ...], w: tuple[int, ...], target: Target = INSTRUCTION, fp: Fp = Fp.DEFAULT,
              **how: list[int]) -> bool:  # fmt: skip
        return is_transformed(Program(layer(x, half(*w), None, [1, 1, 1, 1], **how), target, fp=fp))

    assert taken((1, 32, 9, 9), (48, 32, 3, 3)) and taken((1, 32, 9, 9), (48, 32, 3, 3), fp=Fp.FAST)
    assert not taken((1, 32, 9, 9), (48, 32, 3, 3), fp=Fp.STRICT)
    assert not taken((1, 24, 9, 9), (48, 24, 3, 3)) and not taken((1, 32, 9, 9), (40, 32, 3, 3))
    assert not taken((1, 32, 9, 9), (48, 32, 3, 3), MATRICES)
    assert not taken((1, 32, 9, 9), (48, 32, 5, 5)) and not taken((1, 32, 9, 9), (48, 32, 1, 3))
    assert not taken((1, 32, 9, 9), (48, 32, 3, 3), strides=[2, 1])
    assert not taken((1, 32, 9, 9), (48, 32, 3, 3), dilations=[1, 2])


@pytest.mark.parametrize("greatest, serves", [(1e38, True), (3e38, False), (np.inf, False), (np.nan, False)])
def test_weights_whose_transforms_bf16_does_not_hold_are_multiplied_directly(greatest: float, serves: bool) -> None:
    w = half(48, 32, 3, 3)
    w[5, 4] = greatest
    assert is_transformed(Program(layer((1, 32, 9, 9), w, None, [1, 1, 1, 1]), INSTRUCTION)) == serves


def test_weights_are_transformed_and_rounded_once() -> None:
    w = half(40, 16, 3, 3)
    plan = Plan(AXES, (3, 3), 8, 2, 16, 6, 2, PAIRS)
    result = np.zeros((2, 16, 8, 64), np.uint16)
    transform_weights(w, plan, result)
    found = result.view(HALF).reshape(2, 16, 8, 32, 2).astype(np.float64)  # panel, point, pair, column, of the pair
    found = found.transpose(0, 3, 2, 4, 1).reshape(64, 16, 16)
    g = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    exact = np.einsum("pt,oct->ocp", np.kron(g, g), w.astype(np.float64).reshape(40, 16, 9))
    np.testing.assert_array_equal(found[40:], 0)
    np.testing.assert_array_equal(found[:40].astype(HALF), exact.astype(np.float32).astype(HALF))
