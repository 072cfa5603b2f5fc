"""Strassen–Winograd products against NumPy's: odd sizes, symbolic rows, biases, tails, targets, the choice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from backend.harness import Program, host_targets, op, run_node
from backend.kernels.naive import normal
from parax.compiler.backend.kernels.conv.conv import lower_conv
from parax.compiler.backend.kernels.matmul.blocking import Product, plan_product
from parax.compiler.backend.kernels.matmul.matmul import lower_matmul
from parax.compiler.backend.kernels.matmul.strassen import counts
from parax.compiler.backend.kernels.matmul.strassen import lower as strassen
from parax.compiler.backend.lowering import Candidates, LowerContext, WeightStore
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph, Node
from parax.compiler.ir.text import parse_graph
from parax.compiler.targets.target import Target
from sampling import thorough

LAST = (0, 2, 3, 1)


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The choice is the cost rule's; here the kernel itself is tested, on any size."""

    usual = strassen.plan_halves

    def plan_halves(ctx: LowerContext, p: Product) -> Product:
        rows = p.segment or (p.rows if isinstance(p.rows, int) else p.rows.factor)
        return usual(ctx, replace(p, segment=rows))

    if "chosen" not in request.node.name:
        monkeypatch.setattr(strassen, "serves", lambda ctx, p: True)
        monkeypatch.setattr(strassen, "expected_share", lambda ctx, p: 0.0)
        monkeypatch.setattr(strassen, "plan_halves", plan_halves)


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    """The documented bound, a share of the largest output."""
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= strassen.ERROR_BOUND * np.abs(expected).max()


def gemm(a: np.ndarray, b: np.ndarray, c: np.ndarray | None) -> np.ndarray:
    return a.astype(np.float64) @ b + (0 if c is None else c)


@pytest.mark.slow
@thorough(40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.integers(1, 150), depth=st.integers(1, 70), columns=st.integers(16, 200), biased=st.booleans())
def test_agrees_with_the_plain_product(rows: int, depth: int, columns: int, biased: bool) -> None:
    a, b = normal(rows, 2 * depth), normal(2 * depth, columns, seed=1)
    c = normal(columns, seed=2) if biased else None
    (y,) = run_node(op("Gemm"), [a, b] if c is None else [a, b, c], constants=(1, 2))
    assert_close(y, gemm(a, b, c))


@thorough(15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(items=st.integers(1, 4), rows=st.integers(1, 150), columns=st.integers(16, 100))
def test_batches_of_any_number_of_items(items: int, rows: int, columns: int) -> None:
    a, b = normal(items, rows, 34), normal(34, columns, seed=1)
    (y,) = run_node(op("MatMul"), [a, b], constants=(1,), symbols={"N": 0})
    assert_close(y, gemm(a, b, None))


@thorough(15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(images=st.integers(1, 3), size=st.integers(1, 15), stride=st.integers(1, 2), depth=st.integers(4, 40),
       columns=st.integers(16, 96))  # fmt: skip
def test_pointwise_convolutions(images: int, size: int, stride: int, depth: int, columns: int) -> None:
    x, w, b = normal(images, 2 * depth, size, size), normal(columns, 2 * depth, 1, 1, seed=1), normal(columns, seed=2)
    (y,) = run_node(op("Conv", strides=[stride, stride]), [x, w, b], constants=(1, 2), layouts=[LAST],
                    out_layouts=[LAST], symbols={"N": 0})  # fmt: skip
    picked = x[:, :, ::stride, ::stride].astype(np.float64)
    assert_close(y, np.einsum("nchw,oc->nohw", picked, w[:, :, 0, 0]) + b[:, None, None])


@pytest.mark.parametrize("target", host_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("rows, columns", [(97, 200), (128, 256), (13, 31)])
def test_every_target(target: Target, rows: int, columns: int) -> None:
    a, b, c = normal(rows, 130), normal(130, columns, seed=1), normal(columns, seed=2)
    (y,) = run_node(op("Gemm"), [a, b, c], constants=(1, 2), target=target)
    assert_close(y, gemm(a, b, c))


@pytest.mark.parametrize("depth", [512, 4096])
def test_long_sums_stay_within_the_bound(depth: int) -> None:
    a, b = normal(128, depth), normal(depth, 128, seed=1)
    (y,) = run_node(op("MatMul"), [a, b], constants=(1,))
    assert_close(y, gemm(a, b, None))


def test_biases_far_apart() -> None:
    a, b, c = normal(50, 64), normal(64, 64, seed=1), normal(64, seed=2)
    c[:32] += 1000
    (y,) = run_node(op("Gemm"), [a, b, c], constants=(1, 2))
    assert_close(y, gemm(a, b, c))


def test_a_matrix_as_addend_and_batches() -> None:
    a, b, c = normal(40, 64), normal(64, 48, seed=1), normal(40, 1, seed=2)
    (y,) = run_node(op("Gemm", beta=0.5), [a, b, c], constants=(1,))
    assert_close(y, gemm(a, b, c * np.float32(0.5)))
    x = normal(3, 17, 64)
    (z,) = run_node(op("MatMul"), [x, b], constants=(1,), symbols={"N": 0})
    assert_close(z, x.astype(np.float64) @ b)


def test_tail_reads_residual_and_per_column_operands() -> None:
    graph = parse_graph("""
graph @g(%x: f32[N,9,32], %r: f32[N,9,70], %s: f32[70]) {
  %w = const f32[32,70] "w"
  %y = fused<MatMul>(%x, %w, %r, %s) : f32[N,9,70]
    body(%x: f32[N,9,32], %w: f32[32,70], %r: f32[N,9,70], %s: f32[70]) {
      %1 = MatMul(%x, %w) : f32[N,9,70]
      %2 = Mul(%1, %s) : f32[N,9,70]
      %3 = Add(%2, %r) : f32[N,9,70]
      %y = Tanh(%3) : f32[N,9,70]
      return %y
    }
  return %y
}
""", {"w": normal(32, 70, seed=3)})
    assert isinstance(graph, Graph)
    x, r, s = normal(5, 9, 32), normal(5, 9, 70, seed=1), normal(70, seed=2)
    (y,) = Program(graph, None, ("N",)).run({"x": x, "r": r, "s": s}, {"N": 5}, 5)
    assert_close(y, np.tanh((x.astype(np.float64) @ normal(32, 70, seed=3)) * s + r))


def lowered(text: str, fp: Fp = Fp.FAST) -> str:
    """The kernel that is chosen for the only node."""
    graph = parse_graph(text)
    assert isinstance(graph, Graph)
    node = next(iter(graph))
    context = LowerContext(host_targets()[0], ("N",), WeightStore(), fp=fp)
    call = (lower_conv if node.op.name == "Conv" else lower_matmul)(context, node)
    return call.func.name.partition("_")[0]


def product(m: int, k: int, n: int, batch: str = "1,") -> str:
    return (f'graph @g(%x: f32[{batch}{m},{k}]) {{\n  %w = const f32[{k},{n}] "w"\n'
            f"  %y = MatMul(%x, %w) : f32[{batch}{m},{n}]\n  return %y\n}}")  # fmt: skip


def pointwise(channels: int, size: int, outputs: int) -> str:
    shape = f"f32[1,{outputs},{size},{size}]{{0,2,3,1}}"
    return (f'graph @g(%x: f32[1,{channels},{size},{size}]{{0,2,3,1}}) {{\n  %w = const f32[{outputs},{channels},1,1] '
            f'"w"\n  %y = Conv(%x, %w) : {shape}\n  return %y\n}}')  # fmt: skip


@pytest.mark.parametrize("fp", Fp)
def test_is_chosen_for_large_products_with_fast_floating_point_alone(fp: Fp) -> None:
    assert lowered(product(1024, 1024, 1024), fp) == ("strassen" if fp is Fp.FAST else "matmul")
    assert lowered(pointwise(256, 14, 1024), fp) == ("strassen" if fp is Fp.FAST else "conv")


@pytest.mark.parametrize("fp", [Fp.STRICT, Fp.DEFAULT])
def test_is_no_chosen_candidate_either_that_measuring_could_prefer(fp: Fp) -> None:
    seen: list[str] = []

    class Last:
        def choose(self, ctx: LowerContext, node: Node, candidates: Candidates) -> str:
            seen.extend(candidates)
            return list(candidates)[-1]

    for text in (product(1024, 1024, 1024), pointwise(256, 14, 1024)):
        graph = parse_graph(text)
        assert isinstance(graph, Graph)
        context = LowerContext(host_targets()[0], ("N",), WeightStore(), fp=fp, chooser=Last())
        node = next(iter(graph))
        (lower_conv if node.op.name == "Conv" else lower_matmul)(context, node)
    assert "direct" in seen and "strassen" not in seen


@pytest.mark.parametrize("batch", ["", "N,", "4,"])
def test_is_chosen_only_for_rows_of_one_item(batch: str) -> None:
    assert lowered(product(1024, 1024, 1024, batch)) == ("strassen" if batch else "matmul")


def test_an_item_with_infinities_does_not_spoil_the_others_where_it_is_chosen() -> None:
    a, b = normal(3, 128, 512), normal(512, 256, seed=1)
    (alone,) = run_node(op("MatMul"), [a[2:], b], constants=(1,), symbols={"N": 0}, fp=Fp.FAST)
    a[0, 5, 7] = np.inf
    (y,) = run_node(op("MatMul"), [a, b], constants=(1,), symbols={"N": 0}, fp=Fp.FAST)
    assert not np.isfinite(y[0]).all()
    np.testing.assert_array_equal(y[2:], alone)


@pytest.mark.parametrize("m, k, n", [(1, 1024, 1024), (1024, 1023, 1024), (1024, 16, 1024), (1024, 256, 16)])
def test_is_not_chosen_where_it_cannot_win(m: int, k: int, n: int) -> None:
    assert lowered(product(m, k, n)) == "matmul"


def test_is_not_chosen_where_the_weights_come_from_memory_for_few_pixels() -> None:
    assert lowered(pointwise(512, 7, 2048)) == "conv"


@pytest.mark.parametrize("channels, size, outputs", [(64, 56, 256), (256, 56, 128), (128, 28, 512), (1024, 14, 256),
                                                     (512, 7, 512), (96, 14, 576)])  # fmt: skip
def test_is_chosen_where_the_cost_model_counts_it(channels: int, size: int, outputs: int) -> None:
    counted = counts.pays(size * size, channels, outputs)
    assert (lowered(pointwise(channels, size, outputs)) == "strassen") == counted


def test_blocks_cover_the_rows_in_halves() -> None:
    context = LowerContext(host_targets()[0], (), WeightStore())
    for rows in (49, 128, 196, 280, 3136):
        halves = strassen.plan_halves(context, plan_product(context, 1, rows, 512, 1, 512, segment=rows))
        assert halves.kc == 256
        assert isinstance(halves.row_block, int) and halves.row_block <= strassen.MOST_ROWS
