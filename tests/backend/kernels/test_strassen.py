"""Strassen–Winograd products against NumPy's: the bound of each row, odd and open sizes, targets, the choice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from backend.harness import Program, host_targets, op, run_node
from backend.kernels.naive import normal
from parax.compiler.backend.costs import node_cost
from parax.compiler.backend.kernels.matmul.matmul import lower_matmul
from parax.compiler.backend.kernels.matmul.strassen import counts
from parax.compiler.backend.kernels.matmul.strassen import lower as strassen
from parax.compiler.backend.lowering import Candidates, LowerContext, WeightStore
from parax.compiler.costs.node_cost import Choice
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.targets.machine import DEFAULT_EFFICIENCY, Machine
from parax.compiler.targets.target import Target
from sampling import thorough

UNIT = 2.0**-24
TYPICAL = 3  # times u
fixture_is_alike = [HealthCheck.function_scoped_fixture]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The choice is the cost rule's; here the kernel itself is tested, on any size that it serves."""
    if "chosen" not in request.node.name:
        monkeypatch.setattr(strassen, "expected_share", lambda *_: 0.0)


def shares(y: np.ndarray, a: np.ndarray, b: np.ndarray, more: np.ndarray | float = 0.0) -> np.ndarray:
    """The largest error of each row, in times of the sum of its magnitudes times the largest of B."""
    expected = a.astype(np.float64) @ b + more
    assert y.shape == expected.shape
    scale = np.abs(a.astype(np.float64)).sum(-1) * np.abs(b).max()
    return np.abs(y - expected).max(-1) / np.where(scale == 0, 1, scale)


def assert_close(y: np.ndarray, a: np.ndarray, b: np.ndarray, more: np.ndarray | float = 0.0) -> None:
    """Within what errors of random signs come to, in times of the same: far less than the bound."""
    assert shares(y, a, b, more).max() <= (TYPICAL + 4 * np.abs(more).max()) * UNIT



@thorough(12, deadline=None, suppress_health_check=fixture_is_alike)
@given(items=st.integers(1, 3), rows=st.integers(96, 300), steps=st.integers(1, 40), pairs=st.integers(1, 3))
def test_agrees_with_the_plain_product(items: int, rows: int, steps: int, pairs: int) -> None:
    a, b = normal(items, rows, 32 * steps), normal(32 * steps, 128 * pairs, seed=1)
    (y,) = run_node(op("MatMul"), [a, b], constants=(1,), symbols={"N": 0})
    assert_close(y, a, b)


@thorough(8, deadline=None, suppress_health_check=fixture_is_alike)
@given(items=st.integers(0, 3), rows=st.one_of(st.integers(0, 95), st.integers(96, 520)))
def test_items_of_any_length_that_only_a_run_knows(items: int, rows: int) -> None:
    b, r = normal(64, 128, seed=1), normal(items, rows, 128, seed=2)
    a = normal(items, rows, 64)
    graph = parse_graph("""
graph @g(%x: f32[N,S,64], %r: f32[N,S,128]) {
  %w = const f32[64,128] "w"
  %y = fused<MatMul>(%x, %w, %r) : f32[N,S,128]
    body(%x: f32[N,S,64], %w: f32[64,128], %r: f32[N,S,128]) {
      %1 = MatMul(%x, %w) : f32[N,S,128]
      %y = Add(%1, %r) : f32[N,S,128]
      return %y
    }
  return %y
}
""", {"w": b})
    assert isinstance(graph, Graph)
    (y,) = Program(graph, None, ("N", "S")).run({"x": a, "r": r}, {"N": items, "S": rows}, 3)
    if y.size:
        assert_close(y, a, b, r)


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("rows", [96, 127, 128, 197, 257])
def test_every_target(target: Target, rows: int) -> None:
    a, b = normal(2, rows, 192), normal(192, 768, seed=1)
    (y,) = run_node(op("MatMul"), [a, b], constants=(1,), target=target, symbols={"N": 0})
    assert_close(y, a, b)


@pytest.mark.parametrize("depth", [1024, 4096])
def test_blocks_of_k(depth: int) -> None:
    a, b = normal(2, 150, depth), normal(depth, 128, seed=1)
    (y,) = run_node(op("MatMul"), [a, b], constants=(1,))
    assert_close(y, a, b)


def grown(a: np.ndarray) -> np.ndarray:
    """Rows of very different magnitudes."""
    return np.ldexp(a, np.random.default_rng(5).integers(-40, 40, (*a.shape[:-1], 1))).astype(np.float32)


def outliers(a: np.ndarray) -> np.ndarray:
    a[:, ::7, 3] *= np.float32(1e6)
    a[:, 3::11] *= np.float32(1e-9)
    return a


def alike(a: np.ndarray) -> np.ndarray:
    return np.full_like(a, 0.7)


def alternating(a: np.ndarray) -> np.ndarray:
    return np.where(np.arange(a.shape[-1]) % 2 == 0, np.float32(1.9), np.float32(-1.9)) * np.ones_like(a)


def extreme(a: np.ndarray) -> np.ndarray:
    a[:, 5] *= np.float32(1e36)
    a[:, 60] *= np.float32(1e-36)
    return a


@pytest.mark.parametrize("change", [grown, outliers, alike, alternating, extreme])
@pytest.mark.parametrize("rows", [128, 197])
def test_every_row_keeps_its_own_bound(rows: int, change: Callable[[np.ndarray], np.ndarray]) -> None:
    a, b = change(normal(2, rows, 512)), normal(512, 256, seed=1)
    (y,) = run_node(op("MatMul"), [a, b], constants=(1,), symbols={"N": 0})
    assert shares(y, a, b).max() <= strassen.error_bound(256, 1)
    if change not in (outliers, alike, alternating):  # of which errors of one sign add up
        assert_close(y, a, b)


def test_an_infinity_and_a_nan_cost_no_other_row_anything() -> None:
    a, b = normal(2, 128, 256), normal(256, 256, seed=1)
    a[0, 5, 7], a[0, 70, 3], a[0, 9] = np.inf, np.nan, 0
    (y,) = run_node(op("MatMul"), [a, b], constants=(1,), symbols={"N": 0})
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
    np.testing.assert_array_equal(y[0, 5], expected[0, 5].astype(np.float32))
    assert not y[0, 9].any()
    fine = np.isfinite(a).all(-1)
    assert_close(y[fine], a[fine], b)


@pytest.mark.parametrize("rows", [[3, 80], [3], [80]])
def test_rows_of_zeros_are_exactly_zero(rows: list[int]) -> None:
    a, b = normal(1, 128, 256), normal(256, 256, seed=1)
    a[0, rows] = 0
    (y,) = run_node(op("MatMul"), [a, b], constants=(1,))
    assert not y[0, rows].any()
    assert_close(y, a, b)


def test_no_bit_depends_on_the_batch_or_on_how_cores_share_it() -> None:
    a, b = normal(11, 150, 512), normal(512, 256, seed=1)
    (together,) = run_node(op("MatMul"), [a, b], constants=(1,), symbols={"N": 0})
    for i in (0, 4, 10):
        (alone,) = run_node(op("MatMul"), [a[i : i + 1], b], constants=(1,), symbols={"N": 0})
        np.testing.assert_array_equal(together[i], alone[0])


def test_weights_beyond_what_sums_hold_are_left_to_the_direct_product() -> None:
    a, b = normal(1, 128, 64), normal(64, 128, seed=1)
    for factor in (np.float32(1e35), np.float32(1e-35)):
        (y,) = run_node(op("MatMul"), [a, b * factor], constants=(1,))
        assert_close(y, a, b * factor)


def test_biases_and_a_matrix_as_addend() -> None:
    a, b, c = normal(256, 64), normal(64, 128, seed=1), normal(128, seed=2)
    c[:64] += 1000
    graph = parse_graph("""
graph @g(%x: f32[128*N,64], %r: f32[128*N,128]) {
  %w = const f32[64,128] "w"
  %c = const f32[128] "c"
  %y = fused<Gemm>(%x, %w, %c, %r) : f32[128*N,128]
    body(%x: f32[128*N,64], %w: f32[64,128], %c: f32[128], %r: f32[128*N,128]) {
      %1 = Gemm(%x, %w, %c) : f32[128*N,128]
      %2 = Add(%1, %r) : f32[128*N,128]
      %y = Tanh(%2) : f32[128*N,128]
      return %y
    }
  return %y
}
""", {"w": b, "c": c})
    assert isinstance(graph, Graph)
    r = normal(256, 128, seed=3) - c
    (y,) = Program(graph, None, ("N",)).run({"x": a, "r": r}, {"N": 2}, 3)
    np.testing.assert_allclose(y, np.tanh(a.astype(np.float64) @ b + c + r), atol=2e-4)


def lowered(text: str, fp: Fp = Fp.DEFAULT, machine: Machine | None = None) -> str:
    """The kernel that is chosen for the only node."""
    graph = parse_graph(text)
    assert isinstance(graph, Graph)
    context = LowerContext(host_targets()[0], ("N", "S"), WeightStore(), fp=fp, machine=machine)
    return lower_matmul(context, next(iter(graph))).func.name.partition("_")[0]


def product(m: int | str, k: int, n: int, batch: str = "1,") -> str:
    return (f'graph @g(%x: f32[{batch}{m},{k}]) {{\n  %w = const f32[{k},{n}] "w"\n'
            f"  %y = MatMul(%x, %w) : f32[{batch}{m},{n}]\n  return %y\n}}")  # fmt: skip


@pytest.mark.parametrize("fp", Fp)
def test_is_chosen_for_large_products_but_not_with_strict_floating_point(fp: Fp) -> None:
    assert lowered(product(1024, 1024, 1024), fp) == ("matmul" if fp is Fp.STRICT else "strassen")


def test_is_no_chosen_candidate_of_strict_floating_point_either_that_measuring_could_prefer() -> None:
    seen: list[str] = []

    class Last:
        def choose(self, ctx: LowerContext, node: object, candidates: Candidates) -> str:
            seen.extend(candidates)
            return list(candidates)[-1]

    graph = parse_graph(product(1024, 1024, 1024))
    assert isinstance(graph, Graph)
    context = LowerContext(host_targets()[0], ("N",), WeightStore(), fp=Fp.STRICT, chooser=Last())
    lower_matmul(context, next(iter(graph)))
    assert "direct" in seen and "strassen" not in seen


@pytest.mark.parametrize("batch", ["", "N,", "4,"])
def test_is_chosen_only_for_rows_of_one_item(batch: str) -> None:
    assert lowered(product(1024, 1024, 1024, batch)) == ("strassen" if batch else "matmul")


@pytest.mark.parametrize("m, k, n", [(1, 1024, 1024), (95, 1024, 1024), (1024, 1023, 1024), (1024, 64, 1024),
                                     (1024, 1024, 1000)])  # fmt: skip
def test_is_not_chosen_where_it_cannot_win(m: int, k: int, n: int) -> None:
    assert lowered(product(m, k, n)) == "matmul"


def test_is_chosen_where_the_length_is_open() -> None:
    assert lowered(product("S", 1024, 1024, "N,")) == "strassen"


@pytest.mark.parametrize("share, kernel", [(0.9, "strassen"), (0.8, "strassen"), (0.7, "matmul")])
def test_is_chosen_by_what_the_machine_makes_of_its_sums(share: float, kernel: str) -> None:
    machine = Machine("any", 2, 1e11, 1e10, 2e10, efficiency={**DEFAULT_EFFICIENCY, "matmul": 0.8, "strassen": share})
    text = product(1024, 1024, 1024)
    assert lowered(text, machine=machine) == kernel
    graph = parse_graph(text)
    assert isinstance(graph, Graph)
    cost = node_cost(next(iter(graph)), {}, Choice(machine=machine))
    assert cost.kind == kernel
    assert (cost.arithmetic < cost.flops) == (kernel == "strassen")


def test_counts_fall_with_the_blocks_that_share_sums_of_b() -> None:
    found = [counts.share(128, together, 768, 768) for together in (1, 2, 8)]
    assert found == sorted(found, reverse=True) and 0.875 < found[-1] < counts.MAX_SHARE
