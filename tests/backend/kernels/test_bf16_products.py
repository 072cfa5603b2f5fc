"""Products by constant matrices with operands rounded to bf16: every element within its own bound, on every target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Feeds, Program, op, run_graph
from backend.interpreted import interpreted
from backend.ways import EVERY, USUAL, Way
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.backend.microkernels.bf16 import pairs_of_columns
from parax.compiler.ir import bands
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import BF16, F32, DType, TensorType, symbol
from parax.compiler.targets.target import Target
from sampling import thorough

TARGETS = [resolve_target("x86-64-v4+avx512bf16"), resolve_target("x86-64-v4+amx-bf16+amx-tile")]
U, V, LEAST = 2.0**-8, 2.0**-24, 2.0**-126  # roundings of bf16 and f32, the least f32 that is no denormal
MOST_INTERPRETED = 100_000  # multiply-adds
SIZES = st.integers(1, 40)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def product(a: np.ndarray, b: np.ndarray, name: str = "MatMul", rows: str | None = None, layout: Any = None,
            c: np.ndarray | None = None, **attributes: Any) -> Graph:  # fmt: skip
    """One product by a constant; `rows` names a's first axis where it is a symbol."""
    graph = Graph("product")
    shape = (symbol(rows), *a.shape[1:]) if rows else a.shape
    x = graph.add_input("a", TensorType(DType.from_numpy(a.dtype), shape, layout))
    given = [x, graph.add_constant(b), *([graph.add_constant(c)] if c is not None else [])]
    graph.set_outputs(graph.add_node(op(name, **attributes), given).outputs)
    return graph


def runs(target: Target) -> bool:
    return target.supported_by(host_features())


on_each = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


def results(target: Target, graph: Graph, feeds: Feeds, symbols: Mapping[str, int] | None = None,
            ways: tuple[Way, ...] = USUAL, fp: Fp = Fp.DEFAULT) -> list[np.ndarray]:  # fmt: skip
    """The graph's output by the interpreter, where that does not take long, and by this machine, if it can."""
    program = Program(graph, target, tuple(symbols or {}), fp, matmul_input=BF16)
    assert [call.rounded_to for _, call in program.calls].count(BF16) == 1
    depth, columns = program.graph.first.inputs[1].tensor.dims
    found = []
    if next(iter(feeds.values())).size // max(1, depth) * depth * columns <= MOST_INTERPRETED:
        found += interpreted(program, feeds, symbols or {})
    if runs(target):
        found += program.run_all([(feeds, symbols or {})], ways)[0]
    if not found:
        pytest.skip("takes too long by the interpreter")
    return found


def rounded(x: np.ndarray) -> np.ndarray:
    """The nearest bf16, denormals as zeros, in f64."""
    with np.errstate(over="ignore"):
        near = x.astype(ml_dtypes.bfloat16).astype(np.float64)
    return np.where(np.abs(near) < LEAST, 0.0, near)


def bound(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What the kernel's docstring allows each element to be off; rounding of f32 results of this test included."""
    a, b = np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64))
    n = 2 * -(-a.shape[-1] // 2)
    gamma = n * V / (1 - n * V)
    sizes, denormals = a @ b, a.sum(-1, keepdims=True) + b.sum(-2) + n
    return (2 * U + U * U + gamma * (1 + U) ** 2) * sizes + LEAST * denormals


def check(target: Target, a: np.ndarray, b: np.ndarray, **how: Any) -> None:
    symbols = {how["rows"]: len(a)} if "rows" in how else {}
    exact = a.astype(np.float64) @ b.astype(np.float64)
    twin = rounded(a) @ rounded(b)
    for y in (found := results(target, product(a, b, **how), {"a": a}, symbols)):
        assert (np.abs(y - exact) <= bound(a, b)).all()
        sizes = np.abs(rounded(a)) @ np.abs(rounded(b))
        assert (np.abs(y - twin) <= a.shape[-1] * 1.01 * V * sizes + 2 * LEAST * a.shape[-1]).all()
    assert len({y.tobytes() for y in found}) == 1, "the interpreter and the machine round alike"


@on_each
@thorough(45)
@given(m=SIZES, k=SIZES, n=st.integers(1, 150), symbolic=st.booleans())
def test_any_size(target: Target, m: int, k: int, n: int, symbolic: bool) -> None:
    check(target, normal(m, k), normal(k, n, seed=1), **({"rows": "M"} if symbolic else {}))


@on_each
@pytest.mark.parametrize(
    "shape", [(1, 300, 100), (1, 5001, 16), (3, 5001, 40), (200, 64, 24), (97, 1025, 130), (49, 65, 321)], ids=str
)
def test_blocks(target: Target, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    check(target, normal(m, k), normal(k, n))


@on_each
@pytest.mark.parametrize("a", [(16,), (2, 3, 20, 16), (1, 1, 16), (5, 1, 17)], ids=str)
def test_several_axes_of_rows(target: Target, a: tuple[int, ...]) -> None:
    check(target, normal(*a), normal(a[-1], 30))


@on_each
def test_whole_numbers_that_bf16_holds_are_exact(target: Target) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 129, (19, 33)).astype(np.float32), rng.integers(-128, 129, (33, 70)).astype(np.float32)
    for y in results(target, product(a, b), {"a": a}):
        np.testing.assert_array_equal(y, a @ b)


@on_each
def test_operands_are_rounded_to_the_nearest_and_ties_to_even(target: Target) -> None:
    """1 + 2^-8 lies in the middle and goes down, 1 + 3·2^-8 goes up; a hair beside the middle decides."""
    a = np.array([[1 + U], [1 + 3 * U], [1 + U + 2.0**-20], [1 + 3 * U - 2.0**-20], [-1 - U]], np.float32)
    wanted = np.array([[1], [1 + 4 * U], [1 + 2 * U], [1 + 2 * U], [-1]], np.float32)
    one = np.ones((1, 1), np.float32)
    for y in results(target, product(a, one), {"a": a}):
        np.testing.assert_array_equal(y, wanted)
    for y in results(target, product(one, a.T.copy()), {"a": one}):
        np.testing.assert_array_equal(y, wanted.T)


@on_each
@thorough(24)
@given(seed=st.integers(0, 1 << 20), k=st.integers(1, 33))
def test_magnitudes_that_differ_cost_no_other_element_anything(target: Target, seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = normal(9, k, seed=seed), normal(k, 37, seed=seed)
    a *= np.exp2(rng.integers(-60, 60, a.shape)).astype(np.float32)
    b *= np.exp2(rng.integers(-60, 60, b.shape)).astype(np.float32)
    check(target, a, b)


@on_each
def test_denormals_are_zeros_within_the_bound(target: Target) -> None:
    rng = np.random.default_rng(0)
    a, b = normal(7, 11), normal(11, 20)
    a[rng.random(a.shape) < 0.5] = 2.0**-127
    b[rng.random(b.shape) < 0.3] = -(2.0**-140)
    check(target, a, b)
    a = np.full((3, 5), 2.0**-80, np.float32)  # whose products are below what f32 holds
    check(target, a, a.T.copy())


@on_each
@pytest.mark.parametrize("k", [1, 2, 31, 32, 33, 65])
def test_infinities_and_nan_are_where_they_belong(target: Target, k: int) -> None:
    """Also in the last column of an odd number of them, beside the zero that fills up its pair."""
    rng = np.random.default_rng(k)
    a, b = normal(13, k), np.abs(normal(k, 70)) + 1
    for row, value in ((1, np.inf), (4, -np.inf), (6, np.nan), (12, np.inf)):
        a[row, k - 1 if row != 4 else 0] = value
    a[8, k - 1], a[8, 0] = np.inf, -np.inf  # NaN where these are two
    b[int(rng.integers(k)), 5] = np.inf
    b[k - 1, 69], b[0, 3] = np.nan, 0.0  # an infinity times zero
    with np.errstate(all="ignore"):
        wanted = (rounded(a)[:, :, None] * rounded(b)[None]).sum(1)
    assert np.isinf(wanted[1]).sum() >= 60 and np.isfinite(wanted[0]).sum() >= 60
    for y in results(target, product(a, b), {"a": a}):
        np.testing.assert_array_equal(np.isnan(y), np.isnan(wanted))
        np.testing.assert_array_equal(np.where(np.isinf(y), y, 0), np.where(np.isinf(wanted), wanted, 0))
        finite = np.isfinite(wanted)
        np.testing.assert_allclose(y[finite], wanted[finite], rtol=0, atol=1e-5 * np.abs(wanted[finite]).max())


@on_each
def test_numbers_next_to_the_greatest_round_to_infinities(target: Target) -> None:
    a = np.array([[3.3895e38, 3.39e38, 3.4e38, -3.4e38]], np.float32)
    for y in results(target, product(a.T.copy(), np.ones((1, 1), np.float32)), {"a": a.T}):
        assert np.isfinite(y[0]) and list(y[2:, 0]) == [np.inf, -np.inf]
        np.testing.assert_array_equal(y[:, 0].astype(np.float64), rounded(a)[0])


@on_each
@pytest.mark.parametrize("rows", [0, 1, 5, 13])
def test_symbolic_rows_and_none(target: Target, rows: int) -> None:
    check(target, normal(rows, 21), normal(21, 35), rows="N")


@on_each
def test_every_way_of_sharing_gives_the_same_bits(target: Target) -> None:
    a, b = normal(150, 67), normal(67, 200)
    for y in results(target, product(a, b), {"a": a}, ways=EVERY):
        assert (np.abs(y - a.astype(np.float64) @ b) <= bound(a, b)).all()


@on_each
@pytest.mark.sample(3)
@pytest.mark.parametrize("layout", [None, (1, 0)])
@pytest.mark.parametrize("flags", [(0, 0), (1, 0), (0, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("c", [None, (30,), (23, 1), (23, 30)], ids=str)
def test_gemm(target: Target, flags: tuple[int, int], c: tuple[int, ...] | None, layout: Any) -> None:
    """Rows of A that do not lie side by side are gathered."""
    a, b = normal(23, 17), normal(17, 30)
    addend = None if c is None else normal(*c, seed=2)
    given = [a.T.copy() if flags[0] else a, b.T.copy() if flags[1] else b]
    exact = 0.5 * (a.astype(np.float64) @ b) + (0 if addend is None else 2.0 * addend)
    graph = product(*given, "Gemm", layout=layout, c=addend, alpha=0.5, beta=2.0, transA=flags[0], transB=flags[1])
    for y in results(target, graph, {"a": given[0]}):
        assert (np.abs(y - exact) <= bound(a, b) + 4 * V * np.abs(exact)).all()


EPILOGUE = """graph @g(%a: f32[N,21], %r: f32[N,35]) {
  %w = const f32[21,35] "w"
  %b = const f32[35] "b"
  %y = fused<MatMul>(%a, %w, %b, %r) : f32[N,35]
    body(%a: f32[N,21], %w: f32[21,35], %b: f32[35], %r: f32[N,35]) {
      %p = MatMul(%a, %w) : f32[N,35]
      %q = Add(%p, %b) : f32[N,35]
      %s = Add(%q, %r) : f32[N,35]
      %y = Relu(%s) : f32[N,35]
      return %y
    }
  return %y
}"""


@on_each
@pytest.mark.parametrize("rows", [0, 1, 8, 50])
def test_bias_residual_and_relu_follow(target: Target, rows: int) -> None:
    a, w, b, r = normal(rows, 21), normal(21, 35), normal(35), normal(rows, 35, seed=3)
    graph = parse_graph(EPILOGUE, {"w": w, "b": b})
    exact = np.maximum(a.astype(np.float64) @ w + b + r, 0)
    for y in results(target, graph, {"a": a, "r": r}, {"N": rows}):
        assert (np.abs(y - exact) <= bound(a, w) + 4 * V * (np.abs(b) + np.abs(r) + np.abs(a) @ np.abs(w))).all()
        assert (y >= 0).all()


# -- where it does not apply -------------------------------------------------------------------------------------------
def usual(graph: Graph, **how: Any) -> Program:
    """A program that was asked to round and has nothing to."""
    program = Program(graph, **{"target": TARGETS[0], "matmul_input": BF16} | how)
    assert all(call.rounded_to is None for _, call in program.calls)
    return program


def test_what_is_not_one_constant_matrix_of_f32_is_left_alone() -> None:
    a, b = normal(2, 3, 20, 16), normal(3, 16, 30)
    usual(product(a, b))  # a matrix for each item of a batch
    usual(product(a.astype(np.float64), b[0].astype(np.float64)))
    usual(product(a.astype(np.float16), b[0].astype(np.float16)))
    usual(product(a[0, 0, :, :0], b[0, :0]))  # sums of nothing
    usual(product(a[0, 0], b[0, :, 0]))  # a vector
    usual(product(a[0, 0], b[0], "IntegralMatMul", domain="parax"))  # of whole numbers, exact
    graph = Graph("two inputs")
    x, w = (graph.add_input(name, TensorType(F32, v.shape)) for name, v in (("a", a[0, 0]), ("b", b[0])))
    graph.set_outputs(graph.add_node(op("MatMul"), [x, w]).outputs)
    usual(graph)


def test_without_the_option_or_the_instructions_the_code_is_that_of_f32() -> None:
    a, b = normal(20, 16), normal(16, 30)
    plain = TARGETS[0] if runs(TARGETS[0]) else resolve_target("x86-64-v4")
    texts = [str(usual(product(a, b), target=target, matmul_input=to).calls[0][1].func)
             for target, to in ((plain, F32), (resolve_target("x86-64-v4"), F32), (resolve_target("x86-64-v4"), BF16))]
    assert texts[0] == texts[1] == texts[2] and "dot_bf16" not in texts[0]
    (y,) = run_graph(product(a, b), {"a": a})
    np.testing.assert_allclose(y, a.astype(np.float64) @ b, 1e-5, 1e-5)


def test_no_rows_are_added_to_each_other_at_any_level() -> None:
    a, b = normal(1, 512, 512), normal(512, 512)
    program = Program(product(a, b), TARGETS[0], fp=Fp.FAST, matmul_input=BF16)
    ((_, call),) = program.calls
    assert call.rounded_to == BF16 and "sums" not in {p.name for p in call.func.params}


@pytest.mark.parametrize("transposed", [False, True])
@on_each
def test_a_large_matrix_is_packed_band_after_band(target: Target, transposed: bool,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    a, b = normal(3, 37), normal(37, 150)
    graph = product(a, b.T.copy() if transposed else b, "Gemm", transB=int(transposed))
    blobs = []
    for nbytes in (bands.BAND_NBYTES, 3000, 1):
        monkeypatch.setattr(bands, "BAND_NBYTES", nbytes)
        blobs.append(bytes(Program(graph, target, matmul_input=BF16).context.weights.to_bytes()))
    assert blobs[0] == blobs[1] == blobs[2] and len(set(blobs[0])) > 50


def test_columns_are_packed_in_pairs_of_rows() -> None:
    packed = pairs_of_columns(np.array([[1.0, 2.0], [-0.5, 3.0], [1.5, np.inf]], np.float32))
    halves = packed.reshape(2, 2, 2).view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(halves, [[[1, -0.5], [2, 3]], [[1.5, 0], [np.inf, 0]]])
