"""MatMul and Gemm against NumPy: tile shapes, blocks of K, masked columns, batches, layouts, element types, tails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import host_targets, op, run_graph, run_node
from backend.kernels.naive import check, normal
from parax.compiler.ir.text import parse_graph
from parax.compiler.targets.target import Target
from sampling import thorough

SIZES = st.integers(1, 40)


def matmul(a: np.ndarray, b: np.ndarray, **how: Any) -> None:
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    check(run_node(op("MatMul"), [a, b], **how)[0], expected, a.shape[-1])


@thorough(25)
@given(m=SIZES, k=SIZES, n=st.integers(1, 150), constant=st.booleans(), symbolic=st.booleans())
def test_any_size(m: int, k: int, n: int, constant: bool, symbolic: bool) -> None:
    matmul(normal(m, k), normal(k, n), constants=[1] if constant else [], symbols={"M": 0} if symbolic else {})


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize(
    "shape", [(6, 8, 64), (49, 65, 130), (14, 7, 5), (1, 300, 100), (3, 5000, 40), (200, 64, 24)], ids=str
)
def test_targets(target: Target, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    matmul(normal(m, k), normal(k, n), constants=[1], target=target)


@pytest.mark.sample(2)
@pytest.mark.parametrize("columns", range(1, 70, 4))
def test_every_panel_width(columns: int) -> None:
    matmul(normal(13, 9), normal(9, columns), constants=[1])


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("depth, columns", [(9, 70), (1301, 33), (5000, 40), (40, 512), (2000, 1)])
@pytest.mark.parametrize("rows", [1, 6, 7, 16, 24, 25])
def test_few_rows_by_a_given_matrix(rows: int, depth: int, columns: int, target: Target) -> None:
    """B is read as it lies, by rows few enough; bit for bit what it is when packed."""
    a, b = normal(rows, depth), normal(depth, columns)
    b[0, columns // 2] = np.nan  # of one column: no other one may get it
    (found,) = run_node(op("MatMul"), [a, b], target=target)
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    assert np.isnan(found[:, columns // 2]).all()
    check(np.delete(found, columns // 2, 1), np.delete(expected, columns // 2, 1), depth)
    many = np.concatenate([a, normal(40, depth)])
    np.testing.assert_array_equal(found, run_node(op("MatMul"), [many, b], target=target)[0][:rows])


def test_few_rows_by_a_stack_of_matrices() -> None:
    matmul(normal(3, 5, 20), normal(3, 20, 37))
    matmul(normal(2, 3, 1, 16), normal(1, 3, 16, 65))
    matmul(normal(4, 600), normal(2, 600, 17))


@pytest.mark.parametrize("layouts, out", [
    ([None, None], None), ([(0, 2, 1, 3), (0, 2, 1, 3)], (0, 2, 1, 3)), ([(0, 2, 1, 3), (0, 3, 1, 2)], None),
    ([(0, 1, 3, 2), (0, 1, 3, 2)], None), ([None, None], (0, 1, 3, 2)), ([(3, 2, 1, 0), (3, 2, 1, 0)], (2, 1, 0, 3)),
])  # fmt: skip
def test_batched_layouts(layouts: list[Any], out: Any) -> None:
    matmul(normal(2, 3, 20, 16), normal(2, 3, 16, 30), layouts=layouts, out_layouts=[out])
    matmul(normal(2, 3, 20, 16), normal(2, 3, 16, 30), layouts=layouts, out_layouts=[out], symbols={"N": 0, "S": 2})


def test_symbolic_depth_and_columns() -> None:
    text = """graph @g(%a: f32[N,S,K], %b: f32[N,K,S]) {
      %y = MatMul(%a, %b) : f32[N,S,S]
      return %y
    }"""
    for n, s, k in [(1, 1, 1), (2, 70, 33), (1, 64, 2100)]:
        a, b = normal(n, s, k), normal(n, k, s)
        (y,) = run_graph(parse_graph(text), {"a": a, "b": b}, {"N": n, "S": s, "K": k})
        check(y, np.matmul(a.astype(np.float64), b), k)


@pytest.mark.parametrize("a, b", [
    ((2, 3, 20, 16), (3, 16, 30)), ((20, 16), (2, 3, 16, 30)), ((2, 1, 20, 16), (1, 3, 16, 30)),
    ((2, 3, 20, 16), (16, 30)),
    ((16,), (16, 30)), ((20, 16), (16,)), ((16,), (16,)), ((2, 3, 20, 16), (16,)), ((16,), (2, 16, 5)),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("constant", [True, False])
def test_broadcasting_and_vectors(a: tuple[int, ...], b: tuple[int, ...], constant: bool) -> None:
    matmul(normal(*a), normal(*b), constants=[1] if constant else [])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.float64])
def test_other_types(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, (7, 9)).astype(dtype), rng.integers(0, 9, (9, 21)).astype(dtype)
    np.testing.assert_array_equal(run_node(op("MatMul"), [a, b])[0], a @ b)


@pytest.mark.parametrize("constant", [True, False])
def test_half_precision_accumulates_in_single(constant: bool) -> None:
    a, b = normal(20, 300).astype(np.float16), normal(300, 33).astype(np.float16)
    expected = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float16)
    (y,) = run_node(op("MatMul"), [a, b], constants=[1] if constant else [])
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-2)


C_SHAPES = st.sampled_from([None, (30,), (20, 1), (20, 30), (1, 30), (1,), ()])


@thorough(25)
@given(
    ta=st.booleans(),
    tb=st.booleans(),
    c=C_SHAPES,
    constant=st.booleans(),
    beta=st.sampled_from([0.0, 1.0, 2.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_gemm(ta: bool, tb: bool, c: tuple[int, ...] | None, constant: bool, beta: float, dtype: Any) -> None:
    a, b = normal(20, 16).astype(dtype), normal(16, 30).astype(dtype)
    addend = None if c is None else normal(*c).astype(dtype)
    expected = 0.5 * (a.astype(np.float64) @ b) + (0 if addend is None else beta * addend)
    operands = [a.T.copy() if ta else a, b.T.copy() if tb else b, *([] if addend is None else [addend])]
    constants = list(range(1, len(operands))) if constant else []
    (y,) = run_node(op("Gemm", transA=int(ta), transB=int(tb), alpha=0.5, beta=beta), operands, constants=constants)
    check(y, expected, 16)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("alpha", "a", "b", "c", "expected"), [
    (1e3, 0.0, 1e38, 0.0, 0.0), (1e3, 1e-30, 1e38, 0.0, 3e11), (1e-30, 1e30, 1e-20, 0.0, 3e-20),
    (1e-30, 1.0, 1.0, 1e30, 1e30), (0.0, np.nan, 1.0, 1.0, np.nan), (0.0, 1.0, 1.0, 2.0, 2.0),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_alpha_scales_the_sum(alpha: float, a: float, b: float, c: float, expected: float, constant: bool,
                              dtype: Any) -> None:  # fmt: skip
    operands = [np.full(shape, v, dtype) for shape, v in (((2, 3), a), ((3, 20), b), ((20,), c))]
    (y,) = run_node(op("Gemm", alpha=alpha), operands, constants=(1, 2) if constant else ())
    np.testing.assert_allclose(y, np.full((2, 20), expected), 1e-5)


@pytest.mark.parametrize("last", ["Relu", "Tanh"])
def test_fused_tail_with_every_kind_of_operand(last: str) -> None:
    """bias along columns, residual of the result's shape, a scalar, a mask that broadcasts along a batch axis."""
    operands = "%a: f32[2,3,20,16], %b: f32[2,3,16,30], %bias: f32[30], %res: f32[2,3,20,30], %mask: f32[2,1,1,30]"
    text = f"""graph @g({operands}) {{
      %y = fused<matmul>(%a, %b, %bias, %res, %mask) : f32[2,3,20,30]
        body({operands}) {{
          %1 = MatMul(%a, %b) : f32[2,3,20,30]
          %2 = Add(%1, %bias) : f32[2,3,20,30]
          %3 = Mul(%2, %mask) : f32[2,3,20,30]
          %4 = Add(%3, %res) : f32[2,3,20,30]
          %5 = {last}(%4) : f32[2,3,20,30]
          return %5
        }}
      return %y
    }}"""
    feeds = {
        "a": normal(2, 3, 20, 16),
        "b": normal(2, 3, 16, 30),
        "bias": normal(30),
        "res": normal(2, 3, 20, 30),
        "mask": normal(2, 1, 1, 30),
    }
    (y,) = run_graph(parse_graph(text), feeds)
    sums = (np.matmul(feeds["a"], feeds["b"]) + feeds["bias"]) * feeds["mask"] + feeds["res"]
    check(y, np.maximum(sums, 0) if last == "Relu" else np.tanh(sums), 16)
