"""Products by weights of 4 and 8 bits with a scale a block against f64: within the bound that `block_tiles` writes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Feeds, Program, host_targets, op, run_node
from backend.interpreted import interpreted
from backend.ways import USUAL
from parax.compiler.backend.fusion import Fusion
from parax.compiler.backend.kernels.matmul.block_integers import takes_integers
from parax.compiler.backend.kernels.matmul.block_panels import blocks_of
from parax.compiler.backend.kernels.matmul.blocked import FEW_ROWS
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops.block_products import unpacked
from parax.compiler.ir.types import F32, TensorType, symbol
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

U = 2.0**-24


@dataclass
class Weights:
    """Blocked weights and what they are in f64."""

    depth: int
    q: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None
    bits: int
    size: int

    @property
    def centred(self) -> np.ndarray:
        """q less its zero points, [N, blocks, size]."""
        zeros = np.float64(1 << self.bits - 1) if self.zeros is None else self.zeros.astype(np.float64)[..., None]
        return unpacked(self.q, self.bits, self.size).astype(np.float64) - zeros

    def matrix(self) -> np.ndarray:
        w = self.centred * self.scales.astype(np.float64)[..., None]
        return w.reshape(len(w), -1)[:, : self.depth].T


def weights(depth: int, n: int, bits: int, size: int, zeros: str = "", seed: int = 0) -> Weights:
    rng = np.random.default_rng((seed, depth, n, bits, size))
    blocks = -(-depth // size)
    q = rng.integers(0, 256, (n, blocks, size * bits // 8)).astype(np.uint8)
    scales = rng.uniform(-0.1, 0.1, (n, blocks)).astype(np.float32)
    zero = {"": None, "whole": rng.integers(0, 1 << bits, (n, blocks)), "any": rng.uniform(0, 9, (n, blocks))}[zeros]
    return Weights(depth, q, scales, None if zero is None else zero.astype(np.float32), bits, size)


def graph_of(w: Weights, a: np.ndarray, rows: str | None = None, layout: tuple[int, ...] | None = None,
             rounds: int = 0) -> Graph:  # fmt: skip
    graph = Graph("product")
    shape = (symbol(rows), *a.shape[1:]) if rows else a.shape
    x = graph.add_input("x", TensorType(F32, shape, layout))
    constants = [graph.add_constant(c) for c in (w.q, w.scales, w.zeros) if c is not None]
    operator = op("BlockedMatMul", domain="parax", bits=w.bits, block_size=w.size, rounds=rounds)
    node = graph.add_node(operator, [x, *constants])
    graph.set_outputs(node.outputs)
    return graph


def run(graph: Graph, feeds: Feeds, symbols: dict[str, int], target: Target) -> np.ndarray:
    program = Program(graph, target, tuple(symbols))
    if target in host_targets():
        return program.run_all([(feeds, symbols)], USUAL)[0][0]
    return interpreted(program, feeds, symbols)[0]


def check(w: Weights, a: np.ndarray, rows: str | None = None, target: Target | None = None) -> None:
    y = run(graph_of(w, a, rows), {"x": a}, {rows: len(a)} if rows else {}, target or host_targets()[0])
    a64, wanted = a.astype(np.float64), a.astype(np.float64) @ w.matrix()
    n = w.size + w.q.shape[1] + 4 + w.depth  # tiles of many rows add up all products of a column
    gamma = n * U / (1 - n * U)
    bound = (gamma + 2 * U) * (np.abs(a64) @ np.abs(w.matrix())) + 2.0**-125 * np.abs(w.scales).sum(1) * w.size
    assert np.all(np.abs(y - wanted) <= bound)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("zeros", ("", "whole", "any"))
def test_every_target(target: Target, bits: int, zeros: str) -> None:
    a = np.random.default_rng(0).standard_normal((3, 37)).astype(np.float32)
    check(weights(37, 21, bits, 16, zeros), a, target=target)
    check(weights(37, 21, bits, 16, zeros), np.tile(a, (4, 1)), target=target)


@thorough(25)
@given(st.integers(1, 40), st.integers(1, 150), st.integers(1, 90), st.sampled_from((4, 8)), st.sampled_from((16, 32)),
       st.sampled_from(("", "whole", "any")), st.booleans())  # fmt: skip
def test_any_sizes(rows: int, depth: int, n: int, bits: int, size: int, zeros: str, is_open: bool) -> None:
    a = np.random.default_rng(rows).uniform(-2, 2, (rows, depth)).astype(np.float32)
    check(weights(depth, n, bits, size, zeros), a, "N" if is_open else None)


@pytest.mark.parametrize("rows", (FEW_ROWS, FEW_ROWS + 1))
def test_a_kernel_of_open_rows_serves_few_and_many(rows: int) -> None:
    w, x = weights(300, 70, 4, 32), np.random.default_rng(1).standard_normal((40, 300)).astype(np.float32)
    graph = graph_of(w, x, "N")
    check(w, x[:rows], "N")
    assert run(graph, {"x": x[:0]}, {"N": 0}, host_targets()[0]).shape == (0, 70)


@pytest.mark.parametrize(
    ("rows", "size", "is_open"), ((20, 32, False), (100, 256, False), (40, 16, True), (100, 64, True))
)
def test_many_rows_take_long_sums_in_blocks(rows: int, size: int, is_open: bool) -> None:
    a = np.random.default_rng(8).standard_normal((rows, 1499)).astype(np.float32)
    check(weights(1499, 150, 4, size, "whole"), a, "N" if is_open else None)


@pytest.mark.parametrize("rows", (2, 20))
def test_columns_of_the_operand_that_are_not_contiguous(rows: int) -> None:
    w, a = weights(45, 33, 4, 16), np.random.default_rng(2).standard_normal((rows, 45)).astype(np.float32)
    y = run(graph_of(w, a, layout=(1, 0)), {"x": a}, {}, host_targets()[0])
    np.testing.assert_allclose(y, a @ w.matrix(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", (1, 3, 20))
@pytest.mark.parametrize("zeros", ("", "whole", "any"))
def test_what_is_no_number_stays_so(rows: int, zeros: str) -> None:
    w = weights(40, 33, 4, 16, zeros)
    w.q[5] = 0x88  # whose numbers less 8 are zeros
    a = np.random.default_rng(3).standard_normal((rows, 40)).astype(np.float32)
    a[0, 3], a[-1, 21] = np.inf, -np.inf
    a[rows // 2, 33] = np.nan if rows > 2 else 1
    y = run(graph_of(w, a), {"x": a}, {}, host_targets()[0])
    with np.errstate(invalid="ignore"):
        wanted = a.astype(np.float64) @ w.matrix()
    np.testing.assert_array_equal(np.isnan(y), np.isnan(wanted))
    np.testing.assert_array_equal(np.isposinf(y), np.isposinf(wanted))


@pytest.mark.parametrize("exponent", (-140, -110, 100))
def test_very_small_and_large_operands(exponent: int) -> None:
    a = np.ldexp(np.random.default_rng(4).uniform(-1, 1, (2, 64)), exponent).astype(np.float32)
    check(weights(64, 40, 4, 32, "whole"), a)


def steps(w: Weights, a: np.ndarray) -> np.ndarray:
    """The step of each block of each row that is rounded to 8 bits, [rows, blocks]."""
    blocks = w.q.shape[1]
    padded = np.zeros((len(a), blocks * w.size))
    padded[:, : w.depth] = np.abs(a)
    return np.asarray(padded.reshape(len(a), blocks, w.size).max(-1) / 127)


def check_rounded(w: Weights, a: np.ndarray, target: Target, rows: str | None = None) -> None:
    """Within the bound of `block_integers`, and where it is used not without a difference."""
    program = Program(graph_of(w, a, rows, rounds=1), target, (rows,) if rows else ())
    symbols = {rows: len(a)} if rows else {}
    runs = target in host_targets()
    y = (program.run_all([({"x": a}, symbols)], USUAL)[0] if runs else interpreted(program, {"x": a}, symbols))[0]
    wanted = a.astype(np.float64) @ w.matrix()
    moved = np.einsum("mb,nb->mn", steps(w, a) / 2, np.abs(w.scales) * np.abs(w.centred).sum(-1))
    n = w.q.shape[1] + 8
    rounding = n * U / (1 - n * U) * ((np.abs(a) + steps(w, a).max()).astype(np.float64) @ np.abs(w.matrix()))
    assert np.all(np.abs(y - wanted) <= moved * (1 + 2.0**-18) + rounding + 1e-37)
    used = any("few_integers" in name for _, call in program.calls for name in call.func.callees)
    assert used == takes_integers(target, blocks_of(Fusion.of(next(iter(program.graph)))))
    if used and w.depth > len(y) and y.size >= 16:  # of few numbers all may happen to be rounded little
        assert np.abs(y - wanted).max() > 0.01 * moved.max()


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("zeros", ("", "whole", "any"))
@pytest.mark.parametrize("bits", (4, 8))
def test_rounded_activations(target: Target, zeros: str, bits: int) -> None:
    a = np.random.default_rng(6).standard_normal((5, 45)).astype(np.float32)
    check_rounded(weights(45, 37, bits, 32, zeros), a, target)


@thorough(15)
@given(st.integers(1, FEW_ROWS), st.integers(1, 300), st.integers(1, 90), st.sampled_from((16, 64, 256)),
       st.sampled_from(("", "whole")), st.booleans())  # fmt: skip
def test_rounded_activations_of_any_sizes(rows: int, depth: int, n: int, size: int, zeros: str, is_open: bool) -> None:
    a = np.random.default_rng(depth).standard_normal((rows, depth)).astype(np.float32)
    check_rounded(weights(depth, n, 4, size, zeros), a, host_targets()[0], "N" if is_open else None)


def test_rounded_blocks_at_their_limits() -> None:
    w, a = weights(48, 33, 4, 16), np.zeros((3, 48), np.float32)
    a[0, :16], a[0, 16:32], a[0, 32] = 3e35, 2.0**-101, -1
    w.q[0] = 0xFF
    y = run(graph_of(w, a, rounds=1), {"x": a}, {}, host_targets()[0])
    ones = a.astype(np.float64)
    ones[0, 16:32] = 0
    np.testing.assert_allclose(y, ones @ w.matrix(), rtol=1e-5)
    assert not y[1:].any()


@pytest.mark.parametrize("what", (np.nan, np.inf, -np.inf))
def test_a_rounded_block_with_what_is_no_number(what: float) -> None:
    w, a = weights(48, 33, 4, 16), np.random.default_rng(7).standard_normal((2, 48)).astype(np.float32)
    a[1, 20] = what
    y = run(graph_of(w, a, rounds=1), {"x": a}, {}, host_targets()[0])
    assert np.isnan(y[1]).all() and np.isfinite(y[0]).all()


@pytest.mark.parametrize("rows", (1, 20))
def test_scales_that_are_no_numbers(rows: int) -> None:
    w, a = weights(40, 9, 4, 16), np.random.default_rng(5).standard_normal((rows, 40)).astype(np.float32)
    w.scales[7, 1], w.scales[8, 0] = np.nan, np.inf
    operator = op("MatMulNBits", domain="com.microsoft", K=40, N=9, bits=4, block_size=16)
    y, = run_node(operator, [a, w.q, w.scales], constants=(1, 2))
    with np.errstate(invalid="ignore"):
        wanted = a.astype(np.float64) @ w.matrix()
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("zeros", ("", "whole"))
def test_weights_stay_packed(bits: int, zeros: str) -> None:
    w = weights(1024, 512, bits, 32, zeros)
    program = Program(graph_of(w, np.zeros((1, 1024), np.float32)), host_targets()[0], ())
    words = 32 * bits // 32 + 1 + bool(zeros)
    assert program.context.weights.nbytes <= 4 * words * 1024 * 512 // 32 + 4096
