"""Products and convolutions of bf16, summed in f32: within the bound of `microkernels/bf16.py`, everywhere."""

from __future__ import annotations

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
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import BF16, TensorType, symbol
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

HOST = resolve_target("native")
EXTENDED = [resolve_target(f"x86-64-v4+{more}") for more in ("avx512bf16", "amx-bf16+amx-tile")]
EVERY_TARGET = [*TARGETS.values(), *EXTENDED]
V, LEAST = 2.0**-24, 2.0**-126
LAST = (0, 2, 3, 1)
HALF = ml_dtypes.bfloat16


def half(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(HALF)


def graph_of(name: str, x: np.ndarray, constants: list[np.ndarray], rows: str | None = None, layout: Any = None,
             **attributes: Any) -> Graph:  # fmt: skip
    """One node; `rows` names x's first axis where it is a symbol."""
    graph = Graph("product")
    shape = (symbol(rows), *x.shape[1:]) if rows else x.shape
    given_ = [graph.add_input("x", TensorType(BF16, shape, layout))]
    node = graph.add_node(op(name, domain="parax", **attributes), [*given_, *map(graph.add_constant, constants)])
    if layout:
        node.output.type = node.output.tensor.with_layout(layout)
    graph.set_outputs(node.outputs)
    return graph


def computed(graph: Graph, x: np.ndarray, target: Target = HOST, ways: tuple[Way, ...] = USUAL, tiled: bool = True,
             fp: Fp = Fp.DEFAULT) -> np.ndarray:  # fmt: skip
    """What a target computes: this machine runs its own code, others' kernels are interpreted."""
    symbols = {str(d): len(x) for d in graph.inputs[0].tensor.dims[:1] if not isinstance(d, int)}
    program = Program(graph, target, tuple(symbols), fp)
    assert any("tile" in name for _, call in program.calls for name in call.func.callees) == tiled
    runs = target.supported_by(host_features())
    feeds = {"x": x}
    found = (program.run_all([(feeds, symbols)], ways)[0] if runs else interpreted(program, feeds, symbols))[0]
    assert found.dtype == np.float32
    return found


def bound(sizes: np.ndarray, denormals: np.ndarray | float, n: int) -> np.ndarray:
    """What operands that are bf16 already leave of the kernel's bound. sizes: Σ|a·b|. denormals: Σ|a| + Σ|b|."""
    n = 2 * -(-n // 2) + 1  # and the bias
    return n * V / (1 - n * V) * sizes + LEAST * (denormals + n)


def check(a: np.ndarray, b: np.ndarray, rows: str | None = None, **how: Any) -> None:
    y = computed(graph_of("Bf16MatMul", a, [b], rows), a, **how)
    a, b = a.astype(np.float64), b.astype(np.float64)
    sizes, denormals = np.abs(a) @ np.abs(b), np.abs(a).sum(-1, keepdims=True) + np.abs(b).sum(-2)
    assert (np.abs(y - a @ b) <= bound(sizes, denormals, a.shape[-1])).all()


@thorough(40)
@given(m=st.integers(1, 40), k=st.integers(1, 40), n=st.integers(1, 150), symbolic=st.booleans())
def test_any_size(m: int, k: int, n: int, symbolic: bool) -> None:
    check(half(m, k), half(k, n, seed=1), "M" if symbolic else None)


@pytest.mark.parametrize(
    "shape", [(1, 301, 100), (3, 5001, 40), (200, 64, 24), (97, 1026, 130), (49, 65, 321)], ids=str
)
def test_blocks(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    check(half(m, k), half(k, n, seed=1))


@pytest.mark.parametrize("a", [(2, 3, 20, 16), (1, 1, 16), (5, 1, 17)], ids=str)
def test_several_axes_of_rows(a: tuple[int, ...]) -> None:
    check(half(*a), half(a[-1], 30))


def test_every_way_of_sharing_and_every_level_gives_the_same_bits() -> None:
    a, b = half(512, 512), half(512, 512, seed=1)
    graph = graph_of("Bf16MatMul", a, [b])
    found = [computed(graph, a, ways=EVERY, fp=fp) for fp in Fp]
    assert len({y.tobytes() for y in found}) == 1


@pytest.mark.parametrize("target", EVERY_TARGET, ids=lambda t: t.name)
@pytest.mark.parametrize("shape", [(7, 9, 20), (13, 6, 70), (1, 33, 5)], ids=str)
def test_products_of_every_target(target: Target, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    check(half(m, k), half(k, n, seed=1), target=target)


@thorough(24)
@given(seed=st.integers(0, 1 << 20), k=st.integers(1, 33))
def test_magnitudes_that_differ_cost_no_other_element_anything(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    scales = [np.exp2(rng.integers(-60, 60, shape)).astype(HALF) for shape in ((9, k), (k, 37))]
    check(half(9, k, seed=seed) * scales[0], half(k, 37, seed=seed) * scales[1])


@pytest.mark.parametrize("k", [1, 2, 31, 32, 33])
@pytest.mark.parametrize("target", [HOST, *EXTENDED], ids=lambda t: t.name)
def test_infinities_and_nan_are_where_they_belong(k: int, target: Target) -> None:
    """Also in the last column of an odd number of them, beside the zero that fills up its pair."""
    a, b = half(9, k), (np.abs(half(k, 20, seed=1).astype(np.float32)) + 1).astype(HALF)
    a[1, k - 1], a[4, 0], a[6, k - 1], a[8, k - 1] = np.inf, -np.inf, np.nan, np.inf
    b[0, 5], b[k - 1, 19], b[0, 3] = np.inf, np.nan, 0.0
    with np.errstate(all="ignore"):
        wanted = (a.astype(np.float64)[:, :, None] * b.astype(np.float64)[None]).sum(1)
    assert np.isinf(wanted).any() and np.isnan(wanted).any() and np.isfinite(wanted[0]).any()
    y = computed(graph_of("Bf16MatMul", a, [b]), a, target)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(wanted))
    np.testing.assert_array_equal(np.where(np.isinf(y), y, 0), np.where(np.isinf(wanted), wanted, 0))
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(y[finite], wanted[finite], rtol=0, atol=1e-5 * np.abs(wanted[finite]).max())


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, list[int]]]] = [
    ((2, 8, 9, 7), (13, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 34, 9, 9), (70, 34, 1, 1), {}),
    ((1, 10, 15, 15), (24, 10, 5, 5), {"pads": [2, 1, 0, 2], "strides": [2, 3]}),
    ((1, 20, 11, 12), (9, 20, 3, 2), {"dilations": [2, 3], "pads": [0, 1, 2, 0]}),
    ((1, 64, 14, 14), (42, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
]
OTHERS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, list[int]]]] = [
    ((1, 3, 12, 12), (16, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 16, 9, 9), (16, 1, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 16, 9, 9), (16, 4, 3, 3), {}),
]


def check_convolution(case: tuple[Any, ...], bias: bool = True, images: str | None = None, target: Target = HOST,
                      layout: Any = LAST, tiled: bool | None = True) -> None:  # fmt: skip
    shape, filters, given_ = case
    attributes = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": shape[1] // filters[1], **given_}
    x, w = half(*shape), half(*filters, seed=1)
    b = half(filters[0], seed=2).astype(np.float32) if bias else None
    graph = graph_of("Bf16Conv", x, [w, *([b] if b is not None else [])], images, layout,
                     kernel_shape=list(filters[2:]), **attributes)  # fmt: skip
    tiles = {} if tiled is None else {"tiled": tiled}
    y = computed(graph, x, target, **tiles) if tiles else Program(graph, target).run_all([({"x": x}, {})], USUAL)[0][0]
    exact, sizes = (naive.conv(f(x.astype(np.float64)), f(w.astype(np.float64)), None if b is None else f(b),
                               **attributes) for f in (lambda v: v, np.abs))  # fmt: skip
    assert (np.abs(y - exact) <= bound(sizes, 10.0 * w[0].size, w[0].size)).all()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions(case: tuple[Any, ...], bias: bool) -> None:
    check_convolution(case, bias)
    check_convolution(case, bias, "N")


@pytest.mark.parametrize("target", EVERY_TARGET, ids=lambda t: t.name)
def test_convolutions_of_every_target(target: Target) -> None:
    check_convolution(CONVOLUTIONS[0], target=target)


@pytest.mark.parametrize("target", EVERY_TARGET, ids=lambda t: t.name)
def test_one_channel_a_group_of_every_target(target: Target) -> None:
    """Widened as they are loaded: with strides, dilations, more outputs than a register has lanes."""
    for case in (OTHERS[1], ((2, 21, 7, 9), (21, 1, 5, 3), {"strides": [2, 1], "pads": [2, 0, 1, 2]}),
                 ((1, 8, 9, 9), (8, 1, 3, 3), {"dilations": [2, 1]})):  # fmt: skip
        check_convolution(case, target=target, tiled=False)


@pytest.mark.parametrize("layout", [None, LAST], ids=str)
@pytest.mark.parametrize("case", [*OTHERS, CONVOLUTIONS[0]], ids=str)
def test_other_convolutions_are_widened(case: tuple[Any, ...], layout: Any) -> None:
    """Few channels, groups, one channel a group, channels that do not lie side by side."""
    check_convolution(case, layout=layout, tiled=None)


EPILOGUE = """graph @g(%x: bf16[N,21], %r: bf16[N,35]) {
  %w = const bf16[21,35] "w"
  %b = const f32[35] "b"
  %y = fused<Bf16MatMul>(%x, %w, %b, %r) : bf16[N,35]
    body(%x: bf16[N,21], %w: bf16[21,35], %b: f32[35], %r: bf16[N,35]) {
      %p = parax::Bf16MatMul(%x, %w) : f32[N,35]
      %q = Add(%p, %b) : f32[N,35]
      %c = Cast(%r) {to=f32} : f32[N,35]
      %s = Add(%q, %c) : f32[N,35]
      %t = Relu(%s) : f32[N,35]
      %y = Cast(%t) {to=bf16} : bf16[N,35]
      return %y
    }
  return %y
}"""


@pytest.mark.parametrize("rows", [0, 1, 8, 50])
def test_bias_residual_and_relu_are_of_f32_and_rounded_once(rows: int) -> None:
    x, w, b, r = half(rows, 21), half(21, 35), half(35).astype(np.float32), half(rows, 35, seed=3)
    program = Program(parse_graph(EPILOGUE, {"w": w, "b": b}), HOST, ("N",))
    (y,) = program.run_all([({"x": x, "r": r}, {"N": rows})], USUAL)[0]
    parts = x.astype(np.float64) @ w.astype(np.float64), b.astype(np.float64), r.astype(np.float64)
    exact, sizes = np.maximum(sum(parts), 0), np.abs(x.astype(np.float64)) @ np.abs(w.astype(np.float64))
    room = bound(sizes, 100.0, 21) + 3 * V * (sizes + np.abs(parts[1]) + np.abs(parts[2]))
    assert y.dtype == HALF
    assert (np.abs(y.astype(np.float64) - exact) <= 2.0**-8 * exact + 1.01 * room).all()


@pytest.mark.parametrize("target", [*EXTENDED, TARGETS["x86-64-v3"]], ids=lambda t: t.name)
@pytest.mark.parametrize("name", ["MatMul", "Conv"])
def test_a_models_own_products_of_bf16_take_the_instructions_that_a_target_has(name: str, target: Target) -> None:
    """Sums of f32 are rounded once more, to the result's type; other targets convert to f32."""
    graph = Graph("own")
    shapes, layout = (((9, 21), (21, 20)), None) if name == "MatMul" else (((1, 16, 5, 6), (20, 16, 2, 3)), LAST)
    a, b = half(*shapes[0]), half(*shapes[1], seed=1)
    given_ = [graph.add_input("x", TensorType(BF16, a.shape, layout)), graph.add_constant(b)]
    node = graph.add_node(op(name), given_)
    if layout:
        node.output.type = node.output.tensor.with_layout(layout)
    graph.set_outputs(node.outputs)
    program = Program(graph, target)
    text = "".join(str(f) for _, call in program.calls for f in (call.func, *call.func.callees.values()))
    assert ("dot_bf16" in text or "matrix_dot" in text) == (target in EXTENDED)
    runs = target.supported_by(host_features())
    (y,) = program.run_all([({"x": a}, {})], USUAL)[0] if runs else interpreted(program, {"x": a}, {})
    left, right = a.astype(np.float64), b.astype(np.float64)
    plain = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1}
    exact, sizes = (f(left) @ f(right) if name == "MatMul" else naive.conv(f(left), f(right), None, **plain)
                    for f in (lambda v: v, np.abs))  # fmt: skip
    assert y.dtype == HALF
    assert (np.abs(y.astype(np.float64) - exact) <= 2.0**-8 * np.abs(exact) + 1.01 * bound(sizes, 1000.0, 96)).all()
