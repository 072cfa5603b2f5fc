"""Attention of bf16: within the bound of `kernels/attention/products.py`, for odd sizes, layouts, masks and targets."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.harness import Program, op, run_graph, run_node
from backend.interpreted import interpreted
from backend.ways import EVERY, USUAL
from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.backend.kernels.attention import heads
from parax.compiler.ir.builder import GraphBuilder
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import BF16, F32, TensorType
from parax.compiler.kernel_ir.loops import all_functions
from parax.compiler.targets.target import TARGETS, Target
from sampling import thorough

HALF = ml_dtypes.bfloat16
EXTENDED = [resolve_target(f"x86-64-v4+{more}") for more in ("avx512bf16", "amx-bf16+amx-tile")]
EVERY_TARGET = [*TARGETS.values(), *EXTENDED]
MATRICES = EXTENDED[1]
RUNS_MATRICES = MATRICES.supported_by(host_features())
LAYOUTS = {"plain": [None] * 4, "heads inside": [(0, 2, 1, 3), (0, 3, 1, 2), (0, 2, 1, 3), None],
           "turned": [(3, 0, 1, 2), (1, 2, 3, 0), (3, 2, 1, 0), None]}  # fmt: skip
U, V = 2.0**-8, 2.0**-24


def operands(n: int, h: int, m: int, s: int, d: int, e: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(HALF) for shape in ((n, h, m, d), (n, h, d, s), (n, h, s, e))]


def within_bound(y: np.ndarray, arrays: list[np.ndarray], mask: np.ndarray | None, scale: float) -> None:
    """Each element by itself; f32 errs in a score's sum, in the mask's, in the powers and in the sums over keys."""
    q, kt, v = (x.astype(np.float64) for x in arrays)
    scores, sizes = q @ kt * scale, np.abs(q) @ np.abs(kt) * abs(scale)
    if mask is not None:
        scores, sizes = scores + mask, sizes + np.abs(np.where(np.isfinite(mask), mask, 0))
    e = np.exp(scores - scores.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    off = 2 * V * (q.shape[-1] + 4) * np.where(p > 0, sizes, 0).max(-1, keepdims=True)
    own = np.expm1(2 * off) + (v.shape[-2] + 40) * V
    least = 2.0**-125
    assert y.dtype == HALF
    assert (np.abs(y.astype(np.float64) - p @ v) <= (2 * U + U * U + 2 * own) * (p @ np.abs(v)) + least).all()


def computed(
    arrays: list[np.ndarray], mask: np.ndarray | None, scale: float, target: Target, layouts: Any
) -> np.ndarray:
    """What a target computes: this machine runs its own code, others' kernels are interpreted."""
    given_ = [*arrays, *([mask] if mask is not None else [])]
    if target.supported_by(host_features()):
        attention = op("Bf16Attention", "parax", scale=scale)
        return run_node(attention, given_, layouts=layouts[: len(given_)], target=target)[0]
    graph, names = Graph("attention"), "qkvm"[: len(given_)]
    inputs = [graph.add_input(name, TensorType(F32 if name == "m" else BF16, x.shape, layout))
              for name, x, layout in zip(names, given_, layouts, strict=False)]  # fmt: skip
    graph.set_outputs(graph.add_node(op("Bf16Attention", "parax", scale=scale), inputs).outputs)
    return interpreted(Program(graph, target), dict(zip(names, given_, strict=True)), {})[0]


@thorough(40, deadline=None)
@given(n=st.integers(1, 2), h=st.integers(1, 3), m=st.integers(1, 60), s=st.integers(1, 140), d=st.integers(1, 70),
       e=st.integers(1, 90), masked=st.booleans(), layout=st.sampled_from(sorted(LAYOUTS)))  # fmt: skip
def test_odd_sizes(n: int, h: int, m: int, s: int, d: int, e: int, masked: bool, layout: str) -> None:
    arrays = operands(n, h, m, s, d, e)
    mask = np.random.default_rng(1).standard_normal((n, 1, 1, s)).astype(np.float32) if masked else None
    y = computed(arrays, mask, 0.3, resolve_target("native"), LAYOUTS[layout])
    within_bound(y, arrays, mask, 0.3)


@pytest.mark.parametrize("target", EVERY_TARGET, ids=lambda t: t.name)
@pytest.mark.parametrize("sizes", [(5, 7, 3, 9), (9, 18, 8, 20)], ids=str)
def test_every_target(target: Target, sizes: tuple[int, int, int, int]) -> None:
    m, s, d, e = sizes
    arrays = operands(1, 2, m, s, d, e)
    mask = np.random.default_rng(2).standard_normal((m, s)).astype(np.float32)
    for layout in LAYOUTS.values():
        within_bound(computed(arrays, mask, 0.25, target, layout), arrays, mask, 0.25)


@thorough(30 if RUNS_MATRICES else 4, deadline=None)
@given(m=st.integers(1, 70), s=st.integers(1, 100), d=st.integers(1, 70), e=st.integers(1, 70), masked=st.booleans(),
       layout=st.sampled_from(sorted(LAYOUTS)))  # fmt: skip
def test_odd_sizes_by_matrix_registers(m: int, s: int, d: int, e: int, masked: bool, layout: str) -> None:
    most = 100 if RUNS_MATRICES else 20  # the interpreter takes its time
    m, s, d, e = (min(n, most) for n in (m, s, d, e))
    arrays = operands(1, 2, m, s, d, e)
    mask = np.random.default_rng(1).standard_normal((m, s)).astype(np.float32) if masked else None
    within_bound(computed(arrays, mask, 0.3, MATRICES, LAYOUTS[layout]), arrays, mask, 0.3)


@pytest.mark.parametrize("keys", [31, 32, 33, 70])
def test_matrix_registers_add_block_after_block(keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "KEYS", 32)
    arrays = operands(1, 1, 35, keys, 34, 18)
    arrays[0] = (arrays[0] * HALF(4)).astype(HALF)
    within_bound(computed(arrays, None, 1.0, MATRICES, LAYOUTS["plain"]), arrays, None, 1.0)


def test_matrix_registers_multiply() -> None:
    graph = Graph("attention")
    inputs = [graph.add_input(name, TensorType(BF16, (1, 2, 128, 128))) for name in "qkv"]
    graph.set_outputs(graph.add_node(op("Bf16Attention", "parax"), inputs).outputs)
    functions = all_functions([call.func for _, call in Program(graph, MATRICES).calls])
    assert any(o.opcode == "matrix_dot" for f in functions for o in f.walk())


@pytest.mark.parametrize("keys", [511, 512, 513, 1101])
def test_several_blocks_of_keys(keys: int) -> None:
    arrays = operands(1, 2, 50, keys, 16, 24)
    arrays[0] = (arrays[0] * HALF(4)).astype(HALF)  # the greatest score moves from block to block
    within_bound(run_node(op("Bf16Attention", "parax"), arrays)[0], arrays, None, 1.0)


def test_masked_keys_count_for_nothing_and_a_query_without_keys_is_no_number() -> None:
    arrays = operands(1, 1, 8, 701, 9, 8)
    mask = np.zeros((8, 701), np.float32)
    mask[:, 100:650], mask[3] = -np.inf, -np.inf
    y = run_node(op("Bf16Attention", "parax", scale=0.5), [*arrays, mask])[0]
    assert np.isnan(y[0, 0, 3].astype(np.float32)).all()
    rest = [0, 1, 2, 4, 5, 6, 7]
    arrays[0] = arrays[0][:, :, rest]
    within_bound(y[:, :, rest], arrays, mask[rest], 0.5)


@pytest.mark.parametrize("target", [resolve_target("native"), MATRICES], ids=["native", "matrices"])
@pytest.mark.parametrize("special", [np.nan, np.inf, 3e38])
def test_what_is_no_usual_number_stays_with_its_query_and_its_column(special: float, target: Target) -> None:
    arrays = operands(1, 2, 9, 21, 11, 13)
    alone = computed(arrays, None, 1.0, target, LAYOUTS["plain"])
    arrays[0][0, 0, 4, 2], arrays[2][0, 1, 20, 5] = special, special
    y = computed(arrays, None, 1.0, target, LAYOUTS["plain"])
    same = np.ones(y.shape, bool)
    same[0, 0, 4], same[0, 1, :, 5] = False, False
    assert y[same].tobytes() == alone[same].tobytes()
    if np.isnan(special):
        assert np.isnan(y[~same].astype(np.float32)).all()


@pytest.mark.parametrize("target", [resolve_target("native"), MATRICES], ids=["native", "matrices"])
def test_without_keys_at_run_time_all_is_zero(target: Target) -> None:
    text = """graph @g(%q: bf16[1,2,9,8], %k: bf16[1,2,8,S], %v: bf16[1,2,S,8]) {
      %y = parax::Bf16Attention(%q, %k, %v)\n return %y\n}"""
    program = Program(parse_graph(text), target, ("S",))
    feeds = dict(zip("qkv", operands(1, 2, 9, 0, 8, 8), strict=True))
    runs = target.supported_by(host_features())
    found = program.run_all([(feeds, {"S": 0})], USUAL)[0][0] if runs else interpreted(program, feeds, {"S": 0})[0]
    np.testing.assert_array_equal(found.astype(np.float32), np.zeros((1, 2, 9, 8)))


@pytest.mark.parametrize("target", [resolve_target("native"), *[MATRICES] * RUNS_MATRICES], ids=lambda t: t.name)
def test_every_way_of_sharing_gives_the_same_bits(target: Target) -> None:
    text = """graph @g(%q: bf16[1,9,70,8], %k: bf16[1,9,8,S], %v: bf16[1,9,S,8]) {
      %y = parax::Bf16Attention(%q, %k, %v)\n return %y\n}"""
    program = Program(parse_graph(text), target, ("S",))
    feeds = dict(zip("qkv", operands(1, 9, 70, 37, 8, 8), strict=True))
    found = [program.run_all([(feeds, {"S": 37})], [way])[0][0] for way in EVERY]
    assert len({y.tobytes() for y in found}) == 1


def test_the_plain_form_is_within_the_bound_too() -> None:
    arrays, mask = operands(1, 2, 9, 21, 10, 12), np.random.default_rng(3).standard_normal((9, 21)).astype(np.float32)
    graph = Graph("plain")
    inputs = [graph.add_input(name, TensorType(BF16 if x.dtype == HALF else F32, x.shape))
              for name, x in zip("qkvm", [*arrays, mask], strict=True)]  # fmt: skip
    attention = op("Bf16Attention", "parax", scale=0.25)
    graph.set_outputs([attention.expand(GraphBuilder(graph), *inputs)])  # type: ignore[attr-defined]
    assert {"Bf16MatMul", "Softmax", "RoundToBf16"} <= {node.op.name for node in graph}
    (y,) = run_graph(graph, dict(zip("qkvm", [*arrays, mask], strict=True)), {})
    within_bound(y, arrays, mask, 0.25)
